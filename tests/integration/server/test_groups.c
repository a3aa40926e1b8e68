/* SPDX-License-Identifier: BSD-3-Clause */
/* Process groups of PyTorch workers that are formed again in one store. The workers are clients that count themselves,
 * as PyTorch's do. */
#include "live.h"

#define OWN "worker/attempt_0/default_pg/0/"

static rdzv_server *serve_groups(void) {
  return serve_with((rdzv_server_options){.renew_groups = true}, RDZV_ANY_PORT);
}

static rdzv_store *worker(const rdzv_server *server, rdzv_dialect dialect) {
  return connect_with(rdzv_server_address(server), (rdzv_tcp_options){.dialect = dialect, .announce_worker = true});
}

static bool has(rdzv_store *store, const char *key) {
  const rdzv_bytes name = rdzv_str(key);
  bool there = false;
  assert_int_equal(rdzv_store_check(store, &name, 1, &there, NULL), 0);
  return there;
}

static const rdzv_dialect dialects[] = {RDZV_DIALECT_V1, RDZV_DIALECT_V2, RDZV_DIALECT_RDZV};

/* One comes back while the other one is still in the group before: it does not read what the other one told that group,
 * and the other one still finds it. */
static void form_again(const rdzv_server *server, rdzv_dialect dialect, rdzv_store **one, rdzv_store **two) {
  must_set(*one, OWN "0", "old");
  must_set(*two, OWN "1", "old");
  assert_get(*one, OWN "1", "old");
  rdzv_store_free(*one);
  *one = worker(server, dialect);
  assert_false(has(*one, OWN "1"));
  must_set(*one, OWN "0", "new");
  assert_get(*two, OWN "0", "old");
  rdzv_store_free(*two);
  *two = worker(server, dialect);
  assert_get(*two, OWN "0", "new");
  must_set(*two, OWN "1", "new");
  assert_get(*one, OWN "1", "new");
}

static void test_a_group_that_is_formed_again_is_empty(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(dialects); i++) {
    rdzv_server *server = serve_groups();
    rdzv_store *one = worker(server, dialects[i]), *two = worker(server, dialects[i]);
    for (int round = 0; round < 3; round++) form_again(server, dialects[i], &one, &two);
    rdzv_store_free(one);
    rdzv_store_free(two);
    rdzv_server_free(server);
  }
}

/* A worker that gives up and tries again meets one that comes late. */
static void test_a_late_member_finds_one_that_tries_again(void **state) {
  (void)state;
  rdzv_server *server = serve_groups();
  rdzv_store *one = worker(server, RDZV_DIALECT_V2);
  must_set(one, OWN "0", "first try");
  rdzv_store_free(one);
  one = worker(server, RDZV_DIALECT_V2);
  must_set(one, OWN "0", "second try");
  rdzv_store *two = worker(server, RDZV_DIALECT_V2);
  assert_get(two, OWN "0", "second try");
  rdzv_store_free(one);
  rdzv_store_free(two);
  rdzv_server_free(server);
}

/* Keys outside the group, and values that look like its keys, are what they were; and so is everything of a client that
 * has not counted itself and comes and goes. */
static void test_other_keys_stay(void **state) {
  (void)state;
  rdzv_server *server = serve_groups();
  const rdzv_bytes keys[] = {rdzv_str(OWN "a"), rdzv_str("my_default_pg/a")}, values[] = {rdzv_str(OWN), rdzv_str("b")};
  for (int round = 0; round < 2; round++) {
    rdzv_store *one = worker(server, RDZV_DIALECT_V2);
    assert_int_equal(has(one, "my_default_pg/a"), round);
    assert_false(has(one, OWN "a"));
    assert_int_equal(rdzv_store_multi_set(one, keys, values, COUNT_OF(keys), NULL), 0);
    assert_get(one, OWN "a", OWN);
    rdzv_store *clone = connect_with(rdzv_server_address(server), (rdzv_tcp_options){.dialect = RDZV_DIALECT_V2});
    assert_get(clone, OWN "a", OWN);
    rdzv_store_free(clone);
    assert_get(one, OWN "a", OWN);
    rdzv_store_free(one);
  }
  rdzv_server_free(server);
}

static void test_without_the_option_keys_stay(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *one = worker(server, RDZV_DIALECT_V2);
  must_set(one, OWN "0", "here");
  rdzv_store_free(one);
  one = worker(server, RDZV_DIALECT_V2);
  assert_get(one, OWN "0", "here");
  rdzv_store_free(one);
  rdzv_server_free(server);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_group_that_is_formed_again_is_empty),
      cmocka_unit_test(test_a_late_member_finds_one_that_tries_again),
      cmocka_unit_test(test_other_keys_stay),
      cmocka_unit_test(test_without_the_option_keys_stay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
