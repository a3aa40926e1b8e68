/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/writer.h"

void wire_put_bytes(struct wire_writer *writer, rdzv_bytes bytes) {
  wire_put64(writer, bytes.len);
  wire_put(writer, bytes.data, bytes.len);
}

void wire_put_op(struct wire_writer *writer, enum wire_dialect dialect, enum wire_op op) {
  wire_put8(writer, (uint8_t)wire_ops[op].number[dialect]);
}
