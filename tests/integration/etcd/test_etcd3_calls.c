/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of the v3 API at real etcds: the one of this machine, and 3.5 of the Debian 13 folder. */
#include "base/error.h"
#include "etcd3_scene.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000 };

static rdzv_error error;

static struct etcd_call within(int64_t ms) { return (struct etcd_call){deadline_after(ms), NULL, &error}; }

#define MUST(call)                                                       \
  do {                                                                   \
    const int code_ = (call);                                            \
    if (code_ != 0) fail_msg("%s: %d, %s", #call, code_, error.message); \
  } while (0)

static int64_t put(const char *key, const char *value, int64_t lease) {
  const struct etcd3_put what = {rdzv_str(key), rdzv_str(value), lease, false};
  const struct etcd_call call = within(PATIENCE_MS);
  int64_t revision = 0;
  MUST(etcd3_put(etcd, &what, ETCD3_REPEAT_NEVER, &call, &revision));
  return revision;
}

static struct etcd3_reply range(struct etcd3_range what) {
  const struct etcd_call call = within(PATIENCE_MS);
  struct etcd3_reply reply;
  MUST(etcd3_range(etcd, &what, &call, &reply));
  return reply;
}

static struct etcd3_keys key_of(const char *key) { return (struct etcd3_keys){rdzv_str(key), {0}}; }

/* ---- keys ----------------------------------------------------------------------------------------------------- */

static void test_ranges(void **state) {
  (void)state;
  char end[8];
  const struct etcd3_keys all = etcd3_prefix(rdzv_str("range/"), end);
  const int64_t first = put("range/b", "1", 0), second = put("range/a", "", 0);
  put("range0", "not in it", 0);
  struct etcd3_reply reply = range((struct etcd3_range){.keys = all});
  assert_int_equal(reply.results[0].kv_count, 2);
  assert_string_equal(reply.results[0].kvs[0].key.data, "range/a");
  assert_int_equal(reply.results[0].kvs[0].value.len, 0);
  assert_int_equal(reply.results[0].kvs[1].mod_revision, first);
  assert_true(reply.revision > second);
  etcd3_reply_free(&reply);
  reply = range((struct etcd3_range){.keys = all, .order = ETCD3_ORDER_CREATE, .limit = 1, .keys_only = true});
  assert_int_equal(reply.results[0].kv_count, 1);
  assert_int_equal(reply.results[0].count, 2);
  assert_true(reply.results[0].more);
  assert_string_equal(reply.results[0].kvs[0].key.data, "range/b");
  etcd3_reply_free(&reply);
  reply = range((struct etcd3_range){.keys = all, .revision = first, .count_only = true});
  assert_int_equal(reply.results[0].count, 1);
  etcd3_reply_free(&reply);
}

static bool txn_holds(const char *key, enum etcd3_target target, enum etcd3_relation relation, int64_t number,
                      const char *value) {
  const struct etcd3_compare compare = {key_of(key), target, relation, number,
                                        value ? rdzv_str(value) : (rdzv_bytes){0}};
  const struct etcd3_op look = {ETCD3_OP_RANGE, {.range = {.keys = key_of(key)}}};
  const struct etcd3_txn txn = {&compare, 1, &look, 1, NULL, 0, ETCD3_REPEAT_NEVER};
  const struct etcd_call call = within(PATIENCE_MS);
  struct etcd3_reply reply;
  MUST(etcd3_txn(etcd, &txn, &call, &reply));
  const bool held = reply.succeeded;
  assert_int_equal(reply.count, held ? 1 : 0);
  etcd3_reply_free(&reply);
  return held;
}

static void test_compares(void **state) {
  (void)state;
  const int64_t created = put("compared", "one", 0), changed = put("compared", "two", 0);
  assert_true(txn_holds("compared", ETCD3_TARGET_CREATE, ETCD3_EQUAL, created, NULL));
  assert_true(txn_holds("compared", ETCD3_TARGET_MOD, ETCD3_EQUAL, changed, NULL));
  assert_false(txn_holds("compared", ETCD3_TARGET_MOD, ETCD3_LESS, changed, NULL));
  assert_true(txn_holds("compared", ETCD3_TARGET_VERSION, ETCD3_EQUAL, 2, NULL));
  assert_true(txn_holds("compared", ETCD3_TARGET_VERSION, ETCD3_GREATER, 1, NULL));
  assert_true(txn_holds("compared", ETCD3_TARGET_VALUE, ETCD3_EQUAL, 0, "two"));
  assert_true(txn_holds("compared", ETCD3_TARGET_VALUE, ETCD3_NOT_EQUAL, 0, "one"));
  assert_true(txn_holds("compared", ETCD3_TARGET_LEASE, ETCD3_EQUAL, 0, NULL));
  assert_true(txn_holds("absent", ETCD3_TARGET_CREATE, ETCD3_EQUAL, 0, NULL));
  assert_false(txn_holds("absent", ETCD3_TARGET_VERSION, ETCD3_GREATER, 0, NULL));
  assert_false(txn_holds("absent", ETCD3_TARGET_VALUE, ETCD3_EQUAL, 0, ""));
}

static void test_a_transaction_writes_or_tells(void **state) {
  (void)state;
  const struct etcd3_compare absent = {key_of("once"), ETCD3_TARGET_CREATE, ETCD3_EQUAL, 0, {0}};
  const struct etcd3_op then[2] = {{ETCD3_OP_PUT, {.put = {rdzv_str("once"), rdzv_str("mine"), 0, false}}},
                                   {ETCD3_OP_DELETE, {.remove = {key_of("none"), true}}}};
  const struct etcd3_op look = {ETCD3_OP_RANGE, {.range = {.keys = key_of("once")}}};
  const struct etcd3_txn txn = {&absent, 1, then, 2, &look, 1, ETCD3_REPEAT_FENCED};
  const struct etcd_call call = within(PATIENCE_MS);
  struct etcd3_reply reply;
  MUST(etcd3_txn(etcd, &txn, &call, &reply));
  assert_true(reply.succeeded && !reply.unsure);
  assert_int_equal(reply.count, 2);
  assert_int_equal(reply.results[1].kind, ETCD3_OP_DELETE);
  assert_int_equal(reply.results[1].count, 0);
  etcd3_reply_free(&reply);
  MUST(etcd3_txn(etcd, &txn, &call, &reply));
  assert_false(reply.succeeded);
  assert_true(etcd3_holds(&reply.results[0], rdzv_str("mine")));
  assert_false(etcd3_holds(&reply.results[0], rdzv_str("other")));
  etcd3_reply_free(&reply);
  MUST(etcd3_delete(etcd, &(struct etcd3_delete){key_of("once"), true}, ETCD3_REPEAT_NEVER, &call, &reply));
  assert_int_equal(reply.results[0].count, 1);
  assert_string_equal(reply.results[0].kvs[0].value.data, "mine");
  etcd3_reply_free(&reply);
}

static void test_too_many_and_too_large(void **state) {
  (void)state;
  const struct etcd_call call = within(PATIENCE_MS);
  const size_t len = 3 << 20;
  char *large = calloc(1, len);
  const struct etcd3_put what = {rdzv_str("large"), {large, len}, 0, false};
  /* Repeated, since a busy etcd may say that it does not know the outcome. */
  assert_error(etcd3_put(etcd, &what, ETCD3_REPEAT_FREELY, &call, NULL), RDZV_E_LIMIT, &error, "refuses the size");
  free(large);
  const struct etcd3_txn txn = {.then_count = ETCD3_MAX_OPS + 1};
  assert_code(etcd3_txn(etcd, &txn, &call, &(struct etcd3_reply){0}), RDZV_E_LIMIT);
}

/* ---- leases --------------------------------------------------------------------------------------------------- */

static void test_leases(void **state) {
  (void)state;
  const struct etcd_call call = within(PATIENCE_MS);
  struct etcd3_lease lease, look;
  int64_t ttl = 0;
  MUST(etcd3_lease_grant(etcd, 100, &call, &lease));
  put("leased", "x", lease.id);
  assert_true(txn_holds("leased", ETCD3_TARGET_LEASE, ETCD3_EQUAL, lease.id, NULL));
  MUST(etcd3_lease_keep_alive(etcd, lease.id, &call, &ttl));
  assert_int_equal(ttl, 100);
  MUST(etcd3_lease_time_to_live(etcd, lease.id, &call, &look));
  assert_true(look.id == lease.id && look.granted_s == 100 && look.ttl_s <= 100);
  MUST(etcd3_lease_revoke(etcd, lease.id, &call));
  assert_true(txn_holds("leased", ETCD3_TARGET_VERSION, ETCD3_EQUAL, 0, NULL));
  assert_int_equal(etcd3_lease_keep_alive(etcd, lease.id, &call, &ttl), ETCD3_LEASE_GONE);
  assert_non_null(strstr(error.message, "has ended"));
  assert_int_equal(etcd3_lease_time_to_live(etcd, lease.id, &call, &look), ETCD3_LEASE_GONE);
  MUST(etcd3_lease_revoke(etcd, lease.id, &call));
  const struct etcd3_put late = {rdzv_str("leased"), rdzv_str("y"), lease.id, false};
  assert_int_equal(etcd3_put(etcd, &late, ETCD3_REPEAT_NEVER, &call, NULL), ETCD3_LEASE_GONE);
}

/* ---- watches -------------------------------------------------------------------------------------------------- */

static struct etcd3_watch *watch_of(const char *one, const char *two, int64_t from) {
  const struct etcd3_watched watched[2] = {{key_of(one), from}, {key_of(two ? two : one), from}};
  struct etcd3_watch *watch;
  MUST(etcd3_watch_open(etcd, watched, two ? 2 : 1, &watch, &error));
  return watch;
}

static struct etcd3_events next(struct etcd3_watch *watch) {
  const struct etcd_call call = within(PATIENCE_MS);
  struct etcd3_events events;
  MUST(etcd3_watch_next(watch, &call, &events));
  return events;
}

static void test_a_watch_tells_what_was_and_what_comes(void **state) {
  (void)state;
  const int64_t first = put("watched/1", "a", 0);
  struct etcd3_watch *watch = watch_of("watched/1", "watched/2", first);
  struct etcd3_events events = next(watch);
  assert_int_equal(events.count, 1);
  assert_string_equal(events.list[0].kv.value.data, "a");
  assert_int_equal(events.list[0].watched, 0);
  etcd3_events_free(&events);
  put("watched/2", "b", 0);
  events = next(watch);
  assert_int_equal(events.count, 1);
  assert_int_equal(events.list[0].watched, 1);
  etcd3_events_free(&events);
  const struct etcd_call call = within(PATIENCE_MS), soon = within(10);
  struct etcd3_reply reply;
  MUST(etcd3_delete(etcd, &(struct etcd3_delete){key_of("watched/1"), false}, ETCD3_REPEAT_NEVER, &call, &reply));
  events = next(watch);
  assert_true(events.list[0].deleted);
  assert_int_equal(events.list[0].kv.mod_revision, reply.revision);
  etcd3_events_free(&events);
  etcd3_reply_free(&reply);
  assert_code(etcd3_watch_next(watch, &soon, &events), RDZV_E_TIMEOUT);
  assert_int_equal(events.count, 0);
  etcd3_watch_close(watch);
}

/* The gateway may leave out what it had not read of a long request when it began to answer. */
static void test_none_of_several_long_ones_is_left_out(void **state) {
  (void)state;
  char one[300], two[300];
  for (int i = 0; i < 20; i++) {
    snprintf(one, sizeof one, "long/%0200d", i);
    snprintf(two, sizeof two, "long/%0150d/x", i);
    struct etcd3_watch *watch = watch_of(one, two, put(one, "1", 0) + 1);
    put(two, "2", 0);
    struct etcd3_events events = next(watch);
    assert_int_equal(events.list[0].watched, 1);
    etcd3_events_free(&events);
    etcd3_watch_close(watch);
  }
}

static void test_a_raised_flag_ends_the_wait_only(void **state) {
  (void)state;
  struct etcd3_watch *watch = watch_of("woken", NULL, put("woken", "0", 0) + 1);
  struct flag flag;
  struct etcd3_events events;
  MUST(flag_open(&flag, &error));
  flag_raise(&flag);
  const struct etcd_call call = {deadline_after(PATIENCE_MS), &flag, &error};
  assert_code(etcd3_watch_next(watch, &call, &events), RDZV_E_CANCELED);
  flag_lower(&flag);
  put("woken", "1", 0);
  MUST(etcd3_watch_next(watch, &call, &events));
  assert_string_equal(events.list[0].kv.value.data, "1");
  etcd3_events_free(&events);
  etcd3_watch_close(watch);
  flag_close(&flag);
}

/* A lease that ends deletes its keys, which a watch tells. */
static void test_a_watch_sees_a_lease_end(void **state) {
  (void)state;
  const struct etcd_call call = within(PATIENCE_MS);
  struct etcd3_lease lease;
  MUST(etcd3_lease_grant(etcd, 1, &call, &lease));
  struct etcd3_watch *watch = watch_of("mortal", NULL, put("mortal", "x", lease.id) + 1);
  struct etcd3_events events = next(watch);
  assert_true(events.list[0].deleted);
  etcd3_events_free(&events);
  etcd3_watch_close(watch);
}

static void compact(int64_t revision) {
  char command[256];
  snprintf(command, sizeof command,
           "curl -s -f -d '{\"revision\":\"%lld\",\"physical\":true}' http://%s/v3/kv/compaction >/dev/null",
           (long long)revision, rdzv_etcd_process_endpoint(process));
  assert_int_equal(system(command), 0); /* NOLINT: of this test's own making */
}

static void test_history_that_is_gone(void **state) {
  (void)state;
  const int64_t old = put("history", "1", 0);
  put("history", "2", 0);
  compact(put("history", "3", 0));
  struct etcd3_watch *watch = watch_of("history", NULL, old);
  const struct etcd_call call = within(PATIENCE_MS);
  struct etcd3_events events;
  for (int i = 0; i < 2; i++) {
    assert_int_equal(etcd3_watch_next(watch, &call, &events), ETCD3_COMPACTED);
    assert_non_null(strstr(error.message, "is gone"));
  }
  etcd3_watch_close(watch);
  const struct etcd3_range range = {.keys = key_of("history"), .revision = old};
  assert_int_equal(etcd3_range(etcd, &range, &call, &(struct etcd3_reply){0}), ETCD3_COMPACTED);
}

/* ---- one thread ----------------------------------------------------------------------------------------------- */

static int descriptors(void) {
  int count = 0;
  for (int fd = 0; fd < 1024; fd++) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

/* Calls and a watch of one thread: two connections, and what libcurl needs for itself. */
static void test_one_thread_is_light(void **state) {
  (void)state;
  const int before = descriptors();
  struct etcd3 *shared = etcd;
  etcd = open_etcd();
  MUST(etcd3_for_one_thread(etcd, &error));
  struct etcd3_watch *watch = watch_of("light", NULL, put("light", "0", 0) + 1);
  const struct etcd_call call = within(PATIENCE_MS), soon = within(2000) /* to connect, too */;
  struct etcd3_events events;
  struct etcd3_lease lease;
  assert_code(etcd3_watch_next(watch, &soon, &events), RDZV_E_TIMEOUT);
  MUST(etcd3_lease_grant(etcd, 100, &call, &lease));
  for (int i = 0; i < 20; i++) {
    put("light", "1", lease.id);
    MUST(etcd3_lease_keep_alive(etcd, lease.id, &call, NULL));
    events = next(watch);
    assert_int_equal(events.count, 1);
    etcd3_events_free(&events);
  }
  assert_true(descriptors() - before <= 4);
  MUST(etcd3_lease_revoke(etcd, lease.id, &call));
  etcd3_watch_close(watch);
  etcd3_close(etcd);
  etcd = shared;
  assert_int_equal(descriptors(), before);
}

/* ---- the cluster ---------------------------------------------------------------------------------------------- */

static void test_status_and_members(void **state) {
  (void)state;
  const struct etcd_call call = within(PATIENCE_MS);
  struct etcd3_status status;
  char *urls = NULL;
  MUST(etcd3_status(etcd, &call, &status));
  assert_true(status.leader != 0 && status.db_size > 0 && !status.no_space && status.version[0] == '3');
  MUST(etcd3_member_list(etcd, &call, &urls));
  assert_non_null(strstr(urls, rdzv_etcd_process_endpoint(process)));
  free(urls);
}

static int run(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ranges),
      cmocka_unit_test(test_compares),
      cmocka_unit_test(test_a_transaction_writes_or_tells),
      cmocka_unit_test(test_too_many_and_too_large),
      cmocka_unit_test(test_leases),
      cmocka_unit_test(test_a_watch_tells_what_was_and_what_comes),
      cmocka_unit_test(test_none_of_several_long_ones_is_left_out),
      cmocka_unit_test(test_a_raised_flag_ends_the_wait_only),
      cmocka_unit_test(test_a_watch_sees_a_lease_end),
      cmocka_unit_test(test_one_thread_is_light),
      cmocka_unit_test(test_status_and_members),
      cmocka_unit_test(test_history_that_is_gone),
  };
  return cmocka_run_group_tests(tests, start_etcd, stop_etcd);
}

int main(void) {
  char newer[512];
  const char *cache = getenv("RDZV_CACHE"), *wanted = getenv("RDZV_TORCH26");
  const int failed = run();
  if (wanted && strcmp(wanted, "off") == 0) return failed;
  snprintf(newer, sizeof newer, "%s/debian13/usr/bin/etcd", cache ? cache : "/var/cache/rdzv");
  if (access(newer, X_OK) != 0) {
    fprintf(stderr, "there is no %s: scripts/torch26 setup adds it\n", newer);
    return failed ? failed : 77;
  }
  setenv("TEST_ETCD", newer, 1);
  return failed + run();
}
