/* SPDX-License-Identifier: BSD-3-Clause */
/* The keys of PyTorch workers that an agent deletes in a store that outlives them. */
#include "agent/torch/leftovers.h"
#include "live.h"

static size_t count_keys(rdzv_store *store) {
  int64_t count = 0;
  assert_int_equal(rdzv_store_num_keys(store, &count, NULL), 0);
  return (size_t)count;
}

static struct leftovers note(const rdzv_server *server, int64_t workers) {
  struct leftovers leftovers = {0};
  leftovers_note(&leftovers, "a_1_0", "127.0.0.1", rdzv_server_port(server), workers);
  return leftovers;
}

static const rdzv_log silent = {.size = sizeof silent};

/* Also of ranks behind one that has not come, of further groups, and of NCCL. */
static void test_keys_of_workers_are_deleted(void **state) {
  (void)state;
  static const char *const keys[] = {"0//cpu//0/0", "0//cpu//0/1",    "0//cpu//0/3",    "0//cuda//0",
                                     "0//cuda//1",  "0//1//cpu//0/0", "0//3//cpu//0/0", "0//3//cpu//0/1"};
  rdzv_server *server = serve();
  rdzv_store *store = store_of(server);
  struct leftovers leftovers = note(server, 4);
  for (size_t i = 0; i < COUNT_OF(keys); i++) {
    char key[64];
    snprintf(key, sizeof key, "default_pg/%s", keys[i]);
    must_set(store, key, "v");
  }
  must_set(store, "own", "v");
  leftovers_clear(&leftovers, "a_1_0", 0, &silent);
  assert_get(store, "own", "v");
  assert_int_equal(count_keys(store), 1);
  leftovers_free(&leftovers);
  rdzv_store_free(store);
  rdzv_server_free(server);
}

/* Another agent leads: its store is not known. */
static void test_the_store_of_another_agent_is_left_alone(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *store = store_of(server);
  struct leftovers leftovers = note(server, 1);
  must_set(store, "default_pg/0//cpu//0/0", "v");
  leftovers_clear(&leftovers, "b_1_0", 0, &silent);
  assert_int_equal(count_keys(store), 1);
  leftovers_free(&leftovers);
  rdzv_store_free(store);
  rdzv_server_free(server);
}

/* The largest world counts while the agent is the same. */
static void test_the_largest_world_is_noted(void **state) {
  (void)state;
  struct leftovers leftovers = {0};
  leftovers_note(&leftovers, "a", "addr", 1, 8);
  leftovers_note(&leftovers, "a", "addr", 2, 4);
  assert_int_equal(leftovers.workers, 8);
  assert_int_equal(leftovers.port, 2);
  leftovers_note(&leftovers, "b", "addr", 3, 4);
  assert_int_equal(leftovers.workers, 4);
  leftovers_free(&leftovers);
}

static char warned[512];

static void keep_line(void *user, rdzv_log_level level, const char *line) {
  (void)user, (void)level;
  snprintf(warned, sizeof warned, "%s", line);
}

static void test_a_store_that_is_gone_is_told(void **state) {
  (void)state;
  const rdzv_log log = {sizeof log, keep_line, NULL, RDZV_LOG_WARNING};
  rdzv_server *server = serve();
  struct leftovers leftovers = note(server, 1);
  rdzv_server_free(server);
  leftovers_clear(&leftovers, "a_1_0", 0, &log);
  assert_non_null(strstr(warned, "cannot delete what workers left in the store of the PyTorch agent 'a_1_0'"));
  leftovers_free(&leftovers);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_keys_of_workers_are_deleted),
      cmocka_unit_test(test_the_store_of_another_agent_is_left_alone),
      cmocka_unit_test(test_the_largest_world_is_noted),
      cmocka_unit_test(test_a_store_that_is_gone_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
