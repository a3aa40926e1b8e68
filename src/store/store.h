/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a store implementation provides. rdzv/store.h has the contract of each operation; store.c checks arguments,
 * fills in timeouts and hands over, so an implementation gets valid arguments only. What it cannot do is NULL.
 */
#ifndef RDZV_STORE_STORE_H
#define RDZV_STORE_STORE_H

#include "base/wait/clock.h"
#include "base/wait/flag.h"
#include "base/wait/fork.h"

#include <rdzv/store.h>
#include <stdatomic.h>

/* What comes with each call. A call through a prefix view keeps the view's. */
struct store_call {
  int64_t timeout_ms;
  deadline until; /* ends a blocking wait: timeout_ms after the call began */
  const struct flag *cancel;
  rdzv_error *error;
};

struct store_ops {
  const char *name;
  void (*close)(rdzv_store *store);
  void (*abandon)(rdzv_store *store); /* close, in a process forked since it was opened: see base/wait/fork.h */
  int (*clone)(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error);
  unsigned (*features)(rdzv_store *store);
  const char *(*describe)(rdzv_store *store);

  int (*set)(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call);
  int (*get)(rdzv_store *store, rdzv_bytes key, rdzv_value *out, struct store_call *call);
  int (*add)(rdzv_store *store, rdzv_bytes key, int64_t delta, int64_t *sum, struct store_call *call);
  int (*compare_set)(rdzv_store *store, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_value *out,
                     struct store_call *call);
  int (*check)(rdzv_store *store, const rdzv_bytes *keys, size_t count, bool *all, struct store_call *call);
  int (*wait)(rdzv_store *store, const rdzv_bytes *keys, size_t count, struct store_call *call);
  int (*delete_key)(rdzv_store *store, rdzv_bytes key, bool *deleted, struct store_call *call);
  int (*num_keys)(rdzv_store *store, int64_t *count, struct store_call *call);
  int (*append)(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call);
  int (*multi_get)(rdzv_store *store, const rdzv_bytes *keys, size_t count, rdzv_value *out, struct store_call *call);
  int (*multi_set)(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                   struct store_call *call);
  int (*list_keys)(rdzv_store *store, rdzv_value **out, size_t *count, struct store_call *call);
  int (*queue_push)(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call);
  int (*queue_pop)(rdzv_store *store, rdzv_bytes key, bool block, rdzv_value *out, struct store_call *call);
  int (*queue_len)(rdzv_store *store, rdzv_bytes key, int64_t *len, struct store_call *call);
  int (*get_version)(rdzv_store *store, rdzv_bytes key, rdzv_value *out, uint64_t *version, struct store_call *call);
  int (*compare_set_version)(rdzv_store *store, rdzv_bytes key, uint64_t expected, rdzv_bytes value, bool *swapped,
                             rdzv_value *out, uint64_t *version, struct store_call *call);
  int (*wait_changed)(rdzv_store *store, rdzv_bytes key, uint64_t known, rdzv_value *out, uint64_t *version,
                      struct store_call *call);
};

/* The first member of every implementation's own struct. */
struct rdzv_store {
  const struct store_ops *ops;
  _Atomic int64_t timeout_ms;
  _Atomic int64_t request_ms; /* see store_limit_requests */
  struct flag cancel;
  int cancel_fd; /* the caller's, for clones */
  rdzv_log log;
  struct store_text *_Atomic texts; /* of store_text */
  fork_mark born;
};

/* A copy of the text that lives as long as the handle; the same one for equal texts. For describe: what one thread was
 * given stays as it is when another asks. */
const char *store_text(rdzv_store *store, const char *text);

/* For a call that may as well be done twice, by a handle that has not read anything yet: is it to be tried again? True,
 * after a pause, where the call is of unknown outcome or the server was restarted, and there is time left. */
bool store_try_again(rdzv_store *store, int result, deadline until);

/* From here on a request that does not wait for others takes no longer than that, where the store was opened with more
 * patience. */
void store_limit_requests(rdzv_store *store, int64_t request_ms);

/* The time for such a request of a store that was opened with that. */
int64_t store_request_time(rdzv_store *store, int64_t opened_with_ms);

/* Fills the common part; timeout_ms 0 is the default, cancel_fd 0 none. `log` is the caller's, to be copied. */
int store_init(rdzv_store *store, const struct store_ops *ops, int64_t timeout_ms, int cancel_fd, const rdzv_log *log,
               rdzv_error *error);

/* Releases the common part; the implementation frees the memory. */
void store_deinit(rdzv_store *store);

/* As rdzv_store_clone; a descriptor of the caller's cancels the opening, and the new handle until it is forgotten. */
int store_clone_with(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error);

/* The caller's descriptor, with which the store was opened, does not cancel it, or its clones, any more. */
void store_forget_cancel_fd(rdzv_store *store);

/* As rdzv_store_open_tcp, for a caller that tells what the wait for the server is about (base/wait/waiting.h). */
int store_open_tcp(const char *endpoint, const rdzv_tcp_options *options, struct waiting *waiting, rdzv_store **out,
                   rdzv_error *error);

/* For the message of a wait that timed out: "'a', 'b' and 3 more". */
struct key_list_text {
  char text[320];
};
struct key_list_text store_key_list(const rdzv_bytes *keys, size_t count);

/* The error of a wait that ended with RDZV_E_TIMEOUT or RDZV_E_CANCELED: what was done with which keys, how long. */
int store_fail_wait(struct store_call *call, int code, const char *what, const rdzv_bytes *keys, size_t count);

/* Hands a value that a call has found to the caller, or frees it where the call failed. Returns the result. */
static inline int store_give(int result, rdzv_value *found, rdzv_value *out) {
  if (result == 0)
    *out = *found;
  else
    rdzv_value_free(found);
  return result;
}

#endif
