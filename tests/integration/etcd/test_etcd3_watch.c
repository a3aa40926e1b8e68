/* SPDX-License-Identifier: BSD-3-Clause */
/* A watch at a server that does not keep it: each way to end or refuse one is followed by a pause, is said in the log
 * once, and leaves nothing behind. A watch that is not answered in a short time has timed out. The server is another
 * process, so that the descriptors here are the client's. */
#include "base/error.h"
#include "base/log.h"
#include "etcd/http/curl.h"
#include "etcd/v3/v3.h"
#include "live.h"

#include <dirent.h>
#include <rdzv/etcd.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* Pauses grow from 20 ms to 1 s. A busy machine makes fewer requests. */
enum { LIE_MS = 2500, MOST_REQUESTS = 30, MOST_HANDLES = 2, MOST_DESCRIPTORS = 5, CONNECTIONS = 256 };

#define HEADER "\"header\":{\"cluster_id\":\"1\",\"member_id\":\"1\",\"revision\":\"5\",\"raft_term\":\"1\"}"
#define CREATED "{\"result\":{" HEADER ",\"watch_id\":\"1\",\"created\":true}}\n"
#define OK "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"

struct lie {
  const char *name, *answer;
  bool stays; /* the connection, open */
};

static const struct lie lies[] = {
    {"an error line", OK "{\"error\":{\"grpc_code\":14,\"message\":\"etcdserver: no leader\"}}\n", false},
    {"a created watch and an error line", OK CREATED "{\"error\":{\"message\":\"etcdserver: no leader\"}}\n", true},
    {"a stream that is closed at once", OK CREATED, false},
    {"an empty stream", OK, false},
    {"a canceled watch",
     OK CREATED "{\"result\":{" HEADER ",\"watch_id\":\"1\",\"canceled\":true,\"cancel_reason\":\"so\"}}\n", true},
    {"a canceled watch without an id",
     OK "{\"result\":{" HEADER ",\"created\":true,\"canceled\":true,\"cancel_reason\":\"so\"}}\n", false},
    {"a compacted watch",
     OK CREATED "{\"result\":{" HEADER ",\"watch_id\":\"1\",\"canceled\":true,\"compact_revision\":\"4\"}}\n", true},
    {"a line that is no message", OK "{\"result\":{" HEADER ",\"watch_id\":\"x\"}}\n", true},
    {"a stream of no etcd", OK "{\"result\":{\"watch_id\":\"1\",\"created\":true}}\n", true},
    {"status 400", "HTTP/1.1 400 Bad Request\r\nContent-Length: 29\r\n\r\n{\"error\":\"no\",\"message\":\"no\"}", true},
    {"status 500", "HTTP/1.1 500 Broken\r\nContent-Length: 29\r\n\r\n{\"error\":\"no\",\"message\":\"no\"}", true},
    {"status 503", "HTTP/1.1 503 Unavailable\r\nContent-Length: 5\r\n\r\nlater", true},
    {"status 404", "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone", true},
};
/* The port after those of the lies does not answer watches at all. */
enum { LIES = sizeof lies / sizeof lies[0], SILENT = LIES, PORTS };
static const struct lie truth = {"a watch that is kept", OK CREATED, true};

/* What the server and the test share, of each lie. Each has a port of its own. */
static struct {
  atomic_bool is_over; /* the server answers truly from now on */
  atomic_int watches;
} * shared;

/* ---- the server ----------------------------------------------------------------------------------------------- */

struct connection {
  int lie;
  char request[8192];
  size_t len;
};

/* False: the connection is to be closed. */
static bool answer(int fd, const struct connection *connection) {
  static const char plain[] = "{" HEADER ",\"count\":\"0\"}\n";
  char text[512];
  bool stays = true;
  const bool watches = strncmp(connection->request, "POST /v3/watch ", 15) == 0;
  if (watches && connection->lie == SILENT) return true;
  if (watches) {
    const struct lie *lie = atomic_load(&shared[connection->lie].is_over) ? &truth : &lies[connection->lie];
    atomic_fetch_add(&shared[connection->lie].watches, 1);
    snprintf(text, sizeof text, "%s", lie->answer);
    stays = lie->stays;
  } else {
    snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", sizeof plain - 1, plain);
  }
  return send(fd, text, strlen(text), MSG_NOSIGNAL) > 0 && stays;
}

/* Takes what has come; false: the connection has ended. */
static bool take(int fd, struct connection *connection) {
  const ssize_t got =
      recv(fd, connection->request + connection->len, sizeof connection->request - 1 - connection->len, 0);
  if (got <= 0) return false;
  connection->len += (size_t)got;
  connection->request[connection->len] = '\0';
  const char *end = strstr(connection->request, "\r\n\r\n"), *length = strstr(connection->request, "Content-Length: ");
  if (!end) return true;
  const size_t body = length && length < end ? strtoul(length + 16, NULL, 10) : 0;
  if (connection->len < (size_t)(end + 4 - connection->request) + body) return true;
  connection->len = 0;
  return answer(fd, connection);
}

static void serve_lies(const int *listeners) {
  static struct connection connections[CONNECTIONS];
  static struct pollfd fds[CONNECTIONS];
  for (int i = 0; i < CONNECTIONS; i++) fds[i] = (struct pollfd){.fd = i < PORTS ? listeners[i] : -1, .events = POLLIN};
  for (int place = PORTS;;) {
    SCRIPT_CHECK(poll(fds, CONNECTIONS, -1) > 0);
    for (int i = PORTS; i < CONNECTIONS; i++) {
      if (fds[i].fd < 0 || !fds[i].revents || take(fds[i].fd, &connections[i])) continue;
      close(fds[i].fd);
      fds[i].fd = -1;
    }
    for (int i = 0; i < PORTS; i++) {
      if (!fds[i].revents) continue;
      for (place = PORTS; place < CONNECTIONS && fds[place].fd >= 0;) place++;
      SCRIPT_CHECK(place < CONNECTIONS);
      fds[place].fd = accept(fds[i].fd, NULL, NULL);
      connections[place] = (struct connection){.lie = i};
    }
  }
}

static pid_t server;
static int ports[PORTS];

static int start_server(void **state) {
  (void)state;
  int listeners[PORTS];
  shared = mmap(NULL, LIES * sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(shared != MAP_FAILED);
  for (int i = 0; i < PORTS; i++) listeners[i] = peer_listen(16, &ports[i]);
  server = fork();
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    serve_lies(listeners);
  }
  for (int i = 0; i < PORTS; i++) close(listeners[i]);
  return server > 0 ? 0 : -1;
}

static int end_server(void **state) {
  (void)state;
  kill(server, SIGKILL);
  return waitpid(server, NULL, 0) == server ? 0 : -1;
}

/* ---- what the client holds ------------------------------------------------------------------------------------ */

static atomic_int handles;
static struct curl_functions real;

static CURL *counted_init(void) {
  atomic_fetch_add(&handles, 1);
  return real.easy_init();
}

static void counted_cleanup(CURL *easy) {
  atomic_fetch_sub(&handles, 1);
  real.easy_cleanup(easy);
}

static int count_descriptors(void) {
  DIR *folder = opendir("/proc/self/fd");
  int count = 0;
  assert_non_null(folder);
  for (const struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

/* ---- the clients ---------------------------------------------------------------------------------------------- */

/* One of a lie. Only its own thread writes lines. */
struct client {
  int lie, troubles, ends; /* lines of the log */
  struct etcd3 *etcd;
  struct etcd3_watch *watch;
  pthread_t thread;
  sem_t *lied, *go_on;
};

static void note_line(void *user, rdzv_log_level level, const char *line) {
  struct client *client = user;
  (void)level;
  client->troubles += strstr(line, "does not keep a watch") || strstr(line, "no answer from etcd");
  client->ends += strstr(line, "keeps a watch again") || strstr(line, "answers again");
}

static void open_watch(struct client *client) {
  const struct etcd3_watched watched = {{.key = rdzv_str("k")}, 6};
  SCRIPT_CHECK(etcd3_watch_open(client->etcd, &watched, 1, &client->watch, NULL) == 0);
}

/* Of a server that is etcd, so far. */
static void open_client(struct client *client) {
  char endpoint[32];
  snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", ports[client->lie]);
  const rdzv_log log = {.size = sizeof log, .write = note_line, .user = client, .level = RDZV_LOG_WARNING};
  const rdzv_etcd_options options = {.size = sizeof options, .endpoints = endpoint, .log = &log};
  const struct etcd3_range range = {.keys = {.key = rdzv_str("k")}};
  const struct etcd_call call = {deadline_after(SOON_MS), NULL, NULL};
  struct etcd_client *etcd;
  struct etcd3_reply reply;
  SCRIPT_CHECK(etcd_open(&options, &etcd, NULL) == 0 && etcd3_open(etcd, &client->etcd, NULL) == 0);
  SCRIPT_CHECK(etcd3_range(client->etcd, &range, &call, &reply) == 0);
  etcd3_reply_free(&reply);
  open_watch(client);
}

/* A user that goes on at once, whatever it gets, until then. */
static void watch_on(struct client *client, deadline until) {
  while (deadline_left(until) > 0) {
    const struct etcd_call call = {until, NULL, NULL};
    struct etcd3_events events;
    const int result = etcd3_watch_next(client->watch, &call, &events);
    SCRIPT_CHECK(result != 0);
    if (result != ETCD3_COMPACTED) continue;
    etcd3_watch_close(client->watch);
    open_watch(client);
  }
}

static void *run(void *argument) {
  struct client *client = argument;
  deadline until = deadline_after(SOON_MS);
  open_client(client);
  watch_on(client, deadline_after(LIE_MS));
  while (client->troubles == 0 && deadline_left(until) > 0) watch_on(client, deadline_after(500));
  sem_post(client->lied);
  sem_wait(client->go_on);
  until = deadline_after(SOON_MS);
  while (client->ends == 0 && deadline_left(until) > 0) watch_on(client, deadline_after(500));
  etcd3_watch_close(client->watch);
  etcd3_close(client->etcd);
  return NULL;
}

static void check_lie(const struct client *client) {
  const int asked = atomic_load(&shared[client->lie].watches);
  print_message("%s: %d requests, %d lines\n", lies[client->lie].name, asked, client->troubles);
  assert_in_range(asked, 1, MOST_REQUESTS);
  assert_in_range(client->troubles, 1, 2); /* a busy machine is a trouble of its own */
}

static void each_lie_is_followed_by_pauses(void **state) {
  (void)state;
  rdzv_error error;
  static struct client clients[LIES];
  sem_t lied, go_on;
  sem_init(&lied, 0, 0);
  sem_init(&go_on, 0, 0);
  if (curl_load(&error) < 0) fail_msg("%s", error.message);
  real = curl;
  curl.easy_init = counted_init;
  curl.easy_cleanup = counted_cleanup;
  const int descriptors = count_descriptors();
  for (int i = 0; i < LIES; i++) {
    clients[i] = (struct client){.lie = i, .lied = &lied, .go_on = &go_on};
    assert_int_equal(pthread_create(&clients[i].thread, NULL, run, &clients[i]), 0);
  }
  for (int i = 0; i < LIES; i++) await_sem(&lied);
  const int held = atomic_load(&handles), opened = count_descriptors() - descriptors;
  print_message("%d handles, %d descriptors\n", held, opened);
  for (int i = 0; i < LIES; i++) check_lie(&clients[i]);
  assert_in_range(held, LIES, LIES * MOST_HANDLES);
  assert_in_range(opened, LIES, LIES * MOST_DESCRIPTORS);
  for (int i = 0; i < LIES; i++) atomic_store(&shared[i].is_over, true);
  for (int i = 0; i < LIES; i++) sem_post(&go_on);
  for (int i = 0; i < LIES; i++) {
    pthread_join(clients[i].thread, NULL);
    assert_int_equal(clients[i].ends, 1);
  }
  assert_int_equal(atomic_load(&handles), 0);
  assert_int_equal(count_descriptors(), descriptors);
  curl = real;
}

static int watch_for(struct client *client, int64_t ms, rdzv_error *error) {
  const struct etcd_call call = {deadline_after(ms), NULL, error};
  struct etcd3_events events;
  const int result = etcd3_watch_next(client->watch, &call, &events);
  assert_int_equal(error->code, result);
  return result;
}

static void a_watch_without_time_for_an_answer_times_out(void **state) {
  (void)state;
  struct client client = {.lie = SILENT};
  rdzv_error error;
  open_client(&client);
  for (int64_t ms = 1; ms < 1000; ms *= 8) assert_int_equal(watch_for(&client, ms, &error), RDZV_E_TIMEOUT);
  assert_int_equal(watch_for(&client, 3000, &error), RDZV_E_CONNECTION);
  assert_non_null(strstr(error.message, "no answer"));
  etcd3_watch_close(client.watch);
  etcd3_close(client.etcd);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(each_lie_is_followed_by_pauses),
                                     cmocka_unit_test(a_watch_without_time_for_an_answer_times_out)};
  return cmocka_run_group_tests(tests, start_server, end_server);
}
