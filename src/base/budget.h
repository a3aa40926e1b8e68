/* SPDX-License-Identifier: BSD-3-Clause */
/* A limit on the memory of several objects: take before you allocate, give back after you free. */
#ifndef RDZV_BASE_BUDGET_H
#define RDZV_BASE_BUDGET_H

#include <stdbool.h>
#include <stddef.h>

struct budget {
  size_t used;
  size_t max;
};

static inline bool budget_take(struct budget *budget, size_t bytes) {
  if (bytes > budget->max || budget->used > budget->max - bytes) return false;
  budget->used += bytes;
  return true;
}

static inline void budget_give(struct budget *budget, size_t bytes) { budget->used -= bytes; }

#endif
