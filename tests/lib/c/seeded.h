/* SPDX-License-Identifier: BSD-3-Clause */
/* A simulation that a seed decides: how it tells its story, how it fails, and its command line. */
#ifndef RDZV_TESTS_SEEDED_H
#define RDZV_TESTS_SEEDED_H

#include "base/error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct seeded {
  const char *program;
  uint64_t seed;
  bool story, failed;
};

/* What happens to that node. */
RDZV_PRINTF(4, 5)
static inline void seeded_tell(const struct seeded *seeded, int64_t now_ms, long node, const char *format, ...) {
  if (!seeded->story) return;
  va_list args;
  va_start(args, format);
  printf("%10.3f  n%-3ld ", (double)now_ms / 1000, node);
  vprintf(format, args);
  putchar('\n');
  va_end(args);
}

/* The first failure is told, with the command that replays it. */
RDZV_PRINTF(3, 4)
static inline void seeded_fail(struct seeded *seeded, int64_t now_ms, const char *format, ...) {
  if (seeded->failed) return;
  seeded->failed = true;
  va_list args;
  va_start(args, format);
  printf("seed %" PRIu64 " fails at %.3f s: ", seeded->seed, (double)now_ms / 1000);
  vprintf(format, args);
  printf("\n  replay: %s --seed %" PRIu64 "\n", seeded->program, seeded->seed);
  va_end(args);
}

/* PROGRAM --seeds A:B | --seed S. `run` says whether all was well. */
static inline int seeded_main(int argc, char **argv, const char *program, bool (*run)(struct seeded seeded)) {
  struct seeded seeded = {.program = program, .story = true};
  uint64_t from = 0, to = 0, failed = 0;
  if (argc == 3 && strcmp(argv[1], "--seed") == 0) {
    seeded.seed = strtoull(argv[2], NULL, 10);
    return run(seeded) ? 0 : 1;
  }
  if (argc != 3 || strcmp(argv[1], "--seeds") != 0 || sscanf(argv[2], "%" SCNu64 ":%" SCNu64, &from, &to) != 2) {
    fprintf(stderr, "usage: %s --seeds A:B | --seed S\n", program);
    return 2;
  }
  seeded.story = false;
  for (seeded.seed = from; seeded.seed < to; seeded.seed++) failed += !run(seeded);
  printf("%" PRIu64 " seeds from %" PRIu64 ", %" PRIu64 " failed\n", to - from, from, failed);
  return failed > 0;
}

#endif
