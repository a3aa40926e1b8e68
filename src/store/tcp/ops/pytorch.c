/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/ops/pytorch.h"

#include "base/buf.h"
#include "base/error.h"

enum {
  WAIT_SLICE_MS = 1000, /* of a wait at a 2.x server */
  FIRST_LOOK_MS = 1,    /* between two looks for a key */
  LONGEST_LOOK_MS = 250,
  READ_BATCH = 100, /* keys that are asked for before the answers are read: a server that cannot send does not read */
};

/* ---- waiting ----------------------------------------------------------------------------------------------- */

int tcp_ask_check(struct tcp_store *tcp, const struct tcp_args *args, bool *all) {
  uint64_t absent;
  tcp_put_op(tcp, WIRE_OP_CHECK);
  tcp_put_keys(tcp, args->keys, args->count);
  const int result = tcp_ask_number(tcp, "b", &absent);
  if (result == 0) *all = absent == 0;
  return result;
}

/* Looks for the keys, with pauses that grow, until all are there or the call times out. */
typedef int look_once(struct tcp_store *tcp, const struct tcp_args *args, bool *all);

static int look_until_all(struct tcp_store *tcp, const struct tcp_args *args, look_once *look) {
  struct backoff backoff = {FIRST_LOOK_MS, LONGEST_LOOK_MS};
  for (;;) {
    bool all = false;
    int result = look(tcp, args, &all);
    if (result < 0 || all) return result;
    if (deadline_left(tcp->call.until) == 0)
      return error_set(tcp->call.error, RDZV_E_TIMEOUT, "timed out after %lld ms", (long long)tcp->call.timeout_ms);
    result = flag_pause(tcp->call.cancel, deadline_sooner(backoff_next(&backoff), tcp->call.until));
    if (result < 0) return error_set(tcp->call.error, result, "%s", rdzv_error_text(result));
  }
}

static int wait_v2(struct tcp_store *tcp, const struct tcp_args *args) {
  for (;;) {
    const deadline slice = deadline_after(WAIT_SLICE_MS);
    const bool last = tcp->call.until <= slice;
    tcp_put_op(tcp, WIRE_OP_WAIT);
    tcp_put_keys(tcp, args->keys, args->count);
    const int result = tcp_ask_blocking(tcp, "", 0, last ? tcp->call.until : slice);
    if (result != RDZV_E_TIMEOUT || last) return result;
  }
}

int pytorch_await(struct tcp_store *tcp, const struct tcp_args *args) {
  return tcp->conn.dialect == WIRE_DIALECT_V1 ? look_until_all(tcp, args, tcp_ask_check) : wait_v2(tcp, args);
}

static int await_and_check(struct tcp_store *tcp, const struct tcp_args *args, bool *all) {
  const int result = pytorch_await(tcp, args);
  return result < 0 ? result : tcp_ask_check(tcp, args, all);
}

int pytorch_wait(struct tcp_store *tcp, const struct tcp_args *args) {
  return look_until_all(tcp, args, await_and_check);
}

/* ---- reading ----------------------------------------------------------------------------------------------- */

static size_t batch_from(const struct tcp_args *args, size_t at) {
  return args->count - at < READ_BATCH ? args->count - at : READ_BATCH;
}

/* The answer to a swap of `never`: the value, or `never` where the key is absent. */
static int take_swapped(struct tcp_store *tcp, rdzv_value *out, bool *there) {
  const rdzv_bytes never = {tcp->never, sizeof tcp->never};
  const int result = tcp_answer(tcp, "v", 0);
  if (result < 0) return result;
  *there = !bytes_equal(wire_field_bytes(&tcp->conn.scan, 0, tcp->conn.in.data), never);
  if (*there) return tcp_take_value(tcp, 0, out);
  tcp_conn_consume(&tcp->conn);
  return 0;
}

/* Reads each key in one step, by swapping a value that no key has for itself. *all: all keys were there. */
static int read_by_swap(struct tcp_store *tcp, const struct tcp_args *args, bool *all) {
  const rdzv_bytes never = {tcp->never, sizeof tcp->never};
  int result = 0;
  *all = true;
  for (size_t at = 0; at < args->count && result == 0; at += READ_BATCH) {
    const size_t count = batch_from(args, at);
    for (size_t i = 0; i < count; i++) {
      tcp_put_op_on(tcp, WIRE_OP_COMPARE_SET, args->keys[at + i]);
      tcp_put_value(tcp, never);
      tcp_put_value(tcp, never);
    }
    result = tcp_send(tcp);
    for (size_t i = 0; i < count && result == 0; i++) {
      bool there = false;
      result = take_swapped(tcp, &args->out[at + i], &there);
      *all &= there;
    }
  }
  return result;
}

/* *sure: no value is empty. */
static int read_by_get(struct tcp_store *tcp, const struct tcp_args *args, bool *sure) {
  *sure = true;
  for (size_t at = 0; at < args->count; at += READ_BATCH) {
    const size_t count = batch_from(args, at);
    tcp_put_op(tcp, WIRE_OP_MULTI_GET);
    tcp_put_keys(tcp, args->keys + at, count);
    int result = tcp_ask(tcp, "V", count);
    if (result == 0) result = tcp_take_values(tcp, args->out + at, count);
    if (result < 0) return result;
    for (size_t i = 0; i < count; i++) *sure &= args->out[at + i].len > 0;
  }
  return 0;
}

/* 2.x: the libuv server answers a get of an absent key with an empty value, so an empty value is read again by swap.
 * The other server closes the connection, so from then on this handle reads by swap. A swap follows a check that the
 * keys are there, because the libuv server takes a failed swap for a write and wakes waiting clients. */
static int read_v2(struct tcp_store *tcp, const struct tcp_args *args, bool *all) {
  bool sure = false;
  int result = tcp->gets_by_swap ? 0 : read_by_get(tcp, args, &sure);
  if (result == RDZV_E_CONNECTION) tcp->gets_by_swap = true;
  *all = sure;
  if (result < 0 || sure) return result;
  result = tcp_ask_check(tcp, args, all);
  return result < 0 || !*all ? result : read_by_swap(tcp, args, all);
}

int pytorch_read(struct tcp_store *tcp, const struct tcp_args *args, bool *all) {
  return tcp->conn.dialect == WIRE_DIALECT_V1 ? read_by_swap(tcp, args, all) : read_v2(tcp, args, all);
}

static int await_and_read(struct tcp_store *tcp, const struct tcp_args *args, bool *all) {
  const int result = pytorch_await(tcp, args);
  return result < 0 ? result : pytorch_read(tcp, args, all);
}

int pytorch_get(struct tcp_store *tcp, const struct tcp_args *args) {
  return look_until_all(tcp, args, await_and_read);
}

/* ---- what only some servers can ---------------------------------------------------------------------------- */

int pytorch_need_v2(struct tcp_store *tcp, const char *since) {
  if (tcp->conn.dialect != WIRE_DIALECT_V1) return 0;
  return error_set(tcp->call.error, RDZV_E_UNSUPPORTED, "the server is PyTorch 1.x; PyTorch has this operation %s",
                   since);
}

bool pytorch_has(const struct tcp_store *tcp, enum pytorch_newer what) {
  return tcp_is_ours(tcp) || (tcp->conn.dialect == WIRE_DIALECT_V2 && (tcp->newer & what));
}

int pytorch_try_newer(struct tcp_store *tcp, enum pytorch_newer what, tcp_try *harmless, struct tcp_args *args,
                      const char *since) {
  enum { CLOSINGS = TCP_MAX_REPEATS + 1 }; /* as often as a call is tried */
  uint64_t unused;
  int result = pytorch_need_v2(tcp, since);
  if (result == 0 && !pytorch_has(tcp, what)) {
    tcp_put_op(tcp, WIRE_OP_NUM_KEYS);
    result = tcp_ask_number(tcp, "n", &unused);
  }
  if (result < 0) return result;
  result = harmless(tcp, args);
  if (result == 0) tcp->newer |= what;
  if (result != RDZV_E_CONNECTION || pytorch_has(tcp, what) || deadline_left(tcp->until) == 0) return result;
  if (++tcp->closings < CLOSINGS) return result;
  return error_set(tcp->call.error, RDZV_E_UNSUPPORTED,
                   "the server closes the connection; PyTorch has this operation %s", since);
}
