/* SPDX-License-Identifier: BSD-3-Clause */
/* What store.c does for every store: arguments that are missing, timeouts of 0. */
#include "unit.h"

#include <rdzv/store.h>
#include <unistd.h>

/* A hash store, a file store, and a view of the first. */
struct fixture {
  rdzv_store *stores[3];
  char path[64];
};

static int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  if (!f) return -1;
  snprintf(f->path, sizeof f->path, "/tmp/rdzv-test-XXXXXX");
  close(mkstemp(f->path));
  const int result = rdzv_store_open_hash(NULL, &f->stores[0], NULL) |
                     rdzv_store_open_file(f->path, NULL, &f->stores[1], NULL) |
                     rdzv_store_open_prefix(f->stores[0], BYTES("p"), &f->stores[2], NULL);
  *state = f;
  return result;
}

static int teardown(void **state) {
  struct fixture *f = *state;
  for (int i = 2; i >= 0; i--) rdzv_store_free(f->stores[i]);
  unlink(f->path);
  free(f);
  return 0;
}

/* A place for a result that is NULL is refused with its name, and nothing is done. */
static void test_a_missing_place_is_refused(void **state) {
  const struct fixture *f = *state;
  const rdzv_bytes key = BYTES("k");
  rdzv_error error;
  rdzv_value value, *values;
  uint64_t version;
  size_t count;
  bool flag;
#define REFUSED(name, call) assert_error(call, RDZV_E_INVALID, &error, "'" name "' is NULL")
  for (size_t i = 0; i < COUNT_OF(f->stores); i++) {
    rdzv_store *store = f->stores[i];
    REFUSED("out", rdzv_store_get(store, key, NULL, &error));
    REFUSED("out", rdzv_store_compare_set(store, key, BYTES(""), BYTES("v"), NULL, &error));
    REFUSED("all", rdzv_store_check(store, &key, 1, NULL, &error));
    REFUSED("keys", rdzv_store_check(store, NULL, 1, &flag, &error));
    REFUSED("keys", rdzv_store_wait(store, NULL, 1, 0, &error));
    REFUSED("count", rdzv_store_num_keys(store, NULL, &error));
    REFUSED("out", rdzv_store_multi_get(store, &key, 1, NULL, &error));
    REFUSED("keys", rdzv_store_multi_get(store, NULL, 1, &values, &error));
    REFUSED("keys", rdzv_store_multi_set(store, NULL, &key, 1, &error));
    REFUSED("values", rdzv_store_multi_set(store, &key, NULL, 1, &error));
    REFUSED("out", rdzv_store_list_keys(store, NULL, &count, &error));
    REFUSED("count", rdzv_store_list_keys(store, &values, NULL, &error));
    REFUSED("out", rdzv_store_queue_pop(store, key, false, NULL, &error));
    REFUSED("len", rdzv_store_queue_len(store, key, NULL, &error));
    REFUSED("out", rdzv_store_get_version(store, key, NULL, &version, &error));
    REFUSED("version", rdzv_store_get_version(store, key, &value, NULL, &error));
    REFUSED("swapped", rdzv_store_compare_set_version(store, key, 0, key, NULL, &value, &version, &error));
    REFUSED("out", rdzv_store_compare_set_version(store, key, 0, key, &flag, NULL, &version, &error));
    REFUSED("version", rdzv_store_compare_set_version(store, key, 0, key, &flag, &value, NULL, &error));
    REFUSED("out", rdzv_store_wait_changed(store, key, 0, 0, NULL, &version, &error));
    REFUSED("version", rdzv_store_wait_changed(store, key, 0, 0, &value, NULL, &error));
    REFUSED("out", rdzv_store_clone(store, NULL, &error));
    assert_code(rdzv_store_check(store, &key, 1, &flag, &error), 0);
    assert_false(flag);
  }
  REFUSED("out", rdzv_store_open_hash(NULL, NULL, &error));
  REFUSED("out", rdzv_store_open_file(f->path, NULL, NULL, &error));
  REFUSED("out", rdzv_store_open_tcp("localhost", NULL, NULL, &error));
  REFUSED("out", rdzv_store_open_prefix(f->stores[0], key, NULL, &error));
#undef REFUSED
}

/* What is optional may be NULL, and an array of nothing may be. */
static void test_what_is_optional_may_be_missing(void **state) {
  const struct fixture *f = *state;
  bool all = false;
  for (size_t i = 0; i < COUNT_OF(f->stores); i++) {
    assert_code(rdzv_store_add(f->stores[i], BYTES("n"), 1, NULL, NULL), 0);
    assert_code(rdzv_store_delete_key(f->stores[i], BYTES("n"), NULL, NULL), 0);
    assert_code(rdzv_store_check(f->stores[i], NULL, 0, &all, NULL), 0);
    assert_true(all);
    assert_code(rdzv_store_wait(f->stores[i], NULL, 0, 0, NULL), 0);
    assert_code(rdzv_store_multi_set(f->stores[i], NULL, NULL, 0, NULL), 0);
  }
}

/* A timeout of 0 gives what is there, and says at once of what is not that it timed out. */
static void test_a_timeout_of_0_does_not_wait(void **state) {
  const struct fixture *f = *state;
  for (size_t i = 0; i < COUNT_OF(f->stores); i++) {
    rdzv_store *store = f->stores[i];
    const rdzv_bytes there = BYTES("there"), absent = BYTES("absent");
    rdzv_value value;
    rdzv_error error;
    assert_code(rdzv_store_set_timeout(store, 0, &error), 0);
    assert_code(rdzv_store_set(store, there, BYTES("v"), &error), 0);
    assert_code(rdzv_store_get(store, there, &value, &error), 0);
    assert_bytes(rdzv_value_bytes(&value), "v");
    rdzv_value_free(&value);
    assert_code(rdzv_store_wait(store, &there, 1, 0, &error), 0);
    assert_error(rdzv_store_get(store, absent, &value, &error), RDZV_E_TIMEOUT, &error, "absent'");
    assert_code(rdzv_store_wait(store, &absent, 1, RDZV_TIMEOUT_STORE, &error), RDZV_E_TIMEOUT);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_a_missing_place_is_refused, setup, teardown),
      cmocka_unit_test_setup_teardown(test_what_is_optional_may_be_missing, setup, teardown),
      cmocka_unit_test_setup_teardown(test_a_timeout_of_0_does_not_wait, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
