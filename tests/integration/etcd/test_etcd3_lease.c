/* SPDX-License-Identifier: BSD-3-Clause */
/* A store in etcd with a lease: its keys last as long as its handles, and not much longer. */
#include "base/error.h"
#include "etcd3_scene.h"

#include <dirent.h>

enum { PATIENCE_MS = 60000, LEASE_MS = 2000 };

static rdzv_error error;

#define MUST(call)                                                       \
  do {                                                                   \
    const int code_ = (call);                                            \
    if (code_ != 0) fail_msg("%s: %d, %s", #call, code_, error.message); \
  } while (0)

static rdzv_store *open_store_with(const char *prefix, int64_t lease_ms) {
  const rdzv_etcd_options where = {.size = sizeof where, .endpoints = rdzv_etcd_process_endpoint(process)};
  const rdzv_etcd3_store_options options = {
      .size = sizeof options, .timeout_ms = PATIENCE_MS, .etcd = &where, .lease_ms = lease_ms};
  rdzv_store *store;
  MUST(rdzv_store_open_etcd3(prefix, &options, &store, &error));
  return store;
}

static rdzv_store *open_store(const char *prefix) { return open_store_with(prefix, LEASE_MS); }

static struct etcd3_reply everything(const char *prefix) {
  const struct etcd_call call = {deadline_after(PATIENCE_MS), NULL, &error};
  char end[64];
  const struct etcd3_range range = {.keys = etcd3_prefix(rdzv_str(prefix), end)};
  struct etcd3_reply reply;
  MUST(etcd3_range(etcd, &range, &call, &reply));
  return reply;
}

/* Two processes' worth of handles find one lease; when both are gone, so is everything. */
static void test_nothing_stays(void **state) {
  (void)state;
  rdzv_store *one = open_store("/stays"), *two = open_store("/stays");
  MUST(rdzv_store_set(one, rdzv_str("a"), rdzv_str("1"), &error));
  MUST(rdzv_store_queue_push(two, rdzv_str("q"), rdzv_str("2"), &error));
  struct etcd3_reply reply = everything("/stays/");
  assert_int_equal(reply.results[0].kv_count, 5); /* the key, the item, the lease, a writer each */
  for (size_t i = 0; i < reply.results[0].kv_count; i++)
    assert_true(reply.results[0].kvs[i].lease != 0 && reply.results[0].kvs[i].lease == reply.results[0].kvs[0].lease);
  etcd3_reply_free(&reply);
  rdzv_store_free(one);
  rdzv_store_free(two);
  const deadline until = deadline_after(PATIENCE_MS);
  for (size_t left = 1; left > 0 && deadline_left(until) > 0;) {
    reply = everything("/stays/");
    left = reply.results[0].kv_count;
    etcd3_reply_free(&reply);
    flag_pause(NULL, deadline_after(50));
  }
  assert_true(deadline_left(until) > 0);
}

/* A handle that does nothing for longer than the lease lasts keeps it. */
static void test_an_idle_handle_keeps_it(void **state) {
  (void)state;
  rdzv_store *store = open_store("/idle");
  rdzv_value value;
  MUST(rdzv_store_set(store, rdzv_str("k"), rdzv_str("v"), &error));
  flag_pause(NULL, deadline_after(3 * LEASE_MS)); /* the time is what is tested */
  MUST(rdzv_store_get(store, rdzv_str("k"), &value, &error));
  rdzv_value_free(&value);
  rdzv_store_free(store);
}

/* Waits until the lease has at least, or at most, so much left. False: not in time. */
static bool await_left(int64_t lease, bool at_least, int64_t seconds, deadline until) {
  const struct etcd_call call = {deadline_after(PATIENCE_MS), NULL, &error};
  while (deadline_left(until) > 0) {
    struct etcd3_lease found;
    MUST(etcd3_lease_time_to_live(etcd, lease, &call, &found));
    if (at_least ? found.ttl_s >= seconds : found.ttl_s <= seconds) return true;
    flag_pause(NULL, deadline_after(50));
  }
  return false;
}

/* Its maker may be gone, and most of its time over. Renewals are 20 s apart. */
static void test_a_lease_that_is_found_is_renewed_at_once(void **state) {
  (void)state;
  enum { TTL_S = 60, SOON_MS = 15000 };
  const struct etcd_call call = {deadline_after(PATIENCE_MS), NULL, &error};
  struct etcd3_lease lease;
  MUST(etcd3_lease_grant(etcd, TTL_S, &call, &lease));
  const struct etcd3_put put = {rdzv_str("/found/lease"), rdzv_str("made before"), lease.id, false};
  MUST(etcd3_put(etcd, &put, ETCD3_REPEAT_FREELY, &call, NULL));
  assert_true(await_left(lease.id, false, TTL_S - 2, deadline_after(PATIENCE_MS)));
  rdzv_store *store = open_store_with("/found", TTL_S * 1000);
  MUST(rdzv_store_set(store, rdzv_str("k"), rdzv_str("v"), &error));
  assert_true(await_left(lease.id, true, TTL_S - 1, deadline_after(SOON_MS)));
  rdzv_store_free(store);
}

/* No one kept it alive, such as on a machine that was suspended. */
static void test_a_lease_that_ended_is_told_once(void **state) {
  (void)state;
  const struct etcd_call call = {deadline_after(PATIENCE_MS), NULL, &error};
  rdzv_store *store = open_store("/ended");
  MUST(rdzv_store_set(store, rdzv_str("k"), rdzv_str("v"), &error));
  struct etcd3_reply reply = everything("/ended/lease");
  MUST(etcd3_lease_revoke(etcd, reply.results[0].kvs[0].lease, &call));
  etcd3_reply_free(&reply);
  int code = rdzv_store_set(store, rdzv_str("k"), rdzv_str("w"), &error);
  assert_error(code, RDZV_E_DATA_LOST, &error, "the lease of the store has ended");
  MUST(rdzv_store_set(store, rdzv_str("k"), rdzv_str("x"), &error));
  reply = everything("/ended/keys/");
  assert_int_equal(reply.results[0].kv_count, 1);
  etcd3_reply_free(&reply);
  rdzv_store_free(store);
}

static int count_threads(void) {
  DIR *folder = opendir("/proc/self/task");
  int count = 0;
  assert_non_null(folder);
  for (const struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

/* The store of a round is opened by every node, and used by few: no thread is there for it until it is written to. A
 * thread of before may still be ending, so fewer than before are no failure. */
static void test_opening_starts_no_thread(void **state) {
  (void)state;
  const int before = count_threads();
  rdzv_store *store = open_store("/unused");
  assert_true(count_threads() <= before);
  rdzv_store_free(store);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_opening_starts_no_thread),
      cmocka_unit_test(test_nothing_stays),
      cmocka_unit_test(test_an_idle_handle_keeps_it),
      cmocka_unit_test(test_a_lease_that_is_found_is_renewed_at_once),
      cmocka_unit_test(test_a_lease_that_ended_is_told_once),
  };
  return cmocka_run_group_tests(tests, start_etcd, stop_etcd);
}
