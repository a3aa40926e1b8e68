/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Becoming the active server.
 * - Look at PREFIX/active. If it is there, report its owner, and watch it until it goes.
 * - If it is not, ask for a lease, and create the key with it, on the condition that it is still not there.
 * - If another server was faster, give the lease back and watch on.
 *
 * Failure modes: etcd does not answer at first: the error. Later, or etcd is full, or something before it refuses a
 * request: wait and try again, with a log line.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/net/host.h"
#include "base/wait/waiting.h"
#include "keep/etcd/place.h"

#include <rdzv/etcd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WATCH_MS = 3600 * 1000, FIRST_PAUSE_MS = 100, LONGEST_PAUSE_MS = 2000, ADDRESS_SIZE = 320 };

struct candidate {
  struct place *place;
  char seen[ADDRESS_SIZE]; /* told last */
  bool is_told;
  int64_t revision; /* of the last look */
  struct backoff pauses;
  struct waiting waiting; /* what the log says of tries that fail */
};

static void tell(struct candidate *candidate, const char *active) {
  struct place *place = candidate->place;
  if (active && candidate->is_told && strcmp(candidate->seen, active) == 0) return;
  candidate->is_told = active != NULL;
  snprintf(candidate->seen, sizeof candidate->seen, "%s", active ? active : "");
  if (place->told) place->told(place->user, active);
  if (active)
    log_line(&place->log, RDZV_LOG_WARNING, "standby; active server: %s", *active ? active : "an unknown address");
}

/* A server writes the key with its lease. Without one, another program wrote it, and it would stay for good. */
static int remove_stray(struct candidate *candidate, int64_t revision, const struct etcd_call *call) {
  struct place *place = candidate->place;
  const struct etcd3_keys key = {.key = rdzv_str(place->active.text)};
  const struct etcd3_compare same = {key, ETCD3_TARGET_MOD, ETCD3_EQUAL, revision, {0}};
  const struct etcd3_op drop = {ETCD3_OP_DELETE, {.remove = {key, false}}};
  const struct etcd3_txn txn = {&same, 1, &drop, 1, NULL, 0, ETCD3_REPEAT_FENCED};
  struct etcd3_reply reply;
  log_line(&place->log, RDZV_LOG_WARNING, "'%s' in etcd has no lease, so no server holds it: it is removed",
           place->active.text);
  const int result = etcd3_txn(place->etcd, &txn, call, &reply);
  if (result != 0) return result > 0 ? RDZV_E_CONNECTION : result;
  etcd3_reply_free(&reply);
  return 0;
}

/* 1: another server is active; 0: none is. */
static int look(struct candidate *candidate, const struct etcd_call *call) {
  struct place *place = candidate->place;
  const struct etcd3_range range = {.keys = {.key = rdzv_str(place->active.text)}};
  struct etcd3_reply reply;
  char active[ADDRESS_SIZE];
  const int result = etcd3_range(place->etcd, &range, call, &reply);
  if (result != 0) return result > 0 ? RDZV_E_PROTOCOL : result;
  const bool there = reply.results[0].kv_count > 0;
  if (there) place_read_active(rdzv_value_bytes(&reply.results[0].kvs[0].value), active, sizeof active);
  const int64_t stray = there && reply.results[0].kvs[0].lease == 0 ? reply.results[0].kvs[0].mod_revision : 0;
  candidate->revision = reply.revision;
  place->was_answered = true;
  etcd3_reply_free(&reply);
  if (stray > 0) return remove_stray(candidate, stray, call);
  if (there) tell(candidate, active);
  return there;
}

/* 0: it may be gone: look again. */
static int watch(struct candidate *candidate, const struct etcd_call *call) {
  struct place *place = candidate->place;
  const struct etcd3_watched watched = {{.key = rdzv_str(place->active.text)}, candidate->revision + 1};
  struct etcd3_watch *stream;
  struct etcd3_events events = {0};
  int result = etcd3_watch_open(place->etcd, &watched, 1, &stream, call->error);
  if (result < 0) return result;
  const struct etcd_call longer = {deadline_after(WATCH_MS), call->cancel, call->error};
  result = etcd3_watch_next(stream, &longer, &events);
  if (result == 0) etcd3_events_free(&events);
  etcd3_watch_close(stream);
  return result == RDZV_E_TIMEOUT || result == ETCD3_COMPACTED ? 0 : result;
}

/* 1: this server is active; 0: another was faster. */
static int claim_with(struct candidate *candidate, const char *text, const struct etcd_call *call) {
  struct place *place = candidate->place;
  const struct etcd3_keys key = {.key = rdzv_str(place->active.text)};
  const struct etcd3_compare absent = {key, ETCD3_TARGET_CREATE, ETCD3_EQUAL, 0, {0}};
  const struct etcd3_op put = {ETCD3_OP_PUT, {.put = {key.key, rdzv_str(text), place->lease.id, false}}};
  const struct etcd3_op range = {ETCD3_OP_RANGE, {.range = {.keys = key}}};
  const struct etcd3_txn txn = {&absent, 1, &put, 1, &range, 1, ETCD3_REPEAT_FENCED};
  struct etcd3_reply reply;
  int result = etcd3_txn(place->etcd, &txn, call, &reply);
  if (result != 0) return result > 0 ? RDZV_E_CONNECTION : result;
  const bool found = !reply.succeeded && reply.count == 1 && etcd3_holds(&reply.results[0], rdzv_str(text));
  if (reply.succeeded) place->lease.fence = reply.revision;
  if (found) place->lease.fence = reply.results[0].kvs[0].create_revision; /* an earlier try was done */
  result = reply.succeeded || found;
  etcd3_reply_free(&reply);
  return result;
}

static void format_now(char *out, size_t size) {
  const time_t seconds = (time_t)(clock_wall_us() / 1000000);
  struct tm parts;
  gmtime_r(&seconds, &parts);
  strftime(out, size, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

static int claim(struct candidate *candidate, const struct etcd_call *call) {
  struct place *place = candidate->place;
  char host[HOST_NAME_SIZE], since[40];
  host_name(host);
  format_now(since, sizeof since);
  int result = place_lease_grant(&place->lease, place->lease_ms, call);
  if (result != 0) return result > 0 ? RDZV_E_CONNECTION : result;
  char *text = place_active_text(place->address, host, getpid(), since, place->lease.id);
  result = text ? claim_with(candidate, text, call) : error_no_memory(call->error);
  free(text);
  if (result == 1) {
    const int kept = place_lease_keep(&place->lease, call->error);
    return kept < 0 ? kept : 1;
  }
  place_lease_end(&place->lease);
  return result;
}

/* What has answered as etcd is etcd: RDZV_E_PROTOCOL is of a proxy, or passes. */
static bool is_worth_waiting(const struct candidate *candidate, int result) {
  if (!candidate->place->was_answered) return false;
  return result == RDZV_E_PROTOCOL || result == RDZV_E_CONNECTION || result == RDZV_E_TIMEOUT ||
         result == RDZV_E_OUTCOME_UNKNOWN || result == RDZV_E_NO_SPACE || result == RDZV_E_DATA_LOST;
}

/* 1: this server is active; 0: go on. */
static int go_on(struct candidate *candidate, rdzv_error *error) {
  struct place *place = candidate->place;
  const struct etcd_call call = {deadline_after(etcd_read_timeout(place->client)), &place->halt, error};
  int result = look(candidate, &call);
  if (result == 1) return watch(candidate, &call);
  if (result == 0) result = claim(candidate, &call);
  if (result == 1) tell(candidate, NULL);
  return result;
}

/* After a try that failed. 0: try again. */
static int rest(struct candidate *candidate, int result, rdzv_error *error) {
  struct place *place = candidate->place;
  if (!is_worth_waiting(candidate, result)) return result;
  waiting_fail(&candidate->waiting, "cannot become the active server of %s yet: %s", place->where, error->message);
  const struct flag telling = flag_with(&place->halt, &candidate->waiting);
  if (flag_pause(&telling, backoff_next(&candidate->pauses)) == 0) return 0;
  return error_set(error, RDZV_E_CANCELED, "canceled");
}

int place_become_active(struct place *place, rdzv_error *error) {
  struct candidate candidate = {.place = place, .pauses = {FIRST_PAUSE_MS, LONGEST_PAUSE_MS}};
  rdzv_error own = {0};
  int result;
  waiting_begin(&candidate.waiting, &place->log, INT64_MAX);
  do {
    result = go_on(&candidate, &own);
    if (result < 0) result = rest(&candidate, result, &own);
  } while (result == 0);
  if (result == 1) {
    waiting_succeed(&candidate.waiting, "this server became the active one of %s", place->where);
    return 0;
  }
  if (error) *error = own;
  return error_prefix(error, result, "cannot become the active server of %s", place->where);
}
