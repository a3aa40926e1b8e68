/* SPDX-License-Identifier: BSD-3-Clause */
#include "keep/etcd/names.h"

#include "base/error.h"
#include "etcd/path.h"

#include <endian.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PACK_HEAD = 6, PACK_PUT = 1, PACK_GONE = 2 }; /* the kind, the length of the name, that of the value */

/* ---- names ---------------------------------------------------------------------------------------------------- */

int place_prefix(const char *given, char out[PLACE_MAX_PREFIX + 1], rdzv_error *error) {
  given += strspn(given, "/");
  size_t len = strlen(given);
  while (len > 0 && given[len - 1] == '/') len--;
  if (len == 0 || len > PLACE_MAX_PREFIX - 1)
    return error_set(error, RDZV_E_INVALID, "the prefix in etcd has 1 to %d characters", PLACE_MAX_PREFIX - 1);
  out[0] = '/';
  memcpy(out + 1, given, len);
  out[len + 1] = '\0';
  return 0;
}

struct place_name place_key(const char *prefix, const char *what) {
  struct place_name name;
  snprintf(name.text, sizeof name.text, "%.200s%.60s", prefix, what);
  return name;
}

struct place_name place_record(const char *prefix, rdzv_bytes name) {
  struct place_name key = place_key(prefix, "/records/");
  const uint8_t *bytes = name.data;
  char *to = key.text + strlen(key.text);
  for (size_t i = 0; i < name.len && i < KEEP_MAX_NAME; i++, to += 2) snprintf(to, 3, "%02x", bytes[i]);
  return key;
}

struct place_name place_staged(const char *prefix, uint64_t number, uint32_t part) {
  char what[48];
  snprintf(what, sizeof what, "/staged/%016" PRIx64 "/%08" PRIx32, number, part);
  return place_key(prefix, what);
}

static int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool place_read_record(const char *prefix, rdzv_bytes key, uint8_t name[KEEP_MAX_NAME], size_t *len) {
  rdzv_bytes digits;
  if (!etcd_path_below(key, place_key(prefix, "/records/").text, &digits)) return false;
  if (digits.len == 0 || digits.len % 2 != 0 || digits.len > 2 * (size_t)KEEP_MAX_NAME) return false;
  const char *at = digits.data;
  *len = digits.len / 2;
  for (size_t i = 0; i < *len; i++) {
    const int high = digit(at[2 * i]), low = digit(at[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    name[i] = (uint8_t)(high << 4 | low);
  }
  return true;
}

/* ---- the marker ----------------------------------------------------------------------------------------------- */

struct place_text place_marker_text(const struct place_marker *marker) {
  struct place_text text;
  snprintf(text.text, sizeof text.text,
           "{\"format\":%d,\"number\":%" PRIu64 ",\"by\":%" PRId64 ",\"staged\":%" PRIu32 "}", PLACE_FORMAT,
           marker->number, marker->fence, marker->staged);
  return text;
}

int place_read_marker(rdzv_bytes text, struct place_marker *out, rdzv_error *error) {
  json_int_t format = 0, number = -1, fence = -1, staged = -1;
  json_t *json = json_loadb(text.data ? text.data : "", text.len, 0, NULL);
  const bool named = json && json_unpack(json, "{s:I}", "format", &format) == 0;
  const bool read =
      named && json_unpack(json, "{s:I, s:I, s:I}", "number", &number, "by", &fence, "staged", &staged) == 0;
  json_decref(json);
  if (named && format != PLACE_FORMAT)
    return error_set(error, RDZV_E_UNSUPPORTED,
                     "it has format %lld, but this version of rdzv reads only format %d (use a newer one)",
                     (long long)format, PLACE_FORMAT);
  if (!read || number < 0 || fence < 0 || staged < 0 || staged > UINT32_MAX)
    return error_set(error, RDZV_E_CORRUPT, "what is stored as the last batch is not what this program writes");
  *out = (struct place_marker){(uint64_t)number, fence, (uint32_t)staged};
  return 0;
}

/* ---- the active server ---------------------------------------------------------------------------------------- */

char *place_active_text(const char *address, const char *host, int64_t pid, const char *since, int64_t lease) {
  char id[24];
  snprintf(id, sizeof id, "%" PRIx64, lease);
  json_t *json = json_pack("{s:s, s:s, s:I, s:s, s:s}", "address", address, "host", host, "pid", (json_int_t)pid,
                           "since", since, "lease", id);
  char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
  json_decref(json);
  return text;
}

void place_read_active(rdzv_bytes text, char *address, size_t size) {
  json_t *json = json_loadb(text.data ? text.data : "", text.len, 0, NULL);
  const char *found = json_string_value(json_object_get(json, "address"));
  snprintf(address, size, "%s", found && strlen(found) < size ? found : "");
  json_decref(json);
}

/* ---- packed changes ------------------------------------------------------------------------------------------- */

size_t place_packed_size(const struct keep_change *change) {
  return PACK_HEAD + change->name.len + change->head.len + change->body.len;
}

bool place_pack(struct buf *out, const struct keep_change *change) {
  const uint32_t len = htole32((uint32_t)(change->head.len + change->body.len));
  uint8_t head[PACK_HEAD] = {change->gone ? PACK_GONE : PACK_PUT, (uint8_t)change->name.len};
  memcpy(head + 2, &len, sizeof len);
  return buf_append(out, head, sizeof head) && buf_append(out, change->name.data, change->name.len) &&
         buf_append(out, change->head.data, change->head.len) && buf_append(out, change->body.data, change->body.len);
}

int place_unpack(rdzv_bytes *rest, struct keep_change *out, rdzv_error *error) {
  const uint8_t *at = rest->data;
  uint32_t little = 0;
  if (rest->len == 0) return 0;
  if (rest->len >= PACK_HEAD) memcpy(&little, at + 2, sizeof little);
  const size_t len = le32toh(little);
  const bool read = rest->len >= PACK_HEAD && (at[0] == PACK_PUT || at[0] == PACK_GONE) && at[1] <= KEEP_MAX_NAME &&
                    len <= KEEP_MAX_VALUE && rest->len - PACK_HEAD >= at[1] + len && (at[0] == PACK_PUT) == (len > 0);
  if (!read) return error_set(error, RDZV_E_CORRUPT, "a part of a staged batch is not what this program writes");
  *out = (struct keep_change){
      .name = {at + PACK_HEAD, at[1]}, .head = {at + PACK_HEAD + at[1], len}, .gone = at[0] == PACK_GONE};
  const size_t size = PACK_HEAD + at[1] + len;
  *rest = (rdzv_bytes){at + size, rest->len - size};
  return 1;
}
