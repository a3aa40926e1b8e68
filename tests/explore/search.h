/* SPDX-License-Identifier: BSD-3-Clause */
/* Breadth first through all that can happen: each distinct state once, the nearest first. */
#ifndef RDZV_TESTS_EXPLORE_SEARCH_H
#define RDZV_TESTS_EXPLORE_SEARCH_H

#include "world.h"

struct search_limits {
  size_t depth;   /* moves */
  size_t states;  /* distinct ones */
  uint64_t every; /* of so many states one is checked for progress; 0: none */
};

struct search_result {
  size_t states, moves;
  size_t depth;                     /* all courses of so many moves were looked at */
  size_t complete, second, evicted; /* states after a round was completed; after a second; after an eviction */
  size_t settled;                   /* states that were checked for progress */
  bool broken;
};

/* Opens the arena anew. A violation is told on `out`, with the shortest course that leads to it. */
struct search_result search(const struct world_options *options, const struct search_limits *limits, FILE *out);

#endif
