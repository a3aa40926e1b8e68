/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/ending.h"

#include "state/differences.h"

#include <string.h>

static bool make(struct pyvalue *value, const struct node_desc *node, bool died, int64_t wall_us) {
  const struct node_text name = node_text(node);
  struct pyvalue *items = value->items;
  items[3] = (struct pyvalue){.kind = PYVALUE_FLOAT, .real = (double)wall_us / 1e6};
  items[5] = (struct pyvalue){.kind = PYVALUE_BOOL, .truth = died};
  return pyvalue_make_bytes(&items[0], PYVALUE_STR, rdzv_str("node")) &&
         pyvalue_make_bytes(&items[1], PYVALUE_STR, rdzv_str(node->addr[0] ? name.text : "")) &&
         pyvalue_make_bytes(&items[2], PYVALUE_STR, rdzv_str("at")) &&
         pyvalue_make_bytes(&items[4], PYVALUE_STR, rdzv_str("died"));
}

void ending_note(struct rendezvous_state *state, const struct node_desc *node, bool died, int64_t wall_us) {
  struct pyvalue value;
  if (!pyvalue_make_items(&value, PYVALUE_DICT, 6)) return;
  if (!make(&value, node, died, wall_us) || !pynames_set(&state->extra, ENDING_ATTRIBUTE, &value)) pyvalue_free(&value);
}

void ending_forget(struct rendezvous_state *state) { pynames_remove(&state->extra, ENDING_ATTRIBUTE); }

/* Other nodes can write the attribute, so a malformed one counts as missing. */
bool ending_read(const struct rendezvous_state *state, struct ending *out) {
  const struct pyvalue *value = pynames_find(&state->extra, ENDING_ATTRIBUTE);
  *out = (struct ending){.node = ""};
  if (!value || value->kind != PYVALUE_DICT) return false;
  for (size_t i = 0; i + 1 < value->count; i += 2) {
    const struct pyvalue *name = &value->items[i], *item = &value->items[i + 1];
    if (name->kind != PYVALUE_STR) continue;
    if (strcmp((const char *)name->bytes, "node") == 0 && item->kind == PYVALUE_STR &&
        item->count < sizeof(struct node_text))
      out->node = (const char *)item->bytes;
    if (strcmp((const char *)name->bytes, "at") == 0 && item->kind == PYVALUE_FLOAT && item->real > 0 &&
        item->real < 1e11)
      out->at_us = (int64_t)(item->real * 1e6);
    if (strcmp((const char *)name->bytes, "died") == 0 && item->kind == PYVALUE_BOOL) out->died = item->truth;
  }
  return out->at_us > 0;
}

bool ending_is_silence(const struct rendezvous_state *state, summary_age *age_of, const void *argument, int64_t wall_us,
                       struct ending_silence *out) {
  const int64_t dead_time = differences_dead_time(state);
  const struct state_node *last = NULL;
  int64_t shortest = INT64_MAX;
  for (size_t i = 0; i < state->count && !state->closed; i++) {
    const struct state_node *node = &state->nodes[i];
    const int64_t age = age_of(argument, node);
    if (age < 0) continue;
    if (age <= dead_time) return false;
    if (age < shortest) last = node;
    if (age < shortest) shortest = age;
  }
  if (!last) return false;
  *out = (struct ending_silence){node_text(&last->desc), wall_us - 1000 * shortest};
  return true;
}
