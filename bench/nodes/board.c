/* SPDX-License-Identifier: BSD-3-Clause */
#include "nodes.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void die(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "%s: ", nodes_name);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  _exit(1); /* other threads are at work: nothing is taken down in order */
}

int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * SECOND + time.tv_nsec;
}

static void wake_all(atomic_uint *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }

void board_count(atomic_uint *word, unsigned target) {
  if (atomic_fetch_add(word, 1) + 1 >= target) wake_all(word);
}

bool board_await(atomic_uint *word, unsigned least, int64_t until) {
  const struct timespec time = {.tv_sec = (time_t)(until / SECOND), .tv_nsec = (long)(until % SECOND)};
  for (unsigned seen; (seen = atomic_load(word)) < least;) {
    if (now_ns() >= until) return false;
    syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, &time, NULL, FUTEX_BITSET_MATCH_ANY);
  }
  return true;
}

void board_go(struct board *board, enum go go) {
  atomic_store(&board->go, (unsigned)go);
  wake_all(&board->go);
}

void board_await_go(struct board *board, enum go go) { board_await(&board->go, (unsigned)go, INT64_MAX); }

void board_place(struct board *board, const struct options *o, unsigned slot, unsigned which, int64_t round,
                 int64_t rank, int64_t world) {
  board->slots[slot].places[which] =
      (struct place){.at = now_ns() - board->start, .round = round, .rank = rank, .world = world};
  board_count(which == 0 ? &board->joined : &board->again, o->nodes);
}

void board_know(struct board *board, const struct options *o, unsigned slot) {
  board->slots[slot].known = now_ns() - board->start;
  board_count(&board->known, o->nodes - 1);
}
