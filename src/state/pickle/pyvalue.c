/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/pickle/pyvalue.h"

#include "base/buf.h"

#include <stdlib.h>

/* ---- values --------------------------------------------------------------------------------------------------- */

bool pyvalue_is_hashable(const struct pyvalue *value) {
  if (value->kind > PYVALUE_TUPLE) return false;
  for (size_t i = 0; value->kind == PYVALUE_TUPLE && i < value->count; i++)
    if (!pyvalue_is_hashable(&value->items[i])) return false;
  return true;
}

bool pyvalue_make_bytes(struct pyvalue *value, enum pyvalue_kind kind, rdzv_bytes bytes) {
  uint8_t *copy = malloc(bytes.len + 1);
  if (!copy) return false;
  bytes_copy(copy, bytes.data, bytes.len);
  copy[bytes.len] = 0;
  value->kind = kind;
  value->count = bytes.len;
  value->bytes = copy;
  return true;
}

bool pyvalue_make_items(struct pyvalue *value, enum pyvalue_kind kind, size_t count) {
  struct pyvalue *items = count > 0 ? calloc(count, sizeof *items) : NULL;
  if (count > 0 && !items) return false;
  value->kind = kind;
  value->count = count;
  value->items = items;
  return true;
}

bool pyint_load(rdzv_bytes *bytes, int64_t *number) {
  const uint8_t *at = bytes->data;
  /* A last byte that only repeats the sign says nothing. */
  while (bytes->len > 1 && at[bytes->len - 1] == (at[bytes->len - 2] & 0x80 ? 0xff : 0)) bytes->len--;
  if (bytes->len > sizeof *number) return false;
  uint64_t bits = bytes->len > 0 && at[bytes->len - 1] & 0x80 ? UINT64_MAX : 0;
  for (size_t i = bytes->len; i > 0; i--) bits = bits << 8 | at[i - 1];
  *number = (int64_t)bits;
  return true;
}

/* False: no memory, *to is None. */
static bool pyvalue_copy(struct pyvalue *to, const struct pyvalue *from) {
  if (pyvalue_has_bytes(from->kind)) {
    const bool made = pyvalue_make_bytes(to, from->kind, (rdzv_bytes){from->bytes, from->count});
    if (!made) *to = (struct pyvalue){0};
    return made;
  }
  *to = *from;
  if (!pyvalue_has_items(from->kind)) return true;
  bool made = pyvalue_make_items(to, from->kind, from->count);
  if (!made) *to = (struct pyvalue){0};
  for (size_t i = 0; made && i < from->count; i++) made = pyvalue_copy(&to->items[i], &from->items[i]);
  if (!made) pyvalue_free(to);
  return made;
}

void pyvalue_free(struct pyvalue *value) {
  if (pyvalue_has_bytes(value->kind)) free(value->bytes);
  if (pyvalue_has_items(value->kind)) {
    for (size_t i = 0; i < value->count; i++) pyvalue_free(&value->items[i]);
    free(value->items);
  }
  *value = (struct pyvalue){0};
}

/* ---- names ---------------------------------------------------------------------------------------------------- */

/* Where the name is or would be; few enough for a walk. */
static size_t position(const struct pynames *names, const char *name, bool *found) {
  size_t at = 0;
  int order = -1;
  while (at < names->count && (order = strcmp(names->items[at].name, name)) < 0) at++;
  *found = at < names->count && order == 0;
  return at;
}

struct pyvalue *pynames_find(const struct pynames *names, const char *name) {
  bool found;
  const size_t at = position(names, name, &found);
  return found ? &names->items[at].value : NULL;
}

bool pynames_set(struct pynames *names, const char *name, struct pyvalue *value) {
  bool found;
  const size_t at = position(names, name, &found);
  if (!found) {
    char *copy = strdup(name);
    struct pynamed *items = copy ? realloc(names->items, (names->count + 1) * sizeof *items) : NULL;
    if (!items) {
      free(copy);
      return false;
    }
    memmove(items + at + 1, items + at, (names->count - at) * sizeof *items);
    items[at] = (struct pynamed){.name = copy};
    names->items = items;
    names->count++;
  }
  pyvalue_free(&names->items[at].value);
  names->items[at].value = *value;
  *value = (struct pyvalue){0};
  return true;
}

void pynames_remove(struct pynames *names, const char *name) {
  bool found;
  const size_t at = position(names, name, &found);
  if (!found) return;
  free(names->items[at].name);
  pyvalue_free(&names->items[at].value);
  names->count--;
  memmove(names->items + at, names->items + at + 1, (names->count - at) * sizeof *names->items);
}

bool pynames_copy(struct pynames *to, const struct pynames *from) {
  *to = (struct pynames){0};
  for (size_t i = 0; i < from->count; i++) {
    struct pyvalue value;
    if (pyvalue_copy(&value, &from->items[i].value) && pynames_set(to, from->items[i].name, &value)) continue;
    pyvalue_free(&value);
    pynames_free(to);
    return false;
  }
  return true;
}

void pynames_free(struct pynames *names) {
  for (size_t i = 0; i < names->count; i++) {
    free(names->items[i].name);
    pyvalue_free(&names->items[i].value);
  }
  free(names->items);
  *names = (struct pynames){0};
}
