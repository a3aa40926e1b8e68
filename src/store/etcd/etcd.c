/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A store in etcd: PyTorch's EtcdStore. Each key is a node below the prefix, named by the key's base64, with the
 * value's base64 in it; its modifiedIndex is the version. Where PyTorch reads the whole directory to get one key, this
 * asks for that key, and watches it where it is not there yet.
 *
 * Failure modes: a member is gone or has no leader: the client asks another, by the deadline. The answer to a write on
 * a condition is lost: RDZV_E_OUTCOME_UNKNOWN. The history of a watch is gone: it is read anew.
 */
#include "store/etcd/etcd.h"
#include "base/error.h"
#include "base/text/base64.h"
#include "base/text/options.h"
#include "etcd/v2/v2.h"
#include "store/etcd/keys.h"
#include "store/keyspace/keyspace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  CONTENTION_MS = 5,
  CONTENTION_MOST_MS = 200,
  ANSWER_MS = 2000, /* for an answer, however little time there is for the key */
};

/* What a handle and its clones share. */
struct shared {
  atomic_int handles;
  struct etcd_client *client;
  char *prefix; /* begins with a slash and does not end with one */
  char text[640];
};

struct etcd_store {
  rdzv_store base;
  struct shared *shared;
};

static struct shared *shared_of(rdzv_store *store) { return ((struct etcd_store *)store)->shared; }

/* ---- keys and values ------------------------------------------------------------------------------------------ */

static int encode(rdzv_bytes value, struct buf *out, rdzv_error *error) {
  return base64_encode(value, out) ? 0 : error_no_memory(error);
}

static int decode(const struct etcd_node *node, rdzv_value *out, rdzv_error *error) {
  bool valid;
  if (!base64_decode_value(rdzv_str(node->value), out, &valid)) return error_no_memory(error);
  return valid ? 0 : error_set(error, RDZV_E_CORRUPT, "the value at '%s' in etcd is not base64", node->key);
}

/* ---- calls ---------------------------------------------------------------------------------------------------- */

/* For a request that does not block. */
static struct etcd_call quick(rdzv_store *store, const struct store_call *call) {
  return (struct etcd_call){deadline_after(store_request_time(store, etcd_read_timeout(shared_of(store)->client))),
                            call->cancel, call->error};
}

/* For the reads of a call that waits: its own deadline counts. */
static struct etcd_call waiting(rdzv_store *store, const struct store_call *call) {
  struct etcd_call own = quick(store, call);
  const deadline least = deadline_after(ANSWER_MS), until = call->until > least ? call->until : least;
  if (until < own.until) own.until = until;
  return own;
}

static int fail(rdzv_store *store, int code, const char *what, rdzv_bytes key, const struct store_call *call) {
  const bool in_the_way =
      code == ETCD_V2_NOT_A_FILE || code == ETCD_V2_NOT_A_DIR; /* a key whose path goes through it */
  const int result = in_the_way ? RDZV_E_UNSUPPORTED : etcd_v2_unexpected(code);
  if (call->error) call->error->code = result;
  return error_prefix(call->error, result, "%s '%s' in %s", what, bytes_quote(key).text, shared_of(store)->text);
}

/* Reads the node. *version 0 and ETCD_V2_NOT_FOUND: there is none. *index is where to watch from. */
static int read_node(rdzv_store *store, const char *path, const struct etcd_call *call, struct etcd_result *result,
                     uint64_t *index) {
  const int outcome = etcd_v2_get(shared_of(store)->client, path, ETCD_GET_QUORUM, call, result);
  if (outcome < 0) return outcome;
  *index = result->index + 1;
  const bool in_the_way =
      outcome == ETCD_V2_NOT_A_DIR || (outcome == 0 && result->node.dir); /* what has another's path */
  if (!in_the_way) return outcome;
  if (outcome == 0) etcd_result_free(result);
  return ETCD_V2_NOT_FOUND;
}

/* Waits for an event of the node, or for a reason to look again. */
static int watch(rdzv_store *store, const char *path, uint64_t index, const struct store_call *call) {
  const struct etcd_call own = {call->until, call->cancel, call->error};
  struct etcd_result result;
  const int outcome = etcd_v2_watch(shared_of(store)->client, path, false, index, &own, &result);
  if (outcome == 0) etcd_result_free(&result);
  if (outcome == ETCD_V2_INDEX_CLEARED || outcome == ETCD_V2_WATCHER_CLEARED) return 0;
  return outcome == RDZV_E_TIMEOUT && deadline_left(call->until) > 0 ? 0 : outcome;
}

/* Waits until the node's version is another than `known`; UINT64_MAX: until it is there. */
static int await_node(rdzv_store *store, rdzv_bytes key, uint64_t known, const char *what, struct store_call *call,
                      struct etcd_result *result) {
  char *path;
  int outcome = etcd_key_path(shared_of(store)->prefix, key, &path, call->error);
  if (outcome < 0) return outcome;
  for (;;) {
    uint64_t index = 0;
    const struct etcd_call own = waiting(store, call);
    outcome = read_node(store, path, &own, result, &index);
    const uint64_t version = outcome == 0 ? result->node.modified : 0;
    if (outcome != 0 && outcome != ETCD_V2_NOT_FOUND) break;
    const bool changed = known == UINT64_MAX ? outcome == 0 : version != known;
    if (changed) break;
    if (outcome == 0) etcd_result_free(result);
    outcome = deadline_left(call->until) > 0 ? watch(store, path, index, call) : RDZV_E_TIMEOUT;
    if (outcome != 0) break;
  }
  free(path);
  if (outcome == RDZV_E_TIMEOUT || outcome == RDZV_E_CANCELED) return store_fail_wait(call, outcome, what, &key, 1);
  if (outcome == ETCD_V2_NOT_FOUND && known != UINT64_MAX) return outcome;
  return outcome == 0 ? 0 : fail(store, outcome, what, key, call);
}

/* ---- the operations ------------------------------------------------------------------------------------------- */

static int put(rdzv_store *store, const char *what, rdzv_bytes key, rdzv_bytes value, const struct etcd_put *how,
               const struct store_call *call, uint64_t *version) {
  const struct etcd_call own = quick(store, call);
  struct etcd_put request = *how;
  struct etcd_result result;
  struct buf text = {0};
  char *path = NULL;
  int outcome = etcd_key_path(shared_of(store)->prefix, key, &path, call->error);
  if (outcome == 0) outcome = encode(value, &text, call->error);
  if (outcome == 0) {
    request.value = (const char *)text.data;
    outcome = etcd_v2_put(shared_of(store)->client, path, &request, &own, &result);
  }
  if (outcome == 0) {
    if (version) *version = result.node.modified;
    etcd_result_free(&result);
  }
  buf_free(&text);
  free(path);
  return outcome == 0 || etcd_v2_is_lost_race(outcome) ? outcome : fail(store, outcome, what, key, call);
}

/* The version of a key, as the member that is asked knows it; 0: it is not there. */
static int version_of(rdzv_store *store, rdzv_bytes key, uint64_t *version, const struct store_call *call) {
  const struct etcd_call own = quick(store, call);
  struct etcd_result result;
  char *path;
  int outcome = etcd_key_path(shared_of(store)->prefix, key, &path, call->error);
  if (outcome < 0) return outcome;
  outcome = etcd_v2_get(shared_of(store)->client, path, 0, &own, &result);
  free(path);
  *version = outcome == 0 ? result.node.modified : 0;
  const bool dir = outcome == 0 && result.node.dir;
  if (outcome == 0) etcd_result_free(&result);
  if (dir) return error_set(call->error, RDZV_E_UNSUPPORTED, "'%s' has the place of others", bytes_quote(key).text);
  return outcome == 0 || outcome == ETCD_V2_NOT_FOUND ? 0 : fail(store, outcome, "set", key, call);
}

/* A write on a condition, which others keep from holding by their writes. */
struct contention {
  deadline until;
  int64_t pause;
};

static struct contention contention_begin(rdzv_store *store) {
  return (struct contention){deadline_after(etcd_read_timeout(shared_of(store)->client)), CONTENTION_MS};
}

/* Before the next try. RDZV_E_TIMEOUT: there were enough; RDZV_E_CANCELED. */
static int contention_pause(struct contention *contention, const char *what, rdzv_bytes key,
                            const struct store_call *call) {
  if (deadline_left(contention->until) == 0)
    return error_set(call->error, RDZV_E_TIMEOUT, "%s '%s': others wrote it each time before us", what,
                     bytes_quote(key).text);
  if (flag_pause(call->cancel, deadline_after(jitter(contention->pause))) < 0)
    return error_set(call->error, RDZV_E_CANCELED, "%s '%s': canceled", what, bytes_quote(key).text);
  contention->pause = contention->pause * 2 < CONTENTION_MOST_MS ? contention->pause * 2 : CONTENTION_MOST_MS;
  return 0;
}

static int etcd_get_version(rdzv_store *store, rdzv_bytes key, rdzv_value *out, uint64_t *version,
                            struct store_call *call);

/* Our write of a new key was not answered: done where it is there. Where it is not, it may be deleted again, or be done
 * yet, so that it must not be repeated. */
static int find_created(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, const struct store_call *call) {
  rdzv_error own;
  struct store_call reading = *call;
  rdzv_value now;
  uint64_t version = 0;
  reading.error = &own;
  if (etcd_get_version(store, key, &now, &version, &reading) < 0) return RDZV_E_OUTCOME_UNKNOWN;
  const bool done = version != 0 && bytes_equal(rdzv_value_bytes(&now), value);
  rdzv_value_free(&now);
  return done ? 0 : RDZV_E_OUTCOME_UNKNOWN;
}

static int create(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, const struct store_call *call) {
  const struct etcd_put how = {.exist = ETCD_EXIST_ABSENT, .resolved = true};
  const int outcome = put(store, "set", key, value, &how, call, NULL);
  return outcome == RDZV_E_OUTCOME_UNKNOWN ? find_created(store, key, value, call) : outcome;
}

/*
 * A set is no mere PUT: one that is stuck in a member that does not answer, and is done at another then, would be done
 * again when that member comes to itself, over what was written since. So it has a condition that does not hold twice:
 * it is as it was read, by its index, or there is no such key. A key that is deleted meanwhile is new again, so what
 * was not answered for a new key is not repeated.
 */
static int etcd_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  struct contention contention = contention_begin(store);
  for (;;) {
    uint64_t version;
    int outcome = version_of(store, key, &version, call);
    if (outcome < 0) return outcome;
    const struct etcd_put how = {.prev_index = version, .by_anybody = true};
    outcome = version == 0 ? create(store, key, value, call) : put(store, "set", key, value, &how, call, NULL);
    if (outcome <= 0) return outcome;
    outcome = contention_pause(&contention, "set", key, call);
    if (outcome < 0) return outcome;
  }
}

static int etcd_get(rdzv_store *store, rdzv_bytes key, rdzv_value *out, struct store_call *call) {
  struct etcd_result result;
  int outcome = await_node(store, key, UINT64_MAX, "get", call, &result);
  if (outcome < 0) return outcome;
  outcome = decode(&result.node, out, call->error);
  etcd_result_free(&result);
  return outcome;
}

/* What the calls on versions give for a key that is not there. */
static int give_absent(rdzv_value *out, uint64_t *version, const struct store_call *call) {
  if (!value_copy(out, NULL, 0)) return error_no_memory(call->error);
  *version = 0;
  return 0;
}

static int etcd_get_version(rdzv_store *store, rdzv_bytes key, rdzv_value *out, uint64_t *version,
                            struct store_call *call) {
  struct etcd_result result;
  char *path;
  uint64_t index;
  int outcome = etcd_key_path(shared_of(store)->prefix, key, &path, call->error);
  if (outcome < 0) return outcome;
  const struct etcd_call own = quick(store, call);
  outcome = read_node(store, path, &own, &result, &index);
  free(path);
  if (outcome == ETCD_V2_NOT_FOUND) return give_absent(out, version, call);
  if (outcome != 0) return fail(store, outcome, "get", key, call);
  outcome = decode(&result.node, out, call->error);
  if (outcome == 0) *version = result.node.modified;
  etcd_result_free(&result);
  return outcome;
}

/* The version is `expected`: writes, and gives the new one. 1: somebody was faster. */
static int swap_version(rdzv_store *store, rdzv_bytes key, uint64_t expected, rdzv_bytes value, rdzv_value *out,
                        uint64_t *version, struct store_call *call) {
  const struct etcd_put how = {.prev_index = expected, .exist = expected == 0 ? ETCD_EXIST_ABSENT : ETCD_EXIST_ANY};
  uint64_t held = 0;
  int outcome = put(store, "compare_set", key, value, &how, call, &held);
  if (outcome != 0) return outcome < 0 ? outcome : 1;
  outcome = give_absent(out, version, call);
  if (outcome == 0) *version = held;
  return outcome;
}

/* A refusal and what is there then are two looks: a key that is as expected at the second is tried again. */
static int etcd_compare_set_version(rdzv_store *store, rdzv_bytes key, uint64_t expected, rdzv_bytes value,
                                    bool *swapped, rdzv_value *out, uint64_t *version, struct store_call *call) {
  struct contention contention = contention_begin(store);
  for (;;) {
    rdzv_value now;
    uint64_t found = 0;
    int outcome = swap_version(store, key, expected, value, out, version, call);
    if (outcome == 0) *swapped = true;
    if (outcome <= 0) return outcome;
    outcome = etcd_get_version(store, key, &now, &found, call);
    if (outcome < 0) return outcome;
    if (found != expected) {
      *swapped = false;
      *version = found;
      *out = now;
      return 0;
    }
    rdzv_value_free(&now);
    outcome = contention_pause(&contention, "compare_set", key, call);
    if (outcome < 0) return outcome;
  }
}

static int etcd_wait_changed(rdzv_store *store, rdzv_bytes key, uint64_t known, rdzv_value *out, uint64_t *version,
                             struct store_call *call) {
  struct etcd_result result;
  int outcome = await_node(store, key, known, "wait for", call, &result);
  if (outcome < 0) return outcome;
  if (outcome == ETCD_V2_NOT_FOUND) return give_absent(out, version, call);
  outcome = decode(&result.node, out, call->error);
  if (outcome == 0) *version = result.node.modified;
  etcd_result_free(&result);
  return outcome;
}

/* Reads, lets `change` make the new value of the old one, behind which stands a zero byte, and swaps, until nobody
 * comes between. */
typedef int change_value(void *argument, bool exists, rdzv_bytes old, struct buf *new, rdzv_error *error);

static int modify(rdzv_store *store, const char *what, rdzv_bytes key, change_value *change, void *argument,
                  struct store_call *call) {
  struct contention contention = contention_begin(store);
  for (;;) {
    rdzv_value old = {0};
    uint64_t version = 0;
    struct buf new = {0};
    int outcome = etcd_get_version(store, key, &old, &version, call);
    if (outcome < 0) return outcome;
    outcome = change(argument, version != 0, rdzv_value_bytes(&old), &new, call->error);
    const struct etcd_put how = {.prev_index = version, .exist = version == 0 ? ETCD_EXIST_ABSENT : ETCD_EXIST_ANY};
    if (outcome == 0) outcome = put(store, what, key, (rdzv_bytes){new.data, new.len}, &how, call, NULL);
    rdzv_value_free(&old);
    buf_free(&new);
    if (outcome <= 0) return outcome;
    outcome = contention_pause(&contention, what, key, call);
    if (outcome < 0) return outcome;
  }
}

struct addition {
  int64_t delta, sum;
};

static int change_by_sum(void *argument, bool exists, rdzv_bytes old, struct buf *new, rdzv_error *error) {
  struct addition *addition = argument;
  int64_t number = 0;
  if (exists && ks_parse_number(old, &number) < 0)
    return error_set(error, RDZV_E_NOT_A_NUMBER, "the value is not a number");
  addition->sum = (int64_t)((uint64_t)number + (uint64_t)addition->delta);
  char sum[24];
  snprintf(sum, sizeof sum, "%" PRId64, addition->sum);
  return buf_append(new, sum, strlen(sum)) ? 0 : error_no_memory(error);
}

static int etcd_add(rdzv_store *store, rdzv_bytes key, int64_t delta, int64_t *sum, struct store_call *call) {
  struct addition addition = {delta, 0};
  const int outcome = modify(store, "add to", key, change_by_sum, &addition, call);
  if (outcome == 0) *sum = addition.sum;
  return outcome;
}

static int change_by_append(void *argument, bool exists, rdzv_bytes old, struct buf *new, rdzv_error *error) {
  const rdzv_bytes *more = argument;
  (void)exists;
  return buf_append(new, old.data, old.len) && buf_append(new, more->data, more->len) ? 0 : error_no_memory(error);
}

static int etcd_append(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  return modify(store, "append to", key, change_by_append, &value, call);
}

static int etcd_compare_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_value *out,
                            struct store_call *call) {
  struct contention contention = contention_begin(store);
  for (;;) {
    rdzv_value now = {0};
    uint64_t version = 0;
    int outcome = etcd_get_version(store, key, &now, &version, call);
    if (outcome < 0) return outcome;
    const bool matches = version == 0 ? expected.len == 0 : bytes_equal(rdzv_value_bytes(&now), expected);
    if (version == 0 && !matches) {
      rdzv_value_free(&now);
      return value_copy(out, expected.data, expected.len) ? 0 : error_no_memory(call->error);
    }
    if (!matches) {
      *out = now;
      return 0;
    }
    rdzv_value_free(&now);
    const struct etcd_put how = {.prev_index = version, .exist = version == 0 ? ETCD_EXIST_ABSENT : ETCD_EXIST_ANY};
    outcome = put(store, "compare_set", key, desired, &how, call, NULL);
    if (outcome == 0) return value_copy(out, desired.data, desired.len) ? 0 : error_no_memory(call->error);
    if (outcome > 0) outcome = contention_pause(&contention, "compare_set", key, call);
    if (outcome < 0) return outcome;
  }
}

static int etcd_delete_key(rdzv_store *store, rdzv_bytes key, bool *deleted, struct store_call *call) {
  const struct etcd_call own = quick(store, call);
  struct etcd_result result;
  char *path;
  int outcome = etcd_key_path(shared_of(store)->prefix, key, &path, call->error);
  if (outcome < 0) return outcome;
  outcome = etcd_v2_delete(shared_of(store)->client, path, &(struct etcd_delete){0}, &own, &result);
  free(path);
  const bool absent = outcome == ETCD_V2_NOT_FOUND || outcome == ETCD_V2_NOT_A_FILE || outcome == ETCD_V2_NOT_A_DIR;
  if (outcome != 0 && !absent) return fail(store, outcome, "delete", key, call);
  if (outcome == 0) etcd_result_free(&result);
  *deleted = outcome == 0;
  return 0;
}

static int etcd_wait(rdzv_store *store, const rdzv_bytes *keys, size_t count, struct store_call *call) {
  for (size_t i = 0; i < count; i++) {
    struct etcd_result result;
    const int outcome = await_node(store, keys[i], UINT64_MAX, "wait for", call, &result);
    if (outcome < 0) return outcome;
    etcd_result_free(&result);
  }
  return 0;
}

static int etcd_multi_get(rdzv_store *store, const rdzv_bytes *keys, size_t count, rdzv_value *out,
                          struct store_call *call) {
  for (size_t i = 0; i < count; i++) {
    const int outcome = etcd_get(store, keys[i], &out[i], call);
    if (outcome == 0) continue;
    while (i > 0) rdzv_value_free(&out[--i]);
    return outcome;
  }
  return 0;
}

static int etcd_multi_set(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                          struct store_call *call) {
  int outcome = 0;
  for (size_t i = 0; i < count && outcome == 0; i++) outcome = etcd_set(store, keys[i], values[i], call);
  return outcome;
}

/* ---- all keys ------------------------------------------------------------------------------------------------- */

static int visit_all(rdzv_store *store, etcd_visit_key *visitor, void *argument, struct store_call *call) {
  const struct etcd_call own = quick(store, call);
  struct shared *shared = shared_of(store);
  struct etcd_result result;
  int outcome = etcd_v2_get(shared->client, shared->prefix, ETCD_GET_RECURSIVE | ETCD_GET_QUORUM, &own, &result);
  if (outcome == ETCD_V2_NOT_FOUND) return 0;
  if (outcome != 0) return fail(store, outcome, "list", rdzv_str(shared->prefix), call);
  outcome = etcd_visit_keys(shared->prefix, &result.node, visitor, argument, call->error);
  etcd_result_free(&result);
  return outcome;
}

static int etcd_num_keys(rdzv_store *store, int64_t *count, struct store_call *call) {
  int64_t number = 0;
  const int outcome = visit_all(store, etcd_count_key, &number, call);
  if (outcome == 0) *count = number;
  return outcome;
}

static int etcd_list_keys(rdzv_store *store, rdzv_value **out, size_t *count, struct store_call *call) {
  struct etcd_key_list list = {calloc(16, sizeof *list.keys), 0, 16};
  if (!list.keys) return error_no_memory(call->error);
  const int outcome = visit_all(store, etcd_list_key, &list, call);
  if (outcome < 0) {
    rdzv_values_free(list.keys, list.count);
    return outcome;
  }
  *out = list.keys;
  *count = list.count;
  return 0;
}

static int check_one(rdzv_store *store, rdzv_bytes key, bool *there, const struct store_call *call) {
  const struct etcd_call own = quick(store, call);
  struct etcd_result result;
  uint64_t index;
  char *path;
  int outcome = etcd_key_path(shared_of(store)->prefix, key, &path, call->error);
  if (outcome < 0) return outcome;
  outcome = read_node(store, path, &own, &result, &index);
  free(path);
  if (outcome != 0 && outcome != ETCD_V2_NOT_FOUND) return fail(store, outcome, "check", key, call);
  if (outcome == 0) etcd_result_free(&result);
  *there = outcome == 0;
  return 0;
}

static int check_many(rdzv_store *store, const rdzv_bytes *keys, size_t count, bool *all, struct store_call *call) {
  struct etcd_key_check check = {keys, count, calloc(count, sizeof(bool))};
  if (!check.found) return error_no_memory(call->error);
  const int outcome = visit_all(store, etcd_check_key, &check, call);
  bool found = true;
  for (size_t i = 0; i < count; i++) found = found && check.found[i];
  if (outcome == 0) *all = found;
  free(check.found);
  return outcome;
}

/* One trip: for one key that key, for more the list of all. */
static int etcd_check(rdzv_store *store, const rdzv_bytes *keys, size_t count, bool *all, struct store_call *call) {
  if (count > 1) return check_many(store, keys, count, all, call);
  if (count == 1) return check_one(store, keys[0], all, call);
  *all = true;
  return 0;
}

/* ---- handles -------------------------------------------------------------------------------------------------- */

static void let_go(struct shared *shared) {
  if (atomic_fetch_sub(&shared->handles, 1) > 1) return;
  etcd_close(shared->client);
  free(shared->prefix);
  free(shared);
}

static void etcd_store_close(rdzv_store *store) {
  let_go(shared_of(store));
  store_deinit(store);
  free(store);
}

/* The client's connections stay as they are: closing one with TLS would send something. */
static void etcd_store_abandon(rdzv_store *store) {
  store_deinit(store);
  free(store);
}

static unsigned etcd_features(rdzv_store *store) {
  (void)store;
  return RDZV_FEATURE_APPEND | RDZV_FEATURE_LIST_KEYS | RDZV_FEATURE_VERSIONS;
}

static const char *etcd_store_describe(rdzv_store *store) { return shared_of(store)->text; }
static int etcd_clone(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error);

static const struct store_ops etcd_ops = {
    .name = "etcd",
    .close = etcd_store_close,
    .abandon = etcd_store_abandon,
    .clone = etcd_clone,
    .features = etcd_features,
    .describe = etcd_store_describe,
    .set = etcd_set,
    .get = etcd_get,
    .add = etcd_add,
    .compare_set = etcd_compare_set,
    .check = etcd_check,
    .wait = etcd_wait,
    .delete_key = etcd_delete_key,
    .num_keys = etcd_num_keys,
    .append = etcd_append,
    .multi_get = etcd_multi_get,
    .multi_set = etcd_multi_set,
    .list_keys = etcd_list_keys,
    .get_version = etcd_get_version,
    .compare_set_version = etcd_compare_set_version,
    .wait_changed = etcd_wait_changed,
};

/* Takes over one hold on `shared`, also on failure. */
static int handle_new(struct shared *shared, int64_t timeout_ms, int cancel_fd, const rdzv_log *log, rdzv_store **out,
                      rdzv_error *error) {
  struct etcd_store *store = calloc(1, sizeof *store);
  const int result =
      store ? store_init(&store->base, &etcd_ops, timeout_ms, cancel_fd, log, error) : error_no_memory(error);
  if (!store || result < 0) {
    free(store);
    let_go(shared);
    return result;
  }
  store->shared = shared;
  *out = &store->base;
  return 0;
}

static int etcd_clone(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error) {
  atomic_fetch_add(&shared_of(store)->handles, 1);
  return handle_new(shared_of(store), 0, cancel_fd, &store->log, out, error);
}

/* "/a/b", whatever slashes are given. */
static char *clean(const char *prefix) {
  char *path;
  prefix += strspn(prefix, "/");
  if (asprintf(&path, "/%s", prefix) < 0) return NULL;
  size_t len = strlen(path);
  while (len > 1 && path[len - 1] == '/') path[--len] = '\0';
  return path;
}

int etcd_store_open(struct etcd_client *client, const char *prefix, int64_t timeout_ms, int cancel_fd,
                    const rdzv_log *log, rdzv_store **out, rdzv_error *error) {
  struct shared *shared = calloc(1, sizeof *shared);
  char *path = clean(prefix);
  if (!shared || !path || strcmp(path, "/") == 0) {
    const bool root = path && strcmp(path, "/") == 0;
    free(shared);
    free(path);
    etcd_close(client);
    return root ? error_set(error, RDZV_E_INVALID, "an etcd store needs a prefix") : error_no_memory(error);
  }
  atomic_init(&shared->handles, 1);
  shared->client = client;
  shared->prefix = path;
  snprintf(shared->text, sizeof shared->text, "etcd %s%s", etcd_describe(client), path);
  return handle_new(shared, timeout_ms, cancel_fd, log, out, error);
}

int rdzv_store_open_etcd(const char *prefix, const rdzv_etcd_store_options *given, rdzv_store **out,
                         rdzv_error *error) {
  if (!out) return error_null(error, "open a store", "out");
  rdzv_etcd_store_options options;
  struct etcd_client *client;
  rdzv_etcd_options etcd;
  int result = options_take(&options, sizeof options, given, "rdzv_etcd_store_options", error);
  if (result == 0) result = options_take(&etcd, sizeof etcd, options.etcd, "rdzv_etcd_options", error);
  if (result < 0) return result;
  if (!etcd.log) etcd.log = options.log;
  result = etcd_open(&etcd, &client, error);
  if (result < 0) return result;
  return etcd_store_open(client, prefix, options.timeout_ms, options.cancel_fd, options.log, out, error);
}
