/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/client/voice.h"

void voice_open(struct etcd_voice *voice) { pthread_mutex_init(&voice->lock, NULL); }
void voice_close(struct etcd_voice *voice) { pthread_mutex_destroy(&voice->lock); }

/* So that what comes and goes is not said each time. */
static bool has_said_lately(const struct waiting *waiting) {
  return waiting->pace.has_said && clock_now_ms() - waiting->pace.said < WAITING_REPEAT_MS;
}

struct waiting *voice_take(struct etcd_voice *voice, const rdzv_log *log, deadline until) {
  if (pthread_mutex_trylock(&voice->lock) != 0) return NULL;
  if (!voice->troubled && !has_said_lately(&voice->waiting)) waiting_begin(&voice->waiting, log, until);
  voice->waiting.until = until;
  return &voice->waiting;
}

void voice_give(struct etcd_voice *voice, bool over, const char *where, const char *sentence) {
  if (over) waiting_succeed(&voice->waiting, "etcd at %s %s", where, sentence);
  voice->troubled = !over;
  pthread_mutex_unlock(&voice->lock);
}
