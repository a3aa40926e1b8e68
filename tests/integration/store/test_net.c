/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending and receiving with a deadline and a flag. */
#include "base/net/net.h"

#include "live.h"

#include <fcntl.h>
#include <signal.h>

struct pair {
  int ours, theirs; /* ours does not block, as net_connect makes them */
};

static int setup(void **state) {
  struct pair *pair = calloc(1, sizeof *pair);
  int fds[2];
  if (!pair || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0) return -1;
  *pair = (struct pair){fds[0], fds[1]};
  *state = pair;
  return 0;
}

static int teardown(void **state) {
  struct pair *pair = *state;
  if (pair->ours >= 0) close(pair->ours);
  if (pair->theirs >= 0) close(pair->theirs);
  free(pair);
  return 0;
}

enum { LARGE = 8 << 20 }; /* more than a socket holds */

/* What is sent arrives, in whatever pieces. */
static void *read_all(void *arg) {
  const struct pair *pair = arg;
  size_t *got = calloc(1, sizeof *got);
  char data[10000];
  while (got && *got < LARGE && await_readable(pair->theirs)) {
    const ssize_t n = recv(pair->theirs, data, sizeof data, 0);
    if (n <= 0) break;
    *got += (size_t)n;
  }
  return got;
}

static void test_more_than_a_socket_holds_is_sent_in_pieces(void **state) {
  struct pair *pair = *state;
  char *data = calloc(1, LARGE);
  pthread_t thread;
  void *got;
  size_t sent;
  assert_int_equal(pthread_create(&thread, NULL, read_all, pair), 0);
  assert_code(net_send(pair->ours, data, LARGE, deadline_after(SOON_MS), NULL, &sent, NULL), 0);
  assert_int_equal(sent, LARGE);
  pthread_join(thread, &got);
  assert_int_equal(*(size_t *)got, LARGE);
  free(got);
  free(data);
}

/* A peer that does not read: the deadline ends it, and *sent says how much has gone. */
static void test_sending_to_a_peer_that_does_not_read_times_out(void **state) {
  struct pair *pair = *state;
  char *data = calloc(1, LARGE);
  size_t sent = 7;
  rdzv_error error;
  assert_error(net_send(pair->ours, data, LARGE, deadline_after(20), NULL, &sent, &error), RDZV_E_TIMEOUT, &error,
               "timed out");
  assert_true(sent > 0 && sent < LARGE);
  free(data);
}

/* A peer that has gone is an error with the cause, and no SIGPIPE. */
static void test_sending_to_a_peer_that_has_gone_is_an_error(void **state) {
  struct pair *pair = *state;
  size_t sent;
  rdzv_error error;
  signal(SIGPIPE, SIG_DFL);
  close(pair->theirs);
  pair->theirs = -1;
  assert_error(net_send(pair->ours, "x", 1, deadline_after(SOON_MS), NULL, &sent, &error), RDZV_E_CONNECTION, &error,
               "Broken pipe");
  assert_int_equal(sent, 0);
}

/* Nothing to send is sent. */
static void test_nothing_to_send_is_sent(void **state) {
  struct pair *pair = *state;
  size_t sent = 7;
  assert_code(net_send(pair->ours, NULL, 0, deadline_after(0), NULL, &sent, NULL), 0);
  assert_int_equal(sent, 0);
}

/* What has come is received, also when the deadline has passed; what has not is a timeout. */
static void test_receiving_gets_what_has_come(void **state) {
  struct pair *pair = *state;
  char data[10];
  size_t got;
  rdzv_error error;
  assert_error(net_recv(pair->ours, data, sizeof data, deadline_after(0), NULL, &got, &error), RDZV_E_TIMEOUT, &error,
               "timed out");
  assert_int_equal(write(pair->theirs, "abc", 3), 3);
  assert_code(net_recv(pair->ours, data, 2, deadline_after(0), NULL, &got, NULL), 0);
  assert_int_equal(got, 2);
  assert_code(net_recv(pair->ours, data, sizeof data, deadline_after(-100), NULL, &got, NULL), 0);
  assert_int_equal(got, 1);
}

/* The peer's close is told from its silence, after what it had sent. */
static void test_the_peers_close_is_an_error(void **state) {
  struct pair *pair = *state;
  char data[10];
  size_t got;
  rdzv_error error;
  assert_int_equal(write(pair->theirs, "abc", 3), 3);
  close(pair->theirs);
  pair->theirs = -1;
  assert_code(net_recv(pair->ours, data, sizeof data, deadline_after(SOON_MS), NULL, &got, NULL), 0);
  assert_error(net_recv(pair->ours, data, sizeof data, deadline_after(SOON_MS), NULL, &got, &error), RDZV_E_CONNECTION,
               &error, "closed");
}

/* The flag ends both. */
static void test_the_flag_ends_both(void **state) {
  struct pair *pair = *state;
  struct flag cancel;
  char *data = calloc(1, LARGE);
  size_t count;
  assert_code(flag_open(&cancel, NULL), 0);
  flag_raise(&cancel);
  assert_code(net_recv(pair->ours, data, LARGE, deadline_after(SOON_MS), &cancel, &count, NULL), RDZV_E_CANCELED);
  assert_code(net_send(pair->ours, data, LARGE, deadline_after(SOON_MS), &cancel, &count, NULL), RDZV_E_CANCELED);
  flag_close(&cancel);
  free(data);
}

/* Addresses are written as numbers, with brackets around IPv6. */
static void test_an_address_is_written_as_numbers(void **state) {
  (void)state;
  char text[ENDPOINT_TEXT_SIZE];
  const struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a010203), .sin_port = htons(29400)};
  const struct sockaddr_in6 v6 = {
      .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT, .sin6_port = htons(65535)};
  const struct sockaddr other = {.sa_family = AF_UNIX};
  net_format((const struct sockaddr *)&v4, text);
  assert_string_equal(text, "10.1.2.3:29400");
  net_format((const struct sockaddr *)&v6, text);
  assert_string_equal(text, "[::1]:65535");
  net_format(&other, text);
  assert_string_equal(text, "?");
}

#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_PAIR(test_more_than_a_socket_holds_is_sent_in_pieces),
      WITH_PAIR(test_sending_to_a_peer_that_does_not_read_times_out),
      WITH_PAIR(test_sending_to_a_peer_that_has_gone_is_an_error),
      WITH_PAIR(test_nothing_to_send_is_sent),
      WITH_PAIR(test_receiving_gets_what_has_come),
      WITH_PAIR(test_the_peers_close_is_an_error),
      WITH_PAIR(test_the_flag_ends_both),
      cmocka_unit_test(test_an_address_is_written_as_numbers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
