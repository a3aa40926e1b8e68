/* SPDX-License-Identifier: BSD-3-Clause */
/* The store of a TCPStore server: its operations, each an attempt of tcp_try.h that tcp_run makes, and its handles. */
#include "base/buf.h"
#include "base/error.h"
#include "base/text/options.h"
#include "base/wait/thread.h"
#include "store/tcp/try.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static struct tcp_store *self(rdzv_store *store) { return (struct tcp_store *)store; }

/* ---- the operations ------------------------------------------------------------------------------------------ */

/* Results go to places of our own first, so that a failed call leaves the caller's alone. */
static int give(int result, rdzv_value *found, rdzv_value *out) {
  if (result == 0)
    *out = *found;
  else
    rdzv_value_free(found);
  return result;
}

static int tcp_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  struct tcp_args args = {.op = WIRE_SET, .keys = &key, .values = &value, .count = 1};
  return tcp_run(store, "set", &key, 1, TCP_ONCE, tcp_try_write, &args, call);
}

static int tcp_multi_get(rdzv_store *store, const rdzv_bytes *keys, size_t count, rdzv_value *out,
                         struct store_call *call) {
  struct tcp_args args = {.keys = keys, .count = count, .out = out};
  return tcp_run(store, "get", keys, count, TCP_REPEATABLE | TCP_BLOCKS, tcp_try_get, &args, call);
}

static int tcp_get(rdzv_store *store, rdzv_bytes key, rdzv_value *out, struct store_call *call) {
  rdzv_value value = {0};
  return give(tcp_multi_get(store, &key, 1, &value, call), &value, out);
}

static int tcp_compare_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_value *out,
                           struct store_call *call) {
  rdzv_value value = {0};
  struct tcp_args args = {.keys = &key, .values = &expected, .count = 1, .other = desired, .out = &value};
  return give(tcp_run(store, "compare and set", &key, 1, TCP_ONCE, tcp_try_compare_set, &args, call), &value, out);
}

/* As last seen, without taking the handle's turn. */
static enum wire_dialect dialect_of(struct tcp_store *tcp) {
  pthread_mutex_lock(&tcp->lock);
  const enum wire_dialect dialect = tcp->facts.dialect;
  pthread_mutex_unlock(&tcp->lock);
  return dialect;
}

/* A PyTorch server closes the connection if the value is no number, and that it is none now is the likely cause. It is
 * no proof: the add may have been done, and the value been replaced since. */
static int explain_add(rdzv_store *store, rdzv_bytes key, struct store_call *call) {
  bool no_number = false;
  rdzv_value value = {0};
  rdzv_error unused;
  struct tcp_args args = {.keys = &key, .count = 1, .out = &value, .flag_out = &no_number};
  struct store_call inner = *call;
  inner.error = &unused;
  tcp_run(store, "look at", &key, 1, TCP_REPEATABLE, tcp_try_is_no_number, &args, &inner);
  rdzv_value_free(&value);
  if (no_number)
    error_set(
        call->error, RDZV_E_OUTCOME_UNKNOWN,
        "add to '%s' at '%s': it may or may not have taken effect: the server closed the connection, as PyTorch's "
        "does if the value is not a number, and it is not",
        bytes_quote(key).text, self(store)->conn.name);
  return RDZV_E_OUTCOME_UNKNOWN;
}

static int tcp_add(rdzv_store *store, rdzv_bytes key, int64_t delta, int64_t *sum, struct store_call *call) {
  uint64_t number;
  struct tcp_args args = {.op = WIRE_ADD, .keys = &key, .count = 1, .number = (uint64_t)delta, .number_out = &number};
  const int result = tcp_run(store, "add to", &key, 1, TCP_ONCE, tcp_try_number, &args, call);
  if (result == RDZV_E_OUTCOME_UNKNOWN && dialect_of(self(store)) != WIRE_RDZV) return explain_add(store, key, call);
  if (result == 0) *sum = (int64_t)number;
  return result;
}

static int tcp_check(rdzv_store *store, const rdzv_bytes *keys, size_t count, bool *all, struct store_call *call) {
  struct tcp_args args = {.keys = keys, .count = count, .flag_out = all};
  return tcp_run(store, "check", keys, count, TCP_REPEATABLE, tcp_try_check, &args, call);
}

static int tcp_wait(rdzv_store *store, const rdzv_bytes *keys, size_t count, struct store_call *call) {
  struct tcp_args args = {.keys = keys, .count = count};
  return tcp_run(store, "wait for", keys, count, TCP_REPEATABLE | TCP_BLOCKS, tcp_try_wait, &args, call);
}

static int tcp_delete_key(rdzv_store *store, rdzv_bytes key, bool *deleted, struct store_call *call) {
  uint64_t number;
  struct tcp_args args = {.op = WIRE_DELETE_KEY, .keys = &key, .count = 1, .number_out = &number};
  const int result = tcp_run(store, "delete", &key, 1, TCP_ONCE, tcp_try_number, &args, call);
  if (result == 0) *deleted = number != 0;
  return result;
}

static int tcp_num_keys(rdzv_store *store, int64_t *count, struct store_call *call) {
  uint64_t number;
  struct tcp_args args = {.op = WIRE_NUM_KEYS, .number_out = &number};
  const int result = tcp_run(store, "count the keys", NULL, 0, TCP_REPEATABLE, tcp_try_number, &args, call);
  if (result == 0) *count = (int64_t)number;
  return result;
}

static int tcp_append(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  struct tcp_args args = {.op = WIRE_APPEND, .keys = &key, .values = &value, .count = 1};
  return tcp_run(store, "append to", &key, 1, TCP_ONCE, tcp_try_append, &args, call);
}

static int tcp_multi_set(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                         struct store_call *call) {
  struct tcp_args args = {.op = WIRE_MULTI_SET, .keys = keys, .values = values, .count = count};
  return tcp_run(store, "set", keys, count, TCP_ONCE, tcp_try_multi_set, &args, call);
}

static int tcp_list_keys(rdzv_store *store, rdzv_value **out, size_t *count, struct store_call *call) {
  struct tcp_key_list list;
  const int result = tcp_run(store, "list the keys", NULL, 0, TCP_REPEATABLE, tcp_try_list_keys, &list, call);
  if (result < 0) return result;
  *out = list.keys;
  *count = list.count;
  return 0;
}

static int run_queue_op(rdzv_store *store, const char *what, const rdzv_bytes *key, unsigned kind, tcp_attempt *attempt,
                        struct tcp_args *args, struct store_call *call) {
  struct tcp_queue_op op = {attempt, args};
  return tcp_run(store, what, key, 1, kind, tcp_try_queue_op, &op, call);
}

static int tcp_queue_push(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  struct tcp_args args = {.op = WIRE_QUEUE_PUSH, .keys = &key, .values = &value, .count = 1};
  return run_queue_op(store, "push to", &key, TCP_ONCE, tcp_try_write, &args, call);
}

static int tcp_queue_pop(rdzv_store *store, rdzv_bytes key, bool block, rdzv_value *out, struct store_call *call) {
  rdzv_value value = {0};
  struct tcp_args args = {.keys = &key, .count = 1, .block = block, .out = &value};
  const unsigned kind = block ? TCP_ONCE | TCP_BLOCKS : TCP_ONCE;
  return give(run_queue_op(store, "pop from", &key, kind, tcp_try_queue_pop, &args, call), &value, out);
}

static int tcp_queue_len(rdzv_store *store, rdzv_bytes key, int64_t *len, struct store_call *call) {
  uint64_t number;
  struct tcp_args args = {.op = WIRE_QUEUE_LEN, .keys = &key, .count = 1, .number_out = &number};
  const int result = run_queue_op(store, "count", &key, TCP_REPEATABLE, tcp_try_number, &args, call);
  if (result == 0) *len = (int64_t)number;
  return result;
}

static int tcp_get_version(rdzv_store *store, rdzv_bytes key, rdzv_value *out, uint64_t *version,
                           struct store_call *call) {
  rdzv_value value = {0};
  struct tcp_args args = {.keys = &key, .count = 1, .out = &value, .number_out = version};
  return give(tcp_run(store, "get", &key, 1, TCP_REPEATABLE, tcp_try_get_version, &args, call), &value, out);
}

static int tcp_compare_set_version(rdzv_store *store, rdzv_bytes key, uint64_t expected, rdzv_bytes desired,
                                   bool *swapped, rdzv_value *out, uint64_t *version, struct store_call *call) {
  rdzv_value value = {0};
  struct tcp_args args = {.keys = &key,
                          .values = &desired,
                          .count = 1,
                          .number = expected,
                          .out = &value,
                          .number_out = version,
                          .flag_out = swapped};
  return give(tcp_run(store, "compare and set", &key, 1, TCP_ONCE, tcp_try_compare_set_version, &args, call), &value,
              out);
}

static int tcp_wait_changed(rdzv_store *store, rdzv_bytes key, uint64_t known, rdzv_value *out, uint64_t *version,
                            struct store_call *call) {
  rdzv_value value = {0};
  struct tcp_args args = {.keys = &key, .count = 1, .number = known, .out = &value, .number_out = version};
  return give(
      tcp_run(store, "wait for a change of", &key, 1, TCP_REPEATABLE | TCP_BLOCKS, tcp_try_wait_changed, &args, call),
      &value, out);
}

/* ---- handles ------------------------------------------------------------------------------------------------- */

static void tcp_close(rdzv_store *store) {
  struct tcp_store *tcp = self(store);
  tcp_conn_free(&tcp->conn);
  pthread_mutex_destroy(&tcp->lock);
  pthread_cond_destroy(&tcp->turn_is_over);
  store_deinit(store);
  free(tcp);
}

/* Whether another thread was in the middle of a call, its lock tells: then the buffers are left as they are. */
static void tcp_abandon(rdzv_store *store) {
  struct tcp_store *tcp = self(store);
  const bool quiet = pthread_mutex_trylock(&tcp->lock) == 0 && !tcp->turn_is_taken;
  if (quiet)
    tcp_conn_free(&tcp->conn);
  else if (tcp->conn.fd >= 0)
    close(tcp->conn.fd);
  store_deinit(store);
  free(tcp);
}

static unsigned tcp_features(rdzv_store *store) {
  const unsigned all = RDZV_FEATURE_APPEND | RDZV_FEATURE_QUEUES | RDZV_FEATURE_LIST_KEYS | RDZV_FEATURE_VERSIONS;
  const enum wire_dialect dialect = dialect_of(self(store));
  return dialect == WIRE_RDZV ? all : dialect == WIRE_V2 ? RDZV_FEATURE_APPEND : 0;
}

static const char *tcp_describe(rdzv_store *store) {
  static const char *const names[] = {"not connected", "PyTorch 1.x", "PyTorch 2.x", "rdzv"};
  struct tcp_store *tcp = self(store);
  char text[3 * ENDPOINT_TEXT_SIZE];
  pthread_mutex_lock(&tcp->lock);
  const char *peer = tcp->facts.peer, *dialect = names[tcp->facts.dialect];
  if (strcmp(peer, tcp->conn.name) == 0) peer = "";
  snprintf(text, sizeof text, "tcp %s (%s%s%s)", tcp->conn.name, peer, *peer ? ", " : "", dialect);
  pthread_mutex_unlock(&tcp->lock);
  return store_text(store, text);
}

/* The key under which PyTorch's clients count themselves has no slash before it. */
static int try_announce(struct tcp_store *tcp, void *arg, struct store_call *call) {
  (void)arg;
  uint64_t workers;
  tcp_put_op(tcp, WIRE_ADD);
  tcp_put_value(tcp, rdzv_str("init/"));
  tcp_put_number(tcp, 1);
  const int result = tcp_send(tcp, call);
  return result < 0 ? result : tcp_answer_number(tcp, "n", &workers, call);
}

static int try_nothing(struct tcp_store *tcp, void *arg, struct store_call *call) {
  (void)tcp, (void)arg, (void)call;
  return 0;
}

static int open_handle(const struct endpoint *endpoint, enum wire_dialect known, const rdzv_tcp_options *options,
                       const struct flag *cancel, struct waiting *waiting, rdzv_store **out, rdzv_error *error);

static int tcp_clone(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error) {
  rdzv_tcp_options options = self(store)->options;
  options.announce_worker = false; /* it is the same worker */
  options.timeout_ms = store_request_time(store, options.timeout_ms);
  options.cancel_fd = cancel_fd;
  const struct flag *cancel = cancel_fd == store->cancel_fd ? &store->cancel : NULL;
  return open_handle(&self(store)->conn.endpoint, dialect_of(self(store)), &options, cancel, NULL, out, error);
}

static const struct store_ops tcp_ops = {
    .name = "tcp",
    .close = tcp_close,
    .abandon = tcp_abandon,
    .clone = tcp_clone,
    .features = tcp_features,
    .describe = tcp_describe,
    .set = tcp_set,
    .get = tcp_get,
    .add = tcp_add,
    .compare_set = tcp_compare_set,
    .check = tcp_check,
    .wait = tcp_wait,
    .delete_key = tcp_delete_key,
    .num_keys = tcp_num_keys,
    .append = tcp_append,
    .multi_get = tcp_multi_get,
    .multi_set = tcp_multi_set,
    .list_keys = tcp_list_keys,
    .queue_push = tcp_queue_push,
    .queue_pop = tcp_queue_pop,
    .queue_len = tcp_queue_len,
    .get_version = tcp_get_version,
    .compare_set_version = tcp_compare_set_version,
    .wait_changed = tcp_wait_changed,
};

/* The turn is waited for by the monotonic clock. */
static void init_turn(struct tcp_store *tcp) {
  thread_cond_init(&tcp->turn_is_over);
  pthread_mutex_init(&tcp->lock, NULL);
}

/* Without the kernel's randomness, and that is at most in the first moments after boot, the clock is the next best. */
static void draw_never(struct tcp_store *tcp) {
  const int64_t now = clock_now_ms();
  if (getrandom(tcp->never, sizeof tcp->never, GRND_NONBLOCK) < 0) memcpy(tcp->never, &now, sizeof now);
}

/* `known` is the dialect that the server was found to speak. `cancel` is whose flag can stop the opening; NULL: the new
 * handle's own, for its descriptor. */
static int open_handle(const struct endpoint *endpoint, enum wire_dialect known, const rdzv_tcp_options *options,
                       const struct flag *cancel, struct waiting *waiting, rdzv_store **out, rdzv_error *error) {
  struct tcp_store *tcp = calloc(1, sizeof *tcp);
  if (!tcp) return error_no_memory(error);
  int result = store_init(&tcp->base, &tcp_ops, options->timeout_ms, options->cancel_fd, &options->log, error);
  if (result < 0) {
    free(tcp);
    return result;
  }
  tcp->options = *options;
  tcp->options.timeout_ms = rdzv_store_get_timeout(&tcp->base);
  tcp_conn_init(&tcp->conn, endpoint, options->dialect, &options->log);
  tcp->options.run_id = tcp->conn.run_id = options->run_id ? strdup(options->run_id) : NULL;
  tcp->conn.dialect = known;
  init_turn(tcp);
  draw_never(tcp);
  const struct flag telling = flag_with(cancel ? cancel : &tcp->base.cancel, waiting);
  struct store_call call = {tcp->options.timeout_ms, deadline_after(tcp->options.timeout_ms), &telling, error};
  if (options->run_id && !tcp->conn.run_id)
    result = error_no_memory(error);
  else if (options->announce_worker)
    result = tcp_run(&tcp->base, "open the store", NULL, 0, TCP_ONCE, try_announce, NULL, &call);
  else
    result = tcp_run(&tcp->base, "open the store", NULL, 0, TCP_REPEATABLE, try_nothing, NULL, &call);
  if (result < 0)
    tcp_close(&tcp->base);
  else
    *out = &tcp->base;
  return result;
}

int store_open_tcp(const char *endpoint, const rdzv_tcp_options *options, struct waiting *waiting, rdzv_store **out,
                   rdzv_error *error) {
  if (!out) return error_null(error, "open a store", "out");
  rdzv_tcp_options own;
  struct endpoint parsed;
  int result = options_copy(&own, sizeof own, options, error);
  if (result == 0) result = endpoint_parse(endpoint, RDZV_DEFAULT_PORT, &parsed, error);
  if (result == 0 && (own.dialect < RDZV_DIALECT_AUTO || own.dialect > RDZV_DIALECT_RDZV))
    result = error_set(error, RDZV_E_INVALID, "invalid dialect %d", (int)own.dialect);
  return result < 0 ? result : open_handle(&parsed, WIRE_UNKNOWN, &own, NULL, waiting, out, error);
}

int rdzv_store_open_tcp(const char *endpoint, const rdzv_tcp_options *options, rdzv_store **out, rdzv_error *error) {
  return store_open_tcp(endpoint, options, NULL, out, error);
}
