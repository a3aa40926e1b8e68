/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/worker/std_map.h"

#include "base/error.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 16 };

/* Digits only, as a number; -1: not a number. *end is behind them. */
static int64_t number(const char *text, const char **end) {
  int64_t value = 0;
  *end = text;
  for (; isdigit((unsigned char)**end) && value < MOST; (*end)++) value = 10 * value + (**end - '0');
  return *end == text || value >= MOST ? -1 : value;
}

static bool add(struct std_map *map, int64_t local_rank, unsigned streams) {
  struct std_entry *entries = reallocarray(map->entries, map->count + 1, sizeof *entries);
  if (!entries) return false;
  map->entries = entries;
  entries[map->count++] = (struct std_entry){local_rank, streams};
  return true;
}

static int refuse(const char *option, const char *text, const char *expected, struct std_map *map, rdzv_error *error) {
  std_map_free(map);
  return error_set(error, RDZV_E_INVALID, "invalid value '%s' for %s: expected %s", text, option, expected);
}

int std_map_parse(const char *option, const char *text, struct std_map *out, rdzv_error *error) {
  static const char expected[] = "0, 1 (stdout), 2 (stderr), 3 (both), or local_rank:value,…";
  const char *at = text ? text : "";
  *out = (struct std_map){0};
  if (!*at) return 0;
  int64_t value = number(at, &at);
  if (!*at && value >= 0 && value <= (STD_OUT | STD_ERR)) {
    out->all = (unsigned)value;
    return 0;
  }
  for (at = text;; at++) {
    const int64_t local_rank = number(at, &at);
    if (local_rank < 0 || *at != ':') return refuse(option, text, expected, out, error);
    value = number(at + 1, &at);
    if (value < 0 || value > (STD_OUT | STD_ERR) || (*at && *at != ','))
      return refuse(option, text, expected, out, error);
    if (!add(out, local_rank, (unsigned)value)) return error_no_memory(error);
    if (!*at) return 0;
  }
}

int rank_list_parse(const char *option, const char *text, struct std_map *out, rdzv_error *error) {
  const char *at = text ? text : "";
  *out = (struct std_map){0};
  if (!*at) return 0;
  for (;; at++) {
    const int64_t local_rank = number(at, &at);
    if (local_rank < 0 || (*at && *at != ','))
      return refuse(option, text, "local ranks, separated by commas", out, error);
    if (!add(out, local_rank, 0)) return error_no_memory(error);
    if (!*at) return 0;
  }
}

static const struct std_entry *find(const struct std_map *map, int64_t local_rank) {
  for (size_t i = map->count; i > 0; i--) /* the last one counts */
    if (map->entries[i - 1].local_rank == local_rank) return &map->entries[i - 1];
  return NULL;
}

unsigned std_map_of(const struct std_map *map, int64_t local_rank) {
  const struct std_entry *entry = find(map, local_rank);
  return entry ? entry->streams : map->all;
}

bool std_map_any(const struct std_map *map) {
  bool any = map->count == 0 && map->all;
  for (size_t i = 0; i < map->count; i++) any |= map->entries[i].streams != 0;
  return any;
}

bool rank_list_has(const struct std_map *list, int64_t local_rank) {
  return list->count == 0 || find(list, local_rank) != NULL;
}

void std_map_free(struct std_map *map) {
  free(map->entries);
  *map = (struct std_map){0};
}
