/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine of --state-dir: its lock, and files that are deleted or replaced under it. */
#include "keep/keep.h"
#include "unit.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64], state[96], other[96];
static rdzv_error error;
static struct keep *keep;

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk) {
  (void)status, (void)kind, (void)walk;
  return remove(path);
}

static int set_up(void **unused) {
  (void)unused;
  snprintf(folder, sizeof folder, "/tmp/rdzv-keep-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  snprintf(state, sizeof state, "%s/state", folder);
  snprintf(other, sizeof other, "%s/other", folder);
  return keep_open_folder(state, &keep, &error);
}

static int tear_down(void **unused) {
  (void)unused;
  keep_close(keep);
  return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int commit(const char *name) {
  const struct keep_change change = {.name = rdzv_str(name), .head = rdzv_str("value")};
  return keep_commit(keep, &change, 1, &error);
}

static int count_one(void *user, rdzv_bytes name, rdzv_bytes value, rdzv_error *why) {
  (void)name, (void)value, (void)why;
  ++*(int *)user;
  return 0;
}

/* Asked in another process: a process does not see its own locks. */
static bool is_locked(void) {
  char path[128];
  snprintf(path, sizeof path, "%s/state.db", state);
  const pid_t pid = fork();
  if (pid == 0) {
    struct flock lock = {.l_type = F_WRLCK};
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    _exit(fd < 0 || fcntl(fd, F_GETLK, &lock) < 0 ? 2 : lock.l_type != F_UNLCK);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
  return WEXITSTATUS(status) == 1;
}

static void a_second_open_in_the_same_process_leaves_the_lock(void **unused) {
  (void)unused;
  struct keep *second;
  assert_true(is_locked());
  assert_error(keep_open_folder(state, &second, &error), RDZV_E_IN_USE, &error, "in use by another server");
  assert_true(is_locked());
}

static void a_commit_to_a_folder_that_was_moved_does_not_count(void **unused) {
  (void)unused;
  assert_code(commit("a"), 0);
  assert_code(keep_room(keep, &error), 0);
  assert_int_equal(rename(state, other), 0);
  assert_error(commit("b"), RDZV_E_IO, &error, "was deleted or moved");
  assert_error(keep_room(keep, &error), RDZV_E_IO, &error, state);
  assert_int_equal(rename(other, state), 0);
  assert_code(keep_room(keep, &error), 0);
  assert_code(commit("b"), 0);
}

/* The log of the new folder has its commit: the old keep must not delete it by its name. */
static void a_folder_that_was_made_anew_is_left_alone(void **unused) {
  (void)unused;
  struct keep *first = keep;
  assert_code(commit("a"), 0);
  assert_int_equal(rename(state, other), 0);
  assert_code(keep_open_folder(state, &keep, &error), 0);
  assert_code(commit("b"), 0);
  struct keep *second = keep;
  keep = first;
  assert_error(keep_room(keep, &error), RDZV_E_STALE, &error, "another state is in");
  assert_error(commit("c"), RDZV_E_STALE, &error, "another state is in");
  keep_close(first);
  keep = second;
  assert_code(commit("d"), 0);
  char path[128];
  snprintf(path, sizeof path, "%s/state.db-wal", state);
  assert_int_equal(access(path, F_OK), 0);
}

static void a_lost_log_is_noticed_and_folded_at_the_end(void **unused) {
  (void)unused;
  char path[128];
  snprintf(path, sizeof path, "%s/state.db-wal", state);
  assert_code(commit("a"), 0);
  assert_int_equal(unlink(path), 0);
  assert_error(keep_room(keep, &error), RDZV_E_IO, &error, "state.db-wal in");
  keep_close(keep);
  keep = NULL;
  int records = 0;
  assert_code(keep_open_folder(state, &keep, &error), 0);
  assert_code(keep_load(keep, count_one, &records, &error), 0);
  assert_int_equal(records, 1);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(a_second_open_in_the_same_process_leaves_the_lock),
      TEST(a_commit_to_a_folder_that_was_moved_does_not_count),
      TEST(a_folder_that_was_made_anew_is_left_alone),
      TEST(a_lost_log_is_noticed_and_folded_at_the_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
