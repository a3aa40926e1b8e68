/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every order of events of three nodes on etcd v3, breadth first, each distinct state once, up to a number of states:
 * of one round there is one world, ranks are 0 … n-1, rounds go up.
 *
 *   explore_leased STATES            exit 1 on a violation, with the shortest course that leads to it
 *   explore_leased --broken STATES   the world is written without its conditions: exit 0 if that is found
 */
#include "courses.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct search {
  struct courses courses;
  size_t limit, deepest, joined;
};

static void tell(struct search *search, uint32_t state, struct move last) {
  uint32_t course[COURSES_MOST_DEPTH + 1];
  const size_t depth = courses_of(&search->courses, state, course);
  for (size_t i = 1; i <= depth + 1; i++) {
    const struct move move = i <= depth ? search->courses.found[course[i]].move : last;
    printf("%2zu. node %c: %s\n", i, 'a' + move.node, world_move_name(move));
  }
  printf("broken: %s\n", search->courses.world->failure);
}

/* False: something is broken. */
static bool visit(struct search *search, uint32_t state) {
  struct move moves[64];
  courses_go_to(&search->courses, state);
  if (search->courses.depth > search->deepest) search->deepest = search->courses.depth;
  if (search->courses.depth == COURSES_MOST_DEPTH) return true;
  const size_t count = world_moves(search->courses.world, moves);
  for (size_t i = 0; i < count && search->courses.count < search->limit; i++) {
    if (i > 0) arena_restore(&search->courses.copies[search->courses.depth]);
    world_do(search->courses.world, moves[i]);
    if (search->courses.world->failure[0]) {
      tell(search, state, moves[i]);
      return false;
    }
    if (courses_add(&search->courses, state, moves[i])) search->joined += search->courses.world->joins > 0;
  }
  return true;
}

static bool explore(struct search *search, enum world_root root, bool unfenced, int faults) {
  bool fine = true;
  arena_open();
  courses_begin(&search->courses, world_new(root, unfenced, faults));
  for (uint32_t at = 0; fine && at < search->courses.count && search->courses.count < search->limit; at++)
    fine = visit(search, at);
  arena_close();
  return fine;
}

/* False: something is broken. Adds to *joined. */
static bool explore_from(enum world_root root, bool unfenced, int faults, size_t limit, size_t *joined) {
  static const char *const names[] = {"nothing", "a world about to be written", "a round"};
  struct search *search = outside_alloc(1, sizeof *search);
  search->limit = limit;
  courses_open(&search->courses, limit);
  const bool fine = explore(search, root, unfenced, faults);
  printf("from %s, %d faults: %zu states, up to %zu moves, %zu of them after a node has joined\n", names[root], faults,
         search->courses.count, search->deepest, search->joined);
  *joined += search->joined;
  courses_close(&search->courses);
  outside_free(search);
  return fine;
}

/* Jansson's memory is set back, too. */
static void *take(size_t size) { return malloc(size); }
static void give(void *memory) { free(memory); }

int main(int argc, char **argv) {
  const bool broken = argc == 3 && strcmp(argv[1], "--broken") == 0;
  const size_t limit = argc > 1 ? strtoull(argv[argc - 1], NULL, 10) : 0;
  if (limit < 1) {
    fprintf(stderr, "usage: explore_leased [--broken] STATES\n");
    return 2;
  }
  json_set_alloc_funcs(take, give);
  size_t joined = 0;
  if (broken) return explore_from(ROOT_COMPLETING, true, 2, limit, &joined) ? 1 : 0;
  bool fine = true;
  for (int faults = 0; faults <= 2; faults++)
    for (enum world_root root = ROOT_NOTHING; root <= ROOT_IN; root++)
      fine &= explore_from(root, false, faults, limit, &joined);
  return fine && joined > 0 ? 0 : 1;
}
