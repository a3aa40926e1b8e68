/* SPDX-License-Identifier: BSD-3-Clause */
/* A model of etcd v3: keys with revisions, leases that end, transactions, and the changes that watches are told of. */
#ifndef RDZV_SIM_LEASED_MODEL_H
#define RDZV_SIM_LEASED_MODEL_H

#include "state/leased/machine.h"

enum { MODEL_KEYS = 96, MODEL_LEASES = 64 };

struct model_lease {
  int64_t id, ttl_ms, ends; /* id 0: free */
};

struct text;

/* All texts live as long as the model. */
struct model {
  int64_t now, revision, last_lease;
  struct leased_kv keys[MODEL_KEYS]; /* in the order of keys */
  size_t key_count;
  struct model_lease leases[MODEL_LEASES];
  struct leased_kv *changes; /* in the order of revisions */
  size_t change_count, change_cap;
  struct text *texts;
};

void model_free(struct model *model);

/* Moves the clock, and lets leases end. */
void model_advance(struct model *model, int64_t now);
int64_t model_next_end(const struct model *model);
void model_end_lease(struct model *model, int64_t id);

/* Everything is lost, and counting begins again. */
void model_lose_data(struct model *model);

/* Carries out a request other than WATCH and PAUSE. The event's kvs are the model's copy in `found`. */
struct model_answer {
  struct leased_event event;
  struct leased_kv found[MODEL_KEYS];
};
void model_answer(struct model *model, const struct leased_update *update, struct model_answer *answer);

/* Is the change at that place one that the watch is told of, from its revisions on? */
bool model_is_watched(const struct model *model, const struct leased_watch *watch, size_t change);

#endif
