/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine of --state-etcd on a real etcd: what is committed is there for the next server, whatever happened to this
 * one, and a server that is not the active one writes nothing. */
#include "base/error.h"
#include "base/wait/thread.h"
#include "etcd/v3/v3.h"
#include "keep/etcd/names.h"
#include "no_sync.h"
#include "proxy.h"
#include "unit.h"

#include <fcntl.h>
#include <ftw.h>
#include <rdzv/etcd.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { PATIENCE_MS = 60000, LEASE_MS = 2000, MOST = 4096 };

static struct proxy proxy; /* to etcd, which names no other way to it */
static struct etcd3 *etcd;
static rdzv_error error;
static pid_t process;
static char direct[32], folder[] = "/tmp/rdzv-keep-XXXXXX";

#define MUST(call)                                                       \
  do {                                                                   \
    const int code_ = (call);                                            \
    if (code_ != 0) fail_msg("%s: %d, %s", #call, code_, error.message); \
  } while (0)

/* A port that no outgoing connection is given by chance. */
static int free_port(void) {
  for (;;) {
    const int port = 10000 + rand() % 22000;
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int bound = bind(fd, (const struct sockaddr *)&address, sizeof address);
    close(fd);
    if (bound == 0) return port;
  }
}

static pid_t start_etcd(void) {
  char url[64], advertised[64], peer[64], cluster[80];
  snprintf(peer, sizeof peer, "http://127.0.0.1:%d", free_port());
  snprintf(cluster, sizeof cluster, "default=%s", peer);
  snprintf(url, sizeof url, "http://%s", direct);
  snprintf(advertised, sizeof advertised, "http://%s", proxy.endpoint);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const int null = open("/dev/null", O_RDWR);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  no_sync();
  dup2(null, STDOUT_FILENO);
  dup2(null, STDERR_FILENO);
  execlp("etcd", "etcd", "--data-dir", folder, "--listen-client-urls", url, "--advertise-client-urls", advertised,
         "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster, (char *)NULL);
  _exit(127);
}

static int set_up(void **state) {
  (void)state;
  struct timespec now;
  struct etcd_client *client;
  struct etcd3_status status;
  clock_gettime(CLOCK_REALTIME, &now);
  srand((unsigned)(now.tv_nsec ^ getpid()));
  const int port = free_port();
  if (!mkdtemp(folder)) return -1;
  proxy_start(&proxy, port);
  snprintf(direct, sizeof direct, "127.0.0.1:%d", port);
  process = start_etcd();
  const rdzv_etcd_options where = {.size = sizeof where, .endpoints = direct};
  const struct etcd_call call = {deadline_after(PATIENCE_MS), NULL, &error};
  if (etcd_open(&where, &client, &error) < 0 || etcd3_open(client, &etcd, &error) < 0) return -1;
  return etcd3_status(etcd, &call, &status) == 0 ? 0 : (print_error("%s\n", error.message), -1);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *walk) {
  (void)info, (void)kind, (void)walk;
  return remove(path);
}

static int tear_down(void **state) {
  (void)state;
  etcd3_close(etcd);
  proxy_end(&proxy);
  kill(process, SIGKILL);
  waitpid(process, NULL, 0);
  return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- etcd, as others see it ----------------------------------------------------------------------------------- */

static struct etcd_call call_of(void) { return (struct etcd_call){deadline_after(PATIENCE_MS), NULL, &error}; }

static void put(const char *key, const char *value) {
  const struct etcd_call call = call_of();
  const struct etcd3_put what = {rdzv_str(key), rdzv_str(value), 0, false};
  MUST(etcd3_put(etcd, &what, ETCD3_REPEAT_FREELY, &call, NULL));
}

static void take_away(const char *key) {
  const struct etcd_call call = call_of();
  const struct etcd3_delete what = {.keys = {.key = rdzv_str(key)}};
  struct etcd3_reply reply;
  MUST(etcd3_delete(etcd, &what, ETCD3_REPEAT_FREELY, &call, &reply));
  assert_int_equal(reply.results[0].count, 1);
  etcd3_reply_free(&reply);
}

static struct etcd3_reply look(const char *prefix) {
  const struct etcd_call call = call_of();
  char end[300];
  const struct etcd3_range range = {.keys = etcd3_prefix(rdzv_str(prefix), end)};
  struct etcd3_reply reply;
  MUST(etcd3_range(etcd, &range, &call, &reply));
  return reply;
}

static size_t count_keys(const char *prefix) {
  struct etcd3_reply reply = look(prefix);
  const size_t count = reply.results[0].kv_count;
  etcd3_reply_free(&reply);
  return count;
}

/* ---- keeps ---------------------------------------------------------------------------------------------------- */

struct standby {
  const char *prefix, *address;
  int64_t lease_ms; /* 0: LEASE_MS */
  char told[64];
  atomic_int waits;
  struct keep *keep;
  int result;
  rdzv_error error;
};

static void note(void *user, const char *active) {
  struct standby *standby = user;
  snprintf(standby->told, sizeof standby->told, "%s", active ? active : "none");
  atomic_fetch_add(&standby->waits, 1);
}

static int try_open(struct standby *standby) {
  const rdzv_etcd_options where = {.size = sizeof where, .endpoints = proxy.endpoint, .read_timeout_ms = PATIENCE_MS};
  const struct keep_etcd_options options = {.etcd = &where,
                                            .prefix = standby->prefix,
                                            .address = standby->address ? standby->address : "127.0.0.1:1",
                                            .lease_ms = standby->lease_ms ? standby->lease_ms : LEASE_MS,
                                            .told = note,
                                            .user = standby};
  int result = keep_new_etcd(&options, &standby->keep, &standby->error);
  if (result < 0) return result;
  result = keep_enter_etcd(standby->keep, &standby->error);
  if (result < 0) keep_close(standby->keep);
  return result;
}

static struct keep *open_with_lease(const char *prefix, int64_t lease_ms) {
  struct standby standby = {.prefix = prefix, .lease_ms = lease_ms};
  if (try_open(&standby) != 0) fail_msg("open: %s", standby.error.message);
  return standby.keep;
}

/* It does not lose its lease, however busy the machine is. */
static struct keep *open_keep(const char *prefix) { return open_with_lease(prefix, PATIENCE_MS); }

/* The end of its lease can be waited for. */
static struct keep *open_briefly(const char *prefix) { return open_with_lease(prefix, LEASE_MS); }

static void *wait_in_thread(void *argument) {
  struct standby *standby = argument;
  standby->result = try_open(standby);
  return NULL;
}

/* ---- batches -------------------------------------------------------------------------------------------------- */

/* Record i has 21 bytes as its name, in the order of i, and `len` bytes that tell i and the generation. */
static uint8_t names[MOST][KEEP_MAX_NAME];
static struct keep_change changes[MOST];
static char *values[MOST];

static void fill(size_t from, size_t count, size_t len, char generation) {
  assert_true(from + count <= MOST);
  for (size_t i = from; i < from + count; i++) {
    memset(names[i], 0xff, sizeof names[i]);
    names[i][0] = 1;
    names[i][1] = (uint8_t)(i >> 8);
    names[i][2] = (uint8_t)i;
    free(values[i]);
    values[i] = malloc(len + 1);
    assert_non_null(values[i]);
    memset(values[i], generation, len);
    values[i][0] = (char)i;
    const size_t half = len / 3;
    changes[i] = (struct keep_change){
        .name = {names[i], KEEP_MAX_NAME}, .head = {values[i], half}, .body = {values[i] + half, len - half}};
  }
}

static void remove_all(size_t from, size_t count) {
  for (size_t i = from; i < from + count; i++) changes[i] = (struct keep_change){.name = changes[i].name, .gone = true};
}

struct found {
  size_t count, next;
};

static int take(void *user, rdzv_bytes name, rdzv_bytes value, rdzv_error *why) {
  struct found *found = user;
  (void)why;
  while (found->next < MOST && (!changes[found->next].name.data || changes[found->next].gone)) found->next++;
  assert_true(found->next < MOST);
  const struct keep_change *expected = &changes[found->next];
  assert_memory_equal(name.data, expected->name.data, KEEP_MAX_NAME);
  assert_int_equal(value.len, expected->head.len + expected->body.len);
  assert_memory_equal(value.data, values[found->next], value.len);
  found->next++;
  found->count++;
  return 0;
}

/* The place has exactly what `changes` says. */
static void check_load(struct keep *keep) {
  struct found found = {0};
  size_t expected = 0;
  MUST(keep_load(keep, take, &found, &error));
  for (size_t i = 0; i < MOST; i++) expected += changes[i].name.data && !changes[i].gone;
  assert_int_equal(found.count, expected);
}

static int forget(void **state) {
  (void)state;
  for (size_t i = 0; i < MOST; i++) {
    free(values[i]);
    values[i] = NULL;
    changes[i] = (struct keep_change){0};
  }
  return 0;
}

static void commit(struct keep *keep, size_t from, size_t count) {
  MUST(keep_commit(keep, changes + from, count, &error));
}

/* ---- what is committed is there ------------------------------------------------------------------------------- */

static void test_a_new_place_is_empty(void **state) {
  (void)state;
  struct keep *keep = open_keep("/new");
  check_load(keep);
  assert_true(keep_holds(keep));
  keep_close(keep);
  assert_int_equal(count_keys("/new/active"), 0); /* the lease is given back */
}

static void test_batches_of_all_sizes_survive(void **state) {
  (void)state;
  static const struct {
    size_t from, count, len;
  } batches[] = {{0, 1, 1},       {0, 127, 30},      {0, 128, 40},   {10, 1, 512 * 1024},      {200, 4, 512 * 1024},
                 {300, 2000, 90}, {400, 130, 20000}, {2, 126, 8200}, {2301, 1, KEEP_MAX_VALUE}};
  struct keep *keep = open_keep("/sizes");
  for (size_t i = 0; i < COUNT_OF(batches); i++) {
    fill(batches[i].from, batches[i].count, batches[i].len, (char)('a' + i));
    commit(keep, batches[i].from, batches[i].count);
    if (i % 2) keep_rest(keep);
  }
  check_load(keep);
  keep_close(keep);
  keep = open_keep("/sizes"); /* the last batch is not in place yet */
  check_load(keep);
  remove_all(300, 1500);
  commit(keep, 300, 1500);
  remove_all(0, 5);
  commit(keep, 0, 5);
  keep_close(keep);
  keep = open_keep("/sizes");
  check_load(keep);
  assert_int_equal(count_keys("/sizes/staged/"), 0);
  keep_close(keep);
}

/* What a crash in the middle leaves behind. */
static void test_a_staged_batch_counts_as_a_whole_or_not(void **state) {
  (void)state;
  struct keep *keep = open_keep("/staged");
  fill(0, 300, 50, 'a');
  commit(keep, 0, 300);
  assert_int_equal(count_keys("/staged/staged/"), 1); /* it counts, and is not in place */
  assert_int_equal(count_keys("/staged/records/"), 0);
  keep_close(keep);
  keep = open_keep("/staged");
  check_load(keep);
  keep_close(keep);
  put("/staged/staged/0000000000000099/00000000", "a batch that was never finished");
  keep = open_keep("/staged");
  check_load(keep);
  assert_int_equal(count_keys("/staged/staged/"), 0);
  keep_close(keep);
}

/* ---- one server at a time ------------------------------------------------------------------------------------- */

static void test_a_standby_waits_and_takes_over(void **state) {
  (void)state;
  struct standby standby = {.prefix = "two", .address = "10.0.0.2:29400"};
  struct keep *keep = open_briefly("/two/");
  pthread_t thread;
  fill(0, 3, 10, 'x');
  commit(keep, 0, 3);
  assert_int_equal(pthread_create(&thread, NULL, wait_in_thread, &standby), 0);
  const deadline until = deadline_after(PATIENCE_MS);
  while (atomic_load(&standby.waits) == 0 && deadline_left(until) > 0) flag_pause(NULL, deadline_after(5));
  assert_string_equal(standby.told, "127.0.0.1:1");
  fill(1, 1, 20, 'y'); /* the first one goes on meanwhile */
  commit(keep, 1, 1);
  keep_close(keep);
  pthread_join(thread, NULL);
  if (standby.result != 0) fail_msg("%s", standby.error.message);
  assert_string_equal(standby.told, "none");
  check_load(standby.keep);
  struct etcd3_reply reply = look("/two/active");
  assert_non_null(strstr(reply.results[0].kvs[0].value.data, "\"address\":\"10.0.0.2:29400\",\"host\":\""));
  etcd3_reply_free(&reply);
  keep_close(standby.keep);
}

/* Its key went, and another came, while it did not look. */
static void test_a_deposed_server_writes_nothing(void **state) {
  (void)state;
  struct keep *first = open_briefly("/deposed");
  fill(0, 200, 10, 'x');
  commit(first, 0, 200);
  keep_rest(first);
  take_away("/deposed/active");
  struct keep *second = open_briefly("/deposed");
  fill(0, 1, 11, 'y');
  commit(second, 0, 1);
  static const size_t sizes[] = {1, 200}; /* at once, and staged */
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    const struct keep_change wrong = changes[5];
    changes[5].body.len--;
    const int code = keep_commit(first, changes, sizes[i], &error);
    changes[5] = wrong;
    assert_error(code, RDZV_E_STALE, &error, "no longer the active server of /deposed in etcd at 127.0.0.1");
  }
  assert_false(keep_holds(first));
  check_load(second);
  assert_true(keep_holds(second));
  assert_int_equal(count_keys("/deposed/staged/"), 0);
  keep_close(first); /* does not take the other's key away */
  assert_int_equal(count_keys("/deposed/active"), 1);
  keep_close(second);
}

/* Also where no other server has come yet. */
static void test_a_server_without_its_key_writes_nothing(void **state) {
  (void)state;
  struct keep *keep = open_briefly("/gone");
  fill(0, 1, 10, 'x');
  take_away("/gone/active");
  assert_error(keep_commit(keep, changes, 1, &error), RDZV_E_STALE, &error, "no longer the active server");
  assert_error(keep_commit(keep, changes, 1, &error), RDZV_E_STALE, &error, "no longer the active server");
  assert_int_equal(count_keys("/gone/records/"), 0);
  keep_close(keep);
}

/* etcd is silent for longer than the lease: the server knows it by its own clock, and stays lost when etcd is back. */
static void test_a_server_cut_off_knows_that_it_lost(void **state) {
  (void)state;
  struct keep *keep = open_briefly("/cut");
  fill(0, 1, 10, 'x');
  commit(keep, 0, 1);
  assert_true(keep_holds(keep));
  proxy.silent = true;
  const deadline until = deadline_after(PATIENCE_MS);
  while (keep_holds(keep) && deadline_left(until) > 0) flag_pause(NULL, deadline_after(10));
  assert_false(keep_holds(keep));
  assert_error(keep_commit(keep, changes, 1, &error), RDZV_E_STALE, &error, "its lease has ended");
  proxy.silent = false;
  assert_false(keep_holds(keep));
  assert_error(keep_commit(keep, changes, 1, &error), RDZV_E_STALE, &error, "no longer the active server");
  struct keep *next = open_briefly("/cut");
  check_load(next);
  keep_close(next);
  keep_close(keep);
}

/* ---- lost answers --------------------------------------------------------------------------------------------- */

/* The connection is cut before or behind a request, now and then, while batches are committed. */
static void stall(bool silent, int64_t until) {
  const struct timespec moment = {0, 1000000};
  atomic_store(&proxy.silent, silent);
  while (live_now_ms() < until) nanosleep(&moment, NULL);
  atomic_store(&proxy.silent, false);
}

/* Renewals are 2 s apart, and the lease counts for 7.6 s. The first renewal is sent at 2 s and answered at 6 s. So the
 * next one must be sent before 7.5 s: what is left ends at 9.6 s, in the second stall. */
static void test_stalls_that_follow_each_other_do_not_end_the_lease(void **state) {
  (void)state;
  enum { LONG_MS = 8000, STALL_END = 6000, GAP_END = 7500, SECOND_END = 10000 };
  struct standby standby = {.prefix = "/stalls", .lease_ms = LONG_MS};
  const int64_t began = live_now_ms();
  if (try_open(&standby) != 0) fail_msg("open: %s", standby.error.message);
  struct keep *keep = standby.keep;
  stall(true, began + STALL_END);
  stall(false, began + GAP_END);
  stall(true, began + SECOND_END);
  assert_true(keep_holds(keep));
  fill(0, 1, 10, 'a');
  MUST(keep_commit(keep, changes, 1, &error));
  keep_close(keep);
}

static void test_lost_requests_and_answers_do_no_harm(void **state) {
  (void)state;
  struct keep *keep = open_keep("/lost");
  for (size_t i = 0; i < 24; i++) {
    const size_t count = i % 3 == 2 ? 150 : i % 7 + 1;
    fill(i, count, 10 + i, (char)('a' + i));
    proxy.cut = i % 2 ? CUT_ANSWER : CUT_REQUEST;
    commit(keep, i, count);
  }
  keep_rest(keep);
  check_load(keep);
  keep_close(keep);
  keep = open_keep("/lost");
  check_load(keep);
  keep_close(keep);
}

/* ---- what is not ours ----------------------------------------------------------------------------------------- */

static void expect_refusal(const char *prefix, int code, const char *part) {
  struct standby standby = {.prefix = prefix};
  const size_t before = count_keys(prefix);
  assert_error(try_open(&standby), code, &standby.error, part);
  assert_int_equal(count_keys(prefix), before); /* nothing is changed */
}

static void test_what_is_not_ours_is_left_alone(void **state) {
  (void)state;
  put("/foreign/config", "1");
  expect_refusal("/foreign", RDZV_E_UNSUPPORTED, "there are 1 keys below '/foreign/' in etcd that rdzv did not write");
  put("/newer/batch", "{\"format\":2,\"number\":1}");
  expect_refusal("/newer", RDZV_E_UNSUPPORTED, "it has format 2");
  put("/damaged/batch", "{\"format\":1}");
  expect_refusal("/damaged", RDZV_E_CORRUPT, "not what this program writes");
  put("/part/batch", "{\"format\":1,\"number\":7,\"by\":1,\"staged\":2}");
  expect_refusal("/part", RDZV_E_CORRUPT, "'/part/staged/0000000000000007/00000000' in etcd is gone");
  struct standby standby = {.prefix = "//"};
  assert_error(try_open(&standby), RDZV_E_INVALID, &standby.error, "the prefix in etcd has 1 to 199 characters");
}

/* ---- keys that somebody else deletes or changes ---------------------------------------------------------------- */

static void test_a_marker_that_is_deleted_or_changed_is_written_again(void **state) {
  (void)state;
  struct keep *keep = open_keep("/marker");
  fill(0, 2, 10, 'a');
  commit(keep, 0, 1);
  take_away("/marker/batch");
  commit(keep, 1, 1);
  fill(2, 300, 50, 'b');
  commit(keep, 2, 300); /* staged: it is put in place later, */
  take_away("/marker/batch");
  fill(302, 3, 10, 'c');
  commit(keep, 302, 1); /* by this one */
  put("/marker/batch", "nonsense");
  commit(keep, 303, 1);
  put("/marker/batch", "{\"format\":1,\"number\":7,\"by\":1,\"staged\":0}");
  commit(keep, 304, 1);
  keep_close(keep);
  keep = open_keep("/marker");
  check_load(keep);
  keep_close(keep);
}

static void test_a_place_without_its_marker_is_loaded(void **state) {
  (void)state;
  struct keep *keep = open_keep("/unmarked");
  fill(0, 3, 10, 'a');
  commit(keep, 0, 3);
  keep_close(keep);
  take_away("/unmarked/batch");
  keep = open_keep("/unmarked");
  check_load(keep);
  keep_close(keep);
  take_away("/unmarked/batch");
  put("/unmarked/staged/0000000000000099/00000000", "does it count?");
  expect_refusal("/unmarked", RDZV_E_UNSUPPORTED, "there are 4 keys below '/unmarked/'");
}

/* A put without a lease takes the lease off the key. No server holds such a key, so it stands in nobody's way. */
static void test_an_active_key_without_a_lease_is_nobodys(void **state) {
  (void)state;
  struct keep *keep = open_keep("/put");
  fill(0, 2, 10, 'a');
  commit(keep, 0, 1);
  put("/put/active", "nonsense");
  assert_error(keep_commit(keep, changes + 1, 1, &error), RDZV_E_STALE, &error, "no longer the active server");
  keep_close(keep);
  keep = open_keep("/put");
  commit(keep, 1, 1);
  check_load(keep);
  keep_close(keep);
}

static void test_a_staged_part_that_is_gone_is_damage(void **state) {
  (void)state;
  struct keep *keep = open_keep("/lost");
  fill(0, 300, 50, 'a');
  commit(keep, 0, 300);
  struct etcd3_reply reply = look("/lost/staged/");
  take_away((const char *)reply.results[0].kvs[0].key.data);
  etcd3_reply_free(&reply);
  assert_error(keep_commit(keep, changes, 1, &error), RDZV_E_CORRUPT, &error, "in etcd is gone");
  keep_close(keep);
}

static void test_damaged_records_are_found(void **state) {
  (void)state;
  struct keep *keep = open_keep("/bad");
  struct found found = {0};
  put("/bad/records/0g", "x");
  assert_error(keep_load(keep, take, &found, &error), RDZV_E_CORRUPT, &error, "is not the name of a record");
  take_away("/bad/records/0g");
  put("/bad/records/01", "");
  assert_error(keep_load(keep, take, &found, &error), RDZV_E_CORRUPT, &error, "has 0 bytes");
  keep_close(keep);
}

static void *cancel_soon(void *argument) {
  struct standby *standby = argument;
  const deadline until = deadline_after(PATIENCE_MS);
  while (atomic_load(&standby->waits) == 0 && deadline_left(until) > 0) flag_pause(NULL, deadline_after(5));
  keep_cancel(standby->keep);
  return NULL;
}

static void test_cancel_ends_the_wait(void **state) {
  (void)state;
  struct keep *keep = open_keep("/wait");
  struct standby standby = {.prefix = "/wait"};
  pthread_t thread;
  const rdzv_etcd_options where = {.size = sizeof where, .endpoints = proxy.endpoint};
  const struct keep_etcd_options options = {
      .etcd = &where, .prefix = "/wait", .address = "127.0.0.1:2", .told = note, .user = &standby};
  MUST(keep_new_etcd(&options, &standby.keep, &error));
  assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &standby), 0);
  assert_error(keep_enter_etcd(standby.keep, &error), RDZV_E_CANCELED, &error,
               "cannot become the active server of /wait");
  pthread_join(thread, NULL);
  keep_close(standby.keep);
  assert_true(keep_holds(keep));
  keep_close(keep);
}

static void test_cancel_ends_a_commit(void **state) {
  (void)state;
  struct keep *keep = open_keep("/cancel");
  fill(0, 1, 10, 'x');
  proxy.silent = true;
  keep_cancel(keep);
  assert_error(keep_commit(keep, changes, 1, &error), RDZV_E_CANCELED, &error, "cannot write to /cancel");
  proxy.silent = false;
  keep_close(keep);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_a_new_place_is_empty, forget),
      cmocka_unit_test_teardown(test_batches_of_all_sizes_survive, forget),
      cmocka_unit_test_teardown(test_a_staged_batch_counts_as_a_whole_or_not, forget),
      cmocka_unit_test_teardown(test_a_standby_waits_and_takes_over, forget),
      cmocka_unit_test_teardown(test_a_deposed_server_writes_nothing, forget),
      cmocka_unit_test_teardown(test_a_server_without_its_key_writes_nothing, forget),
      cmocka_unit_test_teardown(test_a_server_cut_off_knows_that_it_lost, forget),
      cmocka_unit_test_teardown(test_stalls_that_follow_each_other_do_not_end_the_lease, forget),
      cmocka_unit_test_teardown(test_lost_requests_and_answers_do_no_harm, forget),
      cmocka_unit_test_teardown(test_what_is_not_ours_is_left_alone, forget),
      cmocka_unit_test_teardown(test_a_marker_that_is_deleted_or_changed_is_written_again, forget),
      cmocka_unit_test_teardown(test_a_place_without_its_marker_is_loaded, forget),
      cmocka_unit_test_teardown(test_a_staged_part_that_is_gone_is_damage, forget),
      cmocka_unit_test_teardown(test_an_active_key_without_a_lease_is_nobodys, forget),
      cmocka_unit_test_teardown(test_damaged_records_are_found, forget),
      cmocka_unit_test_teardown(test_cancel_ends_the_wait, forget),
      cmocka_unit_test_teardown(test_cancel_ends_a_commit, forget),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
