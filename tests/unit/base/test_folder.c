/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/os/folder.h"

#include "unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[64];

static const char *below(const char *name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", top, name);
  return path;
}

static void make_folder(const char *name) { assert_int_equal(mkdir(below(name), 0755), 0); }

static void make_file(const char *name) {
  const int fd = open(below(name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  assert_true(fd >= 0);
  close(fd);
}

static bool is_there(const char *name) { return faccessat(AT_FDCWD, below(name), F_OK, AT_SYMLINK_NOFOLLOW) == 0; }

static int set_up(void **unused) {
  (void)unused;
  snprintf(top, sizeof top, "/tmp/rdzv-test-XXXXXX");
  return mkdtemp(top) ? 0 : -1;
}

static int tear_down(void **unused) {
  (void)unused;
  folder_remove(AT_FDCWD, top);
  return access(top, F_OK) < 0 ? 0 : -1;
}

static void test_a_folder_goes_with_all_below_it(void **unused) {
  (void)unused;
  make_folder("a");
  make_folder("a/b");
  make_folder("a/b/c");
  make_file("a/b/c/.hidden");
  for (int i = 0; i < 1000; i++) { /* more than one chunk of names */
    char name[64];
    snprintf(name, sizeof name, "a/b/file-with-a-name-that-is-long-%d", i);
    make_file(name);
  }
  folder_remove(AT_FDCWD, below("a"));
  assert_false(is_there("a"));
}

/* What it points to is somebody else's. */
static void test_a_link_goes_and_what_it_points_to_stays(void **unused) {
  (void)unused;
  make_folder("a");
  make_folder("theirs");
  make_file("theirs/file");
  assert_int_equal(symlink("../theirs", below("a/link")), 0);
  folder_remove(AT_FDCWD, below("a"));
  assert_false(is_there("a"));
  assert_true(is_there("theirs/file"));
}

static void test_files_keep_their_folders_where_only_empty_ones_go(void **unused) {
  (void)unused;
  make_folder("a");
  make_folder("a/empty");
  make_folder("a/empty/too");
  make_folder("a/full");
  make_file("a/full/file");
  folder_remove_empty(AT_FDCWD, below("a"));
  assert_false(is_there("a/empty"));
  assert_true(is_there("a/full/file"));
}

static void test_nothing_is_no_harm(void **unused) {
  (void)unused;
  folder_remove(AT_FDCWD, below("not-there"));
  folder_remove_empty(AT_FDCWD, below("not-there/at/all"));
  make_file("file");
  folder_remove(AT_FDCWD, below("file"));
  assert_false(is_there("file"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_a_folder_goes_with_all_below_it, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_a_link_goes_and_what_it_points_to_stays, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_files_keep_their_folders_where_only_empty_ones_go, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_nothing_is_no_harm, set_up, tear_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
