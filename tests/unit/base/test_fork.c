/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/wait/fork.h"
#include "unit.h"

#include <sys/wait.h>
#include <unistd.h>

/* The child, which checks for itself, has ended with 0. */
static void assert_child(pid_t child) {
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_a_mark_holds_in_the_process_that_made_it(void **state) {
  (void)state;
  const fork_mark mark = fork_mark_here();
  assert_false(fork_crossed(mark));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  assert_child(child);
  assert_false(fork_crossed(mark));
  assert_int_equal(fork_mark_here(), mark);
}

/* The child's own objects are its own, and foreign to a grandchild again. */
static bool grandchild_sees_both(fork_mark parents, fork_mark childs) {
  int status;
  const pid_t grandchild = fork();
  if (grandchild == 0) _exit(fork_crossed(parents) && fork_crossed(childs) ? 0 : 1);
  return waitpid(grandchild, &status, 0) == grandchild && status == 0;
}

static void test_a_mark_is_crossed_in_children_and_grandchildren(void **state) {
  (void)state;
  const fork_mark mark = fork_mark_here();
  const pid_t child = fork();
  if (child == 0) {
    const fork_mark own = fork_mark_here();
    _exit(fork_crossed(mark) && !fork_crossed(own) && grandchild_sees_both(mark, own) ? 0 : 1);
  }
  assert_child(child);
}

static void test_the_refusal_says_what_and_why(void **state) {
  (void)state;
  rdzv_error error;
  assert_error(fork_fail("the store", &error), RDZV_E_INVALID, &error, "the store was opened before this process");
  assert_code(fork_fail("the store", NULL), RDZV_E_INVALID);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_mark_holds_in_the_process_that_made_it),
      cmocka_unit_test(test_a_mark_is_crossed_in_children_and_grandchildren),
      cmocka_unit_test(test_the_refusal_says_what_and_why),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
