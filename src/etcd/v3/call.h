/* SPDX-License-Identifier: BSD-3-Clause */
/* What the calls of the v3 API are made of. */
#ifndef RDZV_ETCD_V3_CALL_H
#define RDZV_ETCD_V3_CALL_H

#include "etcd/v3/read.h"
#include "etcd/v3/v3.h"

#include <pthread.h>

struct etcd3 {
  struct etcd_client *client;
  struct http_line *line; /* of etcd3_for_one_thread; NULL: none */
  pthread_mutex_t lock;   /* guards the rest */
  int64_t revision;       /* the newest in an answer to a call on keys */
  uint64_t cluster;       /* from the answers; 0: none yet */
  int64_t answered_ms;    /* when a call was answered last */
  struct backoff pauses;  /* between streams that end soon */
  deadline next_stream;   /* none is begun before that */
};

/* A request, of which the body is taken over and freed; `made`: it was not for lack of memory. */
struct etcd3_request {
  const char *path;
  struct buf body;
  bool made;
  enum etcd3_repeat repeat;
};

/* Performs it. 0: an answer of status 200, whose body is to be freed. A code of enum etcd3_code, or an RDZV_E code.
 * *unsure, which may be NULL: an earlier try may have been done, too. */
int etcd3_perform(struct etcd3 *etcd, struct etcd3_request request, const struct etcd_call *call, struct buf *body,
                  bool *unsure);

/* What a refusal of etcd's means: a code above 0, or an RDZV_E code with its sentence. */
int etcd3_refused(const struct etcd3 *etcd, long status, rdzv_bytes body, rdzv_error *error);

/* The revision that was known before a call on keys; and after it, the one in the answer: RDZV_E_DATA_LOST if that is
 * less, or of another cluster. */
int64_t etcd3_known_revision(struct etcd3 *etcd);
int etcd3_learn(struct etcd3 *etcd, int64_t known, int64_t revision, rdzv_error *error);

/* ---- streams.c: streams of watches that end soon after they began. They are the etcd3's, not a watch's: where the
 * history is gone, a user opens another watch. ---- */
#define ETCD3_FIRST_PAUSE ((struct backoff){20, 1000})

/* A stream that lasted so long has ended: another is begun after a pause, which is longer each time. If it did not last
 * long, the log says why it ended. */
void etcd3_stream_ended(struct etcd3 *etcd, int64_t lasted_ms, const char *why, const struct etcd_call *call);

/* Waits until another stream may be begun. 0, RDZV_E_TIMEOUT or RDZV_E_CANCELED. */
int etcd3_stream_pause(struct etcd3 *etcd, const struct etcd_call *call);

/* A stream goes on for ETCD3_LASTING_MS: the trouble, if any, is over. */
enum { ETCD3_LASTING_MS = 1000 };
void etcd3_stream_lasts(struct etcd3 *etcd, const struct etcd_call *call);

#endif
