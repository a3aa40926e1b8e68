/* SPDX-License-Identifier: BSD-3-Clause */
/* What a server that forms rounds is asked of a run: node_query. */
#include "base/error.h"
#include "store/tcp/call.h"
#include "store/tcp/message.h"

static int try_node_query(struct tcp_store *tcp, struct tcp_args *args) {
  if (!tcp_is_ours(tcp))
    return error_set(tcp->call.error, RDZV_E_UNSUPPORTED, "a PyTorch server does not support native rounds");
  tcp_put_op(tcp, WIRE_OP_NODE_QUERY);
  tcp_put_value(tcp, args->keys[0]);
  tcp_put_number(tcp, args->number);
  const int result = tcp_ask(tcp, "v", 0);
  return result < 0 ? result : tcp_take_value(tcp, 0, args->out);
}

int tcp_node_query(rdzv_store *store, const char *run_id, uint64_t round, rdzv_value *out, struct store_call *call) {
  static const struct tcp_op op = {"ask for the nodes of", TCP_REPEATABLE, try_node_query};
  const rdzv_bytes run = rdzv_str(run_id);
  struct tcp_args args = {.keys = &run, .count = 1, .number = round, .out = &(rdzv_value){0}};
  return store_give(tcp_run(store, &op, &args, call), args.out, out);
}
