/* SPDX-License-Identifier: BSD-3-Clause */
#include "courses.h"

#include <stdlib.h>
#include <string.h>

static bool note(struct courses *courses, uint64_t digest) {
  if (digest == 0) digest = 1;
  size_t slot = digest & (courses->slots - 1);
  for (; courses->digests[slot] != 0; slot = (slot + 1) & (courses->slots - 1))
    if (courses->digests[slot] == digest) return false;
  courses->digests[slot] = digest;
  return true;
}

void courses_open(struct courses *courses, size_t most) {
  for (courses->slots = 1024; courses->slots < 2 * most;) courses->slots *= 2;
  courses->digests = outside_alloc(courses->slots, sizeof *courses->digests);
  courses->found = outside_alloc(most + 1, sizeof *courses->found);
}

void courses_begin(struct courses *courses, struct world *world) {
  courses->world = world;
  arena_save(&courses->copies[0]);
  note(courses, world_digest(world));
  courses->count = 1;
}

void courses_close(struct courses *courses) {
  for (size_t i = 0; i <= COURSES_MOST_DEPTH; i++) arena_copy_free(&courses->copies[i]);
  outside_free(courses->digests);
  outside_free(courses->found);
}

bool courses_add(struct courses *courses, uint32_t from, struct move move) {
  if (!note(courses, world_digest(courses->world))) return false;
  courses->found[courses->count].from = from;
  courses->found[courses->count++].move = move;
  return true;
}

size_t courses_of(const struct courses *courses, uint32_t state, uint32_t course[COURSES_MOST_DEPTH + 1]) {
  size_t depth = 0;
  for (uint32_t at = state; at != 0; at = courses->found[at].from) depth++;
  if (depth > COURSES_MOST_DEPTH) abort();
  for (size_t i = depth; i > 0; i--, state = courses->found[state].from) course[i] = state;
  course[0] = 0;
  return depth;
}

void courses_go_to(struct courses *courses, uint32_t state) {
  uint32_t course[COURSES_MOST_DEPTH + 1];
  const size_t depth = courses_of(courses, state, course);
  size_t same = 0;
  while (same < depth && same < courses->depth && course[same + 1] == courses->course[same + 1]) same++;
  arena_restore(&courses->copies[same]);
  for (size_t i = same + 1; i <= depth; i++) {
    world_do(courses->world, courses->found[course[i]].move);
    arena_save(&courses->copies[i]);
  }
  memcpy(courses->course, course, (depth + 1) * sizeof course[0]);
  courses->depth = depth;
}
