/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator's rendezvous (tests/sim) with the order of events left to the caller: whatever may happen next is a
 * move. Messages arrive in any order and at any time, or not at all; timers go off in the order of their times, but may
 * wait for a stopped node. The network, the nodes and the invariants are the simulator's.
 *
 * Some things are no moves of their own, since they would only make courses longer: a read takes effect when it is sent
 * (a read that is late on its way is that of a node that asks late), a node that rests before it listens does not, a
 * server that runs accepts connections at once, and it looks at its clock whenever time passes.
 */
#ifndef RDZV_TESTS_EXPLORE_WORLD_H
#define RDZV_TESTS_EXPLORE_WORLD_H

#include "sim.h"

enum world_start {
  START_EMPTY,    /* nobody has asked for anything */
  START_COMPLETE, /* all nodes are in round 0, and know it */
  START_PARTIAL,  /* all but the last one are */
  START_DYING,    /* all were; the last one has died, and that is about to be found */
};

enum move_kind {
  MOVE_EVENT, /* of the simulator's queue, by its place there: a message arrives, a timer goes off, a program reacts */
  MOVE_DROP,  /* the message there is lost */
  MOVE_JOIN,  /* a node, from here on */
  MOVE_LEAVE,
  MOVE_CLOSE,
  MOVE_KILL,
  MOVE_STOP,
  MOVE_CONTINUE, /* a stopped node */
  MOVE_FORGET,   /* the store loses its state, or the server begins again with nothing */
  MOVE_RESET,    /* the connection of a native node ends, and what is under way on it is lost */
  MOVE_VANISH,   /* the same, and nobody is told */
  MOVE_STOP_SERVER,
  MOVE_CONTINUE_SERVER,
  MOVE_SERVER, /* runs until something is due there */
  MOVE_KINDS,
};

struct move {
  uint8_t kind; /* enum move_kind */
  uint8_t what;
};

/* How often what may happen in one course; 0 for what is not limited. */
struct world_budget {
  int most[MOVE_KINDS];
};

struct world {
  struct sim sim;
  int spent[MOVE_KINDS];
};

struct world_options {
  const char *nodes; /* a letter each: n native, s swap, t as PyTorch does */
  enum world_start start;
  struct world_budget budget;
};

/* In the arena. Aborts if it cannot be set up. */
struct world *world_new(const struct world_options *options);

enum { WORLD_MOST_MOVES = 64 };

/* What may happen next; gives the number. */
size_t world_moves(const struct world *world, const struct world_options *options, struct move moves[WORLD_MOST_MOVES]);

/* sim.failure says whether an invariant is broken. */
void world_do(struct world *world, struct move move);

/* "a's request arrives" */
struct move_text {
  char text[120];
};
struct move_text world_describe(const struct world *world, struct move move);

/* No more faults: does it settle? sim.failure says why not. The world is of no use afterwards. */
bool world_settles(struct world *world);

/* ---- digest.c ---- */

/* Equal for two worlds in which the same can happen from here on, whatever came before and however late it is. */
uint64_t world_digest(const struct world *world);

/* Is the event still awaited, or one of before? */
bool event_is_due(const struct sim *sim, const struct sim_event *event);
bool event_is_message(const struct sim_event *event);
bool event_is_packet(const struct sim_event *event);

#endif
