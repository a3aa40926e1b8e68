/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text/options.h"
#include "unit.h"

struct options {
  size_t size;
  int first;
  int second;
};

/* No options are all zero. */
static void test_no_options_are_all_zero(void **state) {
  (void)state;
  struct options own = {1, 2, 3};
  assert_code(options_take(&own, sizeof own, NULL, "options", NULL), 0);
  assert_int_equal(own.first, 0);
  assert_int_equal(own.second, 0);
}

/* What a caller with an older header does not know is zero. */
static void test_what_an_older_caller_does_not_know_is_zero(void **state) {
  (void)state;
  struct options own = {1, 2, 3};
  const struct options given = {offsetof(struct options, second), 7, 8};
  assert_code(options_take(&own, sizeof own, &given, "options", NULL), 0);
  assert_int_equal(own.first, 7);
  assert_int_equal(own.second, 0);
}

/* A field of a newer caller is not ours to ignore. */
static void test_a_field_that_only_a_newer_caller_has_must_be_zero(void **state) {
  (void)state;
  struct options own;
  struct {
    struct options known;
    long newer;
  } given = {{sizeof given, 7, 8}, 0};
  rdzv_error error;
  assert_code(options_take(&own, sizeof own, &given, "options", NULL), 0);
  assert_int_equal(own.second, 8);
  assert_int_equal(own.size, sizeof own);
  given.newer = 1L << 62; /* its last byte */
  assert_error(options_take(&own, sizeof own, &given, "options", &error), RDZV_E_INVALID, &error,
               "the program was compiled for a newer version");
}

/* A size that was not set is the most likely mistake, and is said. */
static void test_a_size_that_is_not_set_is_refused(void **state) {
  (void)state;
  struct options own;
  for (size_t size = 0; size < sizeof(size_t); size++) {
    const struct options given = {size, 7, 8};
    rdzv_error error;
    assert_error(options_take(&own, sizeof own, &given, "options", &error), RDZV_E_INVALID, &error,
                 "set it to sizeof(options)");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_options_are_all_zero),
      cmocka_unit_test(test_what_an_older_caller_does_not_know_is_zero),
      cmocka_unit_test(test_a_field_that_only_a_newer_caller_has_must_be_zero),
      cmocka_unit_test(test_a_size_that_is_not_set_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
