/* SPDX-License-Identifier: BSD-3-Clause */
#include "search.h"

#include "courses.h"

struct search {
  const struct world_options *options;
  const struct search_limits *limits;
  struct courses courses;
  struct search_result result;
};

static void tell(struct search *search, uint32_t state, const struct move *last, FILE *out) {
  uint32_t course[COURSES_MOST_DEPTH + 1];
  const size_t depth = courses_of(&search->courses, state, course);
  arena_restore(&search->courses.copies[0]);
  search->courses.world->sim.story = out;
  for (size_t i = 1; i <= depth + (last != NULL); i++) {
    const struct move move = i <= depth ? search->courses.found[course[i]].move : *last;
    fprintf(out, "%2zu. %s\n", i, world_describe(search->courses.world, move).text);
    world_do(search->courses.world, move);
  }
  if (!last) world_settles(search->courses.world);
  fprintf(out, "%s %s\n", last ? "broken" : "no progress", search->courses.world->sim.failure);
  fflush(out);
  search->result.broken = true;
}

/* ---- searching ------------------------------------------------------------------------------------------------ */

/* The world is at `state`, or was before it was tried whether it settles. */
static bool settles(struct search *search, uint32_t state, FILE *out) {
  const uint64_t every = search->limits->every;
  if (every == 0 || state % every != 0) return true;
  search->result.settled++;
  const bool good = world_settles(search->courses.world);
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
  courses_go_to(&search->courses, state);
  const struct arena_copy *here = &search->courses.copies[search->courses.depth];
  const size_t count = world_moves(search->courses.world, search->options, moves);
  for (size_t i = 0; i < count && !search->result.broken && !is_full(search); i++) {
    if (i > 0) arena_restore(here);
    world_do(search->courses.world, moves[i]);
    search->result.moves++;
    if (search->courses.world->sim.failure[0]) {
      tell(search, state, &moves[i], out);
    } else if (courses_add(&search->courses, state, moves[i])) {
      const uint32_t number = (uint32_t)search->result.states++;
      note_coverage(&search->result, &search->courses.world->sim);
      settles(search, number, out);
    }
  }
}

static void begin(struct search *search) {
  courses_open(&search->courses, search->limits->states);
  arena_open();
  courses_begin(&search->courses, world_new(search->options));
  search->result.states = 1;
}

static void end(struct search *search) {
  courses_close(&search->courses);
  arena_close();
}

struct search_result search(const struct world_options *options, const struct search_limits *limits, FILE *out) {
  static struct search search;
  search = (struct search){.options = options, .limits = limits};
  begin(&search);
  const size_t most = limits->depth < COURSES_MOST_DEPTH ? limits->depth : COURSES_MOST_DEPTH;
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
