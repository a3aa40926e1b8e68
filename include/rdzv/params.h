/* SPDX-License-Identifier: BSD-3-Clause */
/** \file
 * What a rendezvous is opened with, and the registry of further backends. */
#ifndef RDZV_PARAMS_H
#define RDZV_PARAMS_H

#include <rdzv/api.h>
#include <rdzv/error.h>
#include <rdzv/event.h>
#include <rdzv/log.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A node of a rendezvous; see rdzv/handler.h. */
typedef struct rdzv_handler rdzv_handler;

/**
 * Names of backends beyond those of the library (c10d, etcd, etcd-v1, etcd-v2, etcd-v3, static).
 *
 * Threads: rdzv_registry_add from one thread at a time, and not while a rendezvous is opened with the registry. Forks:
 * a child has a copy of its own. Effects on the process: none; it is memory only.
 */
typedef struct rdzv_registry rdzv_registry;

/** Whether a node is an agent: one that starts workers, and agrees with the other agents of a round on their ranks. */
typedef enum rdzv_launcher {
  RDZV_LAUNCHER_UNKNOWN = 0, /**< It is not known. */
  RDZV_LAUNCHER_AGENT,       /**< It is, as `rdzv run`. rdzv_agent_open sets this. */
  RDZV_LAUNCHER_NONE         /**< It is not, as `rdzv join`. */
} rdzv_launcher;

/**
 * The parameters of a rendezvous: PyTorch's RendezvousParameters. Set `size`; a field that is zero has its default.
 * Everything is copied.
 *
 * `conf` has the options of the backend as "name=value,name=value", like --rdzv-conf of torchrun. An unknown name is
 * refused, with the nearest known name in the error. Times are in seconds and may have a fraction.
 *
 * \verbatim
   backends c10d and etcd-v2, and those opened with rdzv_handler_open_dynamic:
     join_timeout            600   time to complete a round; then RDZV_E_TIMEOUT, and the node is removed
     last_call_timeout        30   time that a round with min_nodes waits for more nodes
     close_timeout            30   time to close, and to leave
     heartbeat_timeout         5   PyTorch's limit for one heartbeat; checked, but not used: read_timeout limits a
                                   heartbeat, and a lost one is repeated
     keep_alive_interval       5   time between two heartbeats
     keep_alive_max_attempt    3   a node is dead after this many intervals without a heartbeat
     rank_order            torch   torch: by address, pid and local id, as PyTorch orders nodes; stable: nodes that
                                   stay keep their rank; natural: node2 comes before node10
     torch_version        newest   X.Y: the PyTorch version that a new state is written for
   backend c10d only:
     store_type              tcp   tcp; or file: the endpoint is a path
     is_host              (auto)   true, false: does this process serve the store?
     read_timeout             60   time for one request to the store
     dialect                auto   v1, v2, rdzv: the dialect of a server that cannot be detected (PyTorch 2.2 to 2.4)
     mode                   auto   native: the server forms the rounds, and a node sends it one join and gets one
                                   answer; fails where the server is not an 'rdzv serve' that can. swap: all nodes
                                   swap one state, as PyTorch's do. auto: native where the server can, else swap
     session_keep_alive        2   native: time between two keep-alives, at least 0.1; a node that is silent for three
                                   of them is dead
     session_grace           0.3   native: time without a connection after which a node is dead
     use_libuv                     accepted as torchrun does; has no effect
   backends etcd-v2, etcd-v3 and etcd, to reach etcd:
     protocol               http   http, https
     ca_cert, cacert (system's)    CA certificates (PEM file)
     ssl_cert, cert                client certificate (PEM file)
     ssl_cert_key, key             key of the client certificate (PEM file)
     user, password                credentials
     read_timeout             60   time for one request to etcd with all its tries
   backend etcd-v3, and join_timeout, last_call_timeout, close_timeout, rank_order as c10d:
     lease_time                5   lease of a node, at least 2; a node that does not renew it is dead
     etcd_prefix                   path that all keys are below; default /rdzv
   backend etcd, also named etcd-v1: PyTorch's first generation:
     timeout                 600   time to complete a round; then RDZV_E_TIMEOUT
     last_call_timeout        30   time that a round with min_workers waits for more nodes
     close_timeout            30   time to close, and to leave
     min_workers                   replaces min_nodes
     max_workers                   replaces max_nodes; default min_workers if that is given
     etcd_prefix                   path that all keys are below; default /torchelastic/p2p
   backend static:
     rank                          rank of this node; required. Rank 0 serves the store, or fails with RDZV_E_IN_USE
     timeout                 600   time to reach the store
   \endverbatim
 */
typedef struct rdzv_params {
  size_t size;          /**< sizeof(rdzv_params) */
  const char *backend;  /**< Default "c10d". */
  const char *endpoint; /**< "host:port" of the store; default "localhost:29400". "host:port,host:port" of etcd; default
                           "localhost:2379". */
  const char *run_id;   /**< Required; the same on all nodes of the job. */
  int64_t min_nodes;    /**< Default 1. */
  int64_t max_nodes;    /**< Default min_nodes. */
  const char *conf;     /**< Options of the backend, see above; default none. */
  const char *local_addr;  /**< The name of this node and the address that other nodes reach it at; default the host
                              name, and the address from which this machine reaches the endpoint. */
  int cancel_fd;           /**< A descriptor of the caller. While it is readable, calls that wait for other nodes return
                              RDZV_E_CANCELED, as after rdzv_handler_cancel. It must stay open as long as the handler.
                              Default none. */
  const rdzv_log *log;     /**< Default: RDZV_LOG decides, see rdzv/log.h. */
  rdzv_on_event *on_event; /**< Receives events; default none. */
  void *event_user;        /**< Passed to on_event. */
  const rdzv_registry *registry; /**< Further backends; default none. Used while the handler is opened only. */
  const char *program; /**< The program that this node runs; default none. If the run id is "none", torchrun's default,
                          a node with another program is refused with RDZV_E_INVALID (backends c10d and etcd-v2). */
  bool ignore_unknown; /**< Ignore unknown options in conf with a warning in the log, as torchrun does. A name that is
                          close to a known one is still refused. */
  bool find_master_later; /**< rdzv_handler_next does not wait until rank 0 has published its address; call
                             rdzv_handler_find_master. For agents that use the round's store before. */
  rdzv_launcher launcher; /**< Whether this node is an agent. An agent and a node that is none cannot be in one run: the
                             later one is refused with RDZV_E_LIMIT. */
  int64_t max_restarts;   /**< Of an agent. All agents of a run should have the same; they warn of a difference. */
} rdzv_params;

/** Creates a handler for rdzv_handler_open, which has checked all of `params` but endpoint and conf. Returns 0, or a
 * negative code; an error that it leaves empty gets the general text of the code. */
typedef int rdzv_creator(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error);

RDZV_BEGIN

/** Creates an empty registry. Free it with rdzv_registry_free. */
RDZV_API int rdzv_registry_open(rdzv_registry **out, rdzv_error *error);

/** Adds a backend under a name, which is copied. `user` is passed to the creator. RDZV_E_INVALID: the name is taken, by
 * this registry or by the library. RDZV_E_LIMIT: there are too many. */
RDZV_API int rdzv_registry_add(rdzv_registry *registry, const char *name, rdzv_creator *creator, void *user,
                               rdzv_error *error);

/** Frees a registry. Handlers that were opened with it no longer need it. NULL is ignored. */
RDZV_API void rdzv_registry_free(rdzv_registry *registry);

RDZV_END

#endif
