/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/try.h"

#include "base/error.h"
#include "store/keyspace/keyspace.h"

#include <stdlib.h>

enum {
  WAIT_SLICE_MS = 1000, /* of a wait at a PyTorch 2.x server */
  FIRST_LOOK_MS = 1,    /* between two looks for a key */
  LONGEST_LOOK_MS = 250,
};

/* ---- pieces of attempts ------------------------------------------------------------------------------------- */

/* Sends a request and awaits that it is done: ours says so, PyTorch's answer a NUM_KEYS sent behind it. */
static int settle_request(struct tcp_store *tcp, struct store_call *call) {
  const bool ours = tcp_is_ours(tcp);
  if (!ours) tcp_put_op(tcp, WIRE_NUM_KEYS);
  int result = tcp_send(tcp, call);
  if (result == 0) result = tcp_answer(tcp, ours ? "" : "n", 0, call);
  if (result == 0) tcp_conn_consume(&tcp->conn);
  return result;
}

static int copy_field(struct tcp_store *tcp, int i, rdzv_value *out, struct store_call *call) {
  const rdzv_bytes bytes = wire_field_bytes(&tcp->conn.scan, i, tcp->conn.in.data);
  rdzv_value copy;
  if (!value_copy(&copy, bytes.data, bytes.len)) return error_no_memory(call->error);
  rdzv_value_free(out);
  *out = copy;
  return 0;
}

/* The values of a V list that was received. */
static int copy_list(struct tcp_store *tcp, rdzv_value *out, size_t count, struct store_call *call) {
  rdzv_bytes list = wire_field_bytes(&tcp->conn.scan, 0, tcp->conn.in.data);
  for (size_t i = 0; i < count; i++) {
    const rdzv_bytes item = wire_list_next(&list);
    rdzv_value_free(&out[i]);
    if (!value_copy(&out[i], item.data, item.len)) return error_no_memory(call->error);
  }
  tcp_conn_consume(&tcp->conn);
  return 0;
}

static int ask_check(struct tcp_store *tcp, const struct tcp_args *args, bool *all, struct store_call *call) {
  tcp_put_keys(tcp, WIRE_CHECK, args->keys, args->count);
  int result = tcp_send(tcp, call);
  uint64_t absent;
  if (result == 0) result = tcp_answer_number(tcp, "b", &absent, call);
  if (result == 0) *all = absent == 0;
  return result;
}

/* Between two looks, if there is time for another one. The pauses grow. */
static int pause_looking(int64_t *pause, struct store_call *call) {
  if (deadline_left(call->until) == 0)
    return error_set(call->error, RDZV_E_TIMEOUT, "timed out after %lld ms", (long long)call->timeout_ms);
  const deadline next = deadline_after(jitter(*pause));
  *pause = *pause * 3 / 2 + 1 < LONGEST_LOOK_MS ? *pause * 3 / 2 + 1 : LONGEST_LOOK_MS;
  const int result = flag_pause(call->cancel, next < call->until ? next : call->until);
  return result < 0 ? error_set(call->error, result, "%s", rdzv_error_text(result)) : 0;
}

static int wait_v1(struct tcp_store *tcp, const struct tcp_args *args, struct store_call *call) {
  int64_t pause = FIRST_LOOK_MS;
  for (;;) {
    bool all = false;
    int result = ask_check(tcp, args, &all, call);
    if (result < 0 || all) return result;
    result = pause_looking(&pause, call);
    if (result < 0) return result;
  }
}

static int wait_v2(struct tcp_store *tcp, const struct tcp_args *args, struct store_call *call) {
  for (;;) {
    const deadline slice = deadline_after(WAIT_SLICE_MS);
    const bool last = call->until <= slice;
    tcp_put_keys(tcp, WIRE_WAIT, args->keys, args->count);
    int result = tcp_send(tcp, call);
    if (result == 0) result = tcp_blocking_answer(tcp, "", 0, last ? call->until : slice, call);
    if (result != RDZV_E_TIMEOUT || last) return result;
  }
}

/* Waits at a PyTorch server until the keys are there, or at least it says so. */
static int wait_foreign(struct tcp_store *tcp, const struct tcp_args *args, struct store_call *call) {
  return tcp->conn.dialect == WIRE_V1 ? wait_v1(tcp, args, call) : wait_v2(tcp, args, call);
}

/* ---- attempts ----------------------------------------------------------------------------------------------- */

int tcp_try_check(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct tcp_args *args = arg;
  return ask_check(tcp, args, args->flag_out, call);
}

int tcp_try_wait(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct tcp_args *args = arg;
  if (tcp_is_ours(tcp)) {
    tcp_put_keys(tcp, WIRE_WAIT, args->keys, args->count);
    const int result = tcp_send(tcp, call);
    return result < 0 ? result : tcp_blocking_answer(tcp, "", 0, call->until, call);
  }
  int64_t pause = FIRST_LOOK_MS;
  for (;;) {
    bool all = false;
    int result = wait_foreign(tcp, args, call);
    if (result == 0) result = ask_check(tcp, args, &all, call);
    if (result < 0 || all) return result;
    result = pause_looking(&pause, call);
    if (result < 0) return result;
  }
}

static int get_ours(struct tcp_store *tcp, const struct tcp_args *args, struct store_call *call) {
  tcp_put_keys(tcp, WIRE_GET_WAIT, args->keys, args->count);
  int result = tcp_send(tcp, call);
  if (result == 0) result = tcp_blocking_answer(tcp, "V", args->count, call->until, call);
  return result < 0 ? result : copy_list(tcp, args->out, args->count, call);
}

/* So many keys are asked for before the answers are read: a server that waits for us to read them does not read. */
enum { READ_BATCH = 100 };

static size_t batch_from(const struct tcp_args *args, size_t at) {
  return args->count - at < READ_BATCH ? args->count - at : READ_BATCH;
}

/* The answer to a swap of `never`: a value, or `never` itself where the key is not there. */
static int take_swapped(struct tcp_store *tcp, rdzv_value *out, bool *there, struct store_call *call) {
  const rdzv_bytes never = {tcp->never, sizeof tcp->never};
  int result = tcp_answer(tcp, "v", 0, call);
  if (result < 0) return result;
  *there = !bytes_equal(wire_field_bytes(&tcp->conn.scan, 0, tcp->conn.in.data), never);
  if (*there) result = copy_field(tcp, 0, out, call);
  if (result == 0) tcp_conn_consume(&tcp->conn);
  return result;
}

/* Reads each key in one look: swaps a value that nobody has for itself. *all: they were all there. */
static int read_by_swap(struct tcp_store *tcp, const struct tcp_args *args, bool *all, struct store_call *call) {
  const rdzv_bytes never = {tcp->never, sizeof tcp->never};
  int result = 0;
  *all = true;
  for (size_t at = 0; at < args->count && result == 0; at += READ_BATCH) {
    const size_t count = batch_from(args, at);
    for (size_t i = 0; i < count; i++) {
      tcp_put_op(tcp, WIRE_COMPARE_SET);
      tcp_put_key(tcp, args->keys[at + i]);
      tcp_put_value(tcp, never);
      tcp_put_value(tcp, never);
    }
    result = tcp_send(tcp, call);
    for (size_t i = 0; i < count && result == 0; i++) {
      bool there = false;
      result = take_swapped(tcp, &args->out[at + i], &there, call);
      *all &= there;
    }
  }
  return result;
}

/* *sure: none is empty. */
static int read_by_get(struct tcp_store *tcp, const struct tcp_args *args, bool *sure, struct store_call *call) {
  *sure = true;
  for (size_t at = 0; at < args->count; at += READ_BATCH) {
    const size_t count = batch_from(args, at);
    tcp_put_keys(tcp, WIRE_MULTI_GET, args->keys + at, count);
    int result = tcp_send(tcp, call);
    if (result == 0) result = tcp_answer(tcp, "V", count, call);
    if (result == 0) result = copy_list(tcp, args->out + at, count, call);
    if (result < 0) return result;
    for (size_t i = 0; i < count; i++) *sure &= args->out[at + i].len > 0;
  }
  return 0;
}

/* 2.x: its libuv server answers a get of an absent key with an empty value, so an empty value is read again by swap;
 * its other server closes the connection, so from then on this handle reads by swap. A swap comes only after the keys
 * were seen to be there, since the libuv server takes one that is refused for a write and wakes those who wait. */
static int read_v2(struct tcp_store *tcp, const struct tcp_args *args, bool *all, struct store_call *call) {
  bool sure = false;
  int result = tcp->gets_by_swap ? 0 : read_by_get(tcp, args, &sure, call);
  if (result == RDZV_E_CONNECTION) tcp->gets_by_swap = true;
  *all = sure;
  if (result < 0 || sure) return result;
  result = ask_check(tcp, args, all, call);
  return result < 0 || !*all ? result : read_by_swap(tcp, args, all, call);
}

/* Reads the values of keys that were there a moment ago. *all: they still were. */
static int read_foreign(struct tcp_store *tcp, const struct tcp_args *args, bool *all, struct store_call *call) {
  return tcp->conn.dialect == WIRE_V1 ? read_by_swap(tcp, args, all, call) : read_v2(tcp, args, all, call);
}

int tcp_try_get(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct tcp_args *args = arg;
  if (tcp_is_ours(tcp)) return get_ours(tcp, args, call);
  int64_t pause = FIRST_LOOK_MS;
  for (;;) { /* a key may have gone again since the wait, or only a queue has that name */
    bool all = false;
    int result = wait_foreign(tcp, args, call);
    if (result == 0) result = read_foreign(tcp, args, &all, call);
    if (result < 0 || all) return result;
    result = pause_looking(&pause, call);
    if (result < 0) return result;
  }
}

/* SET, APPEND, QUEUE_PUSH, MULTI_SET. */
int tcp_try_write(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct tcp_args *args = arg;
  tcp_put_op(tcp, args->op);
  if (args->op == WIRE_MULTI_SET) tcp_put_number(tcp, args->count);
  for (size_t i = 0; i < args->count; i++) {
    tcp_put_key(tcp, args->keys[i]);
    tcp_put_value(tcp, args->values[i]);
  }
  return settle_request(tcp, call);
}

/* 1.x has no MULTI_SET that both 1.13 and 2.1 know. */
int tcp_try_multi_set(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct tcp_args *args = arg;
  if (tcp->conn.dialect != WIRE_V1) return tcp_try_write(tcp, arg, call);
  for (size_t i = 0; i < args->count; i++) {
    tcp_put_op(tcp, WIRE_SET);
    tcp_put_key(tcp, args->keys[i]);
    tcp_put_value(tcp, args->values[i]);
  }
  return settle_request(tcp, call);
}

int tcp_try_compare_set(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct tcp_args *args = arg;
  tcp_put_op(tcp, WIRE_COMPARE_SET);
  tcp_put_key(tcp, args->keys[0]);
  tcp_put_value(tcp, args->values[0]);
  tcp_put_value(tcp, args->other);
  int result = tcp_send(tcp, call);
  if (result == 0) result = tcp_answer(tcp, "v", 0, call);
  if (result == 0) result = copy_field(tcp, 0, args->out, call);
  if (result == 0) tcp_conn_consume(&tcp->conn);
  return result;
}

/* ADD, NUM_KEYS, DELETE_KEY, QUEUE_LEN: a number is the answer. */
int tcp_try_number(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct tcp_args *args = arg;
  tcp_put_op(tcp, args->op);
  if (args->count) tcp_put_key(tcp, args->keys[0]);
  if (args->op == WIRE_ADD) tcp_put_number(tcp, args->number);
  const int result = tcp_send(tcp, call);
  return result < 0 ? result : tcp_answer_number(tcp, "n", args->number_out, call);
}

/* Is the value, where there is one, no number? Asked after a PyTorch server closed the connection on an ADD. */
int tcp_try_is_no_number(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct tcp_args *args = arg;
  bool there = false;
  int64_t unused;
  *args->flag_out = false;
  int result = ask_check(tcp, args, &there, call);
  if (result < 0 || !there) return result;
  result = read_foreign(tcp, args, &there, call);
  if (result == 0) *args->flag_out = there && ks_parse_number(rdzv_value_bytes(args->out), &unused) < 0;
  return result;
}

static int pop_ours(struct tcp_store *tcp, const struct tcp_args *args, struct store_call *call) {
  tcp_put_op(tcp, WIRE_QUEUE_POP_WAIT);
  tcp_put_key(tcp, args->keys[0]);
  const int result = tcp_send(tcp, call);
  return result < 0 ? result : tcp_blocking_answer(tcp, "v", 0, call->until, call);
}

/* RDZV_E_EMPTY leaves nothing to consume. */
static int pop_at_once(struct tcp_store *tcp, const struct tcp_args *args, struct store_call *call) {
  uint64_t len = 0;
  tcp_put_op(tcp, WIRE_QUEUE_POP);
  tcp_put_key(tcp, args->keys[0]);
  int result = tcp_send(tcp, call);
  if (result == 0) result = tcp_answer_number(tcp, "n", &len, call);
  if (result < 0) return result;
  return len > 0 ? tcp_more(tcp, "v", 0, call) : error_set(call->error, RDZV_E_EMPTY, "the queue is empty");
}

int tcp_try_queue_pop(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct tcp_args *args = arg;
  int result;
  if (!args->block) {
    result = pop_at_once(tcp, args, call);
  } else if (tcp_is_ours(tcp)) {
    result = pop_ours(tcp, args, call);
  } else {
    while ((result = pop_at_once(tcp, args, call)) == RDZV_E_EMPTY) {
      result = wait_foreign(tcp, args, call);
      if (result == 0) continue;
      tcp->conn.sent = false; /* no pop that was not answered */
      break;
    }
  }
  if (result == 0) result = copy_field(tcp, 0, args->out, call);
  if (result == 0) tcp_conn_consume(&tcp->conn);
  return result;
}

/* Users' keys begin with the slash that the client puts there; others are book-keeping. */
static bool take_user_key(rdzv_bytes key, rdzv_value *out) {
  return value_copy(out, (const char *)key.data + 1, key.len - 1);
}

static int copy_user_keys(rdzv_bytes list, size_t total, struct tcp_key_list *out, rdzv_error *error) {
  out->count = 0;
  out->keys = calloc(total ? total : 1, sizeof *out->keys);
  if (!out->keys) return error_no_memory(error);
  for (size_t i = 0; i < total; i++) {
    const rdzv_bytes key = wire_list_next(&list);
    if (key.len == 0 || *(const char *)key.data != '/') continue;
    if (!take_user_key(key, &out->keys[out->count])) {
      rdzv_values_free(out->keys, out->count);
      return error_no_memory(error);
    }
    out->count++;
  }
  return 0;
}

static int list_keys(struct tcp_store *tcp, void *arg, struct store_call *call) {
  uint64_t total = 0;
  tcp_put_op(tcp, WIRE_LIST_KEYS);
  int result = tcp_send(tcp, call);
  if (result == 0) result = tcp_answer_number(tcp, "n", &total, call);
  if (result == 0) result = tcp_more(tcp, "V", total, call);
  if (result < 0) return result;
  const rdzv_bytes list = wire_field_bytes(&tcp->conn.scan, 0, tcp->conn.in.data);
  result = copy_user_keys(list, (size_t)total, arg, call->error);
  tcp_conn_consume(&tcp->conn);
  return result;
}

/* ---- what only some servers can ------------------------------------------------------------------------------ */

static int need_rdzv(struct tcp_store *tcp, struct store_call *call) {
  if (tcp_is_ours(tcp)) return 0;
  return error_set(call->error, RDZV_E_UNSUPPORTED, "a PyTorch server has no versions");
}

int tcp_try_get_version(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct tcp_args *args = arg;
  int result = need_rdzv(tcp, call);
  if (result < 0) return result;
  tcp_put_op(tcp, WIRE_GET_VERSION);
  tcp_put_key(tcp, args->keys[0]);
  result = tcp_send(tcp, call);
  if (result == 0) result = tcp_answer(tcp, "nv", 0, call);
  if (result == 0) result = copy_field(tcp, 1, args->out, call);
  if (result < 0) return result;
  *args->number_out = tcp->conn.scan.field[0].number;
  tcp_conn_consume(&tcp->conn);
  return 0;
}

int tcp_try_compare_set_version(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct tcp_args *args = arg;
  int result = need_rdzv(tcp, call);
  if (result < 0) return result;
  tcp_put_op(tcp, WIRE_COMPARE_SET_VERSION);
  tcp_put_key(tcp, args->keys[0]);
  tcp_put_number(tcp, args->number);
  tcp_put_value(tcp, args->values[0]);
  result = tcp_send(tcp, call);
  if (result == 0) result = tcp_answer(tcp, "bnv", 0, call);
  if (result == 0) result = copy_field(tcp, 2, args->out, call);
  if (result < 0) return result;
  *args->flag_out = tcp->conn.scan.field[0].number != 0;
  *args->number_out = tcp->conn.scan.field[1].number;
  tcp_conn_consume(&tcp->conn);
  return 0;
}

int tcp_try_wait_changed(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct tcp_args *args = arg;
  int result = need_rdzv(tcp, call);
  if (result < 0) return result;
  tcp_put_op(tcp, WIRE_WAIT_CHANGED);
  tcp_put_key(tcp, args->keys[0]);
  tcp_put_number(tcp, args->number);
  result = tcp_send(tcp, call);
  if (result == 0) result = tcp_blocking_answer(tcp, "nv", 0, call->until, call);
  if (result == 0) result = copy_field(tcp, 1, args->out, call);
  if (result < 0) return result;
  *args->number_out = tcp->conn.scan.field[0].number;
  tcp_conn_consume(&tcp->conn);
  return 0;
}

static int no_v1(struct tcp_store *tcp, const char *since, struct store_call *call) {
  if (tcp->conn.dialect != WIRE_V1) return 0;
  return error_set(call->error, RDZV_E_UNSUPPORTED, "the server is PyTorch's of 1.x; PyTorch's has it %s", since);
}

/* Operations that came late to PyTorch's 2.x servers. One that does not know them closes the connection, and so may
 * anything else: after a write nobody could tell. */
struct newer {
  unsigned what;      /* TCP_QUEUES or TCP_LIST_KEYS */
  tcp_attempt *probe; /* a harmless one of them */
  void *args;
  const char *since;
};

static bool is_known(const struct tcp_store *tcp, const struct newer *newer) {
  return tcp_is_ours(tcp) || (tcp->conn.dialect == WIRE_V2 && (tcp->newer & newer->what));
}

/* Does what is harmless. A server that answers something else before, and then closes, every time, does not know it. */
static int ask_newer(struct tcp_store *tcp, const struct newer *newer, struct store_call *call) {
  enum { CLOSINGS = 4 }; /* as often as a call is tried */
  uint64_t unused;
  struct tcp_args num_keys = {.op = WIRE_NUM_KEYS, .number_out = &unused};
  int result = no_v1(tcp, newer->since, call);
  if (result == 0 && !is_known(tcp, newer)) result = tcp_try_number(tcp, &num_keys, call);
  if (result < 0) return result;
  result = newer->probe(tcp, newer->args, call);
  if (result == 0) tcp->newer |= newer->what;
  if (result != RDZV_E_CONNECTION || is_known(tcp, newer) || deadline_left(tcp->until) == 0) return result;
  if (++tcp->closings < CLOSINGS) return result;
  return error_set(call->error, RDZV_E_UNSUPPORTED, "the server closes the connection; PyTorch's has it %s",
                   newer->since);
}

int tcp_try_queue_op(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct tcp_queue_op *op = arg;
  const rdzv_bytes nobody = {0};
  uint64_t unused;
  struct tcp_args len = {.op = WIRE_QUEUE_LEN, .keys = &nobody, .count = 1, .number_out = &unused};
  const struct newer newer = {TCP_QUEUES, tcp_try_number, &len, "from 2.8 on"};
  if (!is_known(tcp, &newer)) {
    const int result = ask_newer(tcp, &newer, call);
    tcp->conn.sent = false; /* nothing of the operation */
    if (result < 0) return result;
  }
  return op->attempt(tcp, op->args, call);
}

int tcp_try_list_keys(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct newer newer = {TCP_LIST_KEYS, list_keys, arg, "since the end of 2025"};
  return ask_newer(tcp, &newer, call);
}

int tcp_try_append(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const int result = no_v1(tcp, "from 2.1 on", call);
  return result < 0 ? result : tcp_try_write(tcp, arg, call);
}
