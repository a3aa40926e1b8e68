/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/run_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const prefixes[RUN_PARTS] = {
    [RUN_PART_STATE] = RUN_STATE_PREFIX, [RUN_PART_BELL] = "rdzv.bell.",     [RUN_PART_PERMIT] = "rdzv.permit.",
    [RUN_PART_MOVE] = "rdzv.move.",      [RUN_PART_REASON] = "rdzv.reason.", [RUN_PART_PROGRAM] = "rdzv.program.",
};

const char *run_key_prefix(enum run_part part) { return prefixes[part]; }

char *run_key(const char *run_id, enum run_part part) {
  char *key;
  return asprintf(&key, "%s%s", prefixes[part], run_id) < 0 ? NULL : key;
}

char *run_round_prefix(const char *run_id, int64_t round) {
  char *prefix;
  return asprintf(&prefix, "%s%s.%" PRId64, prefixes[RUN_PART_STATE], run_id, round) < 0 ? NULL : prefix;
}

bool run_key_is_round(rdzv_bytes rest) {
  const char *text = rest.data;
  size_t digits = 1;
  if (rest.len == 0 || text[0] != '.') return false;
  while (digits < rest.len && text[digits] >= '0' && text[digits] <= '9') digits++;
  return digits > 1 && digits < rest.len && text[digits] == '/';
}

/* What is behind that prefix; empty: the key does not begin with it. */
static rdzv_bytes rest_of(rdzv_bytes key, const char *prefix) {
  const size_t len = strlen(prefix);
  if (key.len <= len || memcmp(key.data, prefix, len) != 0) return (rdzv_bytes){0};
  return (rdzv_bytes){(const char *)key.data + len, key.len - len};
}

rdzv_bytes run_key_id(rdzv_bytes key) {
  for (int part = RUN_PART_BELL; part < RUN_PARTS; part++) {
    const rdzv_bytes id = rest_of(key, prefixes[part]);
    if (id.len > 0) return id;
  }
  const rdzv_bytes rest = rest_of(key, prefixes[RUN_PART_STATE]);
  const char *text = rest.data;
  for (size_t at = 1; at < rest.len; at++)
    if (run_key_is_round((rdzv_bytes){text + at, rest.len - at})) return (rdzv_bytes){text, at};
  return rest;
}
