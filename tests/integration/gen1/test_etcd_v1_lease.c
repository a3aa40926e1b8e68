/* SPDX-License-Identifier: BSD-3-Clause */
/* Leases by themselves, with times of a second or two: kept, lost, another's, made anew, and an etcd that is silent. */
#include "etcd/v2/lease.h"
#include "etcd/v2/v2.h"
#include "etcd_v1_scene.h"

#include <stdatomic.h>

enum { TTL_S = 1 };
enum { RUN, RANK };

struct scene {
  struct etcd_client *client;
  struct etcd_leases *leases;
  _Atomic int state[ETCD_LEASE_SLOTS]; /* as told; HELD at first */
  _Atomic int told;                    /* how often */
  _Atomic int lost, failing;           /* lines said of that */
};

static void on_told(void *user, int slot, enum etcd_lease_state state, int64_t since_ms, const rdzv_error *cause) {
  struct scene *scene = user;
  assert_true(since_ms > 0);
  if (state == ETCD_LEASE_STATE_SILENT) assert_non_null(strstr(cause->message, "no answer"));
  atomic_store(&scene->state[slot], state);
  atomic_fetch_add(&scene->told, 1);
}

static void on_said(void *user, bool lost, const char *line) {
  struct scene *scene = user;
  assert_non_null(strstr(line, lost ? "expired" : "cannot renew the lease"));
  atomic_fetch_add(lost ? &scene->lost : &scene->failing, 1);
}

static void open_scene(struct scene *scene) {
  const rdzv_etcd_options options = {.size = sizeof options, .endpoints = rdzv_etcd_process_endpoint(etcd)};
  rdzv_error error;
  *scene = (struct scene){0};
  if (etcd_open(&options, &scene->client, &error) < 0) fail_msg("%s", error.message);
  const struct etcd_lease_owner owner = {scene, on_told, on_said};
  if (etcd_leases_open(scene->client, &owner, &scene->leases, &error) < 0) fail_msg("%s", error.message);
}

static void close_scene(struct scene *scene) {
  etcd_leases_close(scene->leases);
  etcd_close(scene->client);
}

static void put(struct scene *scene, const char *key, const char *value, int64_t ttl) {
  const struct etcd_call call = {deadline_after(SOON_MS), NULL, NULL};
  struct etcd_result result;
  assert_int_equal(etcd_v2_put(scene->client, key, &(struct etcd_put){.value = value, .ttl = ttl}, &call, &result), 0);
  etcd_result_free(&result);
}

static void delete_dir(struct scene *scene, const char *key) {
  const struct etcd_call call = {deadline_after(SOON_MS), NULL, NULL};
  const struct etcd_delete all = {.dir = true, .recursive = true};
  struct etcd_result result;
  assert_int_equal(etcd_v2_delete(scene->client, key, &all, &call, &result), 0);
  etcd_result_free(&result);
}

/* etcd's count of changes when the key was last put or renewed; 0: it is not there. */
static uint64_t modified(struct scene *scene, const char *key) {
  const struct etcd_call call = {deadline_after(SOON_MS), NULL, NULL};
  struct etcd_result result;
  if (etcd_v2_get(scene->client, key, ETCD_GET_QUORUM, &call, &result) != 0) return 0;
  const uint64_t index = result.node.modified;
  etcd_result_free(&result);
  return index;
}

static bool is_there(struct scene *scene, const char *key) { return modified(scene, key) > 0; }

static void await_renewal(struct scene *scene, const char *key) {
  const uint64_t before = modified(scene, key);
  for (const int64_t until = live_now_ms() + SOON_MS; modified(scene, key) == before; pause_ms(20))
    assert_true(live_now_ms() < until);
}

static void await_state(struct scene *scene, int slot, enum etcd_lease_state expected) {
  const int64_t until = live_now_ms() + SOON_MS;
  while (atomic_load(&scene->state[slot]) != (int)expected && live_now_ms() < until) pause_ms(20);
  assert_int_equal(atomic_load(&scene->state[slot]), expected);
}

static void await_there(struct scene *scene, const char *key, bool expected) {
  const int64_t until = live_now_ms() + SOON_MS;
  while (is_there(scene, key) != expected && live_now_ms() < until) pause_ms(20);
  assert_int_equal(is_there(scene, key), expected);
}

static struct etcd_lease lease_of(const char *key, const char *value) {
  return (struct etcd_lease){.key = key, .value = value, .ttl_s = TTL_S, .asked_ms = clock_now_ms()};
}

/* For as long as it is renewed, and no longer. */
static void test_a_key_is_kept(void **state) {
  (void)state;
  struct scene scene;
  open_scene(&scene);
  struct etcd_lease lease = lease_of("/kept", "ours");
  lease.ttl_s = 3; /* so that a busy machine has time to renew it */
  put(&scene, "/kept", "ours", lease.ttl_s);
  const int64_t began = live_now_ms();
  assert_true(etcd_leases_set(scene.leases, RANK, &lease));
  while (live_now_ms() - began < lease.ttl_s * 1000) await_renewal(&scene, "/kept");
  assert_true(is_there(&scene, "/kept"));
  assert_true(etcd_leases_set(scene.leases, RANK, NULL));
  await_there(&scene, "/kept", false);
  assert_int_equal(atomic_load(&scene.told), 0);
  close_scene(&scene);
}

/* It is told once, and the next one begins anew. */
static void test_a_key_is_gone_or_anothers(void **state) {
  (void)state;
  struct scene scene;
  open_scene(&scene);
  struct etcd_lease lease = lease_of("/gone", "ours");
  assert_true(etcd_leases_set(scene.leases, RANK, &lease));
  await_state(&scene, RANK, ETCD_LEASE_STATE_LOST);
  lease = lease_of("/anothers", "ours");
  put(&scene, "/anothers", "theirs", 0);
  atomic_store(&scene.state[RANK], ETCD_LEASE_STATE_HELD);
  assert_true(etcd_leases_set(scene.leases, RANK, &lease));
  await_state(&scene, RANK, ETCD_LEASE_STATE_LOST);
  assert_true(is_there(&scene, "/anothers"));
  assert_int_equal(atomic_load(&scene.told), 2);
  close_scene(&scene);
  assert_int_equal(atomic_load(&scene.lost), 2);
}

static void test_a_directory_is_made_and_made_anew(void **state) {
  (void)state;
  struct scene scene;
  open_scene(&scene);
  const struct etcd_lease lease = {.key = "/dir/of/run", .ttl_s = 2, .dir = true};
  assert_true(etcd_leases_set(scene.leases, RUN, &lease));
  await_there(&scene, "/dir/of/run", true);
  delete_dir(&scene, "/dir/of/run");
  await_there(&scene, "/dir/of/run", true);
  assert_int_equal(atomic_load(&scene.told), 0);
  close_scene(&scene);
}

/* Both are told of, for as long as etcd does not answer; then the one is lost, and the other made anew. */
static void test_etcd_is_silent(void **state) {
  (void)state;
  struct scene scene;
  open_scene(&scene);
  const struct etcd_lease key = lease_of("/silent", "ours"), dir = {.key = "/silent-dir", .ttl_s = TTL_S, .dir = true};
  put(&scene, "/silent", "ours", TTL_S);
  assert_true(etcd_leases_set(scene.leases, RANK, &key));
  assert_true(etcd_leases_set(scene.leases, RUN, &dir));
  await_there(&scene, "/silent-dir", true);
  const int port = rdzv_etcd_process_port(etcd);
  stop_etcd(NULL);
  await_state(&scene, RANK, ETCD_LEASE_STATE_SILENT);
  await_state(&scene, RUN, ETCD_LEASE_STATE_SILENT);
  assert_int_equal(start_etcd_at(port), 0);
  await_state(&scene, RANK, ETCD_LEASE_STATE_LOST);
  await_state(&scene, RUN, ETCD_LEASE_STATE_HELD);
  assert_true(is_there(&scene, "/silent-dir"));
  assert_false(is_there(&scene, "/silent"));
  assert_int_equal(atomic_load(&scene.told), 4);
  close_scene(&scene);
  assert_int_equal(atomic_load(&scene.failing), 2);
  assert_int_equal(atomic_load(&scene.lost), 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_key_is_kept),
      cmocka_unit_test(test_a_key_is_gone_or_anothers),
      cmocka_unit_test(test_a_directory_is_made_and_made_anew),
      cmocka_unit_test(test_etcd_is_silent),
  };
  if (!have_etcd()) return 77;
  return cmocka_run_group_tests(tests, start_etcd, stop_etcd);
}
