/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Of a state only its digest and the move that led to it from another are kept. To go on from a state, the moves from
 * the root to it are made again. States stand in the order in which they were found, so two neighbours have most of
 * their course in common, and the world is set back to the last state that both went through: a move or two are made
 * again, not all.
 */
#include "search.h"

#include "arena.h"

#include <string.h>

enum { MOST_DEPTH = 200 };

struct found {
  uint32_t from;
  struct move move;
};

struct search {
  const struct world_options *options;
  const struct search_limits *limits;
  struct world *world;
  struct found *found; /* by number; 0 is the root */
  uint64_t *digests;   /* a hash table, of the digests themselves; 0: free */
  size_t slots;
  struct arena_copy copies[MOST_DEPTH + 1]; /* of the states of the course to `at`, the last one included */
  uint32_t course[MOST_DEPTH + 1];
  size_t depth; /* of `at` */
  struct search_result result;
};

/* False: it was there. */
static bool note(struct search *search, uint64_t digest) {
  if (digest == 0) digest = 1;
  size_t slot = digest & (search->slots - 1);
  for (; search->digests[slot] != 0; slot = (slot + 1) & (search->slots - 1))
    if (search->digests[slot] == digest) return false;
  search->digests[slot] = digest;
  return true;
}

/* ---- courses -------------------------------------------------------------------------------------------------- */

/* The numbers of the states from the root to that one. Gives its depth. */
static size_t course_of(const struct search *search, uint32_t state, uint32_t course[MOST_DEPTH + 1]) {
  size_t depth = 0;
  for (uint32_t at = state; at != 0; at = search->found[at].from) depth++;
  for (size_t i = depth; i > 0; i--, state = search->found[state].from) course[i] = state;
  course[0] = 0;
  return depth;
}

static void go_to(struct search *search, uint32_t state) {
  uint32_t course[MOST_DEPTH + 1];
  const size_t depth = course_of(search, state, course);
  size_t same = 0;
  while (same < depth && same < search->depth && course[same + 1] == search->course[same + 1]) same++;
  arena_restore(&search->copies[same]);
  for (size_t i = same + 1; i <= depth; i++) {
    world_do(search->world, search->found[course[i]].move);
    arena_save(&search->copies[i]);
  }
  memcpy(search->course, course, (depth + 1) * sizeof course[0]);
  search->depth = depth;
}

static void tell(struct search *search, uint32_t state, const struct move *last, FILE *out) {
  uint32_t course[MOST_DEPTH + 1];
  const size_t depth = course_of(search, state, course);
  arena_restore(&search->copies[0]);
  search->world->sim.story = out;
  for (size_t i = 1; i <= depth + (last != NULL); i++) {
    const struct move move = i <= depth ? search->found[course[i]].move : *last;
    fprintf(out, "%2zu. %s\n", i, world_describe(search->world, move).text);
    world_do(search->world, move);
  }
  if (!last) world_settles(search->world);
  fprintf(out, "%s %s\n", last ? "broken" : "no progress", search->world->sim.failure);
  fflush(out);
  search->result.broken = true;
}

/* ---- searching ------------------------------------------------------------------------------------------------ */

/* The world is at `state`, or was before it was tried whether it settles. */
static bool settles(struct search *search, uint32_t state, FILE *out) {
  const uint64_t every = search->limits->every;
  if (every == 0 || state % every != 0) return true;
  search->result.settled++;
  const bool good = world_settles(search->world);
  if (!good) tell(search, state, NULL, out);
  return good;
}

/* Shows whether it looks at anything that matters. */
static void note_coverage(struct search_result *result, const struct sim *sim) {
  result->complete += sim->completions > 0;
  result->second += sim->completions > 1;
  result->evicted += sim->evictions > 0;
}

static bool is_full(const struct search *search) { return search->result.states >= search->limits->states; }

/* Looks at all that can happen next. */
static void expand(struct search *search, uint32_t state, FILE *out) {
  struct move moves[WORLD_MOST_MOVES];
  go_to(search, state);
  const struct arena_copy *here = &search->copies[search->depth];
  const size_t count = world_moves(search->world, search->options, moves);
  for (size_t i = 0; i < count && !search->result.broken && !is_full(search); i++) {
    if (i > 0) arena_restore(here);
    world_do(search->world, moves[i]);
    search->result.moves++;
    if (search->world->sim.failure[0]) {
      tell(search, state, &moves[i], out);
    } else if (note(search, world_digest(search->world))) {
      const uint32_t number = (uint32_t)search->result.states++;
      search->found[number] = (struct found){state, moves[i]};
      note_coverage(&search->result, &search->world->sim);
      settles(search, number, out);
    }
  }
}

static void begin(struct search *search) {
  const size_t states = search->limits->states;
  for (search->slots = 1024; search->slots < 2 * states;) search->slots *= 2;
  search->digests = outside_alloc(search->slots, sizeof *search->digests);
  search->found = outside_alloc(states + 1, sizeof *search->found);
  arena_open();
  search->world = world_new(search->options);
  arena_save(&search->copies[0]);
  note(search, world_digest(search->world));
  search->result.states = 1;
}

static void end(struct search *search) {
  for (size_t i = 0; i <= MOST_DEPTH; i++) arena_copy_free(&search->copies[i]);
  outside_free(search->digests);
  outside_free(search->found);
  arena_close();
}

struct search_result search(const struct world_options *options, const struct search_limits *limits, FILE *out) {
  static struct search search;
  search = (struct search){.options = options, .limits = limits};
  begin(&search);
  const size_t most = limits->depth < MOST_DEPTH ? limits->depth : MOST_DEPTH;
  uint32_t at = 0;
  for (size_t depth = 0; depth < most && !search.result.broken; depth++) {
    const uint32_t last = (uint32_t)search.result.states;
    for (; at < last && !search.result.broken && !is_full(&search); at++) expand(&search, at, out);
    if (search.result.broken || is_full(&search)) break;
    search.result.depth = depth + 1;
  }
  const struct search_result result = search.result;
  end(&search);
  return result;
}
