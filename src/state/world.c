/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/rendezvous.h"

bool world_note(struct rendezvous_state *state) {
  struct pyvalue value;
  if (!pyvalue_make_items(&value, PYVALUE_TUPLE, 2)) return false;
  value.items[0] = (struct pyvalue){.kind = PYVALUE_INT, .number = state->round};
  value.items[1] = (struct pyvalue){.kind = PYVALUE_INT, .number = (int64_t)state->num_participants};
  if (pynames_set(&state->extra, WORLD_ATTRIBUTE, &value)) return true;
  pyvalue_free(&value);
  return false;
}

int64_t world_size(const struct rendezvous_state *state) {
  const struct pyvalue *value = pynames_find(&state->extra, WORLD_ATTRIBUTE);
  if (!state->complete || !value || value->kind != PYVALUE_TUPLE || value->count != 2) return 0;
  const struct pyvalue *round = &value->items[0], *size = &value->items[1];
  /* An earlier round's: a PyTorch node that completed this one has carried it along. */
  if (round->kind != PYVALUE_INT || size->kind != PYVALUE_INT || round->number != state->round) return 0;
  return size->number > 0 ? size->number : 0;
}

bool world_is_whole(const struct rendezvous_state *state) {
  const int64_t size = world_size(state);
  if (size > 0) return size == (int64_t)state->num_participants;
  int64_t highest = -1;
  for (size_t i = 0; i < state->count; i++) {
    const struct state_member *member = &state->members[i];
    if ((member->kinds & STATE_PARTICIPANT) && member->rank > highest) highest = member->rank;
  }
  return highest == (int64_t)state->num_participants - 1;
}
