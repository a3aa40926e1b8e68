/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/log.h"
#include "etcd/v2/modify.h"
#include "handler/gen1/gen1.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NO_MEMORY_MS = 100, QUICK_MS = 1000, ROUND_SIZE = 24 };

/* What one request came to: etcd's code, or a negative RDZV_E code; and the event for the machine. */
struct carried {
  struct gen1_event event;
  struct etcd_result result;
  char round[ROUND_SIZE];
  const char **keys;
  rdzv_error error;
};

static bool is_refusal(int code) { return etcd_v2_is_lost_race(code) || code == ETCD_V2_NOT_A_FILE; }

static void set_event(struct carried *carried, int code, enum gen1_event_kind done) {
  if (code == 0 || (done == GEN1_EV_STATE && code == ETCD_V2_NOT_FOUND))
    carried->event.kind = done;
  else if (is_refusal(code) && done == GEN1_EV_DONE)
    carried->event.kind = GEN1_EV_REFUSED;
  else
    carried->event.kind = GEN1_EV_ERROR;
  if (code > 0) carried->error.code = etcd_v2_unexpected(code);
  carried->event.error = &carried->error;
  if (code >= 0) carried->event.index = carried->result.index;
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

static void read_active(struct gen1 *handler, const struct etcd_call *call, struct carried *carried) {
  char path[GEN1_PATH];
  gen1_path(handler, path, "/rdzv/active_version");
  const int code = etcd_v2_get(handler->client, path, ETCD_GET_QUORUM, call, &carried->result);
  set_event(carried, code, GEN1_EV_STATE);
  if (code == 0) carried->event.text = carried->result.node.value;
}

/* Before anything is put there: else etcd would make the directory, without an end. */
static int renew_run(struct gen1 *handler, const struct etcd_call *call) {
  const struct etcd_lease run = gen1_run_lease(handler);
  const int code = etcd_v2_unexpected(etcd_lease_renew(handler->client, &run, call));
  if (code < 0) call->error->code = code;
  return code;
}

static void write_active(struct gen1 *handler, const struct etcd_call *call, struct carried *carried) {
  const struct gen1_update *update = &handler->update;
  const bool first = update->request == GEN1_DO_CREATE;
  const struct etcd_put put = {.value = update->text,
                               .ttl = update->ttl,
                               .exist = first ? ETCD_EXIST_ABSENT : ETCD_EXIST_ANY,
                               .prev_value = first ? NULL : update->expected,
                               .unique = update->unique};
  char path[GEN1_PATH];
  gen1_path(handler, path, "/rdzv/active_version");
  int code = first ? renew_run(handler, call) : 0;
  if (code == 0) code = etcd_v2_put(handler->client, path, &put, call, &carried->result);
  set_event(carried, code, GEN1_EV_DONE);
}

static void drop_active(struct gen1 *handler, const struct etcd_call *call, struct carried *carried) {
  const struct etcd_delete what = {.prev_value = handler->update.expected};
  char path[GEN1_PATH];
  gen1_path(handler, path, "/rdzv/active_version");
  set_event(carried, etcd_v2_delete(handler->client, path, &what, call, &carried->result), GEN1_EV_DONE);
}

/* The next number, whatever is there. */
static int count_up(void *round, const struct etcd_node *old, char **value, rdzv_error *error) {
  const long long number = old ? strtoll(old->value, NULL, 10) : 0;
  snprintf(round, ROUND_SIZE, "%lld", number < 0 || number == LLONG_MAX ? 1 : number + 1);
  *value = strdup(round);
  return *value ? 0 : error_no_memory(error);
}

/* Only the node that sets a rendezvous up counts, but one that began to before may still do so. */
static void count(struct gen1 *handler, const struct etcd_call *call, struct carried *carried) {
  char path[GEN1_PATH];
  const struct etcd_modification what = {
      .key = path, .get = ETCD_GET_QUORUM, .change = count_up, .argument = carried->round};
  gen1_path(handler, path, "/rdzv/version_counter");
  set_event(carried, etcd_modify(handler->client, &what, call, NULL), GEN1_EV_DONE);
  carried->event.round = carried->round;
}

static void make_dir(struct gen1 *handler, const struct etcd_call *call, struct carried *carried) {
  const struct etcd_put put = {.dir = true, .exist = ETCD_EXIST_ABSENT};
  char path[GEN1_PATH];
  gen1_path(handler, path, "/rdzv/v_%s", handler->update.round);
  set_event(carried, etcd_v2_put(handler->client, path, &put, call, &carried->result), GEN1_EV_DONE);
}

static void lease(struct gen1 *handler, const struct etcd_call *call, struct carried *carried) {
  const struct etcd_put put = {.value = handler->mark, .ttl = handler->update.ttl};
  const int64_t asked_ms = clock_now_ms();
  char path[GEN1_PATH];
  gen1_path(handler, path, "/rdzv/v_%s/rank_%" PRId64, handler->update.round, handler->update.rank);
  int code = etcd_v2_put(handler->client, path, &put, call, &carried->result);
  if (code == 0 && !gen1_hold_rank(handler, path, handler->update.ttl, asked_ms)) {
    etcd_result_free(&carried->result);
    code = error_no_memory(call->error);
  }
  set_event(carried, code, GEN1_EV_DONE);
}

/* Is the key at `own`, our place, without our mark? Another node wrote it: etcd lost its data, and rounds began again.
 */
static bool is_anothers(const struct gen1 *handler, const char *own, const struct etcd_node *key) {
  return handler->place.round[0] && strcmp(key->key, own) == 0 && strcmp(key->value, handler->mark) != 0;
}

static void list(struct gen1 *handler, const struct etcd_call *call, struct carried *carried) {
  char path[GEN1_PATH], own[GEN1_PATH];
  gen1_path(handler, path, "/rdzv/v_%s", handler->update.round);
  gen1_path(handler, own, "/rdzv/v_%s/rank_%" PRId64, handler->place.round, handler->place.rank);
  int code = etcd_v2_get(handler->client, path, ETCD_GET_QUORUM, call, &carried->result);
  const size_t children = code == 0 ? carried->result.node.count : 0;
  carried->keys = calloc(children + 1, sizeof *carried->keys);
  if (!carried->keys) {
    if (code == 0) etcd_result_free(&carried->result);
    code = error_no_memory(call->error);
  }
  for (size_t i = 0; carried->keys && i < children; i++) {
    const struct etcd_node *key = &carried->result.node.nodes[i];
    if (!is_anothers(handler, own, key)) carried->keys[carried->event.key_count++] = key->key;
  }
  carried->event.keys = carried->keys;
  set_event(carried, code == ETCD_V2_NOT_FOUND ? 0 : code, GEN1_EV_LISTED);
}

static void watch(struct gen1 *handler, const struct etcd_call *call, struct carried *carried) {
  const struct gen1_update *update = &handler->update;
  char path[GEN1_PATH];
  gen1_path(handler, path, update->whole ? "/rdzv" : "/rdzv/active_version");
  const int code = etcd_v2_await(handler->client, path, update->whole, update->from_index, call);
  set_event(carried, code == RDZV_E_TIMEOUT ? 0 : code, GEN1_EV_TIMER);
}

/* ---- carrying out --------------------------------------------------------------------------------------------- */

static void perform(struct gen1 *handler, const struct etcd_call *call, struct carried *carried) {
  switch (handler->update.request) {
    case GEN1_DO_READ: read_active(handler, call, carried); break;
    case GEN1_DO_CREATE:
    case GEN1_DO_SWAP: write_active(handler, call, carried); break;
    case GEN1_DO_COUNT: count(handler, call, carried); break;
    case GEN1_DO_MAKE_DIR: make_dir(handler, call, carried); break;
    case GEN1_DO_LEASE: lease(handler, call, carried); break;
    case GEN1_DO_LIST: list(handler, call, carried); break;
    case GEN1_DO_DROP: drop_active(handler, call, carried); break;
    case GEN1_DO_WATCH: watch(handler, call, carried); break;
    case GEN1_DO_PAUSE:
      flag_pause(call->cancel, call->until);
      carried->event.kind = GEN1_EV_TIMER;
      break;
    case GEN1_DO_IDLE: break;
  }
}

static void step(struct gen1 *handler, struct gen1_event *event, unsigned *happened) {
  rdzv_error error;
  event->now_ms = clock_now_ms();
  if (gen1_step(&handler->machine, event, &handler->update, &error) < 0) {
    /* out of memory, or a state that cannot be read: the machine reads it again, until its deadline */
    handler->update = (struct gen1_update){.request = GEN1_DO_PAUSE, .until_ms = event->now_ms + NO_MEMORY_MS};
    if (error.code == RDZV_E_CORRUPT) {
      handler->update.happened = GEN1_HAPPENED_FAILED;
      handler->update.error = error;
      gen1_step(&handler->machine, &(struct gen1_event){.kind = GEN1_EV_ASK_STOP, .now_ms = event->now_ms},
                &(struct gen1_update){0}, NULL);
    }
  }
  *happened = handler->update.happened;
  if (*happened & GEN1_HAPPENED_LEASE_OVER) gen1_drop_rank(handler);
  if (*happened & GEN1_HAPPENED_WARNING)
    log_line(&handler->base.log, RDZV_LOG_WARNING, "%s", handler->update.warning.text);
}

static bool is_wait(enum gen1_request request) { return request == GEN1_DO_WATCH || request == GEN1_DO_PAUSE; }

/* Requests are given a moment even when the machine's time is over. */
static deadline limit_of(const struct gen1 *handler) {
  const deadline ends = gen1_deadline(&handler->machine), least = deadline_after(QUICK_MS);
  const deadline limit = deadline_after(etcd_read_timeout(handler->client)), last = ends > least ? ends : least;
  if (is_wait(handler->update.request)) return handler->update.until_ms;
  return last < limit ? last : limit;
}

int gen1_carry_out(struct gen1 *handler, const struct flag *cancel, unsigned *happened, rdzv_error *error) {
  struct carried carried = {.error = {.code = RDZV_E_CONNECTION}};
  const bool waits = is_wait(handler->update.request);
  const struct etcd_call call = {limit_of(handler), cancel, &carried.error};
  *happened = 0;
  if (handler->update.request == GEN1_DO_IDLE) return error_set(error, RDZV_E_INVALID, "this node is not in a round");
  perform(handler, &call, &carried);
  int result = 0;
  if (cancel && flag_raised(cancel))
    result = error_set(error, RDZV_E_CANCELED, "canceled");
  else
    step(handler, &carried.event, happened);
  if (carried.event.kind == GEN1_EV_ERROR)
    handler->trouble = carried.error;
  else if (!waits)
    handler->trouble.code = 0;
  if (carried.event.kind != GEN1_EV_ERROR) etcd_result_free(&carried.result);
  free(carried.keys);
  return result;
}
