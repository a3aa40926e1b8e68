/* SPDX-License-Identifier: BSD-3-Clause */
/* A stream of V2, and of our own dialect behind a greeting that asks for it. */
#include "fuzz_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) { return fuzz_requests(WIRE_DIALECT_V2, data, len); }
