/* SPDX-License-Identifier: BSD-3-Clause */
/* A tcp store that is canceled from another thread, in each phase of a call. Every call here would last for minutes;
 * each ends because it is canceled, at once. */
#include "live.h"

#include <sys/eventfd.h>

enum { AT_ONCE_MS = 20000 }; /* generous for a loaded machine, and far below the timeouts */

/* A call in a thread of its own, and how it ended. */
struct caller {
  pthread_t thread;
  rdzv_store *store;
  const char *endpoint;
  int cancel_fd;
  const rdzv_log *log;
  int result;
  rdzv_error error;
};

static void *open_store(void *arg) {
  struct caller *caller = arg;
  const rdzv_tcp_options options = {
      .size = sizeof options, .timeout_ms = 10 * SOON_MS, .cancel_fd = caller->cancel_fd, .log = caller->log};
  caller->result = rdzv_store_open_tcp(caller->endpoint, &options, &caller->store, &caller->error);
  return NULL;
}

static void *get_key(void *arg) {
  struct caller *caller = arg;
  rdzv_value value;
  caller->result = rdzv_store_get(caller->store, BYTES("never"), &value, &caller->error);
  return NULL;
}

static void *set_key(void *arg) {
  struct caller *caller = arg;
  caller->result = rdzv_store_set(caller->store, BYTES("k"), BYTES("v"), &caller->error);
  return NULL;
}

enum { LARGE = 64 << 20 };

static void *set_large(void *arg) {
  struct caller *caller = arg;
  char *value = calloc(1, LARGE);
  caller->result = rdzv_store_set(caller->store, BYTES("k"), (rdzv_bytes){value, LARGE}, &caller->error);
  free(value);
  return NULL;
}

static void begin(struct caller *caller, void *(*call)(void *)) {
  assert_int_equal(pthread_create(&caller->thread, NULL, call, caller), 0);
}

static void assert_ends_canceled(struct caller *caller) {
  const int64_t began = live_now_ms();
  pthread_join(caller->thread, NULL);
  assert_error(caller->result, RDZV_E_CANCELED, &caller->error, "cancel");
  assert_true(live_now_ms() - began < AT_ONCE_MS);
}

static void raise_fd(int fd) { assert_int_equal(eventfd_write(fd, 1), 0); }

/* ---- opening: the handle is not there yet, so a descriptor of the caller's cancels -------------------------- */

/* Is a socket on its way to that port? */
static bool is_connecting_to(int port) {
  char line[512], target[16];
  FILE *file = fopen("/proc/net/tcp", "r");
  assert_non_null(file);
  snprintf(target, sizeof target, ":%04X 02 ", port);
  bool found = false;
  while (!found && fgets(line, sizeof line, file)) found = strstr(line, target) != NULL;
  fclose(file);
  return found;
}

/* Connects until the backlog takes no more; gives the sockets that are in it. */
static int fill_backlog(int port, int *fds, int most) {
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
  for (int count = 0; count < most; count++) {
    fds[count] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    connect(fds[count], (struct sockaddr *)&address, sizeof address);
    struct pollfd poll_fd = {.fd = fds[count], .events = POLLOUT};
    if (poll(&poll_fd, 1, 100) == 1) continue;
    close(fds[count]);
    return count;
  }
  return -1;
}

/* A server whose backlog is full leaves connect(2) without an answer. */
static void test_canceled_while_connecting(void **state) {
  (void)state;
  int port, fds[16];
  const int listener = peer_listen(0, &port), fd = eventfd(0, 0);
  const int count = fill_backlog(port, fds, 16);
  assert_true(count > 0);
  char endpoint[32];
  snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
  struct caller caller = {.endpoint = endpoint, .cancel_fd = fd};
  begin(&caller, open_store);
  const struct timespec moment = {0, 1000000};
  for (int64_t until = live_now_ms() + SOON_MS; !is_connecting_to(port); nanosleep(&moment, NULL))
    assert_true(live_now_ms() < until);
  raise_fd(fd);
  assert_ends_canceled(&caller);
  for (int i = 0; i < count; i++) close(fds[i]);
  close(listener);
  close(fd);
}

static void raise_on_line(void *user, rdzv_log_level level, const char *line) {
  (void)level;
  if (strstr(line, "cannot connect")) eventfd_write(*(int *)user, 1);
}

/* Where nobody listens it pauses between its tries. */
static void test_canceled_in_a_pause_between_tries(void **state) {
  (void)state;
  int port, fd = eventfd(0, 0);
  close(peer_listen(1, &port)); /* a port that is free now */
  char endpoint[32];
  snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
  struct caller caller = {
      .endpoint = endpoint, .cancel_fd = fd, .log = &(rdzv_log){sizeof(rdzv_log), raise_on_line, &fd, RDZV_LOG_INFO}};
  begin(&caller, open_store);
  assert_ends_canceled(&caller);
  close(fd);
}

static void take_greeting_and_say_nothing(struct peer *peer) {
  char hello[HELLO_BYTES];
  const int fd = peer_accept(peer);
  peer_read(fd, hello, sizeof hello);
  sem_post(&peer->reached);
  peer_close_after_client(fd);
}

/* A server that takes the greeting and does not answer. */
static void test_canceled_while_greeting(void **state) {
  (void)state;
  struct peer peer;
  peer_start(&peer, take_greeting_and_say_nothing, NULL);
  const int fd = eventfd(0, 0);
  struct caller caller = {.endpoint = peer.endpoint, .cancel_fd = fd};
  begin(&caller, open_store);
  await_sem(&peer.reached);
  raise_fd(fd);
  assert_ends_canceled(&caller);
  peer_end(&peer);
  close(fd);
}

/* A descriptor that is readable from the start cancels before anything is tried. */
static void test_canceled_before_it_was_opened(void **state) {
  (void)state;
  rdzv_server *server = serve();
  const int fd = eventfd(1, 0);
  struct caller caller = {.endpoint = rdzv_server_address(server), .cancel_fd = fd};
  begin(&caller, open_store);
  assert_ends_canceled(&caller);
  close(fd);
  rdzv_server_free(server);
}

/* ---- calls on a handle --------------------------------------------------------------------------------------- */

static void greet_and_take_one_byte(struct peer *peer) {
  char first;
  const int fd = peer_accept(peer);
  peer_greet(fd, 7);
  peer_read(fd, &first, 1);
  sem_post(&peer->reached);
  await_sem(&peer->go_on); /* until then nothing more is read */
  peer_close_after_client(fd);
}

/* A wait for a key that does not come: the request has reached the server. */
static void test_canceled_while_waiting_for_a_key(void **state) {
  (void)state;
  struct peer peer;
  peer_start(&peer, greet_and_take_one_byte, NULL);
  struct caller caller = {.store = connect_to(peer.endpoint)};
  begin(&caller, get_key);
  await_sem(&peer.reached);
  rdzv_store_cancel(caller.store);
  assert_ends_canceled(&caller);
  rdzv_store_free(caller.store);
  sem_post(&peer.go_on);
  peer_end(&peer);
}

/* An answer that should come at once and does not. */
static void test_canceled_while_waiting_for_an_answer(void **state) {
  (void)state;
  struct peer peer;
  peer_start(&peer, greet_and_take_one_byte, NULL);
  struct caller caller = {.store = connect_to(peer.endpoint)};
  begin(&caller, set_key);
  await_sem(&peer.reached);
  rdzv_store_cancel(caller.store);
  assert_ends_canceled(&caller);
  rdzv_store_free(caller.store);
  sem_post(&peer.go_on);
  peer_end(&peer);
}

/* More than the sockets hold, to a server that does not read. */
static void test_canceled_while_sending_to_a_full_socket(void **state) {
  (void)state;
  struct peer peer;
  peer_start(&peer, greet_and_take_one_byte, NULL);
  struct caller caller = {.store = connect_to(peer.endpoint)};
  begin(&caller, set_large);
  await_sem(&peer.reached);
  rdzv_store_cancel(caller.store);
  assert_ends_canceled(&caller);
  rdzv_store_free(caller.store);
  sem_post(&peer.go_on);
  peer_end(&peer);
}

/* Calls that wait for their turn on the handle end with the one that has it. */
static void test_canceled_while_waiting_for_its_turn(void **state) {
  (void)state;
  struct peer peer;
  peer_start(&peer, greet_and_take_one_byte, NULL);
  rdzv_store *store = connect_to(peer.endpoint);
  struct caller first = {.store = store}, others[3];
  begin(&first, get_key);
  await_sem(&peer.reached);
  for (size_t i = 0; i < COUNT_OF(others); i++) {
    others[i] = (struct caller){.store = store};
    begin(&others[i], i % 2 ? get_key : set_key);
  }
  rdzv_store_cancel(store);
  assert_ends_canceled(&first);
  for (size_t i = 0; i < COUNT_OF(others); i++) assert_ends_canceled(&others[i]);
  rdzv_store_free(store);
  sem_post(&peer.go_on);
  peer_end(&peer);
}

/* A server that has gone: the call is connecting again, and would for minutes. */
static void test_canceled_while_connecting_again(void **state) {
  (void)state;
  rdzv_server *server = serve();
  int fd = eventfd(0, 0);
  struct caller caller = {.endpoint = rdzv_server_address(server),
                          .log = &(rdzv_log){sizeof(rdzv_log), raise_on_line, &fd, RDZV_LOG_INFO}};
  open_store(&caller);
  assert_code(caller.result, 0);
  rdzv_server_free(server);
  begin(&caller, get_key);
  assert_true(await_readable(fd));
  rdzv_store_cancel(caller.store);
  assert_ends_canceled(&caller);
  rdzv_store_free(caller.store);
  close(fd);
}

/* What comes after a cancel does nothing and says so; a clone goes its own way; a view goes with its base. */
static void test_every_later_call_is_canceled_and_does_nothing(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *store = store_of(server), *clone, *view;
  rdzv_error error;
  rdzv_value value;
  bool flag;
  int64_t number;
  assert_code(rdzv_store_clone(store, &clone, &error), 0);
  assert_code(rdzv_store_open_prefix(store, BYTES("p"), &view, &error), 0);
  rdzv_store_cancel(view);
  for (int i = 0; i < 2; i++) {
    rdzv_store *canceled = i == 0 ? store : view;
    assert_code(rdzv_store_set(canceled, BYTES("k"), BYTES("v"), &error), RDZV_E_CANCELED);
    assert_code(rdzv_store_get(canceled, BYTES("k"), &value, &error), RDZV_E_CANCELED);
    assert_code(rdzv_store_add(canceled, BYTES("k"), 1, &number, &error), RDZV_E_CANCELED);
    assert_code(rdzv_store_num_keys(canceled, &number, &error), RDZV_E_CANCELED);
    assert_code(rdzv_store_delete_key(canceled, BYTES("k"), &flag, NULL), RDZV_E_CANCELED);
  }
  assert_code(rdzv_store_num_keys(clone, &number, &error), 0);
  assert_int_equal(number, 0);
  rdzv_store_free(view);
  rdzv_store_free(clone);
  rdzv_store_free(store);
  rdzv_server_free(server);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_canceled_while_connecting),
      cmocka_unit_test(test_canceled_in_a_pause_between_tries),
      cmocka_unit_test(test_canceled_while_greeting),
      cmocka_unit_test(test_canceled_before_it_was_opened),
      cmocka_unit_test(test_canceled_while_waiting_for_a_key),
      cmocka_unit_test(test_canceled_while_waiting_for_an_answer),
      cmocka_unit_test(test_canceled_while_sending_to_a_full_socket),
      cmocka_unit_test(test_canceled_while_waiting_for_its_turn),
      cmocka_unit_test(test_canceled_while_connecting_again),
      cmocka_unit_test(test_every_later_call_is_canceled_and_does_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
