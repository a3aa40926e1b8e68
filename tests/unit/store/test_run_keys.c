/* SPDX-License-Identifier: BSD-3-Clause */
/* The names of a run's keys: no two runs have one in common, except by PyTorch's names of rounds. */
#include "store/run_keys.h"
#include "unit.h"

static void assert_id(const char *key, const char *id) {
  const rdzv_bytes found = run_key_id(rdzv_str(key));
  assert_int_equal(found.len, strlen(id));
  if (found.len > 0) assert_memory_equal(found.data, id, found.len);
}

static void test_the_id_of_each_key_is_found(void **state) {
  (void)state;
  static const char *const ids[] = {"x",   "x.reason", "reason.x", "rdzv.reason.x", "torch.rendezvous.x",
                                    "x.1", ".",        "é/"};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
    for (int part = 0; part < RUN_PARTS; part++) {
      char *key = run_key(ids[i], (enum run_part)part);
      assert_id(key, ids[i]);
      assert_true(strlen(run_key_prefix((enum run_part)part)) < RUN_KEY_PREFIX_SIZE);
      free(key);
    }
}

static void test_no_two_runs_have_one_key(void **state) {
  (void)state;
  static const char *const words[] = {"bell", "permit", "move", "reason", "program"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    for (int part = 0; part < RUN_PARTS; part++) {
      char id[32];
      snprintf(id, sizeof id, "x.%s", words[i]);
      char *state_key = run_key(id, RUN_PART_STATE), *key = run_key("x", (enum run_part)part);
      assert_string_not_equal(state_key, key);
      free(state_key);
      free(key);
    }
}

static void test_keys_of_rounds(void **state) {
  (void)state;
  char *prefix = run_round_prefix("x.y", 12);
  assert_string_equal(prefix, "torch.rendezvous.x.y.12");
  free(prefix);
  assert_id("torch.rendezvous.x.y.12/MASTER_ADDR", "x.y");
  assert_id("torch.rendezvous.x.12", "x.12");
  assert_true(run_key_is_round(rdzv_str(".3/")));
  static const char *const others[] = {"", ".", "./", ".3", "3/", ".x/", ".3x/"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(run_key_is_round(rdzv_str(others[i])));
}

static void test_keys_of_no_run(void **state) {
  (void)state;
  static const char *const keys[] = {"", "torch.rendezvous", "torch.rendezvous.", "rdzv.reason.", "rdzv.other.x", "x"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) assert_id(keys[i], "");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_id_of_each_key_is_found),
      cmocka_unit_test(test_no_two_runs_have_one_key),
      cmocka_unit_test(test_keys_of_rounds),
      cmocka_unit_test(test_keys_of_no_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
