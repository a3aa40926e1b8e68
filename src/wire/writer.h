/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds messages. Without memory the writer is marked as failed, so callers check once, at the end. */
#ifndef RDZV_WIRE_WRITER_H
#define RDZV_WIRE_WRITER_H

#include "base/buf.h"
#include "wire/op.h"

#include <endian.h>

struct wire_writer {
  struct buf buf;
  bool failed;
};

static inline void wire_put(struct wire_writer *writer, const void *data, size_t len) {
  if (!buf_append(&writer->buf, data, len)) writer->failed = true;
}

static inline void wire_put8(struct wire_writer *writer, uint8_t number) { wire_put(writer, &number, sizeof number); }

static inline void wire_put32(struct wire_writer *writer, uint32_t number) {
  const uint32_t little = htole32(number);
  wire_put(writer, &little, sizeof little);
}

static inline void wire_put64(struct wire_writer *writer, uint64_t number) {
  const uint64_t little = htole64(number);
  wire_put(writer, &little, sizeof little);
}

void wire_put_bytes(struct wire_writer *writer, rdzv_bytes bytes); /* with their length */

/* The number of the operation in the dialect, which must know it. */
void wire_put_op(struct wire_writer *writer, enum wire_dialect dialect, enum wire_op op);

#endif
