/* SPDX-License-Identifier: BSD-3-Clause */
#include "keyspace_world.h"

#include <inttypes.h>

/* A key that was never set has version 0 and no bytes. */
static void test_an_absent_key_has_version_0(void **state) {
  struct world *world = *state;
  rdzv_bytes value = BYTES("untouched");
  assert_int_equal(ks_get(world->ks, BYTES("k"), &value), 0);
  assert_int_equal(value.len, 0);
  assert_false(ks_present(world->ks, BYTES("k")));
  assert_false(ks_delete(world->ks, BYTES("k")));
  assert_int_equal(ks_count(world->ks), 0);
}

/* A value of no bytes is a value, a key of no bytes a key, and NULL is no bytes. */
static void test_a_key_and_a_value_of_no_bytes_are_there(void **state) {
  struct world *world = *state;
  assert_code(ks_set(world->ks, (rdzv_bytes){NULL, 0}, (rdzv_bytes){NULL, 0}), 0);
  rdzv_bytes value;
  assert_true(ks_get(world->ks, BYTES(""), &value) != 0);
  assert_int_equal(value.len, 0);
  assert_true(ks_present(world->ks, BYTES("")));
  assert_int_equal(ks_count(world->ks), 1);
  assert_true(ks_delete(world->ks, (rdzv_bytes){NULL, 0}));
  assert_false(ks_present(world->ks, BYTES("")));
}

/* Keys are bytes: a zero byte is one like the others, and a key is not its own beginning. */
static void test_keys_are_told_apart_by_all_their_bytes(void **state) {
  struct world *world = *state;
  const rdzv_bytes keys[] = {BYTES("a"),  BYTES("a\0"), BYTES("a\0b"), BYTES("a\0c"),
                             BYTES("\0"), BYTES(""),    BYTES("A")};
  for (size_t i = 0; i < COUNT_OF(keys); i++) {
    const char digit = (char)('0' + i);
    assert_code(ks_set(world->ks, keys[i], (rdzv_bytes){&digit, 1}), 0);
  }
  assert_int_equal(ks_count(world->ks), COUNT_OF(keys));
  for (size_t i = 0; i < COUNT_OF(keys); i++) {
    rdzv_bytes value;
    assert_true(ks_get(world->ks, keys[i], &value) != 0);
    assert_int_equal(*(const char *)value.data, '0' + (int)i);
  }
}

/* Behind every value stands a zero byte, however it was written, shrunk or grown. */
static void test_a_zero_byte_stands_behind_every_value(void **state) {
  struct world *world = *state;
  char text[300];
  memset(text, 'x', sizeof text);
  for (size_t len = sizeof text; len-- > 0;) {
    assert_code(ks_set(world->ks, BYTES("k"), (rdzv_bytes){text, len}), 0);
    for (size_t more = 0; more < 3; more++) {
      rdzv_bytes value;
      ks_get(world->ks, BYTES("k"), &value);
      assert_int_equal(value.len, len + more);
      assert_int_equal(((const char *)value.data)[value.len], '\0');
      assert_code(ks_append(world->ks, BYTES("k"), BYTES("y")), 0);
    }
  }
}

/* Append creates an absent key, and adds to the end of a present one. */
static void test_append_adds_to_the_end(void **state) {
  struct world *world = *state;
  assert_code(ks_append(world->ks, BYTES("k"), BYTES("ab")), 0);
  assert_value(world, "k", "ab");
  assert_code(ks_append(world->ks, BYTES("k"), BYTES("")), 0);
  assert_code(ks_append(world->ks, BYTES("k"), BYTES("c\0")), 0);
  assert_value(world, "k", "abc\0");
  assert_code(ks_append(world->ks, BYTES("empty"), BYTES("")), 0);
  assert_true(ks_present(world->ks, BYTES("empty")));
}

/* Many small appends must not cost what their product would: the value grows ahead of its need. */
static void test_a_value_that_is_appended_to_often_is_whole(void **state) {
  struct world *world = *state;
  enum { TIMES = 20000 };
  for (int i = 0; i < TIMES; i++) {
    const char digit = (char)('0' + i % 10);
    assert_code(ks_append(world->ks, BYTES("k"), (rdzv_bytes){&digit, 1}), 0);
  }
  rdzv_bytes value;
  ks_get(world->ks, BYTES("k"), &value);
  assert_int_equal(value.len, TIMES);
  for (int i = 0; i < TIMES; i++) assert_int_equal(((const char *)value.data)[i], '0' + i % 10);
}

/* An absent key counts as 0, the sum is kept as decimal text. */
static void test_add_counts_from_0_in_decimal_text(void **state) {
  struct world *world = *state;
  int64_t sum;
  assert_code(ks_add(world->ks, BYTES("n"), 0, &sum), 0);
  assert_int_equal(sum, 0);
  assert_value(world, "n", "0");
  assert_code(ks_add(world->ks, BYTES("n"), -2, &sum), 0);
  assert_int_equal(sum, -2);
  assert_value(world, "n", "-2");
}

/* A sum is written as printf does it. */
static void test_add_writes_the_sum_in_decimal(void **state) {
  struct world *world = *state;
  const int64_t sums[] = {0, 7, -7, 10, -10, 99, 100, 123456789, -1000000000, INT64_MAX, INT64_MIN, INT64_MIN + 1};
  for (size_t i = 0; i < COUNT_OF(sums); i++) {
    char text[32];
    rdzv_bytes value;
    int64_t sum;
    snprintf(text, sizeof text, "%" PRId64, sums[i]);
    set(world, "n", "0");
    assert_code(ks_add(world->ks, BYTES("n"), sums[i], &sum), 0);
    ks_get(world->ks, BYTES("n"), &value);
    assert_bytes_(value, rdzv_str(text), __FILE__, __LINE__);
  }
}

/* The old text is read as strtoll does in base 10, like PyTorch: what it does not take is no number and stays. */
static void test_add_reads_the_old_text_as_strtoll_does(void **state) {
  struct world *world = *state;
  const struct {
    rdzv_bytes text;
    int result;
    int64_t plus_one;
  } cases[] = {
      {BYTES("41"), 0, 42},
      {BYTES("  \t\n+41"), 0, 42},
      {BYTES("-1"), 0, 0},
      {BYTES("12xyz"), 0, 13},
      {BYTES("0x10"), 0, 1},
      {BYTES("007"), 0, 8},
      {BYTES("1.9"), 0, 2},
      {BYTES("5\0"
             "9"),
       0, 6},
      {BYTES("999999999999999999"), 0, 1000000000000000000},
      {BYTES("-999999999999999999"), 0, -999999999999999998},
      {BYTES("1000000000000000000"), 0, 1000000000000000001},
      {BYTES("9223372036854775807"), 0, INT64_MIN},
      {BYTES("-9223372036854775808"), 0, INT64_MIN + 1},
      {BYTES("9223372036854775808"), RDZV_E_NOT_A_NUMBER, 0},
      {BYTES("-9223372036854775809"), RDZV_E_NOT_A_NUMBER, 0},
      {BYTES("99999999999999999999999"), RDZV_E_NOT_A_NUMBER, 0},
      {BYTES(""), RDZV_E_NOT_A_NUMBER, 0},
      {BYTES(" "), RDZV_E_NOT_A_NUMBER, 0},
      {BYTES("+"), RDZV_E_NOT_A_NUMBER, 0},
      {BYTES("-"), RDZV_E_NOT_A_NUMBER, 0},
      {BYTES("--1"), RDZV_E_NOT_A_NUMBER, 0},
      {BYTES("- 1"), RDZV_E_NOT_A_NUMBER, 0},
      {BYTES("x1"), RDZV_E_NOT_A_NUMBER, 0},
      {BYTES("\0"
             "1"),
       RDZV_E_NOT_A_NUMBER, 0},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    assert_code(ks_set(world->ks, BYTES("n"), cases[i].text), 0);
    const uint64_t version = version_of(world, "n");
    int64_t sum = 77;
    assert_code(ks_add(world->ks, BYTES("n"), 1, &sum), cases[i].result);
    rdzv_bytes value;
    ks_get(world->ks, BYTES("n"), &value);
    if (cases[i].result == 0) {
      assert_true(sum == cases[i].plus_one);
    } else {
      assert_int_equal(sum, 77);
      assert_bytes_(value, cases[i].text, __FILE__, __LINE__);
      assert_true(version_of(world, "n") == version);
    }
  }
}

/* The sum wraps at 64 bits, both ways. */
static void test_add_wraps_at_64_bits(void **state) {
  struct world *world = *state;
  int64_t sum;
  assert_code(ks_add(world->ks, BYTES("n"), INT64_MAX, &sum), 0);
  assert_code(ks_add(world->ks, BYTES("n"), INT64_MAX, &sum), 0);
  assert_int_equal(sum, -2);
  assert_code(ks_add(world->ks, BYTES("m"), INT64_MIN, &sum), 0);
  assert_code(ks_add(world->ks, BYTES("m"), -1, &sum), 0);
  assert_true(sum == INT64_MAX);
}

/* PyTorch's table for compare_set, row by row. */
static void test_compare_set_follows_pytorchs_table(void **state) {
  struct world *world = *state;
  rdzv_bytes now;
  /* absent, expected not empty: nothing, and expected is the answer */
  assert_code(ks_compare_set(world->ks, BYTES("k"), BYTES("e"), BYTES("d"), &now), 0);
  assert_bytes(now, "e");
  assert_false(ks_present(world->ks, BYTES("k")));
  /* absent, expected empty: created */
  assert_code(ks_compare_set(world->ks, BYTES("k"), BYTES(""), BYTES("d"), &now), 0);
  assert_bytes(now, "d");
  assert_value(world, "k", "d");
  /* present, other: nothing, and the current value is the answer */
  assert_code(ks_compare_set(world->ks, BYTES("k"), BYTES("x"), BYTES("y"), &now), 0);
  assert_bytes(now, "d");
  assert_code(ks_compare_set(world->ks, BYTES("k"), BYTES(""), BYTES("y"), &now), 0);
  assert_bytes(now, "d");
  /* present, equal: set */
  assert_code(ks_compare_set(world->ks, BYTES("k"), BYTES("d"), BYTES(""), &now), 0);
  assert_bytes(now, "");
  /* present and empty, expected empty: set */
  assert_code(ks_compare_set(world->ks, BYTES("k"), BYTES(""), BYTES("z"), &now), 0);
  assert_bytes(now, "z");
  assert_value(world, "k", "z");
}

/* A swap by version is done at that version only; 0 is that of an absent key. */
static void test_a_swap_by_version_is_done_at_that_version_only(void **state) {
  struct world *world = *state;
  bool swapped;
  assert_code(ks_compare_set_version(world->ks, BYTES("k"), 1, BYTES("a"), &swapped), 0);
  assert_false(swapped);
  assert_code(ks_compare_set_version(world->ks, BYTES("k"), 0, BYTES("a"), &swapped), 0);
  assert_true(swapped);
  const uint64_t first = version_of(world, "k");
  assert_code(ks_compare_set_version(world->ks, BYTES("k"), 0, BYTES("b"), &swapped), 0);
  assert_false(swapped);
  assert_code(ks_compare_set_version(world->ks, BYTES("k"), first, BYTES("b"), &swapped), 0);
  assert_true(swapped);
  assert_code(ks_compare_set_version(world->ks, BYTES("k"), first, BYTES("c"), &swapped), 0);
  assert_false(swapped);
  assert_value(world, "k", "b");
  ks_delete(world->ks, BYTES("k"));
  assert_code(ks_compare_set_version(world->ks, BYTES("k"), first, BYTES("c"), &swapped), 0);
  assert_false(swapped);
  assert_code(ks_compare_set_version(world->ks, BYTES("k"), 0, BYTES("c"), &swapped), 0);
  assert_true(swapped);
}

/* Each write, also one of the same bytes, gives a version that no key ever had, also after deletions. */
static void test_versions_never_repeat(void **state) {
  struct world *world = *state;
  uint64_t newest = 0;
  unsigned dice = 1;
  for (int i = 0; i < 5000; i++) {
    dice = dice * 1103515245u + 12345u;
    const char key = (char)('a' + (dice >> 16) % 4);
    const rdzv_bytes k = {&key, 1};
    rdzv_bytes now;
    int64_t sum;
    bool flag, written = true;
    const uint64_t before = ks_get(world->ks, k, &now);
    switch ((dice >> 20) % 6) {
      case 0: ks_set(world->ks, k, BYTES("1")); break;
      case 1: written = ks_add(world->ks, k, 1, &sum) == 0; break;
      case 2: ks_compare_set_version(world->ks, k, before, BYTES("7"), &flag); break;
      case 3: written = ks_barrier(world->ks, k, 1, &flag) == 0; break;
      case 4: ks_append(world->ks, k, BYTES("")); break;
      default: ks_delete(world->ks, k), written = false;
    }
    const uint64_t after = ks_get(world->ks, k, &now);
    if (written) {
      assert_true(after > newest);
      newest = after;
    } else {
      assert_true(after == 0 || after == before);
    }
  }
}

/* A delete tells whether the key was there, and the key is really gone. */
static void test_a_deleted_key_is_gone(void **state) {
  struct world *world = *state;
  set(world, "k", "v");
  assert_true(ks_delete(world->ks, BYTES("k")));
  assert_false(ks_delete(world->ks, BYTES("k")));
  assert_int_equal(version_of(world, "k"), 0);
  assert_int_equal(ks_count(world->ks), 0);
  assert_int_equal(world->budget.used, 0);
}

/* Going through the keys meets each key with a value once, and neither queues nor names that are only waited for. */
static void test_going_through_the_keys_meets_each_once(void **state) {
  struct world *world = *state;
  enum { KEYS = 1000 };
  bool seen[KEYS] = {false};
  struct someone a = {.name = 'A'};
  push(world, "a queue", "x");
  WAIT(world, &a, KS_WANT_VALUE, BYTES("waited for"));
  for (int i = 0; i < KEYS; i++) {
    char key[8];
    snprintf(key, sizeof key, "%03d", i);
    set(world, key, "v");
  }
  for (int i = 0; i < KEYS; i += 2) {
    char key[8];
    snprintf(key, sizeof key, "%03d", i);
    assert_true(ks_delete(world->ks, rdzv_str(key)));
  }
  size_t met = 0;
  rdzv_bytes key;
  for (const void *at = NULL; (at = ks_next(world->ks, at, &key)) != NULL; met++) {
    char text[8] = {0};
    assert_int_equal(key.len, 3);
    memcpy(text, key.data, 3);
    const int i = atoi(text);
    assert_false(seen[i]);
    seen[i] = true;
    assert_int_equal(i % 2, 1);
  }
  assert_int_equal(met, KEYS / 2);
  assert_int_equal(ks_count(world->ks), KEYS / 2);
  ks_cancel(world->ks, &a.waiter);
}

/* An empty keyspace has no first key. */
static void test_an_empty_keyspace_has_no_first_key(void **state) {
  struct world *world = *state;
  rdzv_bytes key;
  assert_null(ks_next(world->ks, NULL, &key));
}

/* NULL is fine. */
static void test_freeing_none_is_fine(void **state) {
  (void)state;
  ks_free(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_A_WORLD(test_an_absent_key_has_version_0),
      IN_A_WORLD(test_a_key_and_a_value_of_no_bytes_are_there),
      IN_A_WORLD(test_keys_are_told_apart_by_all_their_bytes),
      IN_A_WORLD(test_a_zero_byte_stands_behind_every_value),
      IN_A_WORLD(test_append_adds_to_the_end),
      IN_A_WORLD(test_a_value_that_is_appended_to_often_is_whole),
      IN_A_WORLD(test_add_counts_from_0_in_decimal_text),
      IN_A_WORLD(test_add_writes_the_sum_in_decimal),
      IN_A_WORLD(test_add_reads_the_old_text_as_strtoll_does),
      IN_A_WORLD(test_add_wraps_at_64_bits),
      IN_A_WORLD(test_compare_set_follows_pytorchs_table),
      IN_A_WORLD(test_a_swap_by_version_is_done_at_that_version_only),
      IN_A_WORLD(test_versions_never_repeat),
      IN_A_WORLD(test_a_deleted_key_is_gone),
      IN_A_WORLD(test_going_through_the_keys_meets_each_once),
      IN_A_WORLD(test_an_empty_keyspace_has_no_first_key),
      cmocka_unit_test(test_freeing_none_is_fine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
