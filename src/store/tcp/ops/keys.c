/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on keys: check, wait, delete_key, num_keys, list_keys. */
#include "base/buf.h"
#include "base/error.h"
#include "store/tcp/ops/pytorch.h"

#include <stdlib.h>

/* ---- check, wait --------------------------------------------------------------------------------------------- */

static int try_check(struct tcp_store *tcp, struct tcp_args *args) { return tcp_ask_check(tcp, args, &args->flag_out); }

int tcp_check(rdzv_store *store, const rdzv_bytes *keys, size_t count, bool *all, struct store_call *call) {
  static const struct tcp_op op = {"check", TCP_REPEATABLE, try_check};
  struct tcp_args args = {.keys = keys, .count = count};
  const int result = tcp_run(store, &op, &args, call);
  if (result == 0) *all = args.flag_out;
  return result;
}

static int try_wait(struct tcp_store *tcp, struct tcp_args *args) {
  if (!tcp_is_ours(tcp)) return pytorch_wait(tcp, args);
  tcp_put_op(tcp, WIRE_OP_WAIT);
  tcp_put_keys(tcp, args->keys, args->count);
  return tcp_ask_blocking(tcp, "", 0, tcp->call.until);
}

int tcp_wait(rdzv_store *store, const rdzv_bytes *keys, size_t count, struct store_call *call) {
  static const struct tcp_op op = {"wait for", TCP_REPEATABLE | TCP_BLOCKS, try_wait};
  struct tcp_args args = {.keys = keys, .count = count};
  return tcp_run(store, &op, &args, call);
}

/* ---- delete_key, num_keys ------------------------------------------------------------------------------------ */

static int try_delete_key(struct tcp_store *tcp, struct tcp_args *args) {
  tcp_put_op_on(tcp, WIRE_OP_DELETE_KEY, args->keys[0]);
  return tcp_ask_number(tcp, "n", &args->number_out);
}

int tcp_delete_key(rdzv_store *store, rdzv_bytes key, bool *deleted, struct store_call *call) {
  static const struct tcp_op op = {"delete", TCP_ONCE, try_delete_key};
  struct tcp_args args = {.keys = &key, .count = 1};
  const int result = tcp_run(store, &op, &args, call);
  if (result == 0) *deleted = args.number_out != 0;
  return result;
}

static int try_num_keys(struct tcp_store *tcp, struct tcp_args *args) {
  tcp_put_op(tcp, WIRE_OP_NUM_KEYS);
  return tcp_ask_number(tcp, "n", &args->number_out);
}

int tcp_num_keys(rdzv_store *store, int64_t *count, struct store_call *call) {
  static const struct tcp_op op = {"count the keys", TCP_REPEATABLE, try_num_keys};
  struct tcp_args args = {0};
  const int result = tcp_run(store, &op, &args, call);
  if (result == 0) *count = (int64_t)args.number_out;
  return result;
}

/* ---- list_keys ----------------------------------------------------------------------------------------------- */

/* Copies the users' keys of the list in the answer. They begin with the slash that clients put there; other keys are
 * PyTorch's own. */
static int copy_user_keys(struct tcp_store *tcp, size_t total, struct tcp_args *args) {
  rdzv_bytes list = wire_field_bytes(&tcp->conn.scan, 0, tcp->conn.in.data);
  rdzv_value *keys = calloc(total ? total : 1, sizeof *keys);
  if (!keys) return error_no_memory(tcp->call.error);
  size_t count = 0;
  for (size_t i = 0; i < total; i++) {
    const rdzv_bytes key = wire_list_next(&list);
    if (key.len == 0 || *(const char *)key.data != '/') continue;
    if (!value_copy(&keys[count], (const char *)key.data + 1, key.len - 1)) {
      rdzv_values_free(keys, count);
      return error_no_memory(tcp->call.error);
    }
    count++;
  }
  args->out = keys;
  args->number_out = count;
  return 0;
}

static int list_keys(struct tcp_store *tcp, struct tcp_args *args) {
  uint64_t total = 0;
  tcp_put_op(tcp, WIRE_OP_LIST_KEYS);
  int result = tcp_ask_number(tcp, "n", &total);
  if (result == 0) result = tcp_more(tcp, "V", total);
  if (result == 0) result = copy_user_keys(tcp, (size_t)total, args);
  if (result == 0) tcp_conn_consume(&tcp->conn);
  return result;
}

static int try_list_keys(struct tcp_store *tcp, struct tcp_args *args) {
  return pytorch_try_newer(tcp, PYTORCH_LIST_KEYS, list_keys, args, "since the end of 2025");
}

int tcp_list_keys(rdzv_store *store, rdzv_value **out, size_t *count, struct store_call *call) {
  static const struct tcp_op op = {"list the keys", TCP_REPEATABLE, try_list_keys};
  struct tcp_args args = {0};
  const int result = tcp_run(store, &op, &args, call);
  if (result < 0) return result;
  *out = args.out;
  *count = (size_t)args.number_out;
  return 0;
}
