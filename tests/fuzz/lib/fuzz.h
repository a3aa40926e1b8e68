/* SPDX-License-Identifier: BSD-3-Clause */
/* What the fuzz targets share: a check that names itself, and pieces of an input that are cut by the input itself. */
#ifndef RDZV_FUZZ_H
#define RDZV_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                  \
    }                                                                           \
  } while (0)

/* The seed of an input's splits: the same input is always cut in the same places. */
static inline uint64_t fuzz_seed(const uint8_t *data, size_t len) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < len; i++) hash = (hash ^ data[i]) * 0x100000001b3u;
  return hash | 1;
}

/* A number from 1 to `most`; small ones come often. */
static inline size_t fuzz_step(uint64_t *seed, size_t most) {
  *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
  const size_t step = 1 + (size_t)((*seed >> 8) % (*seed & 1 ? 4 : 64));
  return step < most ? step : most;
}

/* The first bytes of the input in memory of their own, so that one read too far is found out. */
static inline uint8_t *fuzz_copy(const uint8_t *data, size_t len) {
  uint8_t *copy = calloc(len ? len : 1, 1);
  CHECK(copy);
  if (len > 0) memcpy(copy, data, len);
  return copy;
}

#endif
