/* SPDX-License-Identifier: BSD-3-Clause */
/* A block has its class before it; freed blocks of a class are a list. Linked with --wrap of the functions below. */
#include "arena.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BYTES = 4 << 20, CLASSES = 40, ALIGNED = 16 };

struct block {
  size_t class;
  struct block *next; /* of the free ones */
};

static struct arena {
  size_t top;
  struct block *freed[CLASSES];
} * arena; /* at its own beginning */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void __wrap_free(void *memory);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t most);

void *outside_alloc(size_t count, size_t size) {
  void *memory = __real_calloc(count, size);
  if (!memory) abort();
  return memory;
}

void outside_free(void *memory) { __real_free(memory); }

/* ---- copies --------------------------------------------------------------------------------------------------- */

void arena_open(void) {
  arena = outside_alloc(1, ARENA_BYTES);
  arena->top = (sizeof *arena + ALIGNED - 1) / ALIGNED * ALIGNED;
}

void arena_close(void) {
  __real_free(arena);
  arena = NULL;
}

size_t arena_used(void) { return arena->top; }

void arena_save(struct arena_copy *copy) {
  if (copy->cap < arena->top) {
    __real_free(copy->bytes);
    copy->cap = 2 * arena->top;
    copy->bytes = outside_alloc(1, copy->cap);
  }
  copy->used = arena->top;
  memcpy(copy->bytes, arena, copy->used);
}

void arena_restore(const struct arena_copy *copy) { memcpy(arena, copy->bytes, copy->used); }

void arena_copy_free(struct arena_copy *copy) {
  __real_free(copy->bytes);
  *copy = (struct arena_copy){0};
}

/* ---- blocks --------------------------------------------------------------------------------------------------- */

/* 32, 48, 64, 96, 128, 192 … */
static size_t class_bytes(size_t class) { return (class & 1 ? (size_t)48 : (size_t)32) << class / 2; }

static bool is_inside(const void *memory) {
  return arena && (const char *)memory >= (const char *)arena &&
         (const char *)memory < (const char *)arena + ARENA_BYTES;
}

static struct block *block_of(void *memory) { return (struct block *)((char *)memory - ALIGNED); }

static void *allocate(size_t size) {
  size_t class = 0;
  while (class < CLASSES && class_bytes(class) < size + ALIGNED) class ++;
  if (class == CLASSES) abort();
  struct block *block = arena->freed[class];
  if (block) {
    arena->freed[class] = block->next;
  } else {
    if (arena->top + class_bytes(class) > ARENA_BYTES) abort();
    block = (struct block *)((char *)arena + arena->top);
    arena->top += class_bytes(class);
  }
  block->class = class;
  return (char *)block + ALIGNED;
}

void *__wrap_malloc(size_t size) { return arena ? allocate(size) : __real_malloc(size); }

void *__wrap_calloc(size_t count, size_t size) {
  if (!arena) return __real_calloc(count, size);
  if (size > 0 && count > ARENA_BYTES / size) abort();
  return memset(allocate(count * size), 0, count * size);
}

void __wrap_free(void *memory) {
  if (!is_inside(memory)) {
    __real_free(memory);
    return;
  }
  struct block *block = block_of(memory);
  block->next = arena->freed[block->class];
  arena->freed[block->class] = block;
}

void *__wrap_realloc(void *old, size_t size) {
  if (!arena || (old && !is_inside(old))) return __real_realloc(old, size);
  void *memory = allocate(size);
  if (!old) return memory;
  const size_t had = class_bytes(block_of(old)->class) - ALIGNED;
  memcpy(memory, old, had < size ? had : size);
  __wrap_free(old);
  return memory;
}

char *__wrap_strndup(const char *text, size_t most) {
  const size_t len = strnlen(text, most);
  char *copy = __wrap_malloc(len + 1);
  if (!copy) return NULL;
  copy[len] = '\0';
  return memcpy(copy, text, len);
}

char *__wrap_strdup(const char *text) { return __wrap_strndup(text, SIZE_MAX); }
