/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/op.h"

const struct wire_op_row wire_ops[WIRE_OP_COUNT] = {
#define ROW(name, v1, v2, rdzv, fields, writes) {#name, fields, {-1, v1, v2, rdzv}, writes},
    WIRE_OP_LIST(ROW)
#undef ROW
};

/* See wire_op_of. */
#define IN_ORDER(name, v1, v2, rdzv, fields, writes)                                                             \
  _Static_assert(                                                                                                \
      WIRE_OP_##name >= (v1) && WIRE_OP_##name >= (v2) && (WIRE_OP_##name >= (rdzv) || (rdzv) >= WIRE_OP_COUNT), \
      "the operations are listed in the order of their numbers");
WIRE_OP_LIST(IN_ORDER)
#undef IN_ORDER

/* FNV-1a; it is part of the protocol. */
uint32_t wire_run_nonce(const char *run_id) {
  uint32_t hash = 2166136261u;
  for (; *run_id; run_id++) hash = (hash ^ (uint8_t)*run_id) * 16777619u;
  return WIRE_RUN_NONCE | ((hash ^ hash >> 28) & ~WIRE_RUN_MASK);
}
