/* SPDX-License-Identifier: BSD-3-Clause */
/* The store in a file: what the machine refuses. */
#include "file_scene.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static void write_to_a_full_file(void) {
  char big[4096] = {0};
  signal(SIGXFSZ, SIG_IGN);
  rdzv_store *store = open_store(LONG_MS);
  set(store, "first", "1");
  const rlim_t size = (rlim_t)file_size();
  for (rlim_t room = 0; room < 64; room += 7) { /* from no byte to a part of the record */
    rdzv_error error = {0};
    const struct rlimit limit = {size + room, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(rdzv_store_set(store, rdzv_str("big"), (rdzv_bytes){big, sizeof big}, &error) == RDZV_E_NO_SPACE);
    CHECK(strstr(error.message, path) && strstr(error.message, "File too large"));
    CHECK((rlim_t)file_size() == size);
    CHECK(!is_there(store, "big") && is_value(store, "first", "1"));
  }
  const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
  CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
  CHECK(rdzv_store_set(store, rdzv_str("big"), (rdzv_bytes){big, sizeof big}, NULL) == 0);
  CHECK(is_there(store, "big") && is_value(store, "first", "1"));
  rdzv_store_free(store);
}

static void test_a_full_disk_leaves_nothing_half_and_loses_nothing(void **state) {
  (void)state;
  join_child(start_child(write_to_a_full_file));
}

static void test_a_missing_directory_is_told_when_opening(void **state) {
  (void)state;
  rdzv_store *store;
  char name[300];
  snprintf(name, sizeof name, "%s/none/store", folder);
  assert_fails(rdzv_store_open_file(name, NULL, &store, &error), RDZV_E_IO, "cannot open '", name,
               "': its directory does not exist");
}

static void test_what_is_no_regular_file_is_told_when_opening(void **state) {
  (void)state;
  rdzv_store *store;
  assert_fails(rdzv_store_open_file(folder, NULL, &store, &error), RDZV_E_IO, folder, "': Is a directory");
  assert_int_equal(mkfifo(path, 0644), 0);
  assert_fails(rdzv_store_open_file(path, NULL, &store, &error), RDZV_E_IO, path, "': not a regular file");
  assert_fails(rdzv_store_open_file("", NULL, &store, &error), RDZV_E_INVALID, "empty");
}

static void open_without_permission(void) {
  rdzv_store *store;
  rdzv_error error = {0};
  CHECK(geteuid() != 0 || setuid(65534) == 0);
  CHECK(rdzv_store_open_file(path, NULL, &store, &error) == RDZV_E_IO);
  CHECK(strstr(error.message, "cannot open '") && strstr(error.message, "': Permission denied"));
}

static void test_a_file_without_permission_is_told_when_opening(void **state) {
  (void)state;
  write_file(path, "", 0);
  assert_int_equal(chmod(path, 0), 0);
  assert_int_equal(chmod(folder, 0755), 0);
  join_child(start_child(open_without_permission));
}

/* From now on flock fails as on an NFS mount without a lock server. */
static void forbid_locks(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_flock, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOLCK),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void write_without_locks(void) {
  rdzv_error error = {0};
  rdzv_store *store = open_store(LONG_MS);
  forbid_locks();
  CHECK(rdzv_store_set(store, rdzv_str("a"), rdzv_str("1"), &error) == RDZV_E_IO);
  CHECK(strstr(error.message, "cannot lock '") && strstr(error.message, ": No locks available"));
  rdzv_store_free(store);
}

static void test_a_file_system_without_locks_is_told(void **state) {
  (void)state;
  join_child(start_child(write_without_locks));
}

static void test_a_long_path_does_not_push_the_cause_out_of_the_message(void **state) {
  (void)state;
  rdzv_store *store;
  char name[2000];
  memset(name, '/', sizeof name);
  snprintf(name + 1500, sizeof name - 1500, "%s/none/store", folder);
  assert_fails(rdzv_store_open_file(name, NULL, &store, &error), RDZV_E_IO, "'…/",
               "/none/store': its directory does not");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_a_full_disk_leaves_nothing_half_and_loses_nothing),
      TEST(test_a_missing_directory_is_told_when_opening),
      TEST(test_what_is_no_regular_file_is_told_when_opening),
      TEST(test_a_file_without_permission_is_told_when_opening),
      TEST(test_a_file_system_without_locks_is_told),
      TEST(test_a_long_path_does_not_push_the_cause_out_of_the_message),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
