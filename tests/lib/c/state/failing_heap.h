/* SPDX-License-Identifier: BSD-3-Clause */
/* Makes allocations fail. malloc and its like are replaced for the whole program, so that those of jansson and strdup
 * fail, too. For one source file of a program. */
#ifndef RDZV_TESTS_FAILING_HEAP_H
#define RDZV_TESTS_FAILING_HEAP_H

#include "unit.h"

/* What is behind malloc: a sanitizer's, where there is one. */
extern void *__interceptor_malloc(size_t size) __attribute__((weak));
extern void *__interceptor_calloc(size_t count, size_t size) __attribute__((weak));
extern void *__interceptor_realloc(void *old, size_t size) __attribute__((weak));
extern void __interceptor_free(void *memory) __attribute__((weak));
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void __libc_free(void *memory);

static struct {
  bool on;    /* a scenario runs */
  long calls; /* so far */
  long from;  /* the first that fails; 0: none */
  long to;    /* the last that fails */
  long live;  /* allocated and not freed */
} heap;

/* They run before a sanitizer is ready for them. */
#ifdef __clang__
#define PLAIN __attribute__((disable_sanitizer_instrumentation))
#else
#define PLAIN __attribute__((no_sanitize("thread")))
#endif
#define REPLACEMENT PLAIN __attribute__((visibility("default"))) /* for libc and jansson to find */

PLAIN static bool fails(void) {
  if (!heap.on) return false;
  heap.calls++;
  return heap.from > 0 && heap.calls >= heap.from && heap.calls <= heap.to;
}

REPLACEMENT void *malloc(size_t size) {
  if (fails()) return NULL;
  void *memory = __interceptor_malloc ? __interceptor_malloc(size) : __libc_malloc(size);
  heap.live += memory != NULL;
  return memory;
}

REPLACEMENT void *calloc(size_t count, size_t size) {
  if (fails()) return NULL;
  void *memory = __interceptor_calloc ? __interceptor_calloc(count, size) : __libc_calloc(count, size);
  heap.live += memory != NULL;
  return memory;
}

REPLACEMENT void *realloc(void *old, size_t size) {
  if (fails()) return NULL;
  void *memory = __interceptor_realloc ? __interceptor_realloc(old, size) : __libc_realloc(old, size);
  heap.live += memory != NULL && old == NULL;
  return memory;
}

REPLACEMENT void free(void *memory) {
  heap.live -= memory != NULL;
  if (__interceptor_free)
    __interceptor_free(memory);
  else
    __libc_free(memory);
}

/* Runs the scenario with the allocations from `from` to `to` failing; none for 0. */
static int run(int (*scenario)(void), long from, long to) {
  const long live = heap.live;
  heap.calls = 0;
  heap.from = from;
  heap.to = to;
  heap.on = true;
  const int result = scenario();
  heap.on = false;
  /* A sanitizer has a strdup of its own, and counts itself. */
  if (!__interceptor_malloc && heap.live != live)
    fail_msg("allocation %ld failing: %ld were not freed", from, heap.live - live);
  return result;
}

#endif
