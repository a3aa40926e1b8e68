/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a store implementation provides. rdzv/store.h has the contract of each operation. store.c checks the arguments,
 * fills in the timeout and calls the implementation. An operation that the implementation lacks is NULL.
 */
#ifndef RDZV_STORE_STORE_H
#define RDZV_STORE_STORE_H

#include "base/wait/clock.h"
#include "base/wait/flag.h"
#include "base/wait/fork.h"

#include <rdzv/store.h>
#include <stdatomic.h>

/* What every operation gets. A prefix view passes its own on to the store below. */
struct store_call {
  int64_t timeout_ms;
  deadline until; /* the end of a blocking wait: timeout_ms after the call began */
  const struct flag *cancel;
  rdzv_error *error;
};

/*
 * The operations, each said once: what it takes between the store and the struct store_call. STORE_BASIC_OPS are those
 * that every store has. X(name, op, ...) is called with the name of the implementation.
 */
#define STORE_BASIC_OPS(X, name)                                                                 \
  X(name, set, rdzv_bytes key, rdzv_bytes value)                                                 \
  X(name, get, rdzv_bytes key, rdzv_value *out)                                                  \
  X(name, add, rdzv_bytes key, int64_t delta, int64_t *sum)                                      \
  X(name, compare_set, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_value *out) \
  X(name, check, const rdzv_bytes *keys, size_t count, bool *all)                                \
  X(name, wait, const rdzv_bytes *keys, size_t count)                                            \
  X(name, delete_key, rdzv_bytes key, bool *deleted)                                             \
  X(name, num_keys, int64_t *count)                                                              \
  X(name, append, rdzv_bytes key, rdzv_bytes value)                                              \
  X(name, multi_get, const rdzv_bytes *keys, size_t count, rdzv_value *out)                      \
  X(name, multi_set, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count)             \
  X(name, list_keys, rdzv_value **out, size_t *count)
#define STORE_QUEUE_OPS(X, name)                                  \
  X(name, queue_push, rdzv_bytes key, rdzv_bytes value)           \
  X(name, queue_pop, rdzv_bytes key, bool block, rdzv_value *out) \
  X(name, queue_len, rdzv_bytes key, int64_t *len)
#define STORE_VERSION_OPS(X, name)                                                                                  \
  X(name, get_version, rdzv_bytes key, rdzv_value *out, uint64_t *version)                                          \
  X(name, compare_set_version, rdzv_bytes key, uint64_t expected, rdzv_bytes value, bool *swapped, rdzv_value *out, \
    uint64_t *version)                                                                                              \
  X(name, wait_changed, rdzv_bytes key, uint64_t known, rdzv_value *out, uint64_t *version)

/* For X: a field of struct store_ops, the prototype of NAME_op, and NAME_op in the table of a store. */
#define STORE_OP_FIELD(name, op, ...) int (*op)(rdzv_store * store, __VA_ARGS__, struct store_call * call);
#define STORE_OP_DECLARE(name, op, ...) int name##_##op(rdzv_store *store, __VA_ARGS__, struct store_call *call);
#define STORE_OP_ROW(name, op, ...) .op = name##_##op,

struct store_ops {
  const char *name;
  void (*close)(rdzv_store *store);
  void (*abandon)(rdzv_store *store); /* closes it in a process that was forked since: base/wait/fork.h */
  int (*clone)(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error);
  unsigned (*features)(rdzv_store *store);
  const char *(*describe)(rdzv_store *store);
  rdzv_store *(*under)(rdzv_store *store); /* what a view is of; NULL: it is no view */
  bool makes_flag_fd;                      /* its calls make the descriptor of the flag when they need it */
  STORE_BASIC_OPS(STORE_OP_FIELD, )
  STORE_QUEUE_OPS(STORE_OP_FIELD, )
  STORE_VERSION_OPS(STORE_OP_FIELD, )
};

/* The first field of the struct of each implementation. */
struct rdzv_store {
  const struct store_ops *ops;
  _Atomic int64_t timeout_ms;
  _Atomic int64_t request_ms; /* of rdzv_store_set_request_timeout; 0: none */
  struct flag cancel;
  int cancel_fd; /* the caller's, for clones */
  rdzv_log log;
  struct store_text *_Atomic texts; /* of store_text */
  fork_mark born;
};

/* Returns a copy of the text that lives as long as the handle, and the same copy for equal texts. For describe: the
 * text that one thread has got stays valid when another thread asks. */
const char *store_text(rdzv_store *store, const char *text);

/* Should the caller repeat a call that may safely be done twice? Returns true, after a pause, if the outcome is unknown
 * or the server was restarted, and there is time left. Only for a handle that has not read anything yet. */
bool store_try_again(rdzv_store *store, int result, deadline until);

/* The time for such a request; opened_with_ms is the timeout that the store was opened with. */
int64_t store_request_time(rdzv_store *store, int64_t opened_with_ms);

/* The limit that rdzv_store_limit_calls has set for this thread; -1: none. */
int64_t store_call_limit(void);

/* Allocates `size` bytes, all zero, and fills the common part; timeout_ms 0 is the default, cancel_fd 0 none. `log` is
 * the caller's, to be copied. */
int store_new(size_t size, const struct store_ops *ops, int64_t timeout_ms, int cancel_fd, const rdzv_log *log,
              rdzv_store **out, rdzv_error *error);

/* Releases the common part; the implementation frees the memory. */
void store_deinit(rdzv_store *store);

/* Like rdzv_store_clone. The descriptor cancels the opening, and the new handle until store_forget_cancel_fd. */
int store_clone_with(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error);

/* From now on the descriptor that the store was opened with cancels neither it nor new clones. */
void store_forget_cancel_fd(rdzv_store *store);

/* Like rdzv_store_open_tcp, for a caller with its own log lines about the wait (base/wait/waiting.h). `asks_native`:
 * for a node of a rendezvous. */
int store_open_tcp(const char *endpoint, const rdzv_tcp_options *options, bool asks_native, struct waiting *waiting,
                   rdzv_store **out, rdzv_error *error);

/* Is it a tcp store that was asked, and whose server forms rounds? */
bool store_is_native(rdzv_store *store);

/* Keys in a message: "'a', 'b' and 3 more". */
struct key_list_text {
  char text[320];
};
struct key_list_text store_key_list(const rdzv_bytes *keys, size_t count);

/* RDZV_E_UNSUPPORTED: the store has no such operation. */
int store_fail_unsupported(const rdzv_store *store, const char *op, rdzv_error *error);

/* Fills the error of a wait that ended with RDZV_E_TIMEOUT or RDZV_E_CANCELED: "get 'k': timed out after 300 ms". */
int store_fail_wait(struct store_call *call, int code, const char *what, const rdzv_bytes *keys, size_t count);

/* Hands a value to the caller, or frees it where the call has failed. Returns the result. */
static inline int store_give(int result, rdzv_value *found, rdzv_value *out) {
  if (result == 0)
    *out = *found;
  else
    rdzv_value_free(found);
  return result;
}

#endif
