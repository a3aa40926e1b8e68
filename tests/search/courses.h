/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a search through all that can happen keeps. Of a state that is only its digest and the move that led to it from
 * another. To go on from a state, the moves from the root to it are made again. States stand in the order in which they
 * were found, so two neighbours have most of their course in common, and the world is set back to the last state that
 * both went through: a move or two are made again, not all.
 *
 * world.h is the program's: struct world, struct move, world_do and world_digest.
 */
#ifndef RDZV_TESTS_SEARCH_COURSES_H
#define RDZV_TESTS_SEARCH_COURSES_H

#include "arena.h"
#include "world.h"

enum { COURSES_MOST_DEPTH = 200 };

struct courses {
  struct world *world;
  struct {
    uint32_t from;
    struct move move;
  } * found; /* by number; 0 is the root */
  size_t count;
  uint64_t *digests; /* a hash table, of the digests themselves; 0: free */
  size_t slots;
  struct arena_copy copies[COURSES_MOST_DEPTH + 1]; /* of the states of the course to the last one, that included */
  uint32_t course[COURSES_MOST_DEPTH + 1];
  size_t depth;
};

/* Room for so many states. All but the arena, which is open, is outside of it. */
void courses_open(struct courses *courses, size_t most);

/* The world, in the arena, is the root. */
void courses_begin(struct courses *courses, struct world *world);
void courses_close(struct courses *courses);

/* The world as it is now comes from that state by that move. False: it was found before. */
bool courses_add(struct courses *courses, uint32_t from, struct move move);

/* The numbers of the states from the root to that one. Gives its depth. */
size_t courses_of(const struct courses *courses, uint32_t state, uint32_t course[COURSES_MOST_DEPTH + 1]);

/* Makes the world that state, of which a copy is at copies[depth]. */
void courses_go_to(struct courses *courses, uint32_t state);

#endif
