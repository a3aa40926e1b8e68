/* SPDX-License-Identifier: BSD-3-Clause */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
  struct text *next;
  char text[];
};

static const char *keep(struct model *model, const char *text) {
  struct text *kept = malloc(sizeof *kept + strlen(text) + 1);
  if (!kept) abort();
  strcpy(kept->text, text); /* NOLINT: there is room */
  kept->next = model->texts;
  model->texts = kept;
  return kept->text;
}

void model_free(struct model *model) {
  while (model->texts) {
    struct text *next = model->texts->next;
    free(model->texts);
    model->texts = next;
  }
  free(model->changes);
}

/* ---- keys ----------------------------------------------------------------------------------------------------- */

static struct leased_kv *find(struct model *model, const char *key) {
  for (size_t i = 0; i < model->key_count; i++)
    if (strcmp(model->keys[i].key, key) == 0) return &model->keys[i];
  return NULL;
}

static void note(struct model *model, struct leased_kv change) {
  if (model->change_count == model->change_cap) {
    model->change_cap = model->change_cap ? 2 * model->change_cap : 64;
    model->changes = realloc(model->changes, model->change_cap * sizeof *model->changes);
    if (!model->changes) abort();
  }
  model->changes[model->change_count++] = change;
}

static void put(struct model *model, const struct leased_put *what) {
  struct leased_kv *kv = find(model, what->key);
  if (!kv) {
    if (model->key_count == MODEL_KEYS) abort();
    kv = &model->keys[model->key_count++];
    *kv = (struct leased_kv){.key = keep(model, what->key), .create = model->revision};
  }
  kv->value = keep(model, what->value);
  kv->mod = model->revision;
  kv->lease = what->lease;
  note(model, *kv);
}

static void drop(struct model *model, struct leased_kv *kv) {
  struct leased_kv change = *kv;
  change.deleted = true;
  change.mod = model->revision;
  note(model, change);
  *kv = model->keys[--model->key_count];
}

/* ---- leases --------------------------------------------------------------------------------------------------- */

static struct model_lease *find_lease(struct model *model, int64_t id) {
  for (int i = 0; id && i < MODEL_LEASES; i++)
    if (model->leases[i].id == id) return &model->leases[i];
  return NULL;
}

void model_end_lease(struct model *model, int64_t id) {
  struct model_lease *lease = find_lease(model, id);
  bool first = true;
  if (!lease) return;
  lease->id = 0;
  for (size_t i = model->key_count; i > 0; i--) {
    if (model->keys[i - 1].lease != id) continue;
    if (first) model->revision++;
    first = false;
    drop(model, &model->keys[i - 1]);
  }
}

void model_advance(struct model *model, int64_t now) {
  model->now = now;
  for (int i = 0; i < MODEL_LEASES; i++)
    if (model->leases[i].id && model->leases[i].ends <= now) model_end_lease(model, model->leases[i].id);
}

int64_t model_next_end(const struct model *model) {
  int64_t next = INT64_MAX;
  for (int i = 0; i < MODEL_LEASES; i++)
    if (model->leases[i].id && model->leases[i].ends < next) next = model->leases[i].ends;
  return next;
}

void model_lose_data(struct model *model) {
  memset(model->leases, 0, sizeof model->leases);
  model->key_count = model->change_count = 0;
  model->revision = 1;
}

static int64_t grant(struct model *model, int64_t ttl_ms) {
  for (int i = 0; i < MODEL_LEASES; i++) {
    if (model->leases[i].id) continue;
    model->leases[i] = (struct model_lease){++model->last_lease, ttl_ms, model->now + ttl_ms};
    return model->last_lease;
  }
  abort();
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

static void find_all(const struct model *model, bool board_only, struct model_answer *answer) {
  answer->event.kvs = answer->found;
  answer->event.revision = model->revision;
  for (size_t i = 0; i < model->key_count; i++)
    if (!board_only || model->keys[i].key[0] >= 'a') answer->found[answer->event.kv_count++] = model->keys[i];
}

static bool holds(struct model *model, const struct leased_compare *compare) {
  const struct leased_kv *kv = find(model, compare->key);
  return (kv ? compare->mod ? kv->mod : kv->create : 0) == compare->number;
}

static void transact(struct model *model, const struct leased_txn *txn, struct model_answer *answer) {
  bool all = true;
  answer->event.kind = LEASED_EV_GONE;
  for (size_t i = 0; i < txn->compare_count; i++) all = all && holds(model, &txn->compares[i]);
  if (!all) {
    answer->event.kind = LEASED_EV_REFUSED;
    find_all(model, true, answer);
    return;
  }
  for (size_t i = 0; i < txn->put_count; i++)
    if (!find_lease(model, txn->puts[i].lease)) return;
  answer->event.kind = LEASED_EV_DONE;
  for (size_t i = 0; txn->counted && i < model->key_count; i++)
    answer->event.count += strncmp(model->keys[i].key, txn->counted, strlen(txn->counted)) == 0;
  model->revision++;
  for (size_t i = 0; i < txn->put_count; i++) put(model, &txn->puts[i]);
  for (size_t i = 0; i < txn->delete_count; i++) {
    struct leased_kv *kv = find(model, txn->deletes[i]);
    if (kv) drop(model, kv);
  }
  answer->event.revision = model->revision;
}

void model_answer(struct model *model, const struct leased_update *update, struct model_answer *answer) {
  struct model_lease *lease = find_lease(model, update->lease);
  answer->event = (struct leased_event){.kind = LEASED_EV_KEPT};
  switch (update->request) {
    case LEASED_DO_GRANT:
      answer->event.kind = LEASED_EV_GRANTED;
      answer->event.lease = grant(model, update->ttl_ms);
      break;
    case LEASED_DO_KEEP_ALIVE:
      if (lease) lease->ends = model->now + lease->ttl_ms;
      if (!lease) answer->event.kind = LEASED_EV_GONE;
      break;
    case LEASED_DO_REVOKE: model_end_lease(model, update->lease); break;
    case LEASED_DO_TXN: transact(model, &update->txn, answer); break;
    case LEASED_DO_READ:
      answer->event.kind = LEASED_EV_FOUND;
      find_all(model, false, answer);
      break;
    default: break;
  }
}

bool model_is_watched(const struct model *model, const struct leased_watch *watch, size_t change) {
  const struct leased_kv *kv = &model->changes[change];
  const bool board = kv->key[0] >= 'a';
  if (watch->all) return kv->mod >= watch->nodes_from;
  return board ? kv->mod >= watch->board_from : kv->deleted && kv->mod >= watch->nodes_from;
}
