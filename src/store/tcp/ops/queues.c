/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on queues, which PyTorch's servers have from 2.8 on: queue_push, queue_pop, queue_len. */
#include "base/error.h"
#include "store/tcp/ops/pytorch.h"

static int ask_len(struct tcp_store *tcp, struct tcp_args *args) {
  tcp_put_op_on(tcp, WIRE_OP_QUEUE_LEN, args->keys[0]);
  return tcp_ask_number(tcp, "n", &args->number_out);
}

/* Each operation begins with this: a server that may not know queues is asked for the length of a queue that does not
 * exist. */
static int need_queues(struct tcp_store *tcp) {
  const rdzv_bytes nobody = {0};
  struct tcp_args args = {.keys = &nobody, .count = 1};
  if (pytorch_has(tcp, PYTORCH_QUEUES)) return 0;
  const int result = pytorch_try_newer(tcp, PYTORCH_QUEUES, ask_len, &args, "from 2.8 on");
  tcp->conn.sent = false; /* nothing of the operation */
  return result;
}

static int try_len(struct tcp_store *tcp, struct tcp_args *args) {
  const int result = need_queues(tcp);
  return result < 0 ? result : ask_len(tcp, args);
}

int tcp_queue_len(rdzv_store *store, rdzv_bytes key, int64_t *len, struct store_call *call) {
  static const struct tcp_op op = {"count", TCP_REPEATABLE, try_len};
  struct tcp_args args = {.keys = &key, .count = 1};
  const int result = tcp_run(store, &op, &args, call);
  if (result == 0) *len = (int64_t)args.number_out;
  return result;
}

static int try_push(struct tcp_store *tcp, struct tcp_args *args) {
  const int result = need_queues(tcp);
  if (result < 0) return result;
  tcp_put_op_on(tcp, WIRE_OP_QUEUE_PUSH, args->keys[0]);
  tcp_put_value(tcp, args->values[0]);
  return tcp_ask_done(tcp);
}

int tcp_queue_push(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  static const struct tcp_op op = {"push to", TCP_ONCE, try_push};
  struct tcp_args args = {.keys = &key, .values = &value, .count = 1};
  return tcp_run(store, &op, &args, call);
}

/* RDZV_E_EMPTY leaves nothing to consume. */
static int pop_at_once(struct tcp_store *tcp, const struct tcp_args *args) {
  uint64_t len = 0;
  tcp_put_op_on(tcp, WIRE_OP_QUEUE_POP, args->keys[0]);
  const int result = tcp_ask_number(tcp, "n", &len);
  if (result < 0) return result;
  return len > 0 ? tcp_more(tcp, "v", 0) : error_set(tcp->call.error, RDZV_E_EMPTY, "the queue is empty");
}

static int try_pop(struct tcp_store *tcp, struct tcp_args *args) {
  int result = need_queues(tcp);
  if (result == 0) result = pop_at_once(tcp, args);
  return result < 0 ? result : tcp_take_value(tcp, 0, args->out);
}

static int pop_wait_pytorch(struct tcp_store *tcp, const struct tcp_args *args) {
  int result;
  while ((result = pop_at_once(tcp, args)) == RDZV_E_EMPTY) {
    result = pytorch_await(tcp, args);
    if (result == 0) continue;
    tcp->conn.sent = false; /* no pop that was not answered */
    return result;
  }
  return result;
}

static int pop_wait_ours(struct tcp_store *tcp, const struct tcp_args *args) {
  tcp_put_op_on(tcp, WIRE_OP_QUEUE_POP_WAIT, args->keys[0]);
  return tcp_ask_blocking(tcp, "v", 0, tcp->call.until);
}

static int try_pop_wait(struct tcp_store *tcp, struct tcp_args *args) {
  int result = need_queues(tcp);
  if (result == 0) result = tcp_is_ours(tcp) ? pop_wait_ours(tcp, args) : pop_wait_pytorch(tcp, args);
  return result < 0 ? result : tcp_take_value(tcp, 0, args->out);
}

int tcp_queue_pop(rdzv_store *store, rdzv_bytes key, bool block, rdzv_value *out, struct store_call *call) {
  static const struct tcp_op at_once = {"pop from", TCP_ONCE, try_pop};
  static const struct tcp_op waits = {"pop from", TCP_ONCE | TCP_BLOCKS, try_pop_wait};
  rdzv_value found = {0};
  struct tcp_args args = {.keys = &key, .count = 1, .out = &found};
  return store_give(tcp_run(store, block ? &waits : &at_once, &args, call), &found, out);
}
