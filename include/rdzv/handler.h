/* SPDX-License-Identifier: BSD-3-Clause */
/** \file
 * A node of a rendezvous: rounds, changes, leaving, closing.
 *
 * An rdzv_handler is one node of a rendezvous: PyTorch's RendezvousHandler. Between min_nodes and max_nodes nodes agree
 * on a round and on ranks, and do so again when nodes come, leave or die.
 *
 *   rdzv_handler_open -> rdzv_handler_next -> work, and rdzv_handler_wait_change -> rdzv_handler_next -> …
 *   -> rdzv_handler_leave or rdzv_handler_shutdown -> rdzv_handler_free
 *
 * A thread of the handler keeps the node alive, on a connection of its own. If this node serves the store, the store is
 * gone after rdzv_handler_free.
 *
 * Threads: all calls from any thread. rdzv_handler_next, rdzv_handler_leave, rdzv_handler_set_closed and
 * rdzv_handler_shutdown are done one after the other. rdzv_handler_free only when no other call runs.
 *
 * Signals: rdzv_handler_cancel can be called in a signal handler, the other calls cannot. All signals are blocked in
 * the thread of the handler. A lost connection never raises SIGPIPE.
 *
 * Forks: a handler and the store of a result belong to the process that opened them. In a child, rdzv_handler_free and
 * rdzv_result_free free the copies of the child without any effect on the parent, rdzv_handler_cancel does nothing, the
 * descriptors are -1, and every call that can fail returns RDZV_E_INVALID. Results, changes and statuses stay readable.
 *
 * Effects on the process: threads and descriptors that are gone after rdzv_handler_free; if this node serves the store,
 * those of rdzv_server; with etcd, those of rdzv_store_open_etcd.
 *
 * `error` may be NULL in every call. Every call may return RDZV_E_NO_MEMORY and RDZV_E_IO, and a call that uses the
 * store the errors of the store.
 */
#ifndef RDZV_HANDLER_H
#define RDZV_HANDLER_H

#include <rdzv/api.h>
#include <rdzv/bytes.h>
#include <rdzv/error.h>
#include <rdzv/params.h>
#include <rdzv/store.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A participant of a round. The library creates it; a later version may add fields at its end. */
typedef struct rdzv_participant {
  const char *node; /**< The name of the node: addr_pid_localid. */
  const char *addr; /**< The address of the node. */
  int64_t pid;      /**< The process. */
  int64_t local_id; /**< The number of the handler in the process. */
  int64_t rank;     /**< The rank. */
} rdzv_participant;

/** A completed round with this node in it. It owns everything in it, and may outlive the handler. The library creates
 * it; a later version may add fields at its end. */
typedef struct rdzv_result {
  int64_t round;           /**< The number of the round. */
  int64_t rank;            /**< The rank of this node. */
  int64_t world_size;      /**< The number of participants. */
  const char *run_id;      /**< The run. */
  const char *backend;     /**< The name of the backend. */
  const char *node;        /**< The name of this node. */
  const char *master_addr; /**< The address of rank 0: from the server that formed the round, or from MASTER_ADDR in
                              the store of the round; "" if rank 0 is a PyTorch node that has not published it. */
  int master_port;         /**< The port of rank 0, from the server or from MASTER_PORT; 0 if master_addr is "". */
  rdzv_store *store;       /**< A store for this round (keys below torch.rendezvous.RUN_ID.ROUND/), on a connection of
                              its own, which is made when it is used first if the server formed the round. It cannot be
                              used after the server of the store is gone. */
} rdzv_result;

/** The ranks of one node's workers. The library creates it; a later version may add fields at its end. */
typedef struct rdzv_worker_ranks {
  int64_t base;            /**< The rank of the first; the others follow. */
  int64_t world_size;      /**< The workers of all nodes. */
  int64_t role_base;       /**< The rank of the first among those of its role. */
  int64_t role_world_size; /**< The workers of its role. */
  int64_t restarts;        /**< The most restarts that any node has reported. */
} rdzv_worker_ranks;

/** What has happened to a round, from rdzv_handler_wait_change. Free it with rdzv_change_free. It is a value: it
 * outlives its handler, and has no effect on the process. */
typedef struct rdzv_change rdzv_change;

/** Reasons for a change of the round: flags. */
enum {
  RDZV_CHANGE_WAITING = 1 << 0, /**< A node waits for the next round, and there is room for it. */
  RDZV_CHANGE_LEFT = 1 << 1,    /**< A participant left. */
  RDZV_CHANGE_DIED = 1 << 2,    /**< A participant sent no heartbeat for too long. */
  RDZV_CHANGE_CLOSED = 1 << 3,  /**< The rendezvous was closed. */
  RDZV_CHANGE_EVICTED = 1 << 4, /**< The other nodes continue without this one: they did not hear it, or the store was
                                   lost. */
};

/** What a node is to the rendezvous. */
typedef enum rdzv_node_kind {
  RDZV_NODE_KIND_PARTICIPANT = 0, /**< It has a place in the round. */
  RDZV_NODE_KIND_WAITING,         /**< It waits for the next round. */
  RDZV_NODE_KIND_SPARE            /**< It is beyond max_nodes, and takes the place of a node that leaves. */
} rdzv_node_kind;

/** By which way a node is in a dynamic rendezvous. */
typedef enum rdzv_node_way {
  RDZV_NODE_WAY_UNKNOWN = 0, /**< Backend etcd does not tell. */
  RDZV_NODE_WAY_TORCH,       /**< A PyTorch node. */
  RDZV_NODE_WAY_SWAP,        /**< A node of this library that swaps the state, as PyTorch nodes do. */
  RDZV_NODE_WAY_NATIVE       /**< A node of this library for which the server forms the rounds. */
} rdzv_node_way;

/** A node of a status. The library creates it; a later version may add fields at its end. */
typedef struct rdzv_node_status {
  const char *node;         /**< The name of the node: addr_pid_localid. */
  rdzv_node_kind kind;      /**< What it is. */
  int64_t rank;             /**< Its rank; -1 before the round is complete. */
  int64_t heartbeat_age_ms; /**< The time since its last heartbeat; by the clock of that node if this handler has not
                               seen the heartbeat change. -1: there is none. */
  rdzv_node_way way;        /**< By which way it is in. */
  int64_t trip_us;          /**< The round-trip time of the last keep-alive of a native node; -1: not known. */
} rdzv_node_status;

/** A rendezvous at one moment. It owns everything in it. The library creates it; a later version may add fields at its
 * end. */
typedef struct rdzv_status {
  bool exists;       /**< Did a node ever join? If not, the other fields have no meaning. */
  int64_t round;     /**< The number of the round. */
  const char *phase; /**< "gathering", "last call", "complete", "closed"; "ended": all nodes have left or died. */
  bool complete;     /**< Is the round complete? Also if the rendezvous is closed. */
  bool closed;       /**< Is the rendezvous closed? */
  int64_t
      deadline_left_ms; /**< Time left of the last call, by the clock of the node that began it; -1: there is none. */
  int64_t min_nodes;    /**< As the first node of the run has it; 0: not known, as when all nodes have left. */
  int64_t max_nodes;    /**< As the first node of the run has it; 0: not known, as when all nodes have left. */
  size_t participants;  /**< The number of participants. */
  size_t waiting;       /**< The number of waiting nodes. */
  size_t spares;        /**< The number of spares. */
  const char *layout;   /**< The PyTorch version that the state is written for: "2.6". */
  const char *reason;   /**< Why the rendezvous was closed; "" if it is open, or no node gave a reason. */
  int64_t ended_us;     /**< When it was closed, or its last node left or was heard last, by that node's clock:
                           microseconds since 1970. 0: it has not ended, or it is not known. */
  const char *ended_by; /**< The node that closed it, or left or died last; "" if it is not known. */
  bool died;            /**< Did the last node die? Where nodes write their heartbeats themselves, they may have wrong
                           clocks: then the phase becomes "ended" after several calls in which no heartbeat came for
                           5.5 s. */
} rdzv_status;

RDZV_BEGIN

/* ---- opening ----------------------------------------------------------------------------------------------- */

/** Opens a rendezvous: finds the store, serves it if this node has to, and connects. Free the handler with
 * rdzv_handler_free. RDZV_E_INVALID: params; the message names the field or option. RDZV_E_CONNECTION, RDZV_E_ADDRESS,
 * RDZV_E_TIMEOUT: the store cannot be reached. */
RDZV_API int rdzv_handler_open(const rdzv_params *params, rdzv_handler **out, rdzv_error *error);

/**
 * Opens a rendezvous by a URL, as PyTorch's first generation does:
 *
 *   etcd://localhost:2379/job7?min_workers=1&max_workers=3&timeout=60
 *   BACKEND://[USER[:PASSWORD]@]HOST:PORT[,HOST:PORT]/RUN_ID[?NAME=VALUE&...]
 *
 * min_nodes and max_nodes are those of the params; every other name is an option of the backend (rdzv/params.h). Each
 * name is given once. Special characters are written as %XX; a value cannot have a comma. Without HOST the default is
 * used. `params` has everything that the URL does not say, and may be NULL; its backend, endpoint and run id are
 * ignored, and its conf comes before the options of the URL. RDZV_E_INVALID: the URL. Other errors as
 * rdzv_handler_open.
 */
RDZV_API int rdzv_handler_open_url(const char *url, const rdzv_params *params, rdzv_handler **out, rdzv_error *error);

/** Frees a handler without leaving the rendezvous: the other nodes count this node until they miss its heartbeat. NULL
 * is ignored. */
RDZV_API void rdzv_handler_free(rdzv_handler *handler);

/** Returns the name of this node as other nodes see it: addr_pid_localid. Owned by the handler. */
RDZV_API const char *rdzv_handler_node(const rdzv_handler *handler);

/** Returns one line that says where the rendezvous is: "c10d tcp localhost:29400 (127.0.0.1:29400, rdzv), served by
 * this process". Owned by the handler. */
RDZV_API const char *rdzv_handler_describe(rdzv_handler *handler);

/* ---- rounds ------------------------------------------------------------------------------------------------ */

/**
 * Leaves the current round, joins the next one, and waits until it is complete. Free *out with rdzv_result_free.
 *
 * RDZV_E_TIMEOUT: no round was completed within join_timeout; the message says which nodes were there, when they were
 * heard last, and how many were needed. RDZV_E_CLOSED: the rendezvous is closed. RDZV_E_GRACEFUL_EXIT: the rendezvous
 * was closed while this node was a spare; not a failure. RDZV_E_LIMIT: the range min_nodes to max_nodes of an
 * earlier node does not overlap this node's. RDZV_E_CANCELED. RDZV_E_CORRUPT: the store holds something
 * else than the state of a rendezvous. RDZV_E_CONNECTION: this node has been in a round, and the store has not answered
 * for the dead time (keep_alive_interval × keep_alive_max_attempt); a node that joins for the first time waits for the
 * store until join_timeout. After a failure the node is removed from the rendezvous, in the background if necessary.
 *
 * A round whose rank 0, a node of this library, leaves before it has published its address is never returned.
 */
RDZV_API int rdzv_handler_next(rdzv_handler *handler, rdzv_result **out, rdzv_error *error);

/** Fetches the participant list of a round that the server formed, through the store of the result. The server does not
 * send the list with the round, because its size grows with the world. For other rounds, and on further calls, it does
 * nothing. A forked child can read participants that were loaded before the fork. RDZV_E_STALE: the server has
 * completed another round since. Any thread may call it. */
RDZV_API int rdzv_result_load_participants(rdzv_result *result, rdzv_error *error);

/** Returns the participant with that rank, 0 to world_size - 1; owned by the result. Loads the participants if they are
 * not loaded yet; rdzv_result_load_participants returns the error if that fails. NULL: there is no such rank, the
 * participants cannot be loaded, or the backend does not know them (static). Backend etcd knows the ranks, but only the
 * name of this node. */
RDZV_API const rdzv_participant *rdzv_result_participant(const rdzv_result *result, int64_t rank);

/** For agents: sets the role and the number of workers that later joins report. In a round that the server forms, the
 * server uses them to assign the workers' ranks. `restarts`: how often the workers were restarted before. NULL or "" is
 * the empty role; with 0 workers the server assigns no ranks. RDZV_E_INVALID: the role has more than 63 bytes, or a
 * number is negative. Other backends ignore it. */
RDZV_API int rdzv_handler_set_workers(rdzv_handler *handler, const char *role, int64_t local_world_size,
                                      int64_t restarts, rdzv_error *error);

/** Returns the ranks of this node's workers, which go to the workers of rank 0 first, then to those of rank 1, and so
 * on; owned by the result. NULL: the server has not ranked them, because not all participants are native nodes that
 * have reported their workers: then agents agree through the store of the result. If it is not NULL, master_port is of
 * this round alone. */
RDZV_API const rdzv_worker_ranks *rdzv_result_worker_ranks(const rdzv_result *result);

/** Frees a result and its store. NULL is ignored. */
RDZV_API void rdzv_result_free(rdzv_result *result);

/** Waits until rank 0 has published its address, and sets master_addr and master_port of the result. Does nothing if
 * rdzv_handler_next has done so (params.find_master_later is false). master_port stays 0 if a PyTorch rank 0 has not
 * published it, or the round ends first. Errors as rdzv_handler_next. From one thread at a time. */
RDZV_API int rdzv_handler_find_master(rdzv_handler *handler, rdzv_result *result, rdzv_error *error);

/* ---- changes ----------------------------------------------------------------------------------------------- */

/** Waits for a change of the round since rdzv_handler_next, or since the last call; a change that has happened already
 * is returned at once. timeout_ms 0 does not wait. Free *out with rdzv_change_free. RDZV_E_TIMEOUT: there was no
 * change. RDZV_E_CANCELED. RDZV_E_INVALID: this node is in no round. An error of the store: it has not answered for the
 * dead time, after which the other nodes take this one for dead. Time in which this process did not run does not count,
 * nor does time between two calls beyond a third of the dead time. */
RDZV_API int rdzv_handler_wait_change(rdzv_handler *handler, int64_t timeout_ms, rdzv_change **out, rdzv_error *error);

/** Returns what has happened: one or more of RDZV_CHANGE_…. */
RDZV_API unsigned rdzv_change_what(const rdzv_change *change);

/** Returns the number of nodes that are known to have left or died. */
RDZV_API size_t rdzv_change_node_count(const rdzv_change *change);

/** Returns the name of a node that left or died; owned by the change. NULL: the index is too large. */
RDZV_API const char *rdzv_change_node(const rdzv_change *change, size_t index);

/** Frees a change. NULL is ignored. */
RDZV_API void rdzv_change_free(rdzv_change *change);

/** Returns a descriptor that is readable while rdzv_handler_wait_change has a change to return, for a program with an
 * event loop. It does not show that the store is silent: call rdzv_handler_wait_change every few seconds, too. Owned by
 * the handler. -1: this backend has no changes. */
RDZV_API int rdzv_handler_change_fd(const rdzv_handler *handler);

/** Returns a descriptor that is readable while rdzv_handler_wait_change has another change to return than
 * RDZV_CHANGE_WAITING: the round is over. Owned by the handler. -1: this backend has no changes. */
RDZV_API int rdzv_handler_ended_fd(const rdzv_handler *handler);

/** Asks the store whether the rendezvous is closed. */
RDZV_API int rdzv_handler_is_closed(rdzv_handler *handler, bool *closed, rdzv_error *error);

/** Asks the store how many nodes wait for the next round. */
RDZV_API int rdzv_handler_num_nodes_waiting(rdzv_handler *handler, int64_t *count, rdzv_error *error);

/* ---- protection --- */

/** What protects a rendezvous: the options of its conf with the same names, and RDZV_SECRET_FILE. A text is "" where
 * there is none. The library creates it; a later version may add fields at its end. */
typedef struct rdzv_protection {
  const char *secret_file;   /**< The secret file. */
  const char *tls_ca;        /**< Whose certificates servers have to show. */
  const char *tls_cert;      /**< The certificate of this node. */
  const char *tls_key;       /**< Its key. */
  const char *tls_client_ca; /**< Whose certificates clients of a server of this node have to show. */
  const char *bind;          /**< Where a server of this node listens; "": the address that its clients know. */
} rdzv_protection;

/** Returns what protects the rendezvous; owned by the handler. For programs that open further connections or servers
 * for the same job, as rdzv_agent does for its workers. */
RDZV_API const rdzv_protection *rdzv_handler_protection(const rdzv_handler *handler);

/* ---- ending ------------------------------------------------------------------------------------------------ */

/** Closes the rendezvous for all nodes, for good. This node stays in its round. `reason` is for nodes that find the
 * rendezvous closed; NULL: none. The first reason stays. RDZV_E_TIMEOUT: not done within close_timeout. */
RDZV_API int rdzv_handler_set_closed(rdzv_handler *handler, const char *reason, rdzv_error *error);

/** Takes this node out of the rendezvous without closing it: the other nodes notice at once, and continue.
 * RDZV_E_TIMEOUT: not done within close_timeout. */
RDZV_API int rdzv_handler_leave(rdzv_handler *handler, rdzv_error *error);

/** Stops the heartbeat of this node, and closes the rendezvous for all nodes: PyTorch's shutdown. */
RDZV_API int rdzv_handler_shutdown(rdzv_handler *handler, rdzv_error *error);

/** Limits the time of each later rdzv_handler_leave, rdzv_handler_set_closed and rdzv_handler_shutdown, and of one that
 * runs in another thread, from now on, whatever close_timeout says and whether the store answers or not; 0 restores
 * close_timeout for later calls. For a program that has to end. Can be called from any thread and in a signal handler.
 */
RDZV_API int rdzv_handler_set_close_timeout(rdzv_handler *handler, int64_t timeout_ms, rdzv_error *error);

/** Makes rdzv_handler_free of the node that serves the store wait until the other nodes have disconnected, for
 * timeout_ms at most; default 0. */
RDZV_API int rdzv_handler_set_linger(rdzv_handler *handler, int64_t timeout_ms, rdzv_error *error);

/** Makes rdzv_handler_next, rdzv_handler_wait_change and rdzv_handler_status return RDZV_E_CANCELED, now and later. The
 * calls that leave and close still work. Can be called from any thread and in a signal handler. */
RDZV_API void rdzv_handler_cancel(rdzv_handler *handler);

/* ---- looking at a rendezvous ------------------------------------------------------------------------------- */

/** Reads the state of the rendezvous without joining it. wait_ms > 0: waits so long until it differs from the last one
 * that this handler returned; if it does not, returns the same again. Free *out with rdzv_status_free. RDZV_E_CORRUPT.
 * RDZV_E_UNSUPPORTED: backend static. */
RDZV_API int rdzv_handler_status(rdzv_handler *handler, int64_t wait_ms, rdzv_status **out, rdzv_error *error);

/** Returns the number of nodes of all kinds. */
RDZV_API size_t rdzv_status_node_count(const rdzv_status *status);

/** Returns a node; owned by the status. Participants come first, by rank or name, then waiting nodes, then spares.
 * NULL: the index is too large. */
RDZV_API const rdzv_node_status *rdzv_status_node(const rdzv_status *status, size_t index);

/** Frees a status. NULL is ignored. */
RDZV_API void rdzv_status_free(rdzv_status *status);

/* ---- extra data: backend etcd only ------------------------------------------------------------------------- */

/** Sets a text that all participants of this round can read under that name. RDZV_E_INVALID: this node is in no round.
 * RDZV_E_UNSUPPORTED: another backend, which has the store of the round for that. */
RDZV_API int rdzv_handler_set_extra(rdzv_handler *handler, const char *key, const char *value, rdzv_error *error);

/** Waits until a participant has set the text, and reads it. Free *out with rdzv_value_free. RDZV_E_TIMEOUT. */
RDZV_API int rdzv_handler_get_extra(rdzv_handler *handler, const char *key, int64_t timeout_ms, rdzv_value *out,
                                    rdzv_error *error);

RDZV_END

#endif
