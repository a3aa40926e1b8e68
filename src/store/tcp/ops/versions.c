/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on the versions of keys, which only our own server has: get_version, compare_set_version, wait_changed. */
#include "base/error.h"
#include "store/tcp/call.h"
#include "store/tcp/message.h"

static int need_versions(struct tcp_store *tcp) {
  if (tcp_is_ours(tcp)) return 0;
  return error_set(tcp->call.error, RDZV_E_UNSUPPORTED, "a PyTorch server has no versions");
}

/* Takes a version, field i, and the value behind it. */
static int take_version(struct tcp_store *tcp, int i, struct tcp_args *args) {
  args->number_out = tcp_number(tcp, i);
  return tcp_take_value(tcp, i + 1, args->out);
}

static int give_version(int result, struct tcp_args *args, rdzv_value *out, uint64_t *version) {
  if (result == 0) *version = args->number_out;
  return store_give(result, args->out, out);
}

static int try_get_version(struct tcp_store *tcp, struct tcp_args *args) {
  int result = need_versions(tcp);
  if (result < 0) return result;
  tcp_put_op_on(tcp, WIRE_OP_GET_VERSION, args->keys[0]);
  result = tcp_ask(tcp, "nv", 0);
  return result < 0 ? result : take_version(tcp, 0, args);
}

int tcp_get_version(rdzv_store *store, rdzv_bytes key, rdzv_value *out, uint64_t *version, struct store_call *call) {
  static const struct tcp_op op = {"get", TCP_REPEATABLE, try_get_version};
  struct tcp_args args = {.keys = &key, .count = 1, .out = &(rdzv_value){0}};
  return give_version(tcp_run(store, &op, &args, call), &args, out, version);
}

static int try_compare_set_version(struct tcp_store *tcp, struct tcp_args *args) {
  int result = need_versions(tcp);
  if (result < 0) return result;
  tcp_put_op_on(tcp, WIRE_OP_COMPARE_SET_VERSION, args->keys[0]);
  tcp_put_number(tcp, args->number);
  tcp_put_value(tcp, args->values[0]);
  result = tcp_ask(tcp, "bnv", 0);
  if (result < 0) return result;
  args->flag_out = tcp_number(tcp, 0) != 0;
  return take_version(tcp, 1, args);
}

int tcp_compare_set_version(rdzv_store *store, rdzv_bytes key, uint64_t expected, rdzv_bytes desired, bool *swapped,
                            rdzv_value *out, uint64_t *version, struct store_call *call) {
  static const struct tcp_op op = {"compare and set", TCP_ONCE, try_compare_set_version};
  struct tcp_args args = {.keys = &key, .values = &desired, .count = 1, .number = expected, .out = &(rdzv_value){0}};
  const int result = give_version(tcp_run(store, &op, &args, call), &args, out, version);
  if (result == 0) *swapped = args.flag_out;
  return result;
}

static int try_wait_changed(struct tcp_store *tcp, struct tcp_args *args) {
  int result = need_versions(tcp);
  if (result < 0) return result;
  tcp_put_op_on(tcp, WIRE_OP_WAIT_CHANGED, args->keys[0]);
  tcp_put_number(tcp, args->number);
  result = tcp_ask_blocking(tcp, "nv", 0, tcp->call.until);
  return result < 0 ? result : take_version(tcp, 0, args);
}

int tcp_wait_changed(rdzv_store *store, rdzv_bytes key, uint64_t known, rdzv_value *out, uint64_t *version,
                     struct store_call *call) {
  static const struct tcp_op op = {"wait for a change of", TCP_REPEATABLE | TCP_BLOCKS, try_wait_changed};
  struct tcp_args args = {.keys = &key, .count = 1, .number = known, .out = &(rdzv_value){0}};
  return give_version(tcp_run(store, &op, &args, call), &args, out, version);
}
