/* SPDX-License-Identifier: BSD-3-Clause */
/* What a client says of an etcd that does not answer (base/wait/waiting.h). One voice for all calls, from one to the
 * next, since each alone may be too short to be told of, and all together must not say it again and again. */
#ifndef RDZV_ETCD_CLIENT_VOICE_H
#define RDZV_ETCD_CLIENT_VOICE_H

#include "base/wait/waiting.h"

#include <pthread.h>
#include <stdbool.h>

struct etcd_voice {
  pthread_mutex_t lock; /* held by the call that speaks; guards what follows */
  bool troubled;        /* the last call that spoke was not answered */
  struct waiting waiting;
};

void voice_open(struct etcd_voice *voice);
void voice_close(struct etcd_voice *voice);

/* A call that lasts until then has failed to be answered: gives the wait to report to until voice_give. NULL: another
 * call speaks at the moment. */
struct waiting *voice_take(struct etcd_voice *voice, const rdzv_log *log, deadline until);

/* The call is over, and the trouble, too, or not. The log says that it is over by "etcd at <where> <sentence>". */
void voice_give(struct etcd_voice *voice, bool over, const char *where, const char *sentence);

#endif
