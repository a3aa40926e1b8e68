/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store of a TCPStore server: what each operation says in each dialect.
 *
 * Our own server has one request for each operation. PyTorch's want some help:
 * - SET, APPEND, MULTI_SET and QUEUE_PUSH have no answer; a NUM_KEYS behind them in the same segment has one, which
 *   shows that they have arrived;
 * - a WAIT may end although a key is not there (2.x with libuv, after a failed COMPARE_SET) or go on although it is
 *   (1.x, and 2.x without libuv, after a COMPARE_SET): so it is asked anew each second, and the keys are checked;
 * - 1.x cannot take a WAIT back, so there the keys are checked again and again instead;
 * - they close the connection where they cannot do what they are asked.
 */
#include "base/error.h"
#include "base/options.h"
#include "store/keyspace.h"
#include "store/tcp_call.h"

#include <rdzv/server.h>
#include <stdio.h>
#include <stdlib.h>

enum {
  WAIT_SLICE_MS = 1000, /* of a wait at a PyTorch 2.x server */
  FIRST_LOOK_MS = 1,    /* between two checks at a 1.x server */
  LONGEST_LOOK_MS = 250,
};

static struct tcp_store *self(rdzv_store *store) { return (struct tcp_store *)store; }

/* What the attempts get: the arguments of the operation and places for its results. */
struct args {
  enum wire_op op;
  const rdzv_bytes *keys;
  const rdzv_bytes *values;
  size_t count;
  rdzv_bytes other; /* compare_set's desired value */
  uint64_t number;
  bool block;
  rdzv_value *out; /* count of them */
  uint64_t *number_out;
  bool *flag_out;
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

static int ask_check(struct tcp_store *tcp, const struct args *args, bool *all, struct store_call *call) {
  tcp_put_keys(tcp, WIRE_CHECK, args->keys, args->count);
  int result = tcp_send(tcp, call);
  uint64_t absent;
  if (result == 0) result = tcp_answer_number(tcp, "b", &absent, call);
  if (result == 0) *all = absent == 0;
  return result;
}

static int wait_v1(struct tcp_store *tcp, const struct args *args, struct store_call *call) {
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

static int wait_v2(struct tcp_store *tcp, const struct args *args, struct store_call *call) {
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
static int wait_foreign(struct tcp_store *tcp, const struct args *args, struct store_call *call) {
  return tcp->conn.dialect == WIRE_V1 ? wait_v1(tcp, args, call) : wait_v2(tcp, args, call);
}

/* It said so and was wrong: is there time to wait again? */
static int wait_again(struct store_call *call) {
  if (deadline_left(call->until) > 0) return 0;
  return error_set(call->error, RDZV_E_TIMEOUT, "timed out after %lld ms", (long long)call->timeout_ms);
}

/* ---- attempts ----------------------------------------------------------------------------------------------- */

static int try_check(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct args *args = arg;
  return ask_check(tcp, args, args->flag_out, call);
}

static int try_wait(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct args *args = arg;
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

static int get_ours(struct tcp_store *tcp, const struct args *args, struct store_call *call) {
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
static int read_foreign(struct tcp_store *tcp, const struct args *args, bool *all, struct store_call *call) {
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

static int try_get(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct args *args = arg;
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
static int try_write(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct args *args = arg;
  tcp_put_op(tcp, args->op);
  if (args->op == WIRE_MULTI_SET) tcp_put_number(tcp, args->count);
  for (size_t i = 0; i < args->count; i++) {
    tcp_put_key(tcp, args->keys[i]);
    tcp_put_value(tcp, args->values[i]);
  }
  return settle_request(tcp, call);
}

/* 1.x has no MULTI_SET that both 1.13 and 2.1 know. */
static int try_multi_set(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct args *args = arg;
  if (tcp->conn.dialect != WIRE_V1) return try_write(tcp, arg, call);
  for (size_t i = 0; i < args->count; i++) {
    tcp_put_op(tcp, WIRE_SET);
    tcp_put_key(tcp, args->keys[i]);
    tcp_put_value(tcp, args->values[i]);
  }
  return settle_request(tcp, call);
}

static int try_compare_set(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct args *args = arg;
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
static int try_number(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct args *args = arg;
  tcp_put_op(tcp, args->op);
  if (args->count) tcp_put_key(tcp, args->keys[0]);
  if (args->op == WIRE_ADD) tcp_put_number(tcp, args->number);
  const int result = tcp_send(tcp, call);
  return result < 0 ? result : tcp_answer_number(tcp, "n", args->number_out, call);
}

/* Is the value, where there is one, no number? Asked after a PyTorch server closed the connection on an ADD. */
static int try_is_no_number(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct args *args = arg;
  bool there = false;
  int64_t unused;
  *args->flag_out = false;
  int result = ask_check(tcp, args, &there, call);
  if (result < 0 || !there) return result;
  result = read_foreign(tcp, args, &there, call);
  if (result == 0) *args->flag_out = there && ks_parse_number(rdzv_value_bytes(args->out), &unused) < 0;
  return result;
}

static int pop_ours(struct tcp_store *tcp, const struct args *args, struct store_call *call) {
  tcp_put_op(tcp, WIRE_QUEUE_POP_WAIT);
  tcp_put_key(tcp, args->keys[0]);
  const int result = tcp_send(tcp, call);
  return result < 0 ? result : tcp_blocking_answer(tcp, "v", 0, call->until, call);
}

/* RDZV_E_EMPTY leaves nothing to consume. */
static int pop_at_once(struct tcp_store *tcp, const struct args *args, struct store_call *call) {
  uint64_t len = 0;
  tcp_put_op(tcp, WIRE_QUEUE_POP);
  tcp_put_key(tcp, args->keys[0]);
  int result = tcp_send(tcp, call);
  if (result == 0) result = tcp_answer_number(tcp, "n", &len, call);
  if (result < 0) return result;
  return len > 0 ? tcp_more(tcp, "v", 0, call) : error_set(call->error, RDZV_E_EMPTY, "the queue is empty");
}

static int try_queue_pop(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct args *args = arg;
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

struct key_list {
  rdzv_value *keys;
  size_t count;
};

/* Users' keys begin with the slash that the client puts there; others are book-keeping. */
static bool take_user_key(rdzv_bytes key, rdzv_value *out) {
  return value_copy(out, (const char *)key.data + 1, key.len - 1);
}

static int copy_user_keys(rdzv_bytes list, size_t total, struct key_list *out, rdzv_error *error) {
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

static int try_list_keys(struct tcp_store *tcp, void *arg, struct store_call *call) {
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

static int try_get_version(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct args *args = arg;
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

static int try_compare_set_version(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct args *args = arg;
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

static int try_wait_changed(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const struct args *args = arg;
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
  const struct args args = {.op = WIRE_QUEUE_LEN, .keys = &key, .count = 1, .number_out = &len};
  return try_number(tcp, (void *)&args, call);
}

static int probe_list_keys(struct tcp_store *tcp, void *unused, struct store_call *call) {
  (void)unused;
  struct key_list list;
  const int result = try_list_keys(tcp, &list, call);
  if (result == 0) rdzv_values_free(list.keys, list.count);
  return result;
}

static int run_queue_op(rdzv_store *store, const char *what, const rdzv_bytes *key, unsigned kind, tcp_attempt *attempt,
                        void *args, struct store_call *call) {
  struct newer newer = {attempt, args, probe_queues, "from 2.8 on"};
  return tcp_run(store, what, key, 1, kind, try_newer, &newer, call);
}

static int try_append(struct tcp_store *tcp, void *arg, struct store_call *call) {
  const int result = no_v1(tcp, "from 2.1 on", call);
  return result < 0 ? result : try_write(tcp, arg, call);
}

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
  struct args args = {.op = WIRE_SET, .keys = &key, .values = &value, .count = 1};
  return tcp_run(store, "set", &key, 1, TCP_REPEATABLE, try_write, &args, call);
}

static int tcp_multi_get(rdzv_store *store, const rdzv_bytes *keys, size_t count, rdzv_value *out,
                         struct store_call *call) {
  struct args args = {.keys = keys, .count = count, .out = out};
  return tcp_run(store, "get", keys, count, TCP_REPEATABLE | TCP_BLOCKS, try_get, &args, call);
}

static int tcp_get(rdzv_store *store, rdzv_bytes key, rdzv_value *out, struct store_call *call) {
  rdzv_value value = {0};
  return give(tcp_multi_get(store, &key, 1, &value, call), &value, out);
}

static int tcp_compare_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_value *out,
                           struct store_call *call) {
  rdzv_value value = {0};
  struct args args = {.keys = &key, .values = &expected, .count = 1, .other = desired, .out = &value};
  return give(tcp_run(store, "compare and set", &key, 1, TCP_ONCE, try_compare_set, &args, call), &value, out);
}

/* As last seen, without taking the handle's turn. */
static enum wire_dialect dialect_of(struct tcp_store *tcp) {
  pthread_mutex_lock(&tcp->lock);
  const enum wire_dialect dialect = tcp->facts.dialect;
  pthread_mutex_unlock(&tcp->lock);
  return dialect;
}

/* A PyTorch server closes the connection if the value is no number. Then the add was surely not done, and that is a
 * better answer than "unknown". */
static int explain_add(rdzv_store *store, rdzv_bytes key, struct store_call *call) {
  bool no_number = false;
  rdzv_value value = {0};
  rdzv_error unused;
  struct args args = {.keys = &key, .count = 1, .out = &value, .flag_out = &no_number};
  struct store_call inner = *call;
  inner.error = &unused;
  tcp_run(store, "look at", &key, 1, TCP_REPEATABLE, try_is_no_number, &args, &inner);
  rdzv_value_free(&value);
  if (!no_number) return RDZV_E_OUTCOME_UNKNOWN;
  return error_set(call->error, RDZV_E_NOT_A_NUMBER, "add to '%s' at '%s': the value is not a number",
                   bytes_quote(key).text, self(store)->conn.name);
}

static int tcp_add(rdzv_store *store, rdzv_bytes key, int64_t delta, int64_t *sum, struct store_call *call) {
  uint64_t number;
  struct args args = {.op = WIRE_ADD, .keys = &key, .count = 1, .number = (uint64_t)delta, .number_out = &number};
  const int result = tcp_run(store, "add to", &key, 1, TCP_ONCE, try_number, &args, call);
  if (result == RDZV_E_OUTCOME_UNKNOWN && dialect_of(self(store)) != WIRE_RDZV) return explain_add(store, key, call);
  if (result == 0) *sum = (int64_t)number;
  return result;
}

static int tcp_check(rdzv_store *store, const rdzv_bytes *keys, size_t count, bool *all, struct store_call *call) {
  struct args args = {.keys = keys, .count = count, .flag_out = all};
  return tcp_run(store, "check", keys, count, TCP_REPEATABLE, try_check, &args, call);
}

static int tcp_wait(rdzv_store *store, const rdzv_bytes *keys, size_t count, struct store_call *call) {
  struct args args = {.keys = keys, .count = count};
  return tcp_run(store, "wait for", keys, count, TCP_REPEATABLE | TCP_BLOCKS, try_wait, &args, call);
}

static int tcp_delete_key(rdzv_store *store, rdzv_bytes key, bool *deleted, struct store_call *call) {
  uint64_t number;
  struct args args = {.op = WIRE_DELETE_KEY, .keys = &key, .count = 1, .number_out = &number};
  const int result = tcp_run(store, "delete", &key, 1, TCP_ONCE, try_number, &args, call);
  if (result == 0) *deleted = number != 0;
  return result;
}

static int tcp_num_keys(rdzv_store *store, int64_t *count, struct store_call *call) {
  uint64_t number;
  struct args args = {.op = WIRE_NUM_KEYS, .number_out = &number};
  const int result = tcp_run(store, "count the keys", NULL, 0, TCP_REPEATABLE, try_number, &args, call);
  if (result == 0) *count = (int64_t)number;
  return result;
}

static int tcp_append(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  struct args args = {.op = WIRE_APPEND, .keys = &key, .values = &value, .count = 1};
  return tcp_run(store, "append to", &key, 1, TCP_ONCE, try_append, &args, call);
}

static int tcp_multi_set(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                         struct store_call *call) {
  struct args args = {.op = WIRE_MULTI_SET, .keys = keys, .values = values, .count = count};
  return tcp_run(store, "set", keys, count, TCP_REPEATABLE, try_multi_set, &args, call);
}

static int tcp_list_keys(rdzv_store *store, rdzv_value **out, size_t *count, struct store_call *call) {
  struct key_list list;
  struct newer newer = {try_list_keys, &list, probe_list_keys, "since the end of 2025"};
  const int result = tcp_run(store, "list the keys", NULL, 0, TCP_REPEATABLE, try_newer, &newer, call);
  if (result < 0) return result;
  *out = list.keys;
  *count = list.count;
  return 0;
}

static int tcp_queue_push(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  struct args args = {.op = WIRE_QUEUE_PUSH, .keys = &key, .values = &value, .count = 1};
  return run_queue_op(store, "push to", &key, TCP_ONCE, try_write, &args, call);
}

static int tcp_queue_pop(rdzv_store *store, rdzv_bytes key, bool block, rdzv_value *out, struct store_call *call) {
  rdzv_value value = {0};
  struct args args = {.keys = &key, .count = 1, .block = block, .out = &value};
  const unsigned kind = block ? TCP_ONCE | TCP_BLOCKS : TCP_ONCE;
  return give(run_queue_op(store, "pop from", &key, kind, try_queue_pop, &args, call), &value, out);
}

static int tcp_queue_len(rdzv_store *store, rdzv_bytes key, int64_t *len, struct store_call *call) {
  uint64_t number;
  struct args args = {.op = WIRE_QUEUE_LEN, .keys = &key, .count = 1, .number_out = &number};
  const int result = run_queue_op(store, "count", &key, TCP_REPEATABLE, try_number, &args, call);
  if (result == 0) *len = (int64_t)number;
  return result;
}

static int tcp_get_version(rdzv_store *store, rdzv_bytes key, rdzv_value *out, uint64_t *version,
                           struct store_call *call) {
  rdzv_value value = {0};
  struct args args = {.keys = &key, .count = 1, .out = &value, .number_out = version};
  return give(tcp_run(store, "get", &key, 1, TCP_REPEATABLE, try_get_version, &args, call), &value, out);
}

static int tcp_compare_set_version(rdzv_store *store, rdzv_bytes key, uint64_t expected, rdzv_bytes desired,
                                   bool *swapped, rdzv_value *out, uint64_t *version, struct store_call *call) {
  rdzv_value value = {0};
  struct args args = {.keys = &key,
                      .values = &desired,
                      .count = 1,
                      .number = expected,
                      .out = &value,
                      .number_out = version,
                      .flag_out = swapped};
  return give(tcp_run(store, "compare and set", &key, 1, TCP_ONCE, try_compare_set_version, &args, call), &value, out);
}

static int tcp_wait_changed(rdzv_store *store, rdzv_bytes key, uint64_t known, rdzv_value *out, uint64_t *version,
                            struct store_call *call) {
  rdzv_value value = {0};
  struct args args = {.keys = &key, .count = 1, .number = known, .out = &value, .number_out = version};
  return give(
      tcp_run(store, "wait for a change of", &key, 1, TCP_REPEATABLE | TCP_BLOCKS, try_wait_changed, &args, call),
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

static unsigned tcp_features(rdzv_store *store) {
  const unsigned all = RDZV_STORE_APPEND | RDZV_STORE_QUEUES | RDZV_STORE_LIST_KEYS | RDZV_STORE_VERSIONS;
  const enum wire_dialect dialect = dialect_of(self(store));
  return dialect == WIRE_RDZV ? all : dialect == WIRE_V2 ? RDZV_STORE_APPEND : 0;
}

static const char *tcp_describe(rdzv_store *store) {
  static const char *const names[] = {"not connected", "PyTorch 1.x", "PyTorch 2.x", "rdzv"};
  struct tcp_store *tcp = self(store);
  pthread_mutex_lock(&tcp->lock);
  snprintf(tcp->text, sizeof tcp->text, "tcp %s (%s, %s)", tcp->conn.name, tcp->facts.peer, names[tcp->facts.dialect]);
  pthread_mutex_unlock(&tcp->lock);
  return tcp->text;
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

static int open_handle(const struct endpoint *endpoint, const rdzv_tcp_options *options, const struct cancel *cancel,
                       rdzv_store **out, rdzv_error *error);

static int tcp_clone(rdzv_store *store, rdzv_store **out, rdzv_error *error) {
  rdzv_tcp_options options = self(store)->options;
  options.announce_worker = false; /* it is the same worker */
  return open_handle(&self(store)->conn.endpoint, &options, &store->cancel, out, error);
}

static const struct store_ops tcp_ops = {
    .name = "tcp",
    .close = tcp_close,
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
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&tcp->turn_is_over, &monotonic);
  pthread_condattr_destroy(&monotonic);
  pthread_mutex_init(&tcp->lock, NULL);
}

/* `cancel` is whose flag can stop the opening; NULL: the new handle's own, for its descriptor. */
static int open_handle(const struct endpoint *endpoint, const rdzv_tcp_options *options, const struct cancel *cancel,
                       rdzv_store **out, rdzv_error *error) {
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
  init_turn(tcp);
  struct store_call call = {tcp->options.timeout_ms, deadline_after(tcp->options.timeout_ms),
                            cancel ? cancel : &tcp->base.cancel, error};
  result = tcp_run(&tcp->base, "open the store", NULL, 0, TCP_ONCE,
                   options->announce_worker ? try_announce : try_nothing, NULL, &call);
  if (result < 0)
    tcp_close(&tcp->base);
  else
    *out = &tcp->base;
  return result;
}

int rdzv_store_open_tcp(const char *endpoint, const rdzv_tcp_options *options, rdzv_store **out, rdzv_error *error) {
  rdzv_tcp_options own;
  struct endpoint parsed;
  int result = options_copy(&own, sizeof own, options, error);
  if (result == 0) result = endpoint_parse(endpoint, RDZV_DEFAULT_PORT, &parsed, error);
  if (result == 0 && (own.dialect < RDZV_DIALECT_AUTO || own.dialect > RDZV_DIALECT_RDZV))
    result = error_set(error, RDZV_E_INVALID, "invalid dialect %d", (int)own.dialect);
  return result < 0 ? result : open_handle(&parsed, &own, NULL, out, error);
}
