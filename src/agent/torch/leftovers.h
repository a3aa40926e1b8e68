/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What workers of earlier rounds have left in the store of a PyTorch agent.
 *
 * An agent of PyTorch 2.4 or later that is group rank 0 serves one store for the workers of all its rounds, and workers
 * use the same keys in each round: they would read the addresses of workers that are gone. An agent of rdzv deletes
 * these keys before it tells its role. Until then no agent starts workers of the new round, and each agent has stopped
 * its workers of the round before.
 */
#ifndef RDZV_AGENT_TORCH_LEFTOVERS_H
#define RDZV_AGENT_TORCH_LEFTOVERS_H

#include <rdzv/log.h>
#include <stdint.h>

/* The store of the PyTorch agent that led the last round. All zero: none. */
struct leftovers {
  char *node; /* the agent; NULL: none */
  char *addr;
  int port;
  int64_t workers; /* the largest world that it has served */
};

/* Notes that `node` leads a round, and serves a store for so many workers. Without memory nothing is noted. */
void leftovers_note(struct leftovers *leftovers, const char *node, const char *addr, int port, int64_t workers);
void leftovers_free(struct leftovers *leftovers);

/* Deletes the keys if `node`, which leads the next round, is the one that was noted. Says so in the log, also where it
 * fails: then workers may fail. */
void leftovers_clear(const struct leftovers *leftovers, const char *node, int cancel_fd, const rdzv_log *log);

#endif
