/* SPDX-License-Identifier: BSD-3-Clause */
/* A rendezvous state as JSON: whatever is read can be written, and is then read as equal, and written the same. */
#include "fuzz.h"
#include "state_equal.h"
#include "state_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  struct rendezvous_state state, again;
  struct buf first = {0}, second = {0};
  rdzv_error error = {0};
  const int result = state_json_read((rdzv_bytes){data, len}, &state, &error);
  if (result < 0) {
    CHECK(result == RDZV_E_CORRUPT && error.code == result && error.message[0] != '\0');
    return 0;
  }
  const int written = state_json_write(&state, &first, &error);
  if (written == 0) {
    CHECK(state_json_read((rdzv_bytes){first.data, first.len}, &again, NULL) == 0);
    CHECK(state_equal(&state, &again));
    CHECK(state_json_write(&again, &second, NULL) == 0);
    CHECK(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    state_free(&again);
  } else {
    CHECK(written == RDZV_E_LIMIT); /* text that is longer when it is written with escapes */
  }
  buf_free(&first);
  buf_free(&second);
  state_free(&state);
  return 0;
}
