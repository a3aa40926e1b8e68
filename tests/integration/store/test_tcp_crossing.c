/* SPDX-License-Identifier: BSD-3-Clause */
/* A wait that is taken back by its timeout and, before that is answered, by the call's own flag: one CANCEL_WAIT is
 * sent, and its answer is waited for once, whether the wait's own answer crosses with it or not. */
#include "live.h"
#include "store/store.h"

enum { WAIT_BYTES = 1 + 8 + 8 + 2, WAIT_OP = 6, CANCEL_WAIT_OP = 12, NUM_KEYS_OP = 7, KEYS = 5 };

static uint8_t take_op(int fd) {
  uint8_t op;
  peer_read(fd, &op, 1);
  return op;
}

/* Takes a wait and what takes it back, answers when it may, and then one more request. `data` is the answers. */
static void answer_late(struct peer *peer) {
  const char *answers = peer->data;
  uint8_t wait[WAIT_BYTES];
  const int fd = peer_accept(peer);
  peer_greet(fd, 7);
  peer_read(fd, wait, sizeof wait);
  SCRIPT_CHECK(wait[0] == WAIT_OP);
  SCRIPT_CHECK(take_op(fd) == CANCEL_WAIT_OP);
  sem_post(&peer->reached);
  await_sem(&peer->go_on);
  for (; *answers; answers++) peer_write(fd, &(uint8_t){(uint8_t)(*answers - '0')}, 1);
  SCRIPT_CHECK(take_op(fd) == NUM_KEYS_OP);
  peer_write(fd, (const uint8_t[9]){0, KEYS}, 9);
  peer_close_after_client(fd);
}

struct waiter {
  rdzv_store *store;
  struct flag flag;
  pthread_t thread;
  int result;
  rdzv_error error;
};

static void *wait_a_moment(void *arg) {
  struct waiter *waiter = arg;
  const rdzv_bytes key = BYTES("k");
  struct store_call call = {1, deadline_after(1), &waiter->flag, &waiter->error};
  waiter->result = waiter->store->ops->wait(waiter->store, &key, 1, &call);
  return NULL;
}

/* The flag is up before an answer comes, and a flag counts before what is ready: the first look for an answer always
 * ends by the flag. */
static void assert_crossing(const char *answers, int expected) {
  struct peer peer;
  rdzv_error error;
  int64_t keys = 0;
  peer_start(&peer, answer_late, (void *)answers);
  struct waiter waiter = {.store = connect_to(peer.endpoint)};
  assert_code(flag_open(&waiter.flag, NULL), 0);
  assert_int_equal(pthread_create(&waiter.thread, NULL, wait_a_moment, &waiter), 0);
  await_sem(&peer.reached);
  flag_raise(&waiter.flag);
  sem_post(&peer.go_on);
  pthread_join(waiter.thread, NULL);
  if (waiter.result != expected) print_error("%s\n", waiter.error.message);
  assert_code(waiter.result, expected);
  if (rdzv_store_num_keys(waiter.store, &keys, &error) < 0) fail_msg("%s", error.message);
  assert_int_equal(keys, KEYS); /* on the same connection, in step */
  rdzv_store_free(waiter.store);
  flag_close(&waiter.flag);
  peer_end(&peer);
}

static void test_a_wait_that_is_taken_back_twice_is_canceled_once(void **state) {
  (void)state;
  assert_crossing("1", RDZV_E_CANCELED);
}

static void test_an_answer_that_crosses_with_it_counts(void **state) {
  (void)state;
  assert_crossing("01", 0);
}

/* ---- a connection that is lost before a write is sent ----------------------------------------------------------- */

enum { ADD_OP = 4, ADD_BYTES = 1 + 8 + 2 + 8 };

/* The answer to a CANCEL_WAIT is owed when the connection is closed, so that the next call fails before it has sent
 * anything. Then it is the first write of the new connection's session, and needs nothing before it. */
static void close_owing(struct peer *peer) {
  uint8_t request[ADD_BYTES];
  int fd = peer_accept(peer);
  peer_greet_session(fd, 7, 'a');
  peer_read(fd, request, WAIT_BYTES);
  SCRIPT_CHECK(take_op(fd) == CANCEL_WAIT_OP);
  peer_write(fd, "", 1);
  close(fd);
  fd = peer_accept(peer);
  peer_greet_session(fd, 7, 'b');
  for (uint8_t sum = 1; sum <= 2; sum++) {
    peer_read(fd, request, sizeof request);
    SCRIPT_CHECK(request[0] == ADD_OP);
    peer_write(fd, (const uint8_t[9]){0, sum}, 9);
  }
  peer_close_after_client(fd);
}

static void test_a_write_of_which_nothing_was_sent_gets_a_new_number(void **state) {
  (void)state;
  struct peer peer;
  const rdzv_bytes key = BYTES("k");
  peer_start(&peer, close_owing, NULL);
  rdzv_store *store = connect_to(peer.endpoint);
  assert_code(rdzv_store_wait(store, &key, 1, 1, NULL), 0);
  assert_int_equal(must_add(store, "k", 1), 1);
  assert_int_equal(must_add(store, "k", 1), 2);
  rdzv_store_free(store);
  peer_end(&peer);
}

/* ---- a server that counts otherwise ------------------------------------------------------------------------------ */

enum { SESSION_OP = 133, SESSION_BYTES = 1 + 8 + 16 + 8 + 8 };

/* Says nothing to the first write, and of the second that it was done before it came. */
static void counts_otherwise(struct peer *peer) {
  uint8_t request[SESSION_BYTES + ADD_BYTES];
  int fd = peer_accept(peer);
  peer_greet_session(fd, 7, 'a');
  peer_read(fd, request, ADD_BYTES);
  peer_close_after_client(fd);
  fd = peer_accept(peer);
  peer_greet_session(fd, 7, 'b');
  peer_read(fd, request, sizeof request);
  SCRIPT_CHECK(request[0] == SESSION_OP && request[9] == 'a' && request[25] == 2 && request[33] == 1);
  peer_write(fd, (const uint8_t[18]){0, 2, [9] = 0, 9}, 18);
  peer_close_after_client(fd);
}

/* What such a server answers is not taken for the answer to this write. */
static void test_a_write_that_was_done_before_it_was_sent_is_an_error(void **state) {
  (void)state;
  struct peer peer;
  rdzv_error error;
  int64_t sum = 0;
  peer_start(&peer, counts_otherwise, NULL);
  rdzv_store *store = connect_to(peer.endpoint);
  assert_code(rdzv_store_set_request_timeout(store, 500, &error), 0);
  assert_code(rdzv_store_add(store, BYTES("k"), 1, &sum, &error), RDZV_E_OUTCOME_UNKNOWN);
  assert_code(rdzv_store_set_request_timeout(store, 0, &error), 0);
  assert_error(rdzv_store_add(store, BYTES("k"), 1, &sum, &error), RDZV_E_PROTOCOL, &error,
               "another write with this number");
  rdzv_store_free(store);
  peer_end(&peer);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_wait_that_is_taken_back_twice_is_canceled_once),
      cmocka_unit_test(test_an_answer_that_crosses_with_it_counts),
      cmocka_unit_test(test_a_write_of_which_nothing_was_sent_gets_a_new_number),
      cmocka_unit_test(test_a_write_that_was_done_before_it_was_sent_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
