/* SPDX-License-Identifier: BSD-3-Clause */
/* A tcp store that is canceled while it is opened or sends much, and what is left of it then. test_store_cancel has
 * every call in every phase. */
#include "backlog.h"

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
  assert_within(began, AT_ONCE_MS);
}

static void raise_fd(int fd) { assert_int_equal(eventfd_write(fd, 1), 0); }

/* ---- opening: the handle is not there yet, so a descriptor of the caller's cancels -------------------------- */

/* A server whose backlog is full leaves connect(2) without an answer. */
static void test_canceled_while_connecting(void **state) {
  (void)state;
  struct backlog backlog;
  int port;
  const int listener = peer_listen(0, &port), fd = eventfd(0, 0);
  backlog_fill(&backlog, listener);
  char endpoint[32];
  snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
  struct caller caller = {.endpoint = endpoint, .cancel_fd = fd};
  begin(&caller, open_store);
  await_connecting_to(port);
  raise_fd(fd);
  assert_ends_canceled(&caller);
  backlog_free(&backlog);
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

/* A clone with a descriptor of its own: while that is readable, its calls are canceled, and no others. */
static void test_a_clone_has_a_descriptor_of_its_own(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *store = store_of(server), *view, *clone;
  rdzv_error error;
  int64_t number;
  uint64_t count = 1;
  const int fd = eventfd(0, EFD_CLOEXEC);
  assert_code(rdzv_store_open_prefix(store, BYTES("p"), &view, &error), 0);
  assert_code(rdzv_store_clone_with(view, fd, &clone, &error), 0);
  assert_code(rdzv_store_num_keys(clone, &number, &error), 0);
  assert_int_equal(write(fd, &count, sizeof count), sizeof count);
  assert_code(rdzv_store_num_keys(clone, &number, &error), RDZV_E_CANCELED);
  assert_code(rdzv_store_num_keys(view, &number, &error), 0);
  assert_int_equal(read(fd, &count, sizeof count), sizeof count);
  assert_code(rdzv_store_num_keys(clone, &number, &error), 0);
  rdzv_store_free(clone);
  rdzv_store_free(view);
  rdzv_store_free(store);
  rdzv_server_free(server);
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
      cmocka_unit_test(test_canceled_while_sending_to_a_full_socket),
      cmocka_unit_test(test_a_clone_has_a_descriptor_of_its_own),
      cmocka_unit_test(test_every_later_call_is_canceled_and_does_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
