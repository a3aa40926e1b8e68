/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers from a seed, the same everywhere (SplitMix64). Everybody who draws has numbers of its own, so that nobody's
 * depend on who was faster. */
#ifndef RDZV_TESTS_CHAOS_RANDOM_H
#define RDZV_TESTS_CHAOS_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

struct random {
  uint64_t state;
};

static inline uint64_t random_next(struct random *random) {
  uint64_t z = random->state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* The numbers of that stream of the seed. */
static inline struct random random_of(uint64_t seed, uint64_t stream) {
  struct random random = {seed ^ (stream + 1) * 0xd1342543de82ef95u};
  random_next(&random);
  return random;
}

/* From 0 to below - 1. */
static inline int64_t random_below(struct random *random, int64_t below) {
  return below > 0 ? (int64_t)(random_next(random) % (uint64_t)below) : 0;
}

static inline bool random_chance(struct random *random, int percent) { return random_below(random, 100) < percent; }

#endif
