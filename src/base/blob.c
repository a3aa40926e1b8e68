/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/blob.h"

#include <rdzv/error.h>
#include <stdint.h>
#include <stdlib.h>

int blob_new(struct budget *budget, size_t cap, struct blob **out) {
  if (cap > SIZE_MAX / 2 || !budget_take(budget, sizeof(struct blob) + cap)) return RDZV_E_LIMIT;
  struct blob *blob = malloc(sizeof *blob + cap);
  if (!blob) {
    budget_give(budget, sizeof *blob + cap);
    return RDZV_E_NO_MEMORY;
  }
  *blob = (struct blob){.budget = budget, .holders = 1, .cap = cap};
  *out = blob;
  return 0;
}

int blob_resize(struct blob **blob, size_t cap) {
  struct blob *old = *blob;
  const size_t before = old->cap;
  if (cap > SIZE_MAX / 2 || (cap > before && !budget_take(old->budget, cap - before))) return RDZV_E_LIMIT;
  struct blob *now = realloc(old, sizeof *now + cap);
  if (!now) {
    if (cap > before) budget_give(old->budget, cap - before);
    return RDZV_E_NO_MEMORY;
  }
  if (cap < before) budget_give(now->budget, before - cap);
  now->cap = cap;
  if (now->len > cap) now->len = cap;
  *blob = now;
  return 0;
}

void blob_drop(struct blob *blob) {
  if (!blob || --blob->holders > 0) return;
  budget_give(blob->budget, sizeof *blob + blob->cap);
  free(blob);
}
