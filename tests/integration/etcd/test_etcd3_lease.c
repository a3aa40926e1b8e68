/* SPDX-License-Identifier: BSD-3-Clause */
/* A store in etcd with a lease: its keys last as long as its handles, and not much longer. */
#include "base/error.h"
#include "etcd/v3/v3.h"
#include "unit.h"

#include <dirent.h>
#include <rdzv/etcd.h>

enum { PATIENCE_MS = 60000, LEASE_MS = 2000 };

static rdzv_etcd_process *process;
static struct etcd3 *etcd;
static rdzv_error error;

#define MUST(call)                                                       \
  do {                                                                   \
    const int code_ = (call);                                            \
    if (code_ != 0) fail_msg("%s: %d, %s", #call, code_, error.message); \
  } while (0)

static int set_up(void **state) {
  (void)state;
  const rdzv_etcd_process_options options = {.size = sizeof options};
  struct etcd_client *client;
  if (rdzv_etcd_process_start(&options, &process, &error) < 0) return print_error("%s\n", error.message), -1;
  const rdzv_etcd_options where = {.size = sizeof where, .endpoints = rdzv_etcd_process_endpoint(process)};
  return etcd_open(&where, &client, &error) < 0 || etcd3_open(client, &etcd, &error) < 0 ? -1 : 0;
}

static int tear_down(void **state) {
  (void)state;
  etcd3_close(etcd);
  rdzv_etcd_process_free(process);
  return 0;
}

static rdzv_store *open_store(const char *prefix) {
  const rdzv_etcd_options where = {.size = sizeof where, .endpoints = rdzv_etcd_process_endpoint(process)};
  const rdzv_etcd3_store_options options = {
      .size = sizeof options, .timeout_ms = PATIENCE_MS, .etcd = &where, .lease_ms = LEASE_MS};
  rdzv_store *store;
  MUST(rdzv_store_open_etcd3(prefix, &options, &store, &error));
  return store;
}

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
      cmocka_unit_test(test_a_lease_that_ended_is_told_once),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
