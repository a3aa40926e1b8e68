/* SPDX-License-Identifier: BSD-3-Clause */
/* A limit on the memory of several objects: take before you allocate, give back after you free. What is taken from a
 * budget with a parent is taken from both. */
#ifndef RDZV_BASE_BUDGET_H
#define RDZV_BASE_BUDGET_H

#include <stdbool.h>
#include <stddef.h>

struct budget {
  size_t used;
  size_t max;
  struct budget *parent; /* NULL: none. It has no parent itself */
};

static inline bool budget_has(const struct budget *budget, size_t bytes) {
  return bytes <= budget->max && budget->used <= budget->max - bytes;
}

static inline bool budget_take(struct budget *budget, size_t bytes) {
  if (!budget_has(budget, bytes) || (budget->parent && !budget_has(budget->parent, bytes))) return false;
  budget->used += bytes;
  if (budget->parent) budget->parent->used += bytes;
  return true;
}

static inline void budget_give(struct budget *budget, size_t bytes) {
  budget->used -= bytes;
  if (budget->parent) budget->parent->used -= bytes;
}

#endif
