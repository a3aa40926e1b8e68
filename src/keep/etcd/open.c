/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/log.h"
#include "keep/etcd/place.h"

#include <rdzv/etcd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALL_MS = 10000 }; /* for one call; the server repeats a commit that fails */

struct etcd_call place_call(struct place *place, rdzv_error *error) {
  return (struct etcd_call){deadline_after(CALL_MS), &place->halt, error};
}

/* The codes that keep.h knows. */
static int code_of(const struct place *place, int result) {
  if (result == 0 || result == RDZV_E_STALE || result == RDZV_E_NO_SPACE || result == RDZV_E_CORRUPT ||
      result == RDZV_E_UNSUPPORTED || result == RDZV_E_NO_MEMORY)
    return result;
  if (atomic_load(&place->is_canceled)) return RDZV_E_CANCELED;
  if (atomic_load(&place->lease.is_lost) || result == RDZV_E_DATA_LOST) return RDZV_E_STALE;
  if (result == RDZV_E_OUTCOME_UNKNOWN || result == RDZV_E_CONNECTION) return RDZV_E_CONNECTION;
  return result == RDZV_E_TIMEOUT ? RDZV_E_TIMEOUT : RDZV_E_IO;
}

int place_conclude(struct place *place, int result, const char *what, rdzv_error *error) {
  const bool holds = place_lease_holds(&place->lease);
  const int code = code_of(place, result);
  if (code == 0) return 0;
  if (code == RDZV_E_STALE) {
    atomic_store(&place->lease.is_lost, true);
    if (!holds && result != RDZV_E_STALE)
      return error_set(error, code, "no longer the active server of %s: its lease has ended", place->where);
  }
  error_prefix(error, code, "cannot %s %s", what, place->where);
  return error->code = code;
}

static bool place_holds(struct keep *keep) { return place_lease_holds(&place_of(keep)->lease); }

static void place_cancel(struct keep *keep) {
  struct place *place = place_of(keep);
  atomic_store(&place->is_canceled, true);
  flag_raise(&place->halt);
}

static void place_close(struct keep *keep) {
  struct place *place = place_of(keep);
  if (place->lease.etcd) place_lease_end(&place->lease);
  etcd3_close(place->lease.etcd);
  etcd3_close(place->etcd);
  if (place->client) etcd_close(place->client);
  flag_close(&place->halt);
  free(place);
}

static const struct keep_ops place_ops = {
    .name = "etcd",
    .load = place_load,
    .commit = place_commit,
    .room = place_room,
    .rest = place_rest,
    .holds = place_holds,
    .cancel = place_cancel,
    .close = place_close,
};

static int check(const struct keep_etcd_options *options, rdzv_error *error) {
  if (options->lease_ms != 0 && options->lease_ms < KEEP_ETCD_LEAST_LEASE_MS)
    return error_set(error, RDZV_E_INVALID, "invalid lease: expected at least 2 s, the shortest lease of etcd");
  return 0;
}

static int open_handles(struct place *place, rdzv_error *error) {
  int result = flag_open(&place->halt, error);
  if (result == 0) result = etcd3_open(etcd_share(place->client), &place->etcd, error);
  if (result == 0) result = etcd3_open(etcd_share(place->client), &place->lease.etcd, error);
  return result;
}

static int open_parts(struct place *place, const struct keep_etcd_options *options, rdzv_error *error) {
  int result = check(options, error);
  if (result == 0) result = place_prefix(options->prefix ? options->prefix : KEEP_ETCD_PREFIX, place->prefix, error);
  if (result == 0) result = etcd_open(options->etcd, &place->client, error);
  if (result == 0) result = open_handles(place, error);
  if (result < 0) return result;
  place->active = place_key(place->prefix, "/active");
  place->batch = place_key(place->prefix, "/batch");
  snprintf(place->where, sizeof place->where, "%s in etcd at %s", place->prefix, etcd_describe(place->client));
  snprintf(place->address, sizeof place->address, "%s", options->address);
  return 0;
}

static struct place *make(const rdzv_log *log) {
  struct place *place = calloc(1, sizeof *place);
  if (!place) return NULL;
  place->base.ops = &place_ops;
  place->halt = place->lease.stop = FLAG_NONE;
  if (log) place->log = *log;
  place->lease.halt = &place->halt;
  place->lease.log = &place->log;
  place->lease.where = place->where;
  place->lease.key = place->active.text;
  return place;
}

static int give(struct place *place, int result, struct keep **out) {
  if (result < 0)
    place_close(&place->base);
  else
    *out = &place->base;
  return result;
}

int keep_new_etcd(const struct keep_etcd_options *options, struct keep **out, rdzv_error *error) {
  struct place *place = make(options->log);
  if (!place) return error_no_memory(error);
  place->told = options->told;
  place->user = options->user;
  place->lease_ms = options->lease_ms > 0 ? options->lease_ms : KEEP_ETCD_LEASE_MS;
  return give(place, open_parts(place, options, error), out);
}

int keep_again_etcd(struct keep *keep, struct keep **out, rdzv_error *error) {
  const struct place *before = place_of(keep);
  struct place *place = make(&before->log);
  if (!place) return error_no_memory(error);
  place->client = etcd_share(before->client);
  place->told = before->told;
  place->user = before->user;
  place->lease_ms = before->lease_ms;
  place->active = before->active;
  place->batch = before->batch;
  place->was_answered = true;
  memcpy(place->prefix, before->prefix, sizeof place->prefix);
  memcpy(place->where, before->where, sizeof place->where);
  memcpy(place->address, before->address, sizeof place->address);
  return give(place, open_handles(place, error), out);
}

int keep_enter_etcd(struct keep *keep, rdzv_error *error) {
  struct place *place = place_of(keep);
  const int result = place_become_active(place, error);
  return result < 0 ? result : place_take_up(place, error);
}
