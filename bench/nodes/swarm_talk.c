/* SPDX-License-Identifier: BSD-3-Clause */
#include "swarm.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void put_ping(struct wire_writer *out, uint32_t nonce) {
  wire_put_op(out, WIRE_DIALECT_V2, WIRE_OP_PING);
  wire_put32(out, nonce);
}

void say_greeting(struct swarm *swarm) {
  struct wire_writer *out = &swarm->out;
  wire_put_op(out, WIRE_DIALECT_V2, WIRE_OP_VALIDATE);
  wire_put32(out, WIRE_MAGIC);
  put_ping(out, WIRE_HELLO_NONCE);
  put_ping(out, wire_run_nonce(swarm->options->run_id));
  put_ping(out, WIRE_NATIVE_NONCE);
}

/* Our dialect and the id of the server; then two PINGs, with a status before each. */
size_t hear_greeting(const struct swarm_node *node, const uint8_t *data, size_t len) {
  enum { HELLO = 4 + 8, PING = 1 + 4, ALL = HELLO + 2 * PING };
  uint32_t hello, native;
  if (len < ALL) return 0;
  memcpy(&hello, data, sizeof hello);
  memcpy(&native, data + HELLO + PING + 1, sizeof native);
  if (le32toh(hello) != WIRE_HELLO_ANSWER) die("node %u: the server does not speak our dialect", node->slot);
  if (data[HELLO] != 0) die("node %u: the server is one of another run", node->slot);
  if (le32toh(native) != WIRE_NATIVE_ANSWER) die("node %u: the server does not form rounds", node->slot);
  return ALL;
}

void say_join(struct swarm *swarm, const struct swarm_node *node) {
  char addr[32];
  snprintf(addr, sizeof addr, "node%05u.cluster", node->slot);
  struct native_join join = {
      .run_id = swarm->options->run_id,
      .session = {.node = {.addr = addr, .pid = getpid(), .local_id = 0}, .epoch = 1},
      .number = node->joins,
      .times = NATIVE_TIMES_DEFAULT,
      .settings = RENDEZVOUS_SETTINGS_DEFAULT,
      .layout = TORCH_NEWEST,
      .master_addr = addr,
      .master_port = 29500,
      .workers = {.role = ""},
  };
  const uint64_t token[2] = {(uint64_t)getpid() << 32 | node->slot, (uint64_t)swarm->board->start};
  memcpy(join.session.token, token, sizeof token);
  join.times.keep_alive_ms = swarm->options->keep_alive_ms;
  join.settings.min_nodes = swarm->options->nodes + swarm->options->others;
  join.settings.max_nodes = swarm->options->max_nodes;
  wire_put_native_join(&swarm->out, &join);
}
