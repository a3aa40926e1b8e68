/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A pickled rendezvous state: whatever is read can be written, and is then read as equal; writing it once more gives
 * the same bytes; and JSON of it can be read.
 */
#include "fuzz.h"
#include "state/pickle/read.h"
#include "state/pickle/write.h"
#include "state_equal.h"
#include "state_json.h"

/* The members are in order, and counted. */
static void check_state(const struct rendezvous_state *state) {
  size_t participants = 0, waiting = 0, redundant = 0;
  for (size_t i = 0; i < state->count; i++) {
    const struct state_node *member = &state->nodes[i];
    if (i > 0) CHECK(node_compare(&state->nodes[i - 1].desc, &member->desc) < 0);
    CHECK(state_find(state, &member->desc) == member);
    CHECK(member->kinds != 0 || member->last_heartbeat != DATETIME_NONE);
    participants += (member->kinds & NODE_PARTICIPANT) != 0;
    waiting += (member->kinds & NODE_WAITING) != 0;
    redundant += (member->kinds & NODE_SPARE) != 0;
  }
  CHECK(state->num_participants == participants && state->num_waiting == waiting && state->num_spares == redundant);
}

static void check_pickle(const struct rendezvous_state *state, struct torch_layouts possible,
                         enum torch_layout layout) {
  struct buf first = {0}, second = {0};
  CHECK(pickle_write(state, layout, &first, NULL) == 0);
  struct rendezvous_state again;
  struct torch_layouts layouts;
  CHECK(pickle_read((rdzv_bytes){first.data, first.len}, &again, &layouts, NULL) == 0);
  CHECK(state_equal(state, &again));
  CHECK(layouts.oldest >= possible.oldest && layouts.newest <= possible.newest);
  CHECK(layouts.oldest <= layout && layout <= layouts.newest);
  CHECK(pickle_write(&again, layout, &second, NULL) == 0);
  CHECK(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
  state_free(&again);
  buf_free(&first);
  buf_free(&second);
}

static void check_json(const struct rendezvous_state *state) {
  struct buf json = {0};
  CHECK(state_json_write(state, &json, NULL) == 0);
  struct rendezvous_state again;
  CHECK(state_json_read((rdzv_bytes){json.data, json.len}, &again, NULL) == 0);
  /* A dict that was given a key twice still is so in the state; in JSON it has it once. */
  if (state->extra.count == 0) CHECK(state_equal(state, &again));
  state_free(&again);
  buf_free(&json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  struct rendezvous_state state, copy;
  struct torch_layouts layouts;
  rdzv_error error = {0};
  const int result = pickle_read((rdzv_bytes){data, len}, &state, &layouts, &error);
  if (result < 0) {
    CHECK(result == RDZV_E_CORRUPT && error.code == result && error.message[0] != '\0');
    return 0;
  }
  CHECK(layouts.oldest <= layouts.newest);
  check_state(&state);
  for (enum torch_layout layout = layouts.oldest; layout <= layouts.newest; layout++)
    check_pickle(&state, layouts, layout);
  check_json(&state);
  CHECK(state_copy(&copy, &state) && state_equal(&copy, &state));
  state_free(&copy);
  state_free(&state);
  return 0;
}
