/* SPDX-License-Identifier: BSD-3-Clause */
/* N nodes that join one rendezvous at once: the measuring half of bench/rendezvous and bench/etcd, as two programs.
 *
 *   joiners  each node is a thread with a handler of its own, opened and joined by the public API
 *   swarm    each node is a connection of an epoll loop that says what a native node says (docs/wire.md)
 *
 * Both share main.c: it forks some processes, each of which runs a part of the nodes (nodes_run), lets all go at the
 * same moment, and reads what they have noted on the board, which is memory that all of them share. The time is from
 * the common start until the last node has its rank, connecting included. It is a figure only if all is right: every
 * rank once, one round, a world of N.
 *
 * With --victim the last node has a process of its own. The command "kill" on stdin ends that process by SIGKILL; the
 * others note when they know, and join again. The command "spare" starts a node that takes its place.
 *
 * Nothing on the board needs a lock: a process may be killed at any moment. */
#ifndef RDZV_BENCH_NODES_H
#define RDZV_BENCH_NODES_H

#include "wire/op.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SECOND 1000000000ll

struct options {
  const char *backend;
  const char *endpoint;
  const char *run_id;
  const char *conf;
  unsigned nodes;
  unsigned max_nodes;
  unsigned others; /* that join, too, and that somebody else starts */
  unsigned processes;
  unsigned limit; /* seconds */
  unsigned delay_us;
  unsigned keep_alive_ms; /* of swarm */
  bool list;              /* when each node was there */
  bool hold;              /* the nodes stay until stdin ends, so that somebody can look at what they left */
  bool victim;            /* the last node can be killed; all wait for changes of their round */
};

enum { ROUNDS = 2 }; /* the one that is timed, and the one after a node was killed */

/* A node's own; -1 in `rank`: not in that round. Times are since the start, in ns; 0: not yet. */
struct slot {
  int64_t opened;
  int64_t known; /* that a node has died */
  struct place {
    int64_t at, round, rank, world;
  } places[ROUNDS];
};

enum go { GO_WAIT, GO_JOIN, GO_END };

struct board {
  atomic_uint go; /* enum go */
  atomic_uint ready, joined, known, again;
  int64_t start;
  /* What all nodes have said and heard. A message: what was sent or came at once. */
  atomic_uint_fast64_t requests[WIRE_OP_COUNT], sent, received, messages_out, messages_in;
  struct slot slots[];
};

__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);
int64_t now_ns(void);

/* Adds one; wakes who waits for it to be `target`. */
void board_count(atomic_uint *word, unsigned target);
/* Until the word is at least `least` or the time (of now_ns) has come; gives whether it is. */
bool board_await(atomic_uint *word, unsigned least, int64_t until);
void board_go(struct board *board, enum go go);
void board_await_go(struct board *board, enum go go);

/* Notes the node's place in a round, now. */
void board_place(struct board *board, const struct options *o, unsigned slot, unsigned which, int64_t round,
                 int64_t rank, int64_t world);
/* Notes that the node knows of the death of another. */
void board_know(struct board *board, const struct options *o, unsigned slot);

/* In a process of its own: runs the nodes of `count` slots, ready (board->ready) before GO_JOIN, until GO_END. */
void nodes_run(struct board *board, const struct options *options, unsigned first, unsigned count);
/* Ends the process if this program cannot do what the options ask for. */
void nodes_check_options(const struct options *options);
extern const char nodes_name[], nodes_usage[];

#endif
