/* SPDX-License-Identifier: BSD-3-Clause */
/* What a place in etcd gives back beside its records. The first byte chooses: packed changes, which come out the same
 * when they are packed again; a marker; who is active; the name of a record. */
#include "fuzz.h"
#include "keep/etcd/names.h"

static void unpack(rdzv_bytes bytes) {
  const uint8_t *begin = bytes.data;
  struct keep_change change;
  struct buf again = {0};
  size_t used = 0;
  while (place_unpack(&bytes, &change, NULL) == 1) {
    CHECK(change.name.len <= KEEP_MAX_NAME && change.head.len <= KEEP_MAX_VALUE &&
          change.gone == (change.head.len == 0));
    used += place_packed_size(&change);
    CHECK(place_pack(&again, &change));
  }
  CHECK(again.len == used && (used == 0 || memcmp(again.data, begin, used) == 0));
  buf_free(&again);
}

static void read_marker(rdzv_bytes bytes) {
  struct place_marker marker, same;
  if (place_read_marker(bytes, &marker, NULL) < 0) return;
  const struct place_text text = place_marker_text(&marker);
  CHECK(place_read_marker(rdzv_str(text.text), &same, NULL) == 0);
  CHECK(same.number == marker.number && same.fence == marker.fence && same.staged == marker.staged);
}

static void read_name(rdzv_bytes bytes) {
  uint8_t name[KEEP_MAX_NAME];
  size_t len;
  if (!place_read_record("/p", bytes, name, &len)) return;
  const struct place_name key = place_record("/p", (rdzv_bytes){name, len});
  CHECK(strlen(key.text) == bytes.len);
  const size_t before = strlen("/p/records/");
  CHECK(memcmp(key.text + before, (const char *)bytes.data + before, bytes.len - before) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char address[64];
  if (size == 0) return 0;
  const rdzv_bytes bytes = {data + 1, size - 1};
  switch (data[0] % 4) {
    case 0: unpack(bytes); break;
    case 1: read_marker(bytes); break;
    case 2: place_read_active(bytes, address, sizeof address); break;
    default: read_name(bytes); break;
  }
  return 0;
}
