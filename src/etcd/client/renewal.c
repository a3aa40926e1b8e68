/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/client/renewal.h"

int64_t renewal_next(const struct renewal *renewal, int64_t sent_ms, int64_t now_ms, bool done) {
  if (!done) return now_ms + renewal->again_ms;
  const int64_t next = sent_ms + renewal->every_ms;
  return next > now_ms ? next : now_ms;
}
