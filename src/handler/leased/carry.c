/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "etcd/path.h"
#include "handler/leased/leased_handler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_MS = 1500, NO_MEMORY_MS = 100 };

/* What one request came to. */
struct carried {
  struct leased_event event;
  struct leased_kv *kvs;
  struct etcd3_reply reply;
  struct etcd3_events events;
  rdzv_error error;
};

/* A key below the run, as it is in etcd. */
struct path {
  char text[LEASED_KEY_SIZE + 1024];
};
static struct path path_of(const struct leased_handler *handler, const char *key) {
  struct path path;
  snprintf(path.text, sizeof path.text, "%s%s", handler->root, key);
  return path;
}

static void fail(struct carried *carried) {
  carried->event.kind = LEASED_EV_ERROR;
  carried->event.error = &carried->error;
}

/* 0, or what etcd said, as an event. */
static void set_event(struct carried *carried, int code, enum leased_event_kind done) {
  if (code == 0)
    carried->event.kind = done;
  else if (code == ETCD3_LEASE_GONE)
    carried->event.kind = LEASED_EV_GONE;
  else
    fail(carried);
  if (code > 0 && carried->error.code == 0) carried->error.code = RDZV_E_STALE;
}

/* ---- answers -------------------------------------------------------------------------------------------------- */

static bool take_kv(const struct leased_handler *handler, const struct etcd3_kv *from, struct leased_kv *to) {
  rdzv_bytes key;
  if (!etcd_path_below(rdzv_value_bytes(&from->key), handler->root, &key)) return false;
  if (key.len == 0 || strlen(key.data) != key.len) return false;
  if (from->value.data && strlen(from->value.data) != from->value.len) return false;
  *to = (struct leased_kv){.key = key.data,
                           .value = from->value.data ? from->value.data : "",
                           .create = from->create_revision,
                           .mod = from->mod_revision,
                           .lease = from->lease};
  return true;
}

static bool make_room(struct carried *carried, size_t count) {
  carried->kvs = calloc(count + 1, sizeof *carried->kvs);
  carried->event.kvs = carried->kvs;
  if (!carried->kvs) error_no_memory(&carried->error);
  return carried->kvs != NULL;
}

/* What a range found, of which the texts are the reply's. */
static void take_found(const struct leased_handler *handler, const struct etcd3_result *result,
                       struct carried *carried) {
  carried->event.revision = carried->reply.revision;
  if (!make_room(carried, result->kv_count)) {
    fail(carried);
    return;
  }
  for (size_t i = 0; i < result->kv_count; i++)
    carried->event.kv_count += take_kv(handler, &result->kvs[i], &carried->kvs[carried->event.kv_count]);
}

/* ---- transactions --------------------------------------------------------------------------------------------- */

struct texts {
  struct path keys[12];
  char end[12];
  struct etcd3_compare compares[4];
  struct etcd3_op then[8], otherwise[1];
};

static rdzv_bytes take_path(const struct leased_handler *handler, struct texts *texts, size_t *used, const char *key) {
  texts->keys[*used] = path_of(handler, key);
  return rdzv_str(texts->keys[(*used)++].text);
}

static size_t write_compares(const struct leased_handler *handler, const struct leased_txn *txn, struct texts *texts,
                             size_t *used) {
  for (size_t i = 0; i < txn->compare_count; i++)
    texts->compares[i] = (struct etcd3_compare){.keys = {.key = take_path(handler, texts, used, txn->compares[i].key)},
                                                .target = txn->compares[i].mod ? ETCD3_TARGET_MOD : ETCD3_TARGET_CREATE,
                                                .relation = ETCD3_EQUAL,
                                                .number = txn->compares[i].number};
  return txn->compare_count;
}

static size_t write_ops(const struct leased_handler *handler, const struct leased_txn *txn, struct texts *texts,
                        struct path *end, size_t *used) {
  size_t count = 0;
  if (txn->counted) {
    const rdzv_bytes prefix = take_path(handler, texts, used, txn->counted);
    texts->then[count++] =
        (struct etcd3_op){.kind = ETCD3_OP_RANGE, .range = {.keys = etcd3_prefix(prefix, end->text), .limit = 1}};
  }
  for (size_t i = 0; i < txn->put_count; i++)
    texts->then[count++] = (struct etcd3_op){.kind = ETCD3_OP_PUT,
                                             .put = {.key = take_path(handler, texts, used, txn->puts[i].key),
                                                     .value = rdzv_str(txn->puts[i].value),
                                                     .lease = txn->puts[i].lease}};
  for (size_t i = 0; i < txn->delete_count; i++)
    texts->then[count++] = (struct etcd3_op){
        .kind = ETCD3_OP_DELETE, .remove = {.keys = {.key = take_path(handler, texts, used, txn->deletes[i])}}};
  return count;
}

/* The keys of the board: from its first to the end of the run. */
static struct etcd3_keys board_of(const struct leased_handler *handler, struct path *begin, struct path *end) {
  *begin = path_of(handler, LEASED_BOARD_BEGIN);
  return (struct etcd3_keys){rdzv_str(begin->text), etcd3_prefix(rdzv_str(handler->root), end->text).end};
}

static void transact(struct leased_handler *handler, const struct etcd_call *call, struct carried *carried) {
  const struct leased_txn *txn = &handler->update.txn;
  struct texts *texts = calloc(1, sizeof *texts);
  struct path prefix_end, begin, end;
  size_t used = 0;
  if (!texts) {
    error_no_memory(&carried->error);
    fail(carried);
    return;
  }
  texts->otherwise[0] = (struct etcd3_op){.kind = ETCD3_OP_RANGE, .range = {.keys = board_of(handler, &begin, &end)}};
  struct etcd3_txn what = {.compares = texts->compares,
                           .then = texts->then,
                           .otherwise = texts->otherwise,
                           .otherwise_count = 1,
                           .repeat = ETCD3_REPEAT_FENCED};
  what.compare_count = write_compares(handler, txn, texts, &used);
  what.then_count = write_ops(handler, txn, texts, &prefix_end, &used);
  const int code = etcd3_txn(handler->etcd, &what, call, &carried->reply);
  set_event(carried, code, carried->reply.succeeded ? LEASED_EV_DONE : LEASED_EV_REFUSED);
  if (code == 0 && carried->reply.unsure) {
    error_set(&carried->error, RDZV_E_OUTCOME_UNKNOWN, "the answer of etcd got lost");
    fail(carried);
  } else if (code == 0) {
    carried->event.revision = carried->reply.revision;
    if (carried->reply.succeeded && txn->counted) carried->event.count = carried->reply.results[0].count;
    if (!carried->reply.succeeded || txn->counted) take_found(handler, &carried->reply.results[0], carried);
  }
  free(texts);
}

/* ---- the other requests --------------------------------------------------------------------------------------- */

static void grant(struct leased_handler *handler, const struct etcd_call *call, struct carried *carried) {
  struct etcd3_lease lease = {0};
  set_event(carried, etcd3_lease_grant(handler->etcd, (handler->update.ttl_ms + 999) / 1000, call, &lease),
            LEASED_EV_GRANTED);
  carried->event.lease = lease.id;
}

static void read_all(struct leased_handler *handler, const struct etcd_call *call, struct carried *carried) {
  struct path end;
  const struct etcd3_range range = {.keys = etcd3_prefix(rdzv_str(handler->root), end.text)};
  const int code = etcd3_range(handler->etcd, &range, call, &carried->reply);
  set_event(carried, code, LEASED_EV_FOUND);
  if (code == 0) take_found(handler, &carried->reply.results[0], carried);
}

static int open_watch(struct leased_handler *handler, rdzv_error *error) {
  const struct leased_watch *watch = &handler->update.watch;
  struct path begin, end, nodes_begin = path_of(handler, LEASED_NODES_BEGIN),
                          nodes_end = path_of(handler, LEASED_NODES_END);
  struct etcd3_watched watched[2];
  if (handler->watch && handler->watch_id == watch->id) return 0;
  etcd3_watch_close(handler->watch);
  handler->watch = NULL;
  watched[0] = (struct etcd3_watched){.keys = board_of(handler, &begin, &end), .from = watch->board_from};
  watched[1] =
      (struct etcd3_watched){.keys = {rdzv_str(nodes_begin.text), rdzv_str(nodes_end.text)}, .from = watch->nodes_from};
  if (watch->all)
    watched[0] =
        (struct etcd3_watched){.keys = etcd3_prefix(rdzv_str(handler->root), end.text), .from = watch->nodes_from};
  handler->watch_id = watch->id;
  const int result = etcd3_watch_open(handler->etcd, watched, watch->all ? 1 : 2, &handler->watch, error);
  if (result == 0 && !watch->all) etcd3_watch_only_removals(handler->watch, 1);
  return result;
}

static void take_events(const struct leased_handler *handler, struct carried *carried) {
  carried->event.revision = carried->events.revision;
  if (!make_room(carried, carried->events.count)) {
    fail(carried);
    return;
  }
  for (size_t i = 0; i < carried->events.count; i++) {
    struct leased_kv *kv = &carried->kvs[carried->event.kv_count];
    if (!take_kv(handler, &carried->events.list[i].kv, kv)) continue;
    kv->deleted = carried->events.list[i].deleted;
    if (kv->deleted && kv->create == 0) kv->value = NULL;
    carried->event.kv_count++;
  }
}

/* False: it was woken. */
static bool watch(struct leased_handler *handler, struct carried *carried) {
  const struct etcd_call call = {handler->update.until_ms, &handler->wake, &carried->error};
  int code = open_watch(handler, &carried->error);
  if (code == 0) code = etcd3_watch_next(handler->watch, &call, &carried->events);
  if (code == RDZV_E_CANCELED) return false;
  if (code == RDZV_E_TIMEOUT)
    carried->event.kind = LEASED_EV_TIMER;
  else if (code == ETCD3_COMPACTED || code == RDZV_E_DATA_LOST)
    carried->event.kind = LEASED_EV_WATCH_LOST;
  else
    set_event(carried, code, LEASED_EV_CHANGED);
  if (code == 0) take_events(handler, carried);
  if (carried->event.kind != LEASED_EV_WATCH_LOST) return true;
  etcd3_watch_close(handler->watch);
  handler->watch = NULL;
  return true;
}

static bool pause(struct leased_handler *handler, struct carried *carried) {
  carried->event.kind = LEASED_EV_TIMER;
  return flag_pause(&handler->wake, handler->update.until_ms) == 0;
}

/* ---- carrying out --------------------------------------------------------------------------------------------- */

/* Long enough for another member to be found, and short enough for the lease, if there is one, to be renewed after it.
 */
static struct etcd_call quick_call(const struct leased_handler *handler, struct carried *carried) {
  const int64_t part = handler->machine.config.lease_ms * 2 / 3, least = part > LEAST_MS ? part : LEAST_MS;
  const int64_t limit = handler->machine.lease ? least : etcd_read_timeout(handler->client);
  return (struct etcd_call){deadline_after(limit), &handler->halt, &carried->error};
}

/* A lease that is gone has ended, or went with all the data: a read tells, by the error that it fails with. */
static void ask_why(struct leased_handler *handler, const struct etcd_call *call) {
  struct etcd3_reply reply;
  const struct etcd3_range range = {.keys = {.key = rdzv_str(handler->root)}, .count_only = true};
  if (etcd3_range(handler->etcd, &range, call, &reply) == 0) etcd3_reply_free(&reply);
}

static bool perform(struct leased_handler *handler, struct carried *carried) {
  const struct leased_update *update = &handler->update;
  const struct etcd_call call = quick_call(handler, carried);
  switch (update->request) {
    case LEASED_DO_GRANT: grant(handler, &call, carried); return true;
    case LEASED_DO_KEEP_ALIVE:
      set_event(carried, etcd3_lease_keep_alive(handler->etcd, update->lease, &call, NULL), LEASED_EV_KEPT);
      if (carried->event.kind == LEASED_EV_GONE) ask_why(handler, &call);
      return true;
    case LEASED_DO_REVOKE:
      set_event(carried, etcd3_lease_revoke(handler->etcd, update->lease, &call), LEASED_EV_KEPT);
      return true;
    case LEASED_DO_TXN: transact(handler, &call, carried); return true;
    case LEASED_DO_READ: read_all(handler, &call, carried); return true;
    case LEASED_DO_WATCH: return watch(handler, carried);
    case LEASED_DO_PAUSE: return pause(handler, carried);
    default: return flag_pause(&handler->wake, INT64_MAX) == 0;
  }
}

void leased_feed(struct leased_handler *handler, struct leased_event *event) {
  rdzv_error error = {0};
  const struct leased_update before = handler->update;
  event->now = (struct moment){clock_now_ms(), clock_wall_us()};
  const int result = leased_step(&handler->machine, event, &handler->update, &error);
  if (result < 0)
    handler->update = (struct leased_update){
        .request = LEASED_DO_PAUSE, .until_ms = event->now.mono_ms + NO_MEMORY_MS, .news = handler->update.news};
  if (result == RDZV_E_CORRUPT) {
    handler->update.news |= ENGINE_NEWS_FAILED;
    handler->update.failed = LEASED_EV_ASK_JOIN;
    handler->update.error = error;
  }
  leased_told(handler);
  if (handler->update.request == LEASED_DO_CONTINUE) handler->update = before;
}

/* How etcd does. */
static void note(struct leased_handler *handler, const struct carried *carried, int64_t asked_ms) {
  const enum leased_event_kind kind = carried->event.kind;
  pthread_mutex_lock(&handler->lock);
  if (kind == LEASED_EV_ERROR) {
    handler->trouble = carried->error;
  } else if (kind != LEASED_EV_TIMER) {
    handler->trouble.code = 0;
    handler->heard_ms = asked_ms;
  }
  handler->waits = leased_waiting(&handler->machine);
  pthread_mutex_unlock(&handler->lock);
}

/* Reports errors that are retried, too. */
static void tell_of_etcd(struct leased_handler *handler, const struct carried *carried) {
  if (carried->error.code == RDZV_E_DATA_LOST) {
    handler->data_lost = true;
    events_note(&handler->events, RDZV_NODE_STATE_RUNNING, -1, -1, "%s (the nodes join again)", carried->error.message);
  } else if (carried->event.kind == LEASED_EV_WATCH_LOST) {
    events_note(&handler->events, RDZV_NODE_STATE_RUNNING, -1, -1,
                "etcd was compacted before this node had seen all changes: it reads all keys again");
  }
}

bool leased_carry_out(struct leased_handler *handler) {
  struct carried carried = {0};
  const bool waits = handler->update.request == LEASED_DO_WATCH;
  const int64_t asked_ms = clock_now_ms();
  const bool came = perform(handler, &carried);
  if (came) {
    tell_of_etcd(handler, &carried);
    leased_feed(handler, &carried.event);
    note(handler, &carried, waits ? clock_now_ms() : asked_ms);
  }
  etcd3_reply_free(&carried.reply);
  etcd3_events_free(&carried.events);
  free(carried.kvs);
  return came;
}
