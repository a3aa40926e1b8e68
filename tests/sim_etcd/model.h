/* SPDX-License-Identifier: BSD-3-Clause */
/* A model of etcd, as far as the first-generation rendezvous uses it, on a virtual clock. */
#ifndef RDZV_SIM_ETCD_MODEL_H
#define RDZV_SIM_ETCD_MODEL_H

#include "state/gen1/machine.h"

enum { MODEL_VERSIONS = 4096, MODEL_RANKS = 256, MODEL_KEY = 64 };

struct model {
  int64_t now;
  uint64_t index;         /* of the last change of anything */
  uint64_t active_index;  /* of the last change of the active version */
  char *active;           /* NULL: there is none */
  int64_t active_expires; /* 0: never */
  int64_t counter;
  bool dirs[MODEL_VERSIONS];
  int64_t leases[MODEL_VERSIONS][MODEL_RANKS]; /* when the key expires; 0: it is not there */
  int alive[MODEL_VERSIONS];                   /* how many of them are there */
};

void model_free(struct model *model);

/* Moves the clock, and lets expire what does. True: something did. */
bool model_advance(struct model *model, int64_t now);

/* When the next thing expires; INT64_MAX: nothing. */
int64_t model_next_expiry(const struct model *model);

/* What a request gives. The texts are the model's, or in `answer`, until the next call. */
struct answer {
  struct gen1_event event;
  char round[24];
  char names[MODEL_RANKS][MODEL_KEY];
  const char *keys[MODEL_RANKS];
};
void model_answer(struct model *model, const struct gen1_update *update, struct answer *answer);

/* The owner's renewal. False: the key is gone. */
bool model_renew(struct model *model, const char *round, int64_t rank);
void model_drop_lease(struct model *model, const char *round, int64_t rank);

void model_key(void *unused, const char *round, int64_t rank, char out[512]);

#endif
