/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that can be set back. Everything that the model allocates (the linker sends malloc and the like here) lies in
 * one piece at one address, so a copy of that piece is a copy of all machines in it with their pointers, and none of
 * them needs a function that copies it.
 */
#ifndef RDZV_TESTS_EXPLORE_ARENA_H
#define RDZV_TESTS_EXPLORE_ARENA_H

#include <stddef.h>

/* From here on, what is allocated lies in the arena. Aborts if there is no memory. */
void arena_open(void);
void arena_close(void);

/* The bytes in use, from the first on. */
size_t arena_used(void);

/* *copy is made large enough. */
struct arena_copy {
  char *bytes;
  size_t used, cap;
};
void arena_save(struct arena_copy *copy);
void arena_restore(const struct arena_copy *copy);
void arena_copy_free(struct arena_copy *copy);

/* Memory outside of it, all zero; aborts if there is none. */
void *outside_alloc(size_t count, size_t size);
void outside_free(void *memory);

#endif
