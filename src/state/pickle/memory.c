/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/pickle/machine.h"

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- failures and memory -------------------------------------------------------------------------------------- */

bool pickle_fail(struct pickle_machine *machine, const char *format, ...) {
  char why[RDZV_MESSAGE_SIZE];
  va_list args;
  va_start(args, format);
  vsnprintf(why, sizeof why, format, args);
  va_end(args);
  machine->code = error_set(machine->error, RDZV_E_CORRUPT, "%s", why);
  return false;
}

bool pickle_no_memory(struct pickle_machine *machine) {
  machine->code = error_no_memory(machine->error);
  return false;
}

struct pickle_block {
  struct pickle_block *next;
  max_align_t data[];
};

enum { FIRST_BLOCK = 8 << 10, LARGEST_BLOCK = 1 << 20 };

static bool add_block(struct pickle_machine *machine, size_t size) {
  size_t block_size = machine->block_size ? machine->block_size * 2 : FIRST_BLOCK;
  if (block_size > LARGEST_BLOCK) block_size = LARGEST_BLOCK;
  if (block_size < size) block_size = size;
  if (block_size > PICKLE_MAX_MEMORY - machine->memory)
    return pickle_fail(machine, "its objects need over %d bytes", PICKLE_MAX_MEMORY);
  struct pickle_block *block = malloc(sizeof *block + block_size);
  if (!block) return pickle_no_memory(machine);
  block->next = machine->blocks;
  machine->blocks = block;
  machine->block_used = 0;
  machine->block_size = block_size;
  machine->memory += block_size;
  return true;
}

void *pickle_alloc(struct pickle_machine *machine, size_t size) {
  const size_t align = _Alignof(max_align_t);
  size = (size + align - 1) / align * align; /* sizes come from lengths that have been compared with their limits */
  if (size > machine->block_size - machine->block_used && !add_block(machine, size)) return NULL;
  void *memory = (uint8_t *)machine->blocks->data + machine->block_used;
  machine->block_used += size;
  return memory;
}

bool pickle_grow(struct pickle_machine *machine, void *array, size_t *cap, size_t need, size_t most, size_t size) {
  if (need <= *cap) return true;
  size_t to = *cap ? *cap * 2 : 64;
  if (to < need) to = need;
  if (to > most) to = most;
  void *old;
  memcpy(&old, array, sizeof old);
  void *grown = realloc(old, to * size);
  if (!grown) return pickle_no_memory(machine);
  memcpy(array, &grown, sizeof grown);
  *cap = to;
  return true;
}

void pickle_machine_free(struct pickle_machine *machine) {
  for (struct pickle_block *block = machine->blocks, *next; block; block = next) {
    next = block->next;
    free(block);
  }
  free(machine->stack);
  free(machine->memo);
}

/* ---- values --------------------------------------------------------------------------------------------------- */

const char *pickle_kind_name(uint32_t kind) {
  static const char *const names[] = {
      [PICKLE_UNSET] = "nothing",       [PICKLE_NONE] = "None",        [PICKLE_BOOL] = "a bool",
      [PICKLE_INT] = "an int",          [PICKLE_LONG] = "a large int", [PICKLE_FLOAT] = "a float",
      [PICKLE_STR] = "a str",           [PICKLE_BYTES] = "bytes",      [PICKLE_TUPLE] = "a tuple",
      [PICKLE_LIST] = "a list",         [PICKLE_DICT] = "a dict",      [PICKLE_SET] = "a set",
      [PICKLE_GLOBAL] = "a class",      [PICKLE_NODE] = "a _NodeDesc", [PICKLE_STATE] = "a _RendezvousState",
      [PICKLE_NAIVE] = "a datetime",    [PICKLE_AWARE] = "a datetime", [PICKLE_TIMEDELTA] = "a timedelta",
      [PICKLE_TIMEZONE] = "a timezone",
  };
  return names[kind];
}

const struct pickle_value *pickle_next(struct pickle_walk *walk) {
  while (walk->chunk && walk->at == walk->chunk->count) *walk = (struct pickle_walk){walk->chunk->next, 0};
  return walk->chunk ? &walk->chunk->values[walk->at++] : NULL;
}

bool pickle_extend(struct pickle_machine *machine, struct pickle_items *items, const struct pickle_value *values,
                   size_t count) {
  if (count == 0) return true;
  struct pickle_chunk *chunk = pickle_alloc(machine, sizeof *chunk + count * sizeof *values);
  if (!chunk) return false;
  chunk->next = NULL;
  chunk->count = count;
  memcpy(chunk->values, values, count * sizeof *values);
  if (items->last)
    items->last->next = chunk;
  else
    items->first = chunk;
  items->last = chunk;
  items->count += count;
  return true;
}
