/* SPDX-License-Identifier: BSD-3-Clause */
/* Times and layouts: what Python's datetime can say, and which PyTorch has which layout. */
#include "datetime_text.h"
#include "state/pickle/layout.h"
#include "unit.h"

#include <time.h>

static const struct {
  const char *text;
  uint8_t packed[DATETIME_PACKED];
  int64_t time;
} times[] = {
    {"0001-01-01T00:00:00.000000Z", {0, 1, 1, 1}, DATETIME_MIN},
    {"1969-12-31T23:59:59.999999Z", {7, 177, 12, 31, 23, 59, 59, 15, 66, 63}, -1},
    {"1970-01-01T00:00:00.000000Z", {7, 178, 1, 1}, 0},
    {"2000-02-29T12:00:00.000001Z", {7, 208, 2, 29, 12, 0, 0, 0, 0, 1}, INT64_C(951825600000001)},
    {"2026-11-15T12:00:40.999999Z", {7, 234, 11, 15, 12, 0, 40, 15, 66, 63}, INT64_C(1794744040999999)},
    {"9999-12-31T23:59:59.999999Z", {39, 15, 12, 31, 23, 59, 59, 15, 66, 63}, DATETIME_MAX},
};

static void test_each_form_of_a_time_gives_the_others(void **context) {
  (void)context;
  for (size_t i = 0; i < COUNT_OF(times); i++) {
    uint8_t packed[DATETIME_PACKED];
    char text[DATETIME_TEXT + 1];
    int64_t time = 0;
    assert_true(datetime_pack(times[i].time, packed));
    assert_memory_equal(packed, times[i].packed, DATETIME_PACKED);
    assert_true(datetime_unpack(packed, &time));
    assert_true(time == times[i].time);
    assert_true(datetime_format(times[i].time, text));
    assert_string_equal(text, times[i].text);
    assert_true(datetime_parse(text, DATETIME_TEXT, &time));
    assert_true(time == times[i].time);
  }
}

/* Every day of 9999 years, against the C library's calendar. */
static void test_every_day_is_that_of_the_c_library(void **context) {
  (void)context;
  for (int64_t day = DATETIME_MIN / 86400000000; day <= DATETIME_MAX / 86400000000; day++) {
    const time_t seconds = (time_t)(day * 86400 + 12345);
    struct tm tm;
    assert_non_null(gmtime_r(&seconds, &tm));
    const uint8_t expected[DATETIME_PACKED] = {(uint8_t)((tm.tm_year + 1900) >> 8),
                                               (uint8_t)(tm.tm_year + 1900),
                                               (uint8_t)(tm.tm_mon + 1),
                                               (uint8_t)tm.tm_mday,
                                               3,
                                               25,
                                               45,
                                               0,
                                               0,
                                               7};
    uint8_t packed[DATETIME_PACKED];
    int64_t time;
    if (!datetime_pack((int64_t)seconds * 1000000 + 7, packed) || memcmp(packed, expected, sizeof packed) != 0 ||
        !datetime_unpack(packed, &time) || time != (int64_t)seconds * 1000000 + 7)
      fail_msg("day %lld", (long long)day);
  }
}

static void test_what_is_before_the_year_1_or_after_9999_is_no_time(void **context) {
  (void)context;
  uint8_t packed[DATETIME_PACKED];
  char text[DATETIME_TEXT + 1];
  const int64_t outside[] = {DATETIME_MIN - 1, DATETIME_MAX + 1, DATETIME_NONE, INT64_MAX};
  for (size_t i = 0; i < COUNT_OF(outside); i++) {
    assert_false(datetime_pack(outside[i], packed));
    assert_false(datetime_format(outside[i], text));
  }
}

static void test_packed_parts_out_of_range_are_no_time(void **context) {
  (void)context;
  static const uint8_t broken[][DATETIME_PACKED] = {
      {0, 0, 1, 1},
      {39, 16, 1, 1},
      {7, 234, 0, 1},
      {7, 234, 13, 1},
      {7, 234, 1, 0},
      {7, 234, 1, 32},
      {7, 234, 4, 31},
      {7, 234, 2, 29},
      {7, 108, 2, 29} /* 1900 */,
      {7, 234, 1, 1, 24},
      {7, 234, 1, 1, 0, 60},
      {7, 234, 1, 1, 0, 0, 60},
      {7, 234, 1, 1, 0, 0, 0, 15, 66, 64},
      {255, 255, 255, 255, 255},
  };
  int64_t time = 42;
  for (size_t i = 0; i < COUNT_OF(broken); i++) assert_false(datetime_unpack(broken[i], &time));
  assert_int_equal(time, 42);
}

/* Rule: Python marks the second pass through a repeated hour in the month; UTC repeats none. */
static void test_pythons_fold_is_not_looked_at(void **context) {
  (void)context;
  int64_t time = 0;
  assert_true(datetime_unpack((const uint8_t[DATETIME_PACKED]){7, 178, 0x80 | 1, 2}, &time));
  assert_true(time == INT64_C(86400000000));
}

static void test_text_of_any_other_form_is_no_time(void **context) {
  (void)context;
  static const char *const broken[] = {
      "",
      "2026-11-15T20:00:00.000000",
      "2026-11-15T20:00:00.000000z",
      "2026-11-15 20:00:00.000000Z",
      "2026-11-15T20:00:00.00000Z",
      "2026-11-15T20:00:00.0000000Z",
      "2026-11-15T20:00:00,000000Z",
      "2026-11-15T20:00: 0.000000Z",
      "+026-11-15T20:00:00.000000Z",
      "2026-11-31T20:00:00.000000Z",
      "0000-11-15T20:00:00.000000Z",
      "2026-11-15T24:00:00.000000Z",
      "2026-11-15T20:00:60.000000Z",
  };
  int64_t time = 42;
  for (size_t i = 0; i < COUNT_OF(broken); i++) assert_false(datetime_parse(broken[i], strlen(broken[i]), &time));
  assert_int_equal(time, 42);
}

static void test_a_version_of_pytorch_has_the_layout_of_its_row(void **context) {
  (void)context;
  static const struct {
    const char *version;
    enum torch_layout layout;
  } rows[] = {{"1.9", TORCH_1_13}, {"1.13", TORCH_1_13},  {"1.13.1", TORCH_1_13}, {"2.0", TORCH_2_0},
              {"2.2", TORCH_2_0},  {"2.2.99", TORCH_2_0}, {"2.3", TORCH_2_3},     {"2.5", TORCH_2_3},
              {"2.6", TORCH_2_6},  {"2.10", TORCH_2_6},   {"3.0", TORCH_2_6},     {"10.0", TORCH_2_6}};
  for (size_t i = 0; i < COUNT_OF(rows); i++) {
    enum torch_layout layout;
    assert_code(torch_layout_parse(rows[i].version, &layout, NULL), 0);
    assert_int_equal(layout, rows[i].layout);
  }
  for (enum torch_layout i = TORCH_1_13; i <= TORCH_NEWEST; i++) {
    enum torch_layout layout;
    assert_code(torch_layout_parse(torch_traits(i)->version, &layout, NULL), 0);
    assert_int_equal(layout, i);
  }
}

static void test_what_is_no_version_is_refused_by_name(void **context) {
  (void)context;
  static const char *const broken[] = {"",     "2",    "2.",   ".6",   "2.6.",    "2.x",     "2.6.0.1",
                                       "v2.6", "2 .6", "-2.6", "2.6 ", "99999.1", "2.99999", "2.6\n"};
  for (size_t i = 0; i < COUNT_OF(broken); i++) {
    enum torch_layout layout = TORCH_2_0;
    rdzv_error error = {0};
    assert_error(torch_layout_parse(broken[i], &layout, &error), RDZV_E_INVALID, &error, "is not a version of PyTorch");
    assert_int_equal(layout, TORCH_2_0);
  }
}

static void test_the_preferred_layout_is_taken_where_it_is_possible(void **context) {
  (void)context;
  const struct torch_layouts possible = {TORCH_2_0, TORCH_2_3};
  assert_int_equal(torch_layout_choose(possible, TORCH_1_13), TORCH_2_0);
  assert_int_equal(torch_layout_choose(possible, TORCH_2_0), TORCH_2_0);
  assert_int_equal(torch_layout_choose(possible, TORCH_2_3), TORCH_2_3);
  assert_int_equal(torch_layout_choose(possible, TORCH_2_6), TORCH_2_3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each_form_of_a_time_gives_the_others),
      cmocka_unit_test(test_every_day_is_that_of_the_c_library),
      cmocka_unit_test(test_what_is_before_the_year_1_or_after_9999_is_no_time),
      cmocka_unit_test(test_packed_parts_out_of_range_are_no_time),
      cmocka_unit_test(test_pythons_fold_is_not_looked_at),
      cmocka_unit_test(test_text_of_any_other_form_is_no_time),
      cmocka_unit_test(test_a_version_of_pytorch_has_the_layout_of_its_row),
      cmocka_unit_test(test_what_is_no_version_is_refused_by_name),
      cmocka_unit_test(test_the_preferred_layout_is_taken_where_it_is_possible),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
