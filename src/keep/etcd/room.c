/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A write that etcd refuses, because its quota is reached, waits until there is room, and so do reads of what
 * it changes. So the server is to refuse writes before: where little is left of the quota, or etcd has raised its
 * alarm, since another user filled it. Asked once a second, and sooner where much is written.
 */
#include "base/error.h"
#include "keep/etcd/place.h"

#include <inttypes.h>

enum {
  LOOK_MS = 1000,
  LEAST_RESERVE = 4 << 20, /* the size that etcd tells lags behind */
  MOST_RESERVE = 64 << 20,
  RESERVE = 16, /* a part of the quota, between these */
};

static int64_t reserve_of(int64_t quota) {
  const int64_t part = quota / RESERVE;
  return part < LEAST_RESERVE ? LEAST_RESERVE : part > MOST_RESERVE ? MOST_RESERVE : part;
}

static void judge(struct place *place, const struct etcd3_status *status) {
  const char *where = etcd_describe(place->client);
  place->full = (rdzv_error){0};
  if (status->no_space)
    error_set(&place->full, RDZV_E_NO_SPACE,
              "etcd at %s is full (compact and defragment it, then etcdctl alarm disarm)", where);
  else if (place->quota > 0 && status->db_size > place->quota - reserve_of(place->quota))
    error_set(&place->full, RDZV_E_NO_SPACE,
              "etcd at %s is nearly full: %" PRId64 " of %" PRId64
              " bytes (compact and defragment it, or raise its "
              "--quota-backend-bytes)",
              where, status->db_size, place->quota);
}

static bool is_due(const struct place *place) {
  const bool much = place->quota > 0 && place->written > reserve_of(place->quota) / 4;
  return much || deadline_left(place->next_look) == 0;
}

int place_room(struct keep *keep, rdzv_error *error) {
  struct place *place = place_of(keep);
  if (is_due(place)) {
    const struct etcd_call call = {deadline_after(LOOK_MS), &place->halt, NULL};
    struct etcd3_status status;
    if (place->quota == 0 && etcd3_quota(place->etcd, &call, &place->quota) == RDZV_E_UNSUPPORTED) place->quota = -1;
    if (etcd3_status(place->etcd, &call, &status) == 0) judge(place, &status);
    place->next_look = deadline_after(LOOK_MS);
    place->written = 0;
  }
  if (place->full.code == 0) return 0;
  if (error) *error = place->full;
  return place->full.code;
}
