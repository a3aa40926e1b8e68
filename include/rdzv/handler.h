/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_HANDLER_H
#define RDZV_HANDLER_H

#include <rdzv/api.h>
#include <rdzv/error.h>
#include <rdzv/params.h>
#include <rdzv/store.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * One node of a rendezvous: PyTorch's RendezvousHandler. The nodes of a job, between min and max of them, agree on a
 * round, on ranks 0 … n-1 and a world of n, and do it again when nodes come, go or die.
 *
 *   rdzv_handler_open -> rdzv_handler_next -> work, with rdzv_handler_wait_change -> rdzv_handler_next -> … ->
 * rdzv_handler_leave or rdzv_handler_shutdown -> rdzv_handler_free
 *
 * From rdzv_handler_next on, a thread of the handler keeps the node alive, on a connection of its own; signals are
 * blocked in it. If the node is the one that serves the store, the store is gone with rdzv_handler_free.
 *
 * Threads: all calls from any thread; of rdzv_handler_next, rdzv_handler_leave, rdzv_handler_set_closed and
 * rdzv_handler_shutdown one at a time, the others wait. rdzv_handler_free only when no other call is under way. `error`
 * may be NULL everywhere.
 *
 * A child that this process forks has no use for the handler: there rdzv_handler_free and rdzv_result_free free memory
 * and take nothing from the parent, and every other call returns RDZV_E_INVALID.
 *
 * Any call may return RDZV_E_NO_MEMORY and RDZV_E_IO, and those that ask the store what the store's calls return.
 */

/** A participant of a round. Made by the library; later versions may add fields at its end. */
typedef struct rdzv_participant {
  const char *node; /* addr_pid_localid */
  const char *addr;
  int64_t pid;
  int64_t local_id;
  int64_t rank;
} rdzv_participant;

/** A round with us in it. Everything in it is its own. Made by the library; later versions may add fields at its end.
 */
typedef struct rdzv_result {
  int64_t round;
  int64_t rank;
  int64_t world_size;
  const char *run_id;
  const char *backend;
  const char *node;        /* this one */
  const char *master_addr; /* where rank 0 can be reached, from the round's store, under MASTER_ADDR and MASTER_PORT. */
  int master_port;         /* "" and 0: rank 0 is a PyTorch that has not published them. A
                              round whose rank 0, a node of this library, goes before is not given out */
  rdzv_store *store;       /* a view for this round, torch.rendezvous.<run_id>.<round>/, on a connection of its own */
} rdzv_result;

RDZV_BEGIN

/* Finds the store, serves it if it is this node's to serve, and connects. RDZV_E_INVALID: params, the sentence names
 * the field or option and its value. RDZV_E_CONNECTION, RDZV_E_ADDRESS, RDZV_E_TIMEOUT: the store cannot be reached. */
RDZV_API int rdzv_handler_open(const rdzv_params *params, rdzv_handler **out, rdzv_error *error);

/*
 * The same by a URL, as PyTorch's first generation is opened:
 *
 *   etcd://localhost:2379/job7?min_workers=1&max_workers=3&timeout=60
 *   BACKEND://[USER[:PASSWORD]@]HOST:PORT[,HOST:PORT]/RUN_ID[?NAME=VALUE&...]
 *
 * min_nodes and max_nodes are those of the params, every other name is one of the backend's options (rdzv/params.h),
 * and each is given once. Special characters are written %XX; no value can have a comma. Where there is no HOST the
 * default holds. `params` has what the URL does not say, and may be NULL; its backend, endpoint and run id are not
 * looked at, its conf comes before the URL's options. RDZV_E_INVALID: the URL; the rest as rdzv_handler_open.
 */
RDZV_API int rdzv_handler_open_url(const char *url, const rdzv_params *params, rdzv_handler **out, rdzv_error *error);

/*
 * Joins the next round, leaving the one that we are in, and waits until it is complete; *out is to be freed with
 * rdzv_result_free. RDZV_E_TIMEOUT: no round within join_timeout; the sentence tells who was there, who was heard when,
 * how many were needed. RDZV_E_CLOSED; RDZV_E_GRACEFUL_EXIT: closed while this node was a spare, which is
 * no failure of its. RDZV_E_CANCELED. RDZV_E_CORRUPT: what is in the store is no state of a
 * rendezvous. RDZV_E_CONNECTION: this node has been in a round, and the store has not answered
 * for the dead time, as for rdzv_handler_wait_change; a node that joins for the first time waits for its store until
 * join_timeout. On failure the node is taken out again, in the background if need be.
 */
RDZV_API int rdzv_handler_next(rdzv_handler *handler, rdzv_result **out, rdzv_error *error);

/* Closes its store, too; NULL is fine. It may outlive the handler, though its store not the server. */
RDZV_API void rdzv_result_free(rdzv_result *result);

/** The participant of that rank, 0 to world_size - 1; owned by the result. NULL: there is no such rank, or nobody knows
 * who has it, as in a static rendezvous. Of backend etcd only ranks and this node's own name are known. */
RDZV_API const rdzv_participant *rdzv_result_participant(const rdzv_result *result, int64_t rank);

/* What a member of a round wants to hear of. */
enum {
  RDZV_CHANGE_WAITING = 1 << 0, /* a node waits for the next round, and there is room */
  RDZV_CHANGE_LEFT = 1 << 1,    /* a member left */
  RDZV_CHANGE_DIED = 1 << 2,    /* a member was silent for too long */
  RDZV_CHANGE_CLOSED = 1 << 3,
  RDZV_CHANGE_EVICTED = 1 << 4, /* the others go on without us: they did not hear us, or the store was lost */
};

/** What has happened to a round. Made by rdzv_handler_wait_change, and to be freed with rdzv_change_free. It has
 * nothing to do with its handler any more, and outlives it. Threads: as any value. */
typedef struct rdzv_change rdzv_change;

/**
 * Waits for a change since rdzv_handler_next, or since the call before; what has happened already is told at once.
 * timeout_ms 0 does not wait. RDZV_E_TIMEOUT: nothing happened. RDZV_E_CANCELED. RDZV_E_INVALID: we are in no round. A
 * store that has not answered for so long that the others must take us for dead: its error. Time in which this process
 * did not run is not counted, nor is time without a call beyond a third of the dead time (5 s by default) each.
 * *out is to be freed with rdzv_change_free.
 */
RDZV_API int rdzv_handler_wait_change(rdzv_handler *handler, int64_t timeout_ms, rdzv_change **out, rdzv_error *error);

/** Gives what has happened: RDZV_CHANGE_…, one or more. */
RDZV_API unsigned rdzv_change_what(const rdzv_change *change);

/** Gives how many nodes are known to have left or died. */
RDZV_API size_t rdzv_change_node_count(const rdzv_change *change);

/** Gives the name of one of them, addr_pid_localid; owned by the change. NULL: there are not so many. */
RDZV_API const char *rdzv_change_node(const rdzv_change *change, size_t index);

/** Frees it; NULL is fine. */
RDZV_API void rdzv_change_free(rdzv_change *change);

/* A descriptor that is readable while rdzv_handler_wait_change has a change to tell, for programs with a loop of their
 * own; that the store is silent it does not show, so call rdzv_handler_wait_change every few seconds all the same.
 * Owned by the handler; -1: this kind of rendezvous never changes. */
RDZV_API int rdzv_handler_change_fd(const rdzv_handler *handler);

/** Gives a descriptor that is readable while rdzv_handler_wait_change has more to tell than that nodes wait: the round
 * is over. Owned by the handler; -1: this kind of rendezvous never changes. */
RDZV_API int rdzv_handler_ended_fd(const rdzv_handler *handler);

/** Asks where rank 0 of the round can be reached, waits until it has published that, and sets master_addr and
 * master_port of the result. Does nothing where rdzv_handler_next has done so (params.find_master_later). master_port
 * stays 0 where a PyTorch rank 0 has not published it, and where the round ends before. Errors as rdzv_handler_next.
 * From one thread at a time. */
RDZV_API int rdzv_handler_find_master(rdzv_handler *handler, rdzv_result *result, rdzv_error *error);

RDZV_API int rdzv_handler_is_closed(rdzv_handler *handler, bool *closed, rdzv_error *error);

/* How many wait for the next round. */
RDZV_API int rdzv_handler_num_nodes_waiting(rdzv_handler *handler, int64_t *count, rdzv_error *error);

/* Closes the rendezvous for all, for good. This node stays in its round. `reason` is for those who find it closed;
 * NULL: none. One that was given before stays. RDZV_E_TIMEOUT: not within close_timeout. */
RDZV_API int rdzv_handler_set_closed(rdzv_handler *handler, const char *reason, rdzv_error *error);

/* Takes this node out without closing: the others go on, and hear of it. RDZV_E_TIMEOUT. */
RDZV_API int rdzv_handler_leave(rdzv_handler *handler, rdzv_error *error);

/* PyTorch's shutdown: no more heartbeats, and closes the rendezvous for all. */
RDZV_API int rdzv_handler_shutdown(rdzv_handler *handler, rdzv_error *error);

/** Limits how long each later call of rdzv_handler_leave, rdzv_handler_set_closed and rdzv_handler_shutdown takes,
 * whatever close_timeout says and whether the store answers or not; 0: close_timeout again. For a program that has to
 * end. */
RDZV_API int rdzv_handler_set_close_timeout(rdzv_handler *handler, int64_t timeout_ms, rdzv_error *error);

/** Makes rdzv_handler_free of a node that serves the store wait until the other nodes have disconnected, for that time
 * at most; default 0, it does not wait. */
RDZV_API int rdzv_handler_set_linger(rdzv_handler *handler, int64_t timeout_ms, rdzv_error *error);

/* Makes rdzv_handler_next, rdzv_handler_wait_change and rdzv_handler_status return RDZV_E_CANCELED, now and later; the
 * others, which say farewell, work on. From any thread and from a signal handler. */
RDZV_API void rdzv_handler_cancel(rdzv_handler *handler);

/* Frees it, without leaving: whatever it is in lapses with its heartbeat, so that others count this node until then.
 * NULL is fine. */
RDZV_API void rdzv_handler_free(rdzv_handler *handler);

/* This node, as others see it: addr_pid_localid. Owned by the handler. */
RDZV_API const char *rdzv_handler_node(const rdzv_handler *handler);

/* Where the rendezvous is: "c10d tcp localhost:29400 (127.0.0.1:29400, rdzv), served by this process". Owned by the
 * handler. */
RDZV_API const char *rdzv_handler_describe(rdzv_handler *handler);

/* ---- extra data: backend etcd only --------------------------------------------------------------------------- */

/* A text that all members of this version can read under that name. RDZV_E_INVALID: we are in no round;
 * RDZV_E_UNSUPPORTED: another backend, which has the round's store for that. */
RDZV_API int rdzv_handler_set_extra(rdzv_handler *handler, const char *key, const char *value, rdzv_error *error);

/* Waits until somebody has set it. RDZV_E_TIMEOUT. To be freed with rdzv_value_free. */
RDZV_API int rdzv_handler_get_extra(rdzv_handler *handler, const char *key, int64_t timeout_ms, rdzv_value *out,
                                    rdzv_error *error);

/* ---- looking at it from outside ------------------------------------------------------------------------------ */

typedef enum rdzv_node_kind {
  RDZV_NODE_KIND_PARTICIPANT = 0,
  RDZV_NODE_KIND_WAITING,
  RDZV_NODE_KIND_SPARE
} rdzv_node_kind;

/** A node, as the state shows it. Made by the library; later versions may add fields at its end. */
typedef struct rdzv_node_status {
  const char *node;
  rdzv_node_kind kind;
  int64_t rank; /* -1 before the round is complete */
  /* Since its last heartbeat: since we saw it change where we did, else by its own clock, which may be wrong; -1: it
   * has none. */
  int64_t heartbeat_age_ms;
} rdzv_node_status;

/** A rendezvous at one moment. Made by the library; later versions may add fields at its end. */
typedef struct rdzv_status {
  bool exists; /* false: nobody has ever joined, and the rest says nothing */
  int64_t round;
  const char *phase; /* "gathering", "last call", "complete", "closed" */
  bool complete;     /* also where it is closed */
  bool closed;
  int64_t deadline_left_ms;             /* of the last call, by the clock of whoever called it; -1: there is none */
  int64_t min_nodes, max_nodes;         /* this handler's own */
  size_t participants, waiting, spares; /* how many nodes of each kind */
  const char *layout;                   /* the PyTorch that the state is written for: "2.6" */
  const char *reason;                   /* why it was closed; "" where it is not, or nobody has said */
} rdzv_status;

/* Asks the store, and joins nothing. wait_ms > 0: waits so long for it to be another than the last that this handler
 * saw; if it does not, the same again. *out is to be freed with rdzv_status_free. RDZV_E_CORRUPT. */
RDZV_API int rdzv_handler_status(rdzv_handler *handler, int64_t wait_ms, rdzv_status **out, rdzv_error *error);

/** How many nodes there are of all kinds, and each of them: participants by rank or name, then those who wait, then
 * spares. Owned by the status; NULL where there are not so many. */
RDZV_API size_t rdzv_status_node_count(const rdzv_status *status);
RDZV_API const rdzv_node_status *rdzv_status_node(const rdzv_status *status, size_t index);

/** Frees it; NULL is fine. */
RDZV_API void rdzv_status_free(rdzv_status *status);

RDZV_END

#endif
