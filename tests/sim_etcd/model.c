/* SPDX-License-Identifier: BSD-3-Clause */
#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void model_key(void *unused, const char *round, int64_t rank, char out[512]) {
  (void)unused;
  snprintf(out, 512, "v_%s/rank_%" PRId64, round, rank);
}

void model_free(struct model *model) { free(model->active); }

static void set_active(struct model *model, const char *text, int64_t ttl) {
  char *copy = text ? strdup(text) : NULL;
  if (text && !copy) abort();
  free(model->active);
  model->active = copy;
  model->active_expires = text && ttl > 0 ? model->now + ttl * 1000 : 0;
  model->active_index = ++model->index;
}

static void set_lease(struct model *model, int64_t round, int64_t rank, int64_t expires) {
  int64_t *lease = &model->leases[round][rank];
  model->alive[round] += (expires != 0) - (*lease != 0);
  *lease = expires;
}

bool model_advance(struct model *model, int64_t now) {
  bool any = false;
  model->now = now;
  if (model->active && model->active_expires && model->active_expires <= now) {
    set_active(model, NULL, 0);
    any = true;
  }
  for (int64_t v = 0; v <= model->counter && v < MODEL_VERSIONS; v++)
    for (int r = 0; model->alive[v] > 0 && r < MODEL_RANKS; r++)
      if (model->leases[v][r] && model->leases[v][r] <= now) {
        set_lease(model, v, r, 0);
        model->index++;
        any = true;
      }
  return any;
}

int64_t model_next_expiry(const struct model *model) {
  int64_t next = model->active && model->active_expires ? model->active_expires : INT64_MAX;
  for (int64_t v = 0; v <= model->counter && v < MODEL_VERSIONS; v++)
    for (int r = 0; model->alive[v] > 0 && r < MODEL_RANKS; r++)
      if (model->leases[v][r] && model->leases[v][r] < next) next = model->leases[v][r];
  return next;
}

static void list(struct model *model, const char *round, struct answer *answer) {
  const int64_t v = strtoll(round, NULL, 10);
  answer->event.kind = GEN1_EV_LISTED;
  answer->event.keys = answer->keys;
  for (int r = 0; r < MODEL_RANKS; r++) {
    if (!model->leases[v][r]) continue;
    snprintf(answer->names[r], MODEL_KEY, "v_%s/rank_%d", round, r);
    answer->keys[answer->event.key_count++] = answer->names[r];
  }
}

static bool holds(const struct model *model, const char *expected) {
  return model->active && strcmp(model->active, expected) == 0;
}

void model_answer(struct model *model, const struct gen1_update *update, struct answer *answer) {
  struct gen1_event *event = &answer->event;
  *event = (struct gen1_event){.kind = GEN1_EV_DONE};
  switch (update->request) {
    case GEN1_DO_READ:
      event->kind = GEN1_EV_STATE;
      event->text = model->active;
      break;
    case GEN1_DO_CREATE:
      if (model->active)
        event->kind = GEN1_EV_REFUSED;
      else
        set_active(model, update->text, update->ttl);
      break;
    case GEN1_DO_COUNT:
      snprintf(answer->round, sizeof answer->round, "%" PRId64, ++model->counter);
      event->round = answer->round;
      model->index++;
      break;
    case GEN1_DO_MAKE_DIR:
      model->dirs[strtoll(update->round, NULL, 10)] = true;
      model->index++;
      break;
    case GEN1_DO_SWAP:
      if (holds(model, update->expected))
        set_active(model, update->text, update->ttl);
      else
        event->kind = GEN1_EV_REFUSED;
      break;
    case GEN1_DO_LEASE:
      set_lease(model, strtoll(update->round, NULL, 10), update->rank, model->now + update->ttl * 1000);
      model->index++;
      break;
    case GEN1_DO_LIST: list(model, update->round, answer); break;
    case GEN1_DO_DROP:
      if (holds(model, update->expected))
        set_active(model, NULL, 0);
      else
        event->kind = GEN1_EV_REFUSED;
      break;
    default: event->kind = GEN1_EV_TIMER; break;
  }
  event->index = model->index;
}

bool model_renew(struct model *model, const char *round, int64_t rank) {
  const int64_t number = strtoll(round, NULL, 10);
  if (!model->leases[number][rank]) return false;
  set_lease(model, number, rank, model->now + GEN1_TTL_KEEP_ALIVE * 1000);
  return true;
}

void model_drop_lease(struct model *model, const char *round, int64_t rank) {
  const int64_t number = strtoll(round, NULL, 10);
  if (model->leases[number][rank]) model->index++;
  set_lease(model, number, rank, 0);
}
