/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/writer.h"

#include <endian.h>

void wire_put(struct wire_writer *writer, const void *data, size_t len) {
  if (!buf_append(&writer->buf, data, len)) writer->failed = true;
}

void wire_put8(struct wire_writer *writer, uint8_t number) { wire_put(writer, &number, sizeof number); }

void wire_put32(struct wire_writer *writer, uint32_t number) {
  const uint32_t little = htole32(number);
  wire_put(writer, &little, sizeof little);
}

void wire_put64(struct wire_writer *writer, uint64_t number) {
  const uint64_t little = htole64(number);
  wire_put(writer, &little, sizeof little);
}

void wire_put_bytes(struct wire_writer *writer, rdzv_bytes bytes) {
  wire_put64(writer, bytes.len);
  wire_put(writer, bytes.data, bytes.len);
}

void wire_put_op(struct wire_writer *writer, enum wire_dialect dialect, enum wire_op op) {
  wire_put8(writer, (uint8_t)wire_ops[op].number[dialect]);
}
