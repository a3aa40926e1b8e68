/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a server in this process: opening, its listening socket, stopping. */
#include "proxy.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>

static rdzv_server_options any_port(void) {
  return (rdzv_server_options){.size = sizeof(rdzv_server_options), .port = RDZV_ANY_PORT};
}

static bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

/* ---- opening -------------------------------------------------------------------------------------------- */

/* Loopback unless told otherwise, on the port that it says. */
static void test_it_listens_on_loopback_and_says_where(void **state) {
  (void)state;
  rdzv_server *server = serve();
  char expected[64];
  snprintf(expected, sizeof expected, "127.0.0.1:%d", rdzv_server_port(server));
  assert_string_equal(rdzv_server_address(server), expected);
  assert_in_range((unsigned)rdzv_server_port(server), 1, 65535);
  rdzv_store *store = connect_to(expected);
  must_set(store, "k", "v");
  rdzv_store_free(store);
  rdzv_server_free(server);
}

/* Names and IPv6 are fine to listen on. */
static void test_it_listens_on_names_and_ipv6(void **state) {
  (void)state;
  const char *const binds[] = {"localhost", "::1", "[::1]", "0.0.0.0", "::", "*"};
  for (size_t i = 0; i < COUNT_OF(binds); i++) {
    rdzv_server *server = serve_with((rdzv_server_options){.bind = binds[i]}, RDZV_ANY_PORT);
    char endpoint[32];
    snprintf(endpoint, sizeof endpoint, "%s:%d", i == 1 || i == 2 ? "[::1]" : "localhost", rdzv_server_port(server));
    rdzv_store *store = connect_to(endpoint);
    must_set(store, "k", "v");
    rdzv_store_free(store);
    rdzv_server_free(server);
  }
}

/* A port that is taken is told with the address. */
static void test_an_address_in_use_is_named(void **state) {
  (void)state;
  rdzv_server *server = serve(), *second = NULL;
  rdzv_server_options options = any_port();
  options.port = rdzv_server_port(server);
  rdzv_error error;
  assert_error(rdzv_server_open(&options, &second, &error), RDZV_E_IN_USE, &error, rdzv_server_address(server));
  assert_null(second);
  rdzv_server_free(server);
}

/* A port that was just given up can be had again at once, though clients were connected. */
static void test_a_port_can_be_had_again_at_once(void **state) {
  (void)state;
  rdzv_server *server = serve();
  const int port = rdzv_server_port(server);
  for (int i = 0; i < 3; i++) {
    rdzv_store *store = store_of(server);
    must_set(store, "k", "v");
    rdzv_server_free(server);
    server = serve_with((rdzv_server_options){0}, port);
    rdzv_store_free(store);
  }
  rdzv_server_free(server);
}

/* What cannot be is refused with the reason. */
static void test_options_that_cannot_be_are_refused(void **state) {
  (void)state;
  const struct {
    rdzv_server_options options;
    int code;
    const char *why;
  } cases[] = {
      {{.size = 0}, RDZV_E_INVALID, "size"},
      {{.size = sizeof(rdzv_server_options), .port = 65536}, RDZV_E_INVALID, "65536"},
      {{.size = sizeof(rdzv_server_options), .port = -2}, RDZV_E_INVALID, "-2"},
      {{.size = sizeof(rdzv_server_options), .port = RDZV_ANY_PORT, .request_timeout_ms = -1},
       RDZV_E_INVALID,
       "negative"},
      {{.size = sizeof(rdzv_server_options), .port = RDZV_ANY_PORT, .idle_timeout_ms = -1}, RDZV_E_INVALID, "negative"},
      {{.size = sizeof(rdzv_server_options), .port = RDZV_ANY_PORT, .bind = "two words"}, RDZV_E_INVALID, "two words"},
      {{.size = sizeof(rdzv_server_options), .port = RDZV_ANY_PORT, .bind = "192.0.2.1"}, RDZV_E_IO, "192.0.2.1"},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    rdzv_server *server = NULL;
    rdzv_error error;
    assert_error(rdzv_server_open(&cases[i].options, &server, &error), cases[i].code, &error, cases[i].why);
    assert_null(server);
    assert_code(rdzv_server_open(&cases[i].options, &server, NULL), cases[i].code);
  }
}

/* Limits of all ones mean "without a limit" and must not wrap into one that lets everything through. */
static void test_limits_of_all_ones_are_refused_or_hold(void **state) {
  (void)state;
  rdzv_server_options options = any_port();
  options.max_key_bytes = options.max_keys = SIZE_MAX;
  rdzv_server *server = NULL;
  rdzv_error error;
  if (rdzv_server_open(&options, &server, &error) < 0) {
    assert_code(error.code, RDZV_E_INVALID);
    return;
  }
  assert_code(rdzv_server_start(server, NULL), 0);
  rdzv_store *store = store_of(server);
  must_set(store, "k", "v"); /* a key to compare with */
  rdzv_store_free(store);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  const struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                      .sin_port = htons((uint16_t)rdzv_server_port(server))};
  assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
  const uint8_t get[9] = {2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}; /* V1: GET of a key of 2^64-1 bytes */
  assert_int_equal(send(fd, get, sizeof get, MSG_NOSIGNAL), sizeof get);
  char answer;
  assert_true(await_readable(fd));
  assert_true(recv(fd, &answer, 1, 0) <= 0); /* closed */
  close(fd);
  rdzv_server_free(server);
}

/* ---- an inherited socket -------------------------------------------------------------------------------- */

/* A listening socket of the caller's is taken instead, and closed with the server. */
static void test_an_inherited_socket_is_served_and_closed(void **state) {
  (void)state;
  int port;
  rdzv_server_options options = any_port();
  options.listen_fd = peer_listen(16, &port);
  rdzv_server *server;
  assert_code(rdzv_server_open(&options, &server, NULL), 0);
  assert_int_equal(rdzv_server_port(server), port);
  assert_code(rdzv_server_start(server, NULL), 0);
  rdzv_store *store = store_of(server);
  must_set(store, "k", "v");
  rdzv_store_free(store);
  rdzv_server_free(server);
  assert_false(is_open(options.listen_fd));
}

/* It is the server's from then on, also where opening fails: for its own sake or for another option. */
static void test_an_inherited_socket_is_closed_when_opening_fails(void **state) {
  (void)state;
  int port;
  rdzv_server *server = NULL;
  rdzv_error error;
  rdzv_server_options options = any_port();
  options.listen_fd = socket(AF_INET, SOCK_STREAM, 0); /* does not listen */
  assert_error(rdzv_server_open(&options, &server, &error), RDZV_E_INVALID, &error, "not a listening");
  assert_false(is_open(options.listen_fd));
  options.listen_fd = open("/dev/null", O_RDONLY);
  assert_code(rdzv_server_open(&options, &server, &error), RDZV_E_INVALID);
  assert_false(is_open(options.listen_fd));
  options.listen_fd = peer_listen(16, &port);
  options.request_timeout_ms = -1;
  assert_code(rdzv_server_open(&options, &server, &error), RDZV_E_INVALID);
  const bool leaked = is_open(options.listen_fd);
  if (leaked) close(options.listen_fd);
  assert_false(leaked);
}

/* ---- running and stopping -------------------------------------------------------------------------------- */

static void *run_server(void *arg) { return (void *)(intptr_t)rdzv_server_run(arg, NULL); }

/* It can run in a thread of the caller's until it is stopped, once. */
static void test_it_runs_in_the_callers_thread_until_it_is_stopped(void **state) {
  (void)state;
  rdzv_server_options options = any_port();
  rdzv_server *server;
  rdzv_error error;
  pthread_t thread;
  void *result;
  assert_code(rdzv_server_open(&options, &server, NULL), 0);
  assert_int_equal(pthread_create(&thread, NULL, run_server, server), 0);
  rdzv_store *store = store_of(server);
  must_set(store, "k", "v");
  rdzv_server_stop(server);
  pthread_join(thread, &result);
  assert_null(result);
  assert_error(rdzv_server_run(server, &error), RDZV_E_INVALID, &error, "already");
  assert_error(rdzv_server_start(server, &error), RDZV_E_INVALID, &error, "already");
  rdzv_store_free(store);
  rdzv_server_free(server);
}

/* A second start is refused while it runs. */
static void test_a_second_start_is_refused(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_error error;
  assert_error(rdzv_server_start(server, &error), RDZV_E_INVALID, &error, "already");
  assert_error(rdzv_server_run(server, &error), RDZV_E_INVALID, &error, "already");
  rdzv_server_free(server);
}

static int connect_raw(const rdzv_server *server) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                      .sin_port = htons((uint16_t)rdzv_server_port(server))};
  assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
  return fd;
}

/* Clients may connect as soon as it is open; they are served when it is started. */
static void test_clients_that_come_early_are_served_when_it_starts(void **state) {
  (void)state;
  rdzv_server_options options = any_port();
  rdzv_server *server;
  assert_code(rdzv_server_open(&options, &server, NULL), 0);
  const int fd = connect_raw(server);
  const uint8_t num_keys = 6; /* V1 */
  uint8_t answer[8];
  assert_int_equal(send(fd, &num_keys, 1, MSG_NOSIGNAL), 1);
  assert_code(rdzv_server_start(server, NULL), 0);
  assert_true(await_readable(fd));
  assert_int_equal(recv(fd, answer, sizeof answer, MSG_WAITALL), 8);
  close(fd);
  rdzv_server_free(server);
}

/* Closing one that never ran, with clients at its door, is fine; so is none. */
static void test_a_server_that_never_ran_can_be_closed(void **state) {
  (void)state;
  rdzv_server_options options = any_port();
  rdzv_server *server;
  assert_code(rdzv_server_open(&options, &server, NULL), 0);
  const int fd = connect_raw(server);
  rdzv_server_free(server);
  close(fd);
  rdzv_server_free(NULL);
}

/* A stop before the start is not lost. */
static void test_a_stop_before_the_start_is_not_lost(void **state) {
  (void)state;
  rdzv_server_options options = any_port();
  rdzv_server *server;
  assert_code(rdzv_server_open(&options, &server, NULL), 0);
  rdzv_server_stop(server);
  assert_code(rdzv_server_run(server, NULL), 0);
  rdzv_server_free(server);
}

enum blocked_in { IN_GET, IN_WAIT, IN_POP, IN_WAIT_CHANGED, BLOCKED_KINDS };

struct blocked {
  enum blocked_in in;
  rdzv_store *store;
  pthread_t thread;
  int result;
  rdzv_error error;
};

static void *block(void *arg) {
  struct blocked *blocked = arg;
  const rdzv_bytes key = BYTES("never");
  rdzv_value value;
  uint64_t version;
  rdzv_error *error = &blocked->error;
  switch (blocked->in) {
    case IN_GET: blocked->result = rdzv_store_get(blocked->store, key, &value, error); break;
    case IN_WAIT: blocked->result = rdzv_store_wait(blocked->store, &key, 1, 10 * SOON_MS, error); break;
    case IN_POP: blocked->result = rdzv_store_queue_pop(blocked->store, key, true, &value, error); break;
    default: blocked->result = rdzv_store_wait_changed(blocked->store, key, 0, 10 * SOON_MS, &value, &version, error);
  }
  return NULL;
}

static atomic_int logged_clients;

static void note_stop(void *user, rdzv_log_level level, const char *line) {
  (void)user, (void)level;
  int clients;
  if (sscanf(line, "stopping, with %d clients", &clients) == 1) atomic_store(&logged_clients, clients);
}

/* Whoever waits for something is told that the server stops, at once. */
static void test_who_waits_is_told_that_the_server_stops(void **state) {
  (void)state;
  const rdzv_server_options options = {.log = &(rdzv_log){sizeof(rdzv_log), note_stop, NULL, RDZV_LOG_INFO}};
  rdzv_server *server = serve_with(options, RDZV_ANY_PORT);
  struct proxy proxy;
  struct blocked all[BLOCKED_KINDS];
  proxy_start(&proxy, rdzv_server_port(server));
  for (int i = 0; i < BLOCKED_KINDS; i++) {
    all[i] = (struct blocked){.in = (enum blocked_in)i, .store = connect_to(proxy.endpoint)};
    assert_int_equal(pthread_create(&all[i].thread, NULL, block, &all[i]), 0);
    proxy_await(&proxy, 2 * (i + 1)); /* a greeting and a request each */
  }
  rdzv_server_stop(server);
  for (int i = 0; i < BLOCKED_KINDS; i++) {
    pthread_join(all[i].thread, NULL);
    assert_error(all[i].result, RDZV_E_STOPPED, &all[i].error, "the server is stopping");
    rdzv_store_free(all[i].store);
  }
  rdzv_server_free(server);
  proxy_end(&proxy);
  assert_int_equal(atomic_load(&logged_clients), BLOCKED_KINDS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_it_listens_on_loopback_and_says_where),
      cmocka_unit_test(test_it_listens_on_names_and_ipv6),
      cmocka_unit_test(test_an_address_in_use_is_named),
      cmocka_unit_test(test_a_port_can_be_had_again_at_once),
      cmocka_unit_test(test_options_that_cannot_be_are_refused),
      cmocka_unit_test(test_limits_of_all_ones_are_refused_or_hold),
      cmocka_unit_test(test_an_inherited_socket_is_served_and_closed),
      cmocka_unit_test(test_an_inherited_socket_is_closed_when_opening_fails),
      cmocka_unit_test(test_it_runs_in_the_callers_thread_until_it_is_stopped),
      cmocka_unit_test(test_a_second_start_is_refused),
      cmocka_unit_test(test_clients_that_come_early_are_served_when_it_starts),
      cmocka_unit_test(test_a_server_that_never_ran_can_be_closed),
      cmocka_unit_test(test_a_stop_before_the_start_is_not_lost),
      cmocka_unit_test(test_who_waits_is_told_that_the_server_stops),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
