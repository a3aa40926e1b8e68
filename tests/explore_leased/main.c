/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every order of events of three nodes on etcd v3, breadth first, each distinct state once, up to a number of states:
 * of one round there is one world, ranks are 0 … n-1, rounds go up.
 *
 *   explore_leased STATES            exit 1 on a violation, with the shortest course that leads to it
 *   explore_leased --broken STATES   the world is written without its conditions: exit 0 if that is found
 */
#include "arena.h"
#include "world.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 200 };

struct found {
  uint32_t from;
  struct move move;
};

struct search {
  struct world *world;
  struct found *found; /* by number; 0 is the root */
  size_t count, limit, slots;
  uint64_t *digests;
  struct arena_copy copies[MOST_DEPTH + 1]; /* of the states of the course to the last one */
  uint32_t course[MOST_DEPTH + 1];
  size_t depth, deepest, joined;
};

static bool note(struct search *search, uint64_t digest) {
  if (digest == 0) digest = 1;
  size_t slot = digest & (search->slots - 1);
  for (; search->digests[slot] != 0; slot = (slot + 1) & (search->slots - 1))
    if (search->digests[slot] == digest) return false;
  search->digests[slot] = digest;
  return true;
}

static size_t course_of(const struct search *search, uint32_t state, uint32_t course[MOST_DEPTH + 1]) {
  size_t depth = 0;
  for (uint32_t at = state; at != 0; at = search->found[at].from) depth++;
  if (depth > MOST_DEPTH) abort();
  for (size_t i = depth; i > 0; i--, state = search->found[state].from) course[i] = state;
  course[0] = 0;
  return depth;
}

/* Back to the last state that both courses went through, and from there on. */
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
  if (depth > search->deepest) search->deepest = depth;
}

static void tell(struct search *search, uint32_t state, struct move last) {
  uint32_t course[MOST_DEPTH + 1];
  const size_t depth = course_of(search, state, course);
  for (size_t i = 1; i <= depth + 1; i++) {
    const struct move move = i <= depth ? search->found[course[i]].move : last;
    printf("%2zu. node %c: %s\n", i, 'a' + move.node, world_move_name(move));
  }
  printf("broken: %s\n", search->world->failure);
}

/* False: something is broken. */
static bool visit(struct search *search, uint32_t state) {
  struct move moves[64];
  go_to(search, state);
  if (search->depth == MOST_DEPTH) return true;
  const size_t count = world_moves(search->world, moves);
  for (size_t i = 0; i < count && search->count < search->limit; i++) {
    if (i > 0) arena_restore(&search->copies[search->depth]);
    world_do(search->world, moves[i]);
    if (search->world->failure[0]) {
      tell(search, state, moves[i]);
      return false;
    }
    if (!note(search, world_digest(search->world))) continue;
    if (search->world->joins > 0) search->joined++;
    search->found[search->count++] = (struct found){state, moves[i]};
  }
  return true;
}

static bool explore(struct search *search, enum world_root root, bool unfenced, int faults) {
  bool fine = true;
  arena_open();
  search->world = world_new(root, unfenced, faults);
  arena_save(&search->copies[0]);
  note(search, world_digest(search->world));
  search->count = 1;
  for (uint32_t at = 0; fine && at < search->count && search->count < search->limit; at++) fine = visit(search, at);
  arena_close();
  return fine;
}

/* False: something is broken. Adds to *joined. */
static bool explore_from(enum world_root root, bool unfenced, int faults, size_t limit, size_t *joined) {
  static const char *const names[] = {"nothing", "a world about to be written", "a round"};
  struct search *search = outside_alloc(1, sizeof *search);
  search->limit = limit;
  for (search->slots = 1; search->slots < 4 * limit;) search->slots *= 2;
  search->digests = outside_alloc(search->slots, sizeof *search->digests);
  search->found = outside_alloc(limit + 1, sizeof *search->found);
  const bool fine = explore(search, root, unfenced, faults);
  printf("from %s, %d faults: %zu states, up to %zu moves, %zu of them after a node has joined\n", names[root], faults,
         search->count, search->deepest, search->joined);
  *joined += search->joined;
  for (size_t i = 0; i <= MOST_DEPTH; i++) arena_copy_free(&search->copies[i]);
  outside_free(search->digests);
  outside_free(search->found);
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
