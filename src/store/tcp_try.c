/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp_try.h"

#include "base/error.h"
#include "store/keyspace.h"

#include <stdlib.h>

enum {
  WAIT_SLICE_MS = 1000, /* of a wait at a PyTorch 2.x server */
  FIRST_LOOK_MS = 1,    /* between two checks at a 1.x server */
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

static int wait_v1(struct tcp_store *tcp, const struct tcp_args *args, struct store_call *call) {
  int64_t pause = FIRST_LOOK_MS;
  for (;;) {
    bool all = false;
    int result = ask_check(tcp, args, &all, call);
    if (result < 0 || all) return result;
    if (deadline_left(call->until) == 0)
      return error_set(call->error, RDZV_E_TIMEOUT, "timed out after %lld ms", (long long)call->timeout_ms);
    const deadline next = deadline_after(jitter(pause));
    result = cancel_pause(call->cancel, next < call->until ? next : call->until);
    if (result < 0) return error_set(call->error, result, "%s", rdzv_error_text(result));
    pause = pause * 3 / 2 + 1 < LONGEST_LOOK_MS ? pause * 3 / 2 + 1 : LONGEST_LOOK_MS;
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

/* It said so and was wrong: is there time to wait again? */
static int wait_again(struct store_call *call) {
  if (deadline_left(call->until) > 0) return 0;
  return error_set(call->error, RDZV_E_TIMEOUT, "timed out after %lld ms", (long long)call->timeout_ms);
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
  for (;;) {
    bool all = false;
    int result = wait_foreign(tcp, args, call);
    if (result == 0) result = ask_check(tcp, args, &all, call);
    if (result < 0 || all) return result;
    result = wait_again(call);
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

static int read_batch_v1(struct tcp_store *tcp, const rdzv_bytes *keys, size_t count, rdzv_value *out,
                         struct store_call *call) {
  for (size_t i = 0; i < count; i++) {
    tcp_put_op(tcp, WIRE_GET);
    tcp_put_key(tcp, keys[i]);
  }
  int result = tcp_send(tcp, call);
  for (size_t i = 0; i < count && result == 0; i++) {
    result = tcp_answer(tcp, "v", 0, call);
    if (result == 0) result = copy_field(tcp, 0, &out[i], call);
    if (result == 0) tcp_conn_consume(&tcp->conn);
  }
  return result;
}

static int read_batch_v2(struct tcp_store *tcp, const rdzv_bytes *keys, size_t count, rdzv_value *out,
                         struct store_call *call) {
  tcp_put_keys(tcp, WIRE_MULTI_GET, keys, count);
  int result = tcp_send(tcp, call);
  if (result == 0) result = tcp_answer(tcp, "V", count, call);
  return result < 0 ? result : copy_list(tcp, out, count, call);
}

/* Reads the values of keys that are there. *all: they still are. A 1.x server closes the connection where one is not; a
 * 2.x server may answer an empty value, so where there is one the keys are checked. */
static int read_foreign(struct tcp_store *tcp, const struct tcp_args *args, bool *all, struct store_call *call) {
  const bool v1 = tcp->conn.dialect == WIRE_V1;
  bool empty = false;
  for (size_t at = 0; at < args->count; at += READ_BATCH) {
    const size_t count = args->count - at < READ_BATCH ? args->count - at : READ_BATCH;
    const int result = (v1 ? read_batch_v1 : read_batch_v2)(tcp, args->keys + at, count, args->out + at, call);
    if (result < 0) return result;
    for (size_t i = 0; i < count; i++) empty |= args->out[at + i].len == 0;
  }
  *all = true;
  return empty && !v1 ? ask_check(tcp, args, all, call) : 0;
}

int tcp_try_get(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct tcp_args *args = arg;
  if (tcp_is_ours(tcp)) return get_ours(tcp, args, call);
  for (;;) {
    bool all = false;
    int result = wait_foreign(tcp, args, call);
    if (result == 0) result = read_foreign(tcp, args, &all, call);
    if (result < 0 || all) return result;
    result = wait_again(call);
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
    if (result == RDZV_E_TIMEOUT && tcp->conn.fd < 0)
      return error_set(call->error, RDZV_E_OUTCOME_UNKNOWN, "the server did not say whether it gave up an item");
  } else {
    while ((result = pop_at_once(tcp, args, call)) == RDZV_E_EMPTY) {
      result = wait_foreign(tcp, args, call);
      if (result < 0) break;
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

/* An operation that came late to PyTorch's 2.x servers. One that does not know it closes the connection. */
struct newer {
  tcp_attempt *attempt;
  void *args;
  tcp_attempt *probe; /* harmless, and known to the same servers */
  const char *since;
};

static int no_v1(struct tcp_store *tcp, const char *since, struct store_call *call) {
  if (tcp->conn.dialect != WIRE_V1) return 0;
  return error_set(call->error, RDZV_E_UNSUPPORTED, "the server is PyTorch's of 1.x; PyTorch's has it %s", since);
}

/* Was the connection lost because of the operation? Then it happens again on a new one. */
static int try_newer(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct newer *newer = arg;
  int result = no_v1(tcp, newer->since, call);
  if (result == 0) result = newer->attempt(tcp, newer->args, call);
  if (result != RDZV_E_CONNECTION || tcp_is_ours(tcp) || deadline_left(tcp->until) == 0) return result;
  rdzv_error lost = *call->error;
  const bool sent = tcp->conn.sent;
  tcp_conn_drop(&tcp->conn);
  result = tcp_conn_open(&tcp->conn, tcp->until, call->cancel, call->error);
  if (result == 0 && newer->probe(tcp, NULL, call) == RDZV_E_CONNECTION && deadline_left(tcp->until) > 0) {
    tcp_conn_drop(&tcp->conn);
    return error_set(call->error, RDZV_E_UNSUPPORTED, "the server closes the connection; PyTorch's has it %s",
                     newer->since);
  }
  *call->error = lost;
  tcp->conn.sent = sent;
  return RDZV_E_CONNECTION;
}

static int probe_queues(struct tcp_store *tcp, void *unused, struct store_call *call) {
  (void)unused;
  const rdzv_bytes key = {0};
  uint64_t len;
  const struct tcp_args args = {.op = WIRE_QUEUE_LEN, .keys = &key, .count = 1, .number_out = &len};
  return tcp_try_number(tcp, (void *)&args, call);
}

static int probe_list_keys(struct tcp_store *tcp, void *unused, struct store_call *call) {
  (void)unused;
  struct tcp_key_list list;
  const int result = list_keys(tcp, &list, call);
  if (result == 0) rdzv_values_free(list.keys, list.count);
  return result;
}

int tcp_try_queue_op(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct tcp_queue_op *op = arg;
  struct newer newer = {op->attempt, op->args, probe_queues, "from 2.8 on"};
  return try_newer(tcp, &newer, call);
}

int tcp_try_list_keys(struct tcp_store *tcp, void *arg, struct store_call *call) {
  struct newer newer = {list_keys, arg, probe_list_keys, "since the end of 2025"};
  return try_newer(tcp, &newer, call);
}

int tcp_try_append(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const int result = no_v1(tcp, "from 2.1 on", call);
  return result < 0 ? result : tcp_try_write(tcp, arg, call);
}
