/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on the values of keys: set, multi_set, append, compare_set, get, multi_get, add. */
#include "base/buf.h"
#include "base/error.h"
#include "store/keyspace/keyspace.h"
#include "store/tcp/ops/pytorch.h"

/* ---- set, multi_set, append ---------------------------------------------------------------------------------- */

static void put_set(struct tcp_store *tcp, rdzv_bytes key, rdzv_bytes value) {
  tcp_put_op_on(tcp, WIRE_OP_SET, key);
  tcp_put_value(tcp, value);
}

static int try_set(struct tcp_store *tcp, struct tcp_args *args) {
  put_set(tcp, args->keys[0], args->values[0]);
  return tcp_ask_done(tcp);
}

int tcp_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  static const struct tcp_op op = {"set", TCP_ONCE, try_set};
  struct tcp_args args = {.keys = &key, .values = &value, .count = 1};
  return tcp_run(store, &op, &args, call);
}

/* V1 has no MULTI_SET that both 1.13 and 2.1 know. */
static int try_multi_set(struct tcp_store *tcp, struct tcp_args *args) {
  if (tcp->conn.dialect == WIRE_DIALECT_V1) {
    for (size_t i = 0; i < args->count; i++) put_set(tcp, args->keys[i], args->values[i]);
    return tcp_ask_done(tcp);
  }
  tcp_put_op(tcp, WIRE_OP_MULTI_SET);
  tcp_put_number(tcp, args->count);
  for (size_t i = 0; i < args->count; i++) {
    tcp_put_key(tcp, args->keys[i]);
    tcp_put_value(tcp, args->values[i]);
  }
  return tcp_ask_done(tcp);
}

int tcp_multi_set(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                  struct store_call *call) {
  static const struct tcp_op op = {"set", TCP_ONCE, try_multi_set};
  struct tcp_args args = {.keys = keys, .values = values, .count = count};
  return tcp_run(store, &op, &args, call);
}

static int try_append(struct tcp_store *tcp, struct tcp_args *args) {
  const int result = pytorch_need_v2(tcp, "from 2.1 on");
  if (result < 0) return result;
  tcp_put_op_on(tcp, WIRE_OP_APPEND, args->keys[0]);
  tcp_put_value(tcp, args->values[0]);
  return tcp_ask_done(tcp);
}

int tcp_append(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  static const struct tcp_op op = {"append to", TCP_ONCE, try_append};
  struct tcp_args args = {.keys = &key, .values = &value, .count = 1};
  return tcp_run(store, &op, &args, call);
}

/* ---- compare_set --------------------------------------------------------------------------------------------- */

static int try_compare_set(struct tcp_store *tcp, struct tcp_args *args) {
  tcp_put_op_on(tcp, WIRE_OP_COMPARE_SET, args->keys[0]);
  tcp_put_value(tcp, args->values[0]);
  tcp_put_value(tcp, args->values[1]);
  const int result = tcp_ask(tcp, "v", 0);
  return result < 0 ? result : tcp_take_value(tcp, 0, args->out);
}

int tcp_compare_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_value *out,
                    struct store_call *call) {
  static const struct tcp_op op = {"compare and set", TCP_ONCE, try_compare_set};
  rdzv_value found = {0};
  struct tcp_args args = {.keys = &key, .values = (rdzv_bytes[]){expected, desired}, .count = 1, .out = &found};
  return store_give(tcp_run(store, &op, &args, call), &found, out);
}

/* ---- get, multi_get ------------------------------------------------------------------------------------------ */

static int try_get(struct tcp_store *tcp, struct tcp_args *args) {
  if (!tcp_is_ours(tcp)) return pytorch_get(tcp, args);
  tcp_put_op(tcp, WIRE_OP_GET_WAIT);
  tcp_put_keys(tcp, args->keys, args->count);
  const int result = tcp_ask_blocking(tcp, "V", args->count, tcp->call.until);
  return result < 0 ? result : tcp_take_values(tcp, args->out, args->count);
}

int tcp_multi_get(rdzv_store *store, const rdzv_bytes *keys, size_t count, rdzv_value *out, struct store_call *call) {
  static const struct tcp_op op = {"get", TCP_REPEATABLE | TCP_BLOCKS, try_get};
  struct tcp_args args = {.keys = keys, .count = count, .out = out};
  return tcp_run(store, &op, &args, call);
}

int tcp_get(rdzv_store *store, rdzv_bytes key, rdzv_value *out, struct store_call *call) {
  rdzv_value found = {0};
  return store_give(tcp_multi_get(store, &key, 1, &found, call), &found, out);
}

/* ---- add ----------------------------------------------------------------------------------------------------- */

static int try_add(struct tcp_store *tcp, struct tcp_args *args) {
  tcp_put_op_on(tcp, WIRE_OP_ADD, args->keys[0]);
  tcp_put_number(tcp, args->number);
  return tcp_ask_number(tcp, "n", &args->number_out);
}

/* Is there a value that is not a number? */
static int try_is_no_number(struct tcp_store *tcp, struct tcp_args *args) {
  bool there = false;
  int64_t unused;
  args->flag_out = false;
  int result = tcp_ask_check(tcp, args, &there);
  if (result < 0 || !there) return result;
  result = pytorch_read(tcp, args, &there);
  if (result == 0) args->flag_out = there && ks_parse_number(rdzv_value_bytes(args->out), &unused) < 0;
  return result;
}

/* A PyTorch server closes the connection if the value is not a number. That the value is not a number now is the likely
 * cause, but no proof: the add may have been done, and the value been replaced since. */
static int explain_add(rdzv_store *store, rdzv_bytes key, struct store_call *call) {
  static const struct tcp_op look_op = {"look at", TCP_REPEATABLE, try_is_no_number};
  rdzv_value value = {0};
  rdzv_error unused;
  struct tcp_args args = {.keys = &key, .count = 1, .out = &value};
  struct store_call inner = *call;
  inner.error = &unused;
  tcp_run(store, &look_op, &args, &inner);
  rdzv_value_free(&value);
  if (args.flag_out)
    error_set(
        call->error, RDZV_E_OUTCOME_UNKNOWN,
        "add to '%s' at '%s': it may or may not have taken effect: the server closed the connection, as PyTorch's "
        "does if the value is not a number, and it is not",
        bytes_quote(key).text, ((struct tcp_store *)store)->conn.name);
  return RDZV_E_OUTCOME_UNKNOWN;
}

int tcp_add(rdzv_store *store, rdzv_bytes key, int64_t delta, int64_t *sum, struct store_call *call) {
  static const struct tcp_op op = {"add to", TCP_ONCE, try_add};
  struct tcp_args args = {.keys = &key, .count = 1, .number = (uint64_t)delta};
  const int result = tcp_run(store, &op, &args, call);
  if (result == RDZV_E_OUTCOME_UNKNOWN && tcp_dialect((struct tcp_store *)store) != WIRE_DIALECT_RDZV)
    return explain_add(store, key, call);
  if (result == 0) *sum = (int64_t)args.number_out;
  return result;
}
