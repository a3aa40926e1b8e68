/* SPDX-License-Identifier: BSD-3-Clause */
/* What a kind of handler provides. rdzv/handler.h has the contract of each call; handler.c hands over. */
#ifndef RDZV_HANDLER_HANDLER_H
#define RDZV_HANDLER_HANDLER_H

#include "base/wait/flag.h"
#include "base/wait/fork.h"

#include <rdzv/handler.h>

struct handler_ops {
  int (*next)(rdzv_handler *handler, rdzv_result **out, rdzv_error *error);
  int (*wait_change)(rdzv_handler *handler, int64_t timeout_ms, rdzv_change **out, rdzv_error *error);
  int (*is_closed)(rdzv_handler *handler, bool *closed, rdzv_error *error);
  int (*num_waiting)(rdzv_handler *handler, int64_t *count, rdzv_error *error);
  int (*set_closed)(rdzv_handler *handler, const char *reason, rdzv_error *error);
  int (*leave)(rdzv_handler *handler, rdzv_error *error);
  int (*shutdown)(rdzv_handler *handler, rdzv_error *error);
  int (*status_read)(rdzv_handler *handler, int64_t wait_ms, rdzv_status **out, rdzv_error *error);
  int (*extra_set)(rdzv_handler *handler, const char *key, const char *value, rdzv_error *error); /* may be NULL */
  int (*extra_get)(rdzv_handler *handler, const char *key, int64_t timeout_ms, rdzv_value *out, rdzv_error *error);
  int (*set_workers)(rdzv_handler *handler, const char *role, int64_t local_world_size, int64_t restarts,
                     rdzv_error *error); /* NULL: they are ignored */
  const char *(*describe)(rdzv_handler *handler);
  int (*find_master)(rdzv_handler *handler, rdzv_result *result, rdzv_error *error); /* NULL: next has found it */
  int (*change_fd)(const rdzv_handler *handler);                                     /* NULL: nothing ever changes */
  int (*ended_fd)(const rdzv_handler *handler);                                      /* NULL: nothing ever changes */
  void (*close)(rdzv_handler *handler);

  /* In a child of the process that opened it: see base/wait/fork.h. */
  void (*abandon)(rdzv_handler *handler);
};

/* The first field of every kind's own struct. */
struct rdzv_handler {
  const struct handler_ops *ops;
  fork_mark born;
  struct flag_group flags; /* those that its callers wait for */
  struct flag cancel;      /* the user's */
  rdzv_log log;
  char *run_id, *endpoint, *local_addr; /* local_addr may be NULL */
  char *node;
  rdzv_protection protection;  /* own copies */
  bool master_later;           /* params->find_master_later */
  _Atomic int64_t linger_ms;   /* of rdzv_handler_set_linger */
  _Atomic int64_t farewell_ms; /* of rdzv_handler_set_close_timeout; 0: that of the conf */
  struct flag hurry;           /* up: farewell_ms was set, and a call that leaves or closes looks at it again */
};

/* Fills the common part from params; `node` is this node's name, copied. */
int handler_init(rdzv_handler *handler, const struct handler_ops *ops, const rdzv_params *params, const char *node,
                 rdzv_error *error);

/* How long a call that leaves or closes may take from now on: `usual`, or farewell_ms where that is less. */
int64_t handler_farewell(rdzv_handler *handler, int64_t usual);

/* Releases the common part; the kind frees the memory. A handler that handler_init failed on, or that is all zero, is
 * fine. */
void handler_deinit(rdzv_handler *handler);

/* ---- registry.c ---- */

/* Copies params, fills in defaults, and checks what all backends need. to->log points to a copy in *log. */
int params_check(const rdzv_params *from, rdzv_params *to, rdzv_log *log, rdzv_error *error);

/* For conf_parse: the log in which options that are ignored are named; NULL: they are refused. */
const rdzv_log *params_lenient(const rdzv_params *params);

/* Can a rendezvous be of so many? */
int params_check_nodes(int64_t min, int64_t max, rdzv_error *error);

/* ---- the creators of our own backends ---- */
int c10d_create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error);
int gen1_create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error);
int etcd_v2_create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error);
int leased_create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error);
int static_create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error);

#endif
