/* SPDX-License-Identifier: BSD-3-Clause */
/* A process of the event-driven nodes: swarm.c is its loop, swarm_talk.c what a node says. */
#ifndef RDZV_BENCH_SWARM_H
#define RDZV_BENCH_SWARM_H

#include "nodes.h"

#include "state/engine/engine.h"
#include "wire/native.h"

#include <netdb.h>

enum { SWARM_INPUT = 64 * 1024 };

enum swarm_phase { PHASE_CONNECTING, PHASE_GREETING, PHASE_IN };

struct swarm_node {
  int fd;
  unsigned slot;
  enum swarm_phase phase;
  uint64_t joins;  /* sent so far */
  struct buf kept; /* of a message that has not come whole */
};

struct swarm {
  struct board *board;
  const struct options *options;
  struct addrinfo *address;
  int poller;
  struct swarm_node *nodes;
  unsigned count;
  unsigned opened, opening; /* begun; and of these not greeted yet */
  uint64_t beaten;
  int64_t next_beat;
  struct wire_writer out; /* what is sent next */
  uint8_t *input;
};

/* Appended to swarm->out. */
void say_greeting(struct swarm *swarm);
void say_join(struct swarm *swarm, const struct swarm_node *node);

/* The answer to a greeting; its length, or 0: more of it is to come. */
size_t hear_greeting(const struct swarm_node *node, const uint8_t *data, size_t len);

#endif
