/* SPDX-License-Identifier: BSD-3-Clause */
/* A server in this process, with its state in etcd, that is not the active one any more: it stands by again. */
#include "etcd3_scene.h"
#include "live.h"

#include <signal.h>
#include <stdatomic.h>

#define PREFIX "/embedded"

static rdzv_error error;
static atomic_int stepped_back, failed_tries; /* how often the log said so */

static void note_line(void *user, rdzv_log_level level, const char *line) {
  (void)user, (void)level;
  if (strstr(line, "stopped answering")) atomic_fetch_add(&stepped_back, 1);
  if (strstr(line, "cannot become the active server")) atomic_fetch_add(&failed_tries, 1);
}

/* What it names is gone when it returns: everything is copied. */
static rdzv_server *open_server(void) {
  char endpoint[64], prefix[] = PREFIX;
  snprintf(endpoint, sizeof endpoint, "%s", rdzv_etcd_process_endpoint(process));
  rdzv_log log = {.size = sizeof log, .write = note_line, .level = RDZV_LOG_WARNING};
  rdzv_etcd_options where = {.size = sizeof where, .endpoints = endpoint, .read_timeout_ms = 1000};
  const rdzv_server_options options = {.size = sizeof options,
                                       .port = RDZV_ANY_PORT,
                                       .log = &log,
                                       .state_etcd = &where,
                                       .state_prefix = prefix,
                                       .state_lease_ms = 2000};
  rdzv_server *server;
  if (rdzv_server_open(&options, &server, &error) < 0) fail_msg("%s", error.message);
  memset(endpoint, 'x', sizeof endpoint - 1);
  memset(prefix, 'x', sizeof prefix - 1);
  memset(&where, 0, sizeof where);
  return server;
}

/* Another server could be active from here on. */
static void depose(void) {
  const struct etcd_call call = {deadline_after(SOON_MS), NULL, &error};
  const struct etcd3_delete what = {.keys = {.key = rdzv_str(PREFIX "/active")}};
  struct etcd3_reply reply;
  if (etcd3_delete(etcd, &what, ETCD3_REPEAT_FREELY, &call, &reply) != 0) fail_msg("%s", error.message);
  etcd3_reply_free(&reply);
}

static void a_deposed_server_serves_again_at_its_port(void **state) {
  (void)state;
  rdzv_server *server = open_server();
  const int port = rdzv_server_port(server);
  assert_code(rdzv_server_start(server, &error), 0);
  rdzv_store *store = store_of(server);
  must_set(store, "first", "1");
  for (int i = 1; i <= 3; i++) {
    depose();
    must_set(store, "k", "v"); /* by which the server finds out */
    assert_true(atomic_load(&stepped_back) >= i);
    assert_get(store, "first", "1");
  }
  assert_int_equal(rdzv_server_port(server), port);
  rdzv_store_free(store);
  rdzv_server_free(server);
}

static void await_more(atomic_int *counter, int than) {
  const struct timespec moment = {0, 1000000};
  for (const int64_t until = live_now_ms() + SOON_MS; atomic_load(counter) <= than; nanosleep(&moment, NULL))
    assert_true(live_now_ms() < until);
}

/* The child of the guard. */
static pid_t etcd_pid(void) {
  char path[64];
  long pid = 0;
  const int guard = (int)rdzv_etcd_process_pid(process);
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", guard, guard);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%ld", &pid), 1);
  fclose(file);
  return (pid_t)pid;
}

/* The lease ends, and the first tries to get another one fail, too. */
static void a_server_outlives_a_long_pause_of_etcd(void **state) {
  (void)state;
  rdzv_server *server = open_server();
  assert_code(rdzv_server_start(server, &error), 0);
  rdzv_store *store = store_of(server);
  must_set(store, "first", "1");
  const int before = atomic_load(&stepped_back), tries = atomic_load(&failed_tries);
  const pid_t pid = etcd_pid();
  assert_int_equal(kill(pid, SIGSTOP), 0);
  await_more(&stepped_back, before);
  await_more(&failed_tries, tries);
  assert_int_equal(kill(pid, SIGCONT), 0);
  assert_get(store, "first", "1");
  rdzv_store_free(store);
  rdzv_server_free(server);
}

static void *run_server(void *argument) {
  static int result;
  rdzv_error own;
  result = rdzv_server_run(argument, &own);
  return &result;
}

/* Also in the middle of stepping back. */
static void a_stop_ends_it_whatever_it_does(void **state) {
  (void)state;
  for (int i = 0; i < 12; i++) {
    rdzv_server *server = open_server();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_server, server), 0);
    rdzv_store *store = store_of(server);
    must_set(store, "k", "v");
    rdzv_store_free(store);
    const int before = atomic_load(&stepped_back);
    depose();
    store = store_of(server);
    if (i % 2 == 0) must_set(store, "k", "w"); /* else the stop comes first */
    const struct timespec moment = {0, 100000 * (i % 5)};
    nanosleep(&moment, NULL);
    assert_true(i % 2 != 0 || atomic_load(&stepped_back) > before);
    rdzv_server_stop(server);
    void *result;
    pthread_join(thread, &result);
    assert_code(*(int *)result, 0);
    rdzv_store_free(store);
    rdzv_server_free(server);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_deposed_server_serves_again_at_its_port),
      cmocka_unit_test(a_server_outlives_a_long_pause_of_etcd),
      cmocka_unit_test(a_stop_ends_it_whatever_it_does),
  };
  return cmocka_run_group_tests(tests, start_etcd, stop_etcd);
}
