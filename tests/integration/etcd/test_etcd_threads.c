/* SPDX-License-Identifier: BSD-3-Clause */
/* The etcd store in one process: threads, calls that wait and are woken or canceled, and a client that many share. */
#include "etcd/v2/v2.h"
#include "no_sync.h"
#include "store_calls.h"

#include <fcntl.h>
#include <rdzv/etcd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { THREADS = 6, TIMES = 15, PROMPT_MS = 10000 };

/* ---- an etcd that ends with the test -------------------------------------------------------------------------- */

static struct {
  pid_t pid;
  char folder[32], endpoint[32];
} member;

static void exec_etcd(const char *client, const char *peer) {
  char cluster[80], data[48];
  const int nowhere = open("/dev/null", O_RDWR);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  no_sync();
  snprintf(cluster, sizeof cluster, "default=%s", peer);
  snprintf(data, sizeof data, "%s/data", member.folder);
  for (int fd = 0; fd < 3; fd++) dup2(nowhere, fd);
  execlp("etcd", "etcd", "--enable-v2", "--data-dir", data, "--listen-client-urls", client, "--advertise-client-urls",
         client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster,
         (char *)NULL);
  _exit(77);
}

static int start_etcd(void **state) {
  (void)state;
  char client[40], peer[40];
  int ports[2], fds[2];
  for (int i = 0; i < 2; i++) fds[i] = peer_listen(1, &ports[i]);
  for (int i = 0; i < 2; i++) close(fds[i]);
  strcpy(member.folder, "/tmp/rdzv-etcd-XXXXXX");
  if (!mkdtemp(member.folder)) return -1;
  snprintf(member.endpoint, sizeof member.endpoint, "127.0.0.1:%d", ports[0]);
  snprintf(client, sizeof client, "http://%s", member.endpoint);
  snprintf(peer, sizeof peer, "http://127.0.0.1:%d", ports[1]);
  member.pid = fork();
  if (member.pid == 0) exec_etcd(client, peer);
  return member.pid > 0 ? 0 : -1;
}

static int end_etcd(void **state) {
  (void)state;
  char command[64];
  kill(member.pid, SIGCONT);
  kill(member.pid, SIGKILL);
  waitpid(member.pid, NULL, 0);
  snprintf(command, sizeof command, "rm -rf %s", member.folder);
  return system(command);
}

/* When it returns, no thread of it runs any more. */
static void stop_etcd(void) {
  int status;
  assert_int_equal(kill(member.pid, SIGSTOP), 0);
  assert_int_equal(waitpid(member.pid, &status, WUNTRACED), member.pid);
  assert_true(WIFSTOPPED(status));
}

static rdzv_store *open_store(const char *prefix, int64_t timeout_ms, int cancel_fd) {
  rdzv_store *store;
  rdzv_error error;
  const rdzv_etcd_store_options options = {
      .size = sizeof options,
      .timeout_ms = timeout_ms,
      .cancel_fd = cancel_fd,
      .etcd = &(rdzv_etcd_options){
          .size = sizeof(rdzv_etcd_options), .endpoints = member.endpoint, .read_timeout_ms = 20000}};
  if (rdzv_store_open_etcd(prefix, &options, &store, &error) < 0) fail_msg("%s", error.message);
  return store;
}

/* ---- threads -------------------------------------------------------------------------------------------------- */

struct worker {
  pthread_t thread;
  rdzv_store *store;
  int64_t last;
};

static void *add_often(void *arg) {
  struct worker *worker = arg;
  for (int i = 0; i < TIMES; i++) worker->last = must_add(worker->store, "sum", 1);
  return NULL;
}

static void add_from_threads(rdzv_store *store, bool clones) {
  struct worker workers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){.store = store};
    if (clones) assert_code(rdzv_store_clone(store, &workers[i].store, NULL), 0);
    assert_int_equal(pthread_create(&workers[i].thread, NULL, add_often, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(workers[i].thread, NULL);
    if (clones) rdzv_store_free(workers[i].store);
  }
  assert_int_equal(must_add(store, "sum", 0), THREADS * TIMES);
}

static void test_no_count_is_lost_on_one_handle(void **state) {
  (void)state;
  rdzv_store *store = open_store("/one-handle", 30000, 0);
  add_from_threads(store, false);
  rdzv_store_free(store);
}

static void test_no_count_is_lost_on_clones(void **state) {
  (void)state;
  rdzv_store *store = open_store("/clones", 30000, 0);
  add_from_threads(store, true);
  rdzv_store_free(store);
}

/* ---- a barrier as PyTorch 1.13 makes it -------------------------------------------------------------------------- */

enum { BARRIER = 30 };

static void *pass_barrier(void *arg) {
  rdzv_store *store;
  rdzv_error error;
  const rdzv_etcd3_store_options options = {
      .size = sizeof options,
      .timeout_ms = 30000,
      .etcd = &(rdzv_etcd_options){
          .size = sizeof(rdzv_etcd_options), .endpoints = member.endpoint, .read_timeout_ms = 20000}};
  (void)arg;
  if (rdzv_store_open_etcd3("/barrier", &options, &store, &error) < 0) fail_msg("%s", error.message);
  must_add(store, "count", 1);
  while (must_add(store, "count", 0) < BARRIER) usleep(10000); /* as PyTorch does: the subject */
  rdzv_store_free(store);
  return NULL;
}

/* Those that are there look at the counter all the time, and must not keep the others from counting. */
static void test_who_looks_does_not_keep_others_from_adding(void **state) {
  (void)state;
  pthread_t threads[BARRIER];
  for (int i = 0; i < BARRIER; i++) assert_int_equal(pthread_create(&threads[i], NULL, pass_barrier, NULL), 0);
  for (int i = 0; i < BARRIER; i++) pthread_join(threads[i], NULL);
}

/* ---- calls that wait ------------------------------------------------------------------------------------------ */

struct waiter {
  pthread_t thread;
  rdzv_store *store;
  const char *key;
  atomic_int id; /* of the thread */
  int code;
  int64_t ended_at;
  rdzv_value value;
  rdzv_error error;
};

static void *get_it(void *arg) {
  struct waiter *waiter = arg;
  atomic_store(&waiter->id, gettid());
  waiter->code = rdzv_store_get(waiter->store, rdzv_str(waiter->key), &waiter->value, &waiter->error);
  waiter->ended_at = live_now_ms();
  return NULL;
}

static void begin_get(struct waiter *waiter, rdzv_store *store, const char *key) {
  *waiter = (struct waiter){.store = store, .key = key};
  assert_int_equal(pthread_create(&waiter->thread, NULL, get_it, waiter), 0);
}

/* How many watches etcd has, of anybody. */
static int count_watchers(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  static const char request[] = "GET /v2/stats/store HTTP/1.0\r\n\r\n";
  char answer[4096];
  size_t len = 0;
  address.sin_port = htons((uint16_t)atoi(strchr(member.endpoint, ':') + 1));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
  peer_write(fd, request, sizeof request - 1);
  for (ssize_t n = 1; n > 0 && len < sizeof answer - 1; len += (size_t)n)
    n = recv(fd, answer + len, sizeof answer - 1 - len, 0);
  close(fd);
  answer[len] = '\0';
  const char *count = strstr(answer, "\"watchers\":");
  assert_non_null(count);
  return atoi(count + strlen("\"watchers\":"));
}

static void await_watchers(int count) {
  const struct timespec moment = {0, 1000000};
  for (const int64_t until = live_now_ms() + SOON_MS; count_watchers() != count; nanosleep(&moment, NULL))
    assert_true(live_now_ms() < until);
}

static void end_get(struct waiter *waiter, int code, int64_t since) {
  pthread_join(waiter->thread, NULL);
  assert_code(waiter->code, code);
  assert_true(waiter->ended_at - since < PROMPT_MS);
  if (code == 0) rdzv_value_free(&waiter->value);
}

/* A blocked call holds nobody back, on the same handle either, and each is woken by its own key. */
static void test_blocked_gets_are_woken(void **state) {
  (void)state;
  static const char *const keys[] = {"a", "b", "c", "d"};
  rdzv_store *store = open_store("/woken", 30000, 0);
  struct waiter waiters[COUNT_OF(keys)];
  for (size_t i = 0; i < COUNT_OF(keys); i++) begin_get(&waiters[i], store, keys[i]);
  await_watchers(COUNT_OF(keys));
  for (size_t i = COUNT_OF(keys); i-- > 0;) {
    const int64_t began = live_now_ms();
    must_set(store, keys[i], "v");
    end_get(&waiters[i], 0, began);
  }
  rdzv_store_free(store);
}

static void test_cancel_of_a_blocked_get(void **state) {
  (void)state;
  rdzv_store *store = open_store("/cancel", 60000, 0);
  struct waiter waiter;
  begin_get(&waiter, store, "never");
  await_watchers(1);
  const int64_t began = live_now_ms();
  rdzv_store_cancel(store);
  end_get(&waiter, RDZV_E_CANCELED, began);
  assert_non_null(strstr(waiter.error.message, "'never'"));
  assert_code(rdzv_store_set(store, rdzv_str("k"), rdzv_str("v"), NULL), RDZV_E_CANCELED);
  rdzv_store_free(store);
}

static void test_cancel_by_a_descriptor(void **state) {
  (void)state;
  int pipes[2];
  assert_int_equal(pipe(pipes), 0);
  rdzv_store *store = open_store("/cancel-fd", 60000, pipes[0]);
  struct waiter waiter;
  begin_get(&waiter, store, "never");
  await_watchers(1);
  const int64_t began = live_now_ms();
  assert_int_equal(write(pipes[1], "x", 1), 1);
  end_get(&waiter, RDZV_E_CANCELED, began);
  rdzv_store_free(store);
  close(pipes[0]);
  close(pipes[1]);
}

/* Every call, though etcd says nothing. */
static void test_cancel_while_etcd_is_silent(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(store_rows); i++) {
    rdzv_store *store = open_store("/silent", 60000, 0);
    struct caller caller;
    call_num_keys(store, NULL); /* etcd is known to answer */
    if (can_call(store, &store_rows[i]) && store_rows[i].kind != CLONES) {
      stop_etcd();
      caller_begin(&caller, store, &store_rows[i]);
      assert_true(await_asleep(&caller.id));
      rdzv_store_cancel(store);
      caller_end_canceled(&caller, "at a silent etcd");
      kill(member.pid, SIGCONT);
    }
    rdzv_store_free(store);
  }
}

/* A get that is given little time does not take the time of a request. */
static void test_a_get_ends_by_its_deadline_while_etcd_is_silent(void **state) {
  (void)state;
  rdzv_store *store = open_store("/deadline", 60000, 0);
  must_set(store, "k", "v");
  assert_code(rdzv_store_set_timeout(store, 300, NULL), 0);
  stop_etcd();
  rdzv_value value;
  rdzv_error error;
  const int64_t began = live_now_ms();
  assert_error(rdzv_store_get(store, rdzv_str("k"), &value, &error), RDZV_E_CONNECTION, &error, "no answer");
  assert_within(began, 5000);
  kill(member.pid, SIGCONT);
  assert_get(store, "k", "v");
  rdzv_store_free(store);
}

static void test_versions(void **state) {
  (void)state;
  rdzv_store *store = open_store("/versions", 30000, 0);
  rdzv_value value;
  uint64_t first, second;
  bool swapped;
  assert_code(rdzv_store_compare_set_version(store, rdzv_str("k"), 0, rdzv_str("1"), &swapped, &value, &first, NULL),
              0);
  assert_true(swapped && first > 0);
  rdzv_value_free(&value);
  assert_code(rdzv_store_compare_set_version(store, rdzv_str("k"), 0, rdzv_str("2"), &swapped, &value, &second, NULL),
              0);
  assert_true(!swapped && second == first);
  assert_bytes(rdzv_value_bytes(&value), "1");
  rdzv_value_free(&value);
  must_set(store, "k", "3");
  assert_code(rdzv_store_wait_changed(store, rdzv_str("k"), first, 10000, &value, &second, NULL), 0);
  assert_true(second > first);
  assert_bytes(rdzv_value_bytes(&value), "3");
  rdzv_value_free(&value);
  assert_code(rdzv_store_wait_changed(store, rdzv_str("k"), second, 2000, &value, &first, NULL), RDZV_E_TIMEOUT);
  rdzv_store_free(store);
}

/* ---- the client ----------------------------------------------------------------------------------------------- */

static struct etcd_client *open_client(int64_t read_timeout_ms) {
  struct etcd_client *client;
  const rdzv_etcd_options options = {
      .size = sizeof options, .endpoints = member.endpoint, .read_timeout_ms = read_timeout_ms};
  assert_code(etcd_open(&options, &client, NULL), 0);
  return client;
}

static struct etcd_call call_for(int64_t ms, rdzv_error *error) {
  return (struct etcd_call){deadline_after(ms), NULL, error};
}

static void test_watching_too_far_back(void **state) {
  (void)state;
  struct etcd_client *client = open_client(5000);
  struct etcd_result result;
  rdzv_error error;
  const struct etcd_call call = call_for(20000, &error);
  for (int i = 0; i < 1100; i++) {
    if (etcd_v2_put(client, "/noise", &(struct etcd_put){.value = "x"}, &call, &result) != 0)
      fail_msg("%s", error.message);
    etcd_result_free(&result);
  }
  assert_int_equal(etcd_v2_watch(client, "/noise", false, 1, &call, &result), ETCD_V2_INDEX_CLEARED);
  assert_true(result.index > 1000);
  etcd_close(client);
}

static void test_directories_and_times_to_live(void **state) {
  (void)state;
  struct etcd_client *client = open_client(5000);
  struct etcd_result result;
  rdzv_error error;
  const struct etcd_call call = call_for(20000, &error);
  const struct etcd_put make = {.dir = true, .ttl = 100, .exist = ETCD_EXIST_ABSENT};
  assert_int_equal(etcd_v2_put(client, "/d", &make, &call, &result), 0);
  assert_true(result.node.dir && result.node.ttl == 100);
  etcd_result_free(&result);
  assert_int_equal(etcd_v2_put(client, "/d", &make, &call, &result), ETCD_V2_EXISTS);
  assert_int_equal(etcd_v2_put(client, "/d/k", &(struct etcd_put){.value = "a b&c=d"}, &call, &result), 0);
  etcd_result_free(&result);
  const struct etcd_put renew = {.refresh = true, .exist = ETCD_EXIST_PRESENT, .ttl = 50};
  assert_int_equal(etcd_v2_put(client, "/d/k", &renew, &call, &result), 0);
  etcd_result_free(&result);
  assert_int_equal(etcd_v2_get(client, "/d/k", ETCD_GET_QUORUM, &call, &result), 0);
  assert_string_equal(result.node.value, "a b&c=d");
  assert_int_equal(result.node.ttl, 50);
  etcd_result_free(&result);
  assert_int_equal(etcd_v2_delete(client, "/d", &(struct etcd_delete){.dir = true}, &call, &result),
                   ETCD_V2_DIR_NOT_EMPTY);
  assert_int_equal(etcd_v2_delete(client, "/d/k", &(struct etcd_delete){.prev_value = "no"}, &call, &result),
                   ETCD_V2_COMPARE_FAILED);
  assert_int_equal(etcd_v2_delete(client, "/d", &(struct etcd_delete){.recursive = true}, &call, &result), 0);
  etcd_result_free(&result);
  assert_int_equal(etcd_v2_get(client, "/d", 0, &call, &result), ETCD_V2_NOT_FOUND);
  etcd_close(client);
}

/* A write on a condition, which etcd may have got and does not answer: it is not said to have failed, and the call
 * ends. */
static void test_a_swap_at_a_silent_etcd(void **state) {
  (void)state;
  struct etcd_client *client = open_client(500);
  struct etcd_result result;
  rdzv_error error;
  struct etcd_call call = call_for(5000, &error);
  assert_int_equal(etcd_v2_put(client, "/swap", &(struct etcd_put){.value = "1"}, &call, &result), 0);
  const uint64_t index = result.node.modified;
  etcd_result_free(&result);
  stop_etcd();
  const int64_t began = live_now_ms();
  call = call_for(700, &error);
  const struct etcd_put put = {.value = "2", .prev_index = index, .unique = true};
  assert_error(etcd_v2_put(client, "/swap", &put, &call, &result), RDZV_E_OUTCOME_UNKNOWN, &error, "etcd");
  assert_within(began, 3000);
  kill(member.pid, SIGCONT);
  etcd_close(client);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_count_is_lost_on_one_handle),
      cmocka_unit_test(test_no_count_is_lost_on_clones),
      cmocka_unit_test(test_who_looks_does_not_keep_others_from_adding),
      cmocka_unit_test(test_blocked_gets_are_woken),
      cmocka_unit_test(test_cancel_of_a_blocked_get),
      cmocka_unit_test(test_cancel_by_a_descriptor),
      cmocka_unit_test(test_cancel_while_etcd_is_silent),
      cmocka_unit_test(test_a_get_ends_by_its_deadline_while_etcd_is_silent),
      cmocka_unit_test(test_versions),
      cmocka_unit_test(test_watching_too_far_back),
      cmocka_unit_test(test_directories_and_times_to_live),
      cmocka_unit_test(test_a_swap_at_a_silent_etcd),
  };
  if (system("command -v etcd >/dev/null") != 0) {
    fprintf(stderr, "SKIP: there is no etcd (Debian's etcd-server)\n");
    return 77;
  }
  return cmocka_run_group_tests(tests, start_etcd, end_etcd);
}
