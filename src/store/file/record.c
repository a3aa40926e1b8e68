/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/file/record.h"

enum { LENGTH_SIZE = sizeof(uint32_t), MAX_PREFIX = 2, MIN_RECORD = LENGTH_SIZE + 1 + LENGTH_SIZE };

static uint32_t load32(const uint8_t *data) {
  uint32_t number;
  memcpy(&number, data, sizeof number);
  return number;
}

/* For PyTorch any key after a "-" is deleted, with a "/" or without. */
static struct file_key parse_key(rdzv_bytes raw) {
  const char *at = raw.data;
  size_t len = raw.len;
  const bool deleted = len > 0 && *at == '-';
  at += deleted;
  len -= deleted;
  const bool own = len == 0 || *at != '/';
  return (struct file_key){own, deleted, own ? (rdzv_bytes){at, len} : (rdzv_bytes){at + 1, len - 1}};
}

static enum file_record_result bad(struct file_record *record, const char *why) {
  record->why = why;
  return FILE_RECORD_BAD;
}

enum file_record_result file_record_decode(const uint8_t *data, size_t len, struct file_record *record) {
  *record = (struct file_record){.size = MIN_RECORD};
  if (len < LENGTH_SIZE) return FILE_RECORD_MORE;
  const size_t key_len = load32(data);
  if (key_len == 0) return bad(record, "a key has no bytes"); /* so a stretch of zeros is corrupt */
  if (key_len > FILE_MAX_KEY + MAX_PREFIX) return bad(record, "the length of a key is over the limit");
  const size_t value_at = LENGTH_SIZE + key_len + LENGTH_SIZE;
  record->size = value_at;
  if (len < value_at) return FILE_RECORD_MORE;
  const size_t value_len = load32(data + LENGTH_SIZE + key_len);
  if (value_len > FILE_MAX_VALUE) return bad(record, "the length of a value is over the limit");
  record->size = value_at + value_len;
  if (len < record->size) return FILE_RECORD_MORE;
  record->key = parse_key((rdzv_bytes){data + LENGTH_SIZE, key_len});
  record->value = (rdzv_bytes){data + value_at, value_len};
  return FILE_RECORD_DONE;
}

/* The caller has made room. */
static void put(struct buf *out, const void *data, size_t len) {
  bytes_copy(out->data + out->len, data, len);
  out->len += len;
}

bool file_record_encode(struct buf *out, struct file_key key, rdzv_bytes value) {
  const char *prefix = key.deleted ? (key.own ? "-" : "-/") : (key.own ? "" : "/");
  const size_t prefix_len = strlen(prefix);
  const uint32_t key_len = (uint32_t)(prefix_len + key.name.len), value_len = (uint32_t)value.len;
  if (!buf_reserve(out, LENGTH_SIZE + key_len + LENGTH_SIZE + value_len)) return false;
  put(out, &key_len, LENGTH_SIZE);
  put(out, prefix, prefix_len);
  put(out, key.name.data, key.name.len);
  put(out, &value_len, LENGTH_SIZE);
  put(out, value.data, value.len);
  return true;
}
