/* SPDX-License-Identifier: BSD-3-Clause */
/* Values of flags and options: what is taken, what is not, and that a value that is not leaves the old one. */
#include "base/text/parse.h"
#include "base/text/signal_name.h"
#include "unit.h"

#include <locale.h>
#include <signal.h>

static void test_a_number_is_the_whole_text_and_within_its_bounds(void **state) {
  (void)state;
  static const char *const wrong[] = {"", " ", "x", "1x", "1 ", "1.5", "0x10", "9223372036854775808", "0", "101"};
  int64_t number = -1;
  for (size_t i = 0; i < COUNT_OF(wrong); i++) assert_false(parse_number(wrong[i], 1, 100, &number));
  assert_int_equal(number, -1);
  assert_true(parse_number("100", 1, 100, &number));
  assert_int_equal(number, 100);
  assert_true(parse_number("-9223372036854775808", INT64_MIN, INT64_MAX, &number));
  assert_true(number == INT64_MIN);
}

static void test_seconds_may_have_a_fraction(void **state) {
  (void)state;
  static const char *const wrong[] = {"", "s", "1s", "-1", "nan", "inf", "1e10", "0"};
  int64_t ms = -1;
  for (size_t i = 0; i < COUNT_OF(wrong); i++) assert_false(parse_seconds(wrong[i], 1, &ms));
  assert_int_equal(ms, -1);
  assert_true(parse_seconds("1.5", 1, &ms));
  assert_int_equal(ms, 1500);
  assert_true(parse_seconds("0.001", 1, &ms));
  assert_int_equal(ms, 1);
  assert_true(parse_seconds("0", 0, &ms));
  assert_int_equal(ms, 0);
  assert_true(parse_seconds("1e9", 1, &ms));
}

/* The program's locale decides what its own strtod takes, and nothing about options. */
static void test_seconds_have_a_point_in_every_locale(void **state) {
  (void)state;
  char folder[] = "/tmp/rdzv-locale-XXXXXX", command[200];
  int64_t ms = -1;
  assert_non_null(mkdtemp(folder));
  snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8", folder);
  assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
  setenv("LOCPATH", folder, 1);
  assert_non_null(setlocale(LC_ALL, "de_DE.UTF-8"));
  assert_string_equal(localeconv()->decimal_point, ",");
  assert_true(parse_seconds("1.5", 1, &ms));
  assert_int_equal(ms, 1500);
  assert_false(parse_seconds("1,5", 1, &ms));
  setlocale(LC_ALL, "C");
  unsetenv("LOCPATH");
  snprintf(command, sizeof command, "rm -r %s", folder);
  assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
}

static void test_a_choice_is_a_whole_name_in_any_case(void **state) {
  (void)state;
  static const char *const wrong[] = {"", "tc", "tcpx", "tcp|file", "fil", "x"};
  int index = -1;
  for (size_t i = 0; i < COUNT_OF(wrong); i++) assert_false(parse_choice("tcp|file", wrong[i], &index));
  assert_int_equal(index, -1);
  assert_true(parse_choice("tcp|file", "FILE", &index));
  assert_int_equal(index, 1);
}

static void test_percent_signs_stand_before_two_digits(void **state) {
  (void)state;
  static const char *const wrong[] = {"%", "%4", "a%", "%4x", "%x4", "%00", "ok%4"};
  char text[] = "p%40ss%2fword%C3%a9%25";
  assert_true(parse_percent(text));
  assert_string_equal(text, "p@ss/wordé%");
  for (size_t i = 0; i < COUNT_OF(wrong); i++) {
    char copy[8];
    snprintf(copy, sizeof copy, "%s", wrong[i]);
    assert_false(parse_percent(copy));
  }
}

static void test_every_signal_has_a_name(void **state) {
  (void)state;
  char wanted[32];
  assert_string_equal(signal_name(SIGKILL).text, "SIGKILL");
  assert_string_equal(signal_name(SIGRTMIN + 3).text, "SIGRTMIN+3");
  assert_string_equal(signal_name(9999).text, "signal 9999");
  snprintf(wanted, sizeof wanted, "SIGRTMIN+%d", SIGRTMAX - SIGRTMIN);
  assert_string_equal(signal_name(SIGRTMAX).text, wanted);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_number_is_the_whole_text_and_within_its_bounds),
      cmocka_unit_test(test_seconds_may_have_a_fraction),
      cmocka_unit_test(test_seconds_have_a_point_in_every_locale),
      cmocka_unit_test(test_a_choice_is_a_whole_name_in_any_case),
      cmocka_unit_test(test_percent_signs_stand_before_two_digits),
      cmocka_unit_test(test_every_signal_has_a_name),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
