/* SPDX-License-Identifier: BSD-3-Clause */
/* A stream from its first byte on: finding out the dialect, then V1 unless it begins with VALIDATE. */
#include "fuzz_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) { return fuzz_requests(WIRE_DIALECT_UNKNOWN, data, len); }
