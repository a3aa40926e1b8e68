/* SPDX-License-Identifier: BSD-3-Clause */
/* Paths in etcd as they are given, and keys as a server lists them. */
#include "etcd/path.h"
#include "unit.h"

#include <stdlib.h>

static void clean_is(const char *given, const char *expected) {
  char *path = etcd_path_clean(given);
  assert_non_null(path);
  assert_string_equal(path, expected);
  free(path);
}

static void a_path_is_as_etcd_reads_it(void **state) {
  (void)state;
  clean_is("/a/b", "/a/b");
  clean_is("a/b", "/a/b");
  clean_is("//a///b//", "/a/b");
  clean_is("/./././a", "/a");
  clean_is("a/./b/.", "/a/b");
  clean_is("a/../b", "/b");
  clean_is("../../a", "/a");
  clean_is("a/...", "/a/...");
  clean_is(".a/..b", "/.a/..b");
}

static void the_root_is_empty(void **state) {
  (void)state;
  clean_is("", "");
  clean_is("/", "");
  clean_is("//", "");
  clean_is("/.", "");
  clean_is("a/..", "");
}

static void below_is(const char *key, const char *folder, const char *expected) {
  rdzv_bytes rest;
  char *copy = strdup(key); /* with no byte behind its end */
  const bool below = etcd_path_below(rdzv_str(copy), folder, &rest);
  assert_int_equal(below, expected != NULL);
  if (expected) {
    assert_int_equal(rest.len, strlen(expected));
    assert_memory_equal(rest.data, expected, rest.len);
  }
  free(copy);
}

static void a_key_below_its_folder(void **state) {
  (void)state;
  below_is("/a/b", "/a", "b");
  below_is("/a/b", "/a/", "b");
  below_is("/a/b/c", "/a", "b/c");
  below_is("/a/", "/a", "");
  below_is("/a/", "/a/", "");
  below_is("/b", "", "b");
}

static void a_key_of_another_place(void **state) {
  (void)state;
  below_is("", "/a", NULL);
  below_is("/", "/a", NULL);
  below_is("/a", "/a", NULL);
  below_is("/ab", "/a", NULL);
  below_is("/ab/c", "/a", NULL);
  below_is("/b/c", "/a", NULL);
  below_is("/a", "/a/", NULL);
  below_is("/a/run_x", "/././././././././././a", NULL);
  below_is("", "", NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_path_is_as_etcd_reads_it), cmocka_unit_test(the_root_is_empty),
                                     cmocka_unit_test(a_key_below_its_folder),
                                     cmocka_unit_test(a_key_of_another_place)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
