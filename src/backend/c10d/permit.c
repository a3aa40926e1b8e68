/* SPDX-License-Identifier: BSD-3-Clause */
#include "backend/c10d/permit.h"

#include "base/error.h"
#include "base/log.h"
#include "store/run_keys.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { PERMIT_MS = 500 }; /* a permit that is held longer is lost */

int permit_init(struct permit *permit, const char *run_id, rdzv_error *error) {
  permit->queue = run_key(run_id, RUN_PART_PERMIT);
  permit->move = run_key(run_id, RUN_PART_MOVE);
  return permit->queue && permit->move ? 0 : error_no_memory(error);
}

void permit_free(struct permit *permit) {
  free(permit->queue);
  free(permit->move);
}

/* Takes the permit that is in the queue, or is put there in time. */
static int pop_permit(struct permit *permit, int64_t timeout_ms, rdzv_error *error) {
  struct store_call call = {timeout_ms, deadline_after(timeout_ms), permit->wake, error};
  rdzv_value value;
  const int result = permit->store->ops->queue_pop(permit->store, rdzv_str(permit->queue), true, &value, &call);
  if (result < 0) return result;
  permit->moved = strtoull(value.data, NULL, 10);
  rdzv_value_free(&value);
  return 0;
}

/* When the permit was given back last. */
static int last_move(struct permit *permit, uint64_t *version, rdzv_error *error) {
  rdzv_value value;
  const int result = rdzv_store_get_version(permit->store, rdzv_str(permit->move), &value, version, error);
  if (result == 0) rdzv_value_free(&value);
  return result;
}

/* Notes that the permit goes on, unless another node has since that version. *ours tells; *version is what then holds.
 */
static int move_on(struct permit *permit, uint64_t *version, bool *ours, rdzv_error *error) {
  rdzv_value value;
  const int result = rdzv_store_compare_set_version(permit->store, rdzv_str(permit->move), *version, rdzv_str("1"),
                                                    ours, &value, version, error);
  if (result == 0) rdzv_value_free(&value);
  return result;
}

static deadline next_loss(void) { return deadline_after(PERMIT_MS + jitter(PERMIT_MS)); }

/* Replaces a permit that got lost, unless another node does. RDZV_E_TIMEOUT: it was not lost. */
static int replace_permit(struct permit *permit, rdzv_error *error) {
  bool ours = false;
  const int result = move_on(permit, &permit->waits_for, &ours, error);
  if (result < 0) return result;
  permit->is_lost = next_loss();
  if (!ours) return RDZV_E_TIMEOUT;
  permit->moved = permit->waits_for;
  log_line(permit->log, RDZV_LOG_DEBUG, "the permit to write got lost and is replaced");
  return 0;
}

/* A wait goes on over several calls: the sum of their times tells whether the permit got lost. */
static int begin_waiting(struct permit *permit, rdzv_error *error) {
  if (permit->is_lost != 0) return 0;
  const int result = last_move(permit, &permit->waits_for, error);
  if (result == 0) permit->is_lost = next_loss();
  return result;
}

static int await_permit(struct permit *permit, deadline until, rdzv_error *error) {
  int result = pop_permit(permit, 0, error); /* it may lie there */
  if (result == RDZV_E_TIMEOUT) {
    const int begun = begin_waiting(permit, error);
    if (begun < 0) return begun;
  }
  while (result == RDZV_E_TIMEOUT && deadline_left(until) > 0) {
    const int64_t lost = deadline_left(permit->is_lost), left = deadline_left(until);
    result = pop_permit(permit, lost < left ? lost : left, error);
    if (result == RDZV_E_TIMEOUT && deadline_left(permit->is_lost) == 0) result = replace_permit(permit, error);
  }
  return result;
}

int permit_take(struct permit *permit, int64_t timeout_ms, rdzv_error *error) {
  const int result = await_permit(permit, deadline_after(timeout_ms), error);
  if (result != RDZV_E_TIMEOUT) permit->is_lost = 0;
  return result;
}

/* A node whose permit was replaced has none to give back. */
void permit_give(struct permit *permit) {
  rdzv_error error;
  bool ours = false;
  char text[24];
  int result = move_on(permit, &permit->moved, &ours, &error);
  snprintf(text, sizeof text, "%" PRIu64, permit->moved);
  if (result == 0 && ours)
    result = rdzv_store_queue_push(permit->store, rdzv_str(permit->queue), rdzv_str(text), &error);
  if (result < 0) log_line(permit->log, RDZV_LOG_INFO, "the permit to write is lost: %s", error.message);
}
