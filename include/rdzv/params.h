/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_PARAMS_H
#define RDZV_PARAMS_H

#include <rdzv/api.h>
#include <rdzv/error.h>
#include <rdzv/event.h>
#include <rdzv/log.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct rdzv_handler rdzv_handler;
typedef struct rdzv_registry rdzv_registry;

/*
 * What a rendezvous is opened with: PyTorch's RendezvousParameters. Zero means the default in every field; `size` is
 * always sizeof the struct. Everything is copied.
 *
 * `conf` is "name=value,name=value", as torchrun's --rdzv-conf. A name that is not known is refused with the nearest
 * one that is. Times are in seconds and may have a fraction.
 *
 *   backends c10d and etcd-v2, and what others open with rdzv_handler_open_dynamic:
 *     join_timeout            600   for a round to come about; then RDZV_E_TIMEOUT, and the node is taken out
 *     last_call_timeout        30   how long a round waits for more once it has min_nodes
 *     close_timeout            30   for closing, and for leaving
 *     heartbeat_timeout         5   PyTorch's limit for one heartbeat; taken and checked, ours are bounded by
 *                                   read_timeout and tried again
 *     keep_alive_interval       5   between two heartbeats
 *     keep_alive_max_attempt    3   a node that was silent for so many intervals is dead
 *     rank_order            torch   torch: by (address, pid, local id), as PyTorch does, which knows no other;
 *                                   stable: who stays keeps its rank; natural: node2 comes before node10
 *     torch_version        newest   X.Y: the PyTorch that a state is written for where there is none yet
 *   backend c10d only:
 *     store_type              tcp   tcp, or file: the endpoint is a path then
 *     is_host         (found out)   true, false: whether this process serves the store
 *     read_timeout             60   for one request to the store
 *     dialect                auto   v1, v2, rdzv: what the server speaks, where it does not show (PyTorch 2.2 to 2.4)
 *     use_libuv                     taken for torchrun's sake, and without effect
 *   backends etcd-v2 and etcd, for reaching etcd:
 *     protocol               http   http, https
 *     ca_cert, cacert (system's)    a file in PEM: whom to believe that they are etcd
 *     ssl_cert, cert                a file in PEM: our certificate
 *     ssl_cert_key, key             a file in PEM: its key
 *     user, password                who we are
 *     read_timeout             60   for one request to etcd, with all its tries
 *   backend etcd, or etcd-v1, PyTorch's first generation:
 *     timeout                 600   for a round to come about; then RDZV_E_TIMEOUT
 *     last_call_timeout        30   how long a round waits for more once it has enough
 *     close_timeout            30   for closing, and for leaving
 *     min_workers                   in place of min_nodes
 *     max_workers                   in place of max_nodes; default min_workers where that is given
 *     etcd_prefix                   the path that everything is below; default /torchelastic/p2p
 *   backend static:
 *     rank                          of this node; must be given. Rank 0 serves the store, or fails with RDZV_E_IN_USE
 *     timeout                 600   for reaching the store
 */
typedef struct rdzv_params {
  size_t size;
  const char *backend;    /* default "c10d"; see rdzv_registry_add */
  const char *endpoint;   /* "host:port", of the store; default "localhost:29400". Of etcd: "host:port,host:port",
                             default "localhost:2379" */
  const char *run_id;     /* must be given, and be the same on all nodes of the job */
  int64_t min_nodes;      /* default 1 */
  int64_t max_nodes;      /* default min_nodes */
  const char *conf;       /* default none */
  const char *local_addr; /* what other nodes know this one by, and reach it at; default the host name, and the address
                             that this machine reaches the endpoint from */
  int cancel_fd;          /* a descriptor of the caller's: while it is readable, calls that wait for others return
                             RDZV_E_CANCELED. See rdzv_handler_cancel. Default none. */
  const rdzv_log *log;
  rdzv_on_event *on_event; /* default none */
  void *event_user;
  const rdzv_registry *registry; /* further backends; default none. Must outlive the call only */
  const char *program; /* what this node runs; default none. Where the run id is torchrun's default "none", a node of
                          another program is refused with RDZV_E_INVALID (backends c10d and etcd-v2) */
  bool ignore_unknown; /* as torchrun does: options in conf that the backend does not have are ignored, with a warning
                          in the log; but one that is nearly the name of another is refused */
  bool find_master_later; /* rdzv_handler_next does not wait until rank 0 has published its address: the
                             caller asks with rdzv_handler_find_master. For agents that exchange something in the
                             round's store before */
} rdzv_params;

/* Makes a handler for rdzv_handler_open; what it gets has been checked, but for endpoint and conf. */
typedef int rdzv_creator(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error);

RDZV_BEGIN

/* Names of backends beyond our own (c10d, etcd, etcd-v1, etcd-v2, static). Not thread-safe while names are added. */
RDZV_API int rdzv_registry_open(rdzv_registry **out, rdzv_error *error);

/* RDZV_E_INVALID: it has that name already, or it is one of our own. */
RDZV_API int rdzv_registry_add(rdzv_registry *registry, const char *name, rdzv_creator *creator, void *user,
                               rdzv_error *error);

/* NULL is fine. */
RDZV_API void rdzv_registry_free(rdzv_registry *registry);

RDZV_END

#endif
