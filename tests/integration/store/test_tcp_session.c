/* SPDX-License-Identifier: BSD-3-Clause */
/* Sessions at our own server: late bytes, lost answers and forgotten clients, seen from the wire and from the store. */
#include "proxy.h"

/* ---- the wire -------------------------------------------------------------------------------------------------- */

enum { TOKEN_BYTES = 16, STATUS_UNKNOWN = 7, STATUS_PROTOCOL = 8 };
enum {
  SET = 1,
  COMPARE_SET = 2,
  ADD = 4,
  NUM_KEYS = 7,
  DELETE_KEY = 8,
  CANCEL_WAIT = 12,
  QUEUE_POP = 15,
  QUEUE_POP_WAIT = 129,
  SESSION = 133
};

/* A client that is not ours: bytes out, bytes in. */
struct raw {
  int fd;
  uint8_t token[TOKEN_BYTES]; /* of the session that the greeting brought */
};

struct message {
  uint8_t data[256];
  size_t len;
};

static void put(struct message *message, const void *data, size_t len) {
  assert_true(len <= sizeof message->data - message->len);
  if (len > 0) memcpy(message->data + message->len, data, len);
  message->len += len;
}

static void put_op(struct message *message, uint8_t op) { put(message, &op, 1); }
static void put_number(struct message *message, uint64_t number) { put(message, &number, sizeof number); }

static void put_text(struct message *message, const char *text) {
  put_number(message, strlen(text));
  put(message, text, strlen(text));
}

/* With the epoch: the how-manieth takeover of that session it is. */
static void put_takeover(struct message *message, const uint8_t token[TOKEN_BYTES], uint64_t number, uint64_t epoch) {
  put_op(message, SESSION);
  put_number(message, TOKEN_BYTES);
  put(message, token, TOKEN_BYTES);
  put_number(message, number);
  put_number(message, epoch);
}

static void put_session(struct message *message, const uint8_t token[TOKEN_BYTES], uint64_t number) {
  put_takeover(message, token, number, 1);
}

static void put_set(struct message *message, const char *key, const char *value) {
  put_op(message, SET);
  put_text(message, key);
  put_text(message, value);
}

static void put_add(struct message *message, const char *key, uint64_t delta) {
  put_op(message, ADD);
  put_text(message, key);
  put_number(message, delta);
}

static void send_to(const struct raw *raw, const struct message *message) {
  assert_int_equal(send(raw->fd, message->data, message->len, MSG_NOSIGNAL), message->len);
}

/* How many bytes came before the server closed, up to len. */
static size_t receive(const struct raw *raw, void *data, size_t len) {
  size_t got = 0;
  while (got < len) {
    assert_true(await_readable(raw->fd));
    const ssize_t n = recv(raw->fd, (char *)data + got, len - got, 0);
    if (n <= 0) break;
    got += (size_t)n;
  }
  return got;
}

static void assert_answer(const struct raw *raw, rdzv_bytes expected) {
  uint8_t answer[256];
  assert_true(expected.len <= sizeof answer);
  assert_int_equal(receive(raw, answer, expected.len), expected.len);
  assert_memory_equal(answer, expected.data, expected.len);
}

static void assert_closed(const struct raw *raw) {
  uint8_t byte;
  assert_int_equal(receive(raw, &byte, 1), 0);
}

static struct raw raw_connect(const rdzv_server *server) {
  const uint8_t hello[] = {0, 0xce, 0xf7, 0x85, 0x3c, 13, 0xff, 0xff, 0xff, 0xff, 13, 0xfe, 0xff, 0xff, 0xff};
  const struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                      .sin_port = htons((uint16_t)rdzv_server_port(server))};
  struct raw raw = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  uint8_t greeting[12];
  assert_int_equal(connect(raw.fd, (const struct sockaddr *)&address, sizeof address), 0);
  assert_int_equal(send(raw.fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
  assert_int_equal(receive(&raw, greeting, sizeof greeting), sizeof greeting);
  assert_memory_equal(greeting, "rdz\1", 4);
  assert_answer(&raw, BYTES("\0ses\1"));
  assert_int_equal(receive(&raw, raw.token, TOKEN_BYTES), TOKEN_BYTES);
  return raw;
}

#define DONE BYTES("\0")
#define NUMBER(digit) BYTES("\0" digit "\0\0\0\0\0\0\0")

/* A server and a straight store. */
struct scene {
  rdzv_server *server;
  rdzv_store *store;
};

static int setup_with(void **state, rdzv_server_options options) {
  struct scene *scene = calloc(1, sizeof *scene);
  if (!scene) return -1;
  scene->server = serve_with(options, RDZV_ANY_PORT);
  scene->store = store_of(scene->server);
  *state = scene;
  return 0;
}

static int setup(void **state) { return setup_with(state, (rdzv_server_options){0}); }

/* Its server forgets a session that has no connection. */
static int setup_forgetful(void **state) { return setup_with(state, (rdzv_server_options){.session_timeout_ms = 20}); }

static int teardown(void **state) {
  struct scene *scene = *state;
  rdzv_store_free(scene->store);
  rdzv_server_free(scene->server);
  free(scene);
  return 0;
}

/* A set that was done and is sent again does not undo what somebody else set meanwhile. */
static void test_a_repeated_set_does_not_undo_a_later_one(void **state) {
  const struct scene *scene = *state;
  struct message set = {0}, again = {0};
  const struct raw first = raw_connect(scene->server);
  put_set(&set, "/k", "ours");
  send_to(&first, &set);
  assert_answer(&first, DONE);
  must_set(scene->store, "k", "theirs");
  const struct raw second = raw_connect(scene->server);
  put_session(&again, first.token, 1);
  put_set(&again, "/k", "ours");
  send_to(&second, &again); /* in one segment: it needs no round trip */
  assert_answer(&second, NUMBER("\1"));
  assert_answer(&second, DONE);
  assert_get(scene->store, "k", "theirs");
  send_to(&second, &set); /* the next number is a new one */
  assert_answer(&second, DONE);
  assert_get(scene->store, "k", "ours");
  close(first.fd);
  close(second.fd);
}

/* What arrives late on the connection that a session was taken from is not executed, and the connection is closed. */
static void test_late_bytes_are_fenced(void **state) {
  const struct scene *scene = *state;
  struct message add = {0}, again = {0};
  const struct raw first = raw_connect(scene->server), second = raw_connect(scene->server);
  put_session(&again, first.token, 1);
  put_add(&again, "/n", 1);
  send_to(&second, &again);
  assert_answer(&second, NUMBER("\0")); /* nothing was done yet */
  assert_answer(&second, NUMBER("\1"));
  put_add(&add, "/n", 1);
  send_to(&first, &add);
  assert_closed(&first);
  assert_int_equal(must_add(scene->store, "n", 0), 1);
  close(first.fd);
  close(second.fd);
}

/* An item that was popped is not lost with the answer, and no other one is popped in its place. */
static void test_a_popped_item_is_given_again(void **state) {
  const struct scene *scene = *state;
  const uint8_t ops[] = {QUEUE_POP, QUEUE_POP_WAIT};
  const rdzv_bytes answers[] = {BYTES("\0\2\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0first"), BYTES("\0\5\0\0\0\0\0\0\0first")};
  for (size_t i = 0; i < COUNT_OF(ops); i++) {
    struct message pop = {0}, again = {0};
    rdzv_value left;
    int64_t len;
    assert_code(rdzv_store_queue_push(scene->store, BYTES("q"), BYTES("first"), NULL), 0);
    assert_code(rdzv_store_queue_push(scene->store, BYTES("q"), BYTES("other"), NULL), 0);
    const struct raw first = raw_connect(scene->server), second = raw_connect(scene->server);
    put_op(&pop, ops[i]);
    put_text(&pop, "/q");
    send_to(&first, &pop);
    assert_answer(&first, answers[i]);
    put_session(&again, first.token, 1);
    put(&again, pop.data, pop.len);
    send_to(&second, &again);
    assert_answer(&second, NUMBER("\1"));
    assert_answer(&second, answers[i]);
    assert_code(rdzv_store_queue_len(scene->store, BYTES("q"), &len, NULL), 0);
    assert_int_equal(len, 1);
    assert_code(rdzv_store_queue_pop(scene->store, BYTES("q"), false, &left, NULL), 0);
    assert_bytes(rdzv_value_bytes(&left), "other");
    rdzv_value_free(&left);
    close(first.fd);
    close(second.fd);
  }
}

/* A pop that waits belongs to the connection that the session is on. */
static void test_a_waiting_pop_moves_with_its_session(void **state) {
  const struct scene *scene = *state;
  struct message pop = {0}, again = {0};
  const struct raw first = raw_connect(scene->server), second = raw_connect(scene->server);
  put_op(&pop, QUEUE_POP_WAIT);
  put_text(&pop, "/q");
  send_to(&first, &pop);
  put_session(&again, first.token, 1);
  put(&again, pop.data, pop.len);
  send_to(&second, &again);
  assert_answer(&second, NUMBER("\0"));
  assert_closed(&first);
  assert_code(rdzv_store_queue_push(scene->store, BYTES("q"), BYTES("item"), NULL), 0);
  assert_answer(&second, BYTES("\0\4\0\0\0\0\0\0\0item"));
  close(first.fd);
  close(second.fd);
}

/* ---- copies that arrive late ----------------------------------------------------------------------------------- */

/* A write that had no effect when it was answered, and would have one by now. */
struct refused_write {
  struct message message;
  rdzv_bytes answer;
  bool is_canceled; /* it waits, and is taken back */
};

static void put_refused(struct refused_write *write, uint8_t op, const char *key, rdzv_bytes fields,
                        rdzv_bytes answer) {
  *write = (struct refused_write){.answer = answer, .is_canceled = op == QUEUE_POP_WAIT};
  put_op(&write->message, op);
  put_text(&write->message, key);
  put(&write->message, fields.data, fields.len);
}

static void assert_untouched(rdzv_store *store) {
  int64_t len;
  assert_get(store, "k", "0");
  assert_code(rdzv_store_queue_len(store, BYTES("q"), &len, NULL), 0);
  assert_int_equal(len, 1);
}

/* The client sent it on a connection, which it gave up, and again on the next one, where it had the answer. Then it may
 * be anywhere, and what comes of the first connection must not be done. */
static void assert_late_copy_is_not_done(const struct scene *scene, const struct refused_write *write,
                                         rdzv_bytes prepared) {
  struct message cancel = {0}, first = {0}, again = {0};
  const struct raw origin = raw_connect(scene->server), lost = raw_connect(scene->server),
                   second = raw_connect(scene->server);
  rdzv_value item;
  if (prepared.len > 0) assert_code(rdzv_store_set(scene->store, BYTES("k"), prepared, NULL), 0);
  put_takeover(&first, origin.token, 1, 1);
  put(&first, write->message.data, write->message.len);
  put_takeover(&again, origin.token, 1, 2);
  put(&again, write->message.data, write->message.len);
  send_to(&second, &again);
  assert_answer(&second, NUMBER("\0"));
  put_op(&cancel, CANCEL_WAIT);
  if (write->is_canceled) send_to(&second, &cancel);
  assert_answer(&second, write->answer);
  must_set(scene->store, "k", "0");
  assert_code(rdzv_store_queue_push(scene->store, BYTES("q"), BYTES("item"), NULL), 0);
  send_to(&lost, &first);
  assert_closed(&lost);
  assert_untouched(scene->store);
  assert_code(rdzv_store_queue_pop(scene->store, BYTES("q"), false, &item, NULL), 0);
  rdzv_value_free(&item);
  assert_code(rdzv_store_delete_key(scene->store, BYTES("k"), NULL, NULL), 0);
  close(origin.fd);
  close(lost.fd);
  close(second.fd);
}

static void test_the_late_copy_of_a_write_that_had_no_effect_is_not_done(void **state) {
  const struct scene *scene = *state;
  struct refused_write write;
  const rdzv_bytes swap = BYTES("\1\0\0\0\0\0\0\0000\3\0\0\0\0\0\0\0new");
  put_refused(&write, COMPARE_SET, "/k", swap, BYTES("\0\5\0\0\0\0\0\0\0other"));
  assert_late_copy_is_not_done(scene, &write, BYTES("other"));
  put_refused(&write, DELETE_KEY, "/k", (rdzv_bytes){0}, NUMBER("\0"));
  assert_late_copy_is_not_done(scene, &write, (rdzv_bytes){0});
  put_refused(&write, ADD, "/k", BYTES("\1\0\0\0\0\0\0\0"), BYTES("\12"));
  assert_late_copy_is_not_done(scene, &write, BYTES("a text"));
  put_refused(&write, QUEUE_POP, "/q", (rdzv_bytes){0}, NUMBER("\0"));
  assert_late_copy_is_not_done(scene, &write, (rdzv_bytes){0});
  put_refused(&write, QUEUE_POP_WAIT, "/q", (rdzv_bytes){0}, BYTES("\1"));
  assert_late_copy_is_not_done(scene, &write, (rdzv_bytes){0});
}

/* A client that gave up on a write and has read since knows what holds: it does not change any more. */
static void test_a_takeover_fences_what_was_sent_before(void **state) {
  const struct scene *scene = *state;
  struct message late = {0}, fence = {0}, add = {0};
  const struct raw origin = raw_connect(scene->server), lost = raw_connect(scene->server),
                   last = raw_connect(scene->server);
  put_takeover(&late, origin.token, 1, 1);
  put_add(&late, "/n", 1);
  put_takeover(&fence, origin.token, 2, 2);
  put_op(&fence, NUM_KEYS);
  send_to(&last, &fence);
  assert_answer(&last, NUMBER("\0"));
  assert_answer(&last, NUMBER("\0"));
  send_to(&lost, &late);
  assert_closed(&lost);
  put_add(&add, "/n", 1);
  send_to(&last, &add); /* which has not lost its session by that */
  assert_answer(&last, NUMBER("\1"));
  send_to(&origin, &add);
  assert_closed(&origin);
  assert_int_equal(must_add(scene->store, "n", 0), 1);
  close(origin.fd);
  close(lost.fd);
  close(last.fd);
}

/* ---- sessions that are forgotten ------------------------------------------------------------------------------- */

/* Tries until the server says of the token that it is forgotten. What was sent behind it is not executed. */
static void await_forgotten(const struct scene *scene, const uint8_t token[TOKEN_BYTES]) {
  const int64_t until = live_now_ms() + SOON_MS;
  uint64_t epoch = 1;
  for (uint8_t status = 0; status != STATUS_UNKNOWN; epoch++) {
    struct message again = {0};
    uint8_t rest[256];
    assert_true(live_now_ms() < until);
    const struct raw raw = raw_connect(scene->server);
    put_takeover(&again, token, 1, epoch);
    put_add(&again, "/n", 1);
    send_to(&raw, &again);
    assert_int_equal(receive(&raw, &status, 1), 1);
    if (status == 0) assert_answer(&raw, BYTES("\1\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"));
    if (status != 0) assert_true(receive(&raw, rest, sizeof rest) < sizeof rest); /* a sentence, and the end */
    close(raw.fd);
    const struct timespec pause = {0, 60 * 1000000};
    nanosleep(&pause, NULL);
  }
}

static void test_a_forgotten_session_is_refused(void **state) {
  const struct scene *scene = *state;
  struct message add = {0};
  const struct raw raw = raw_connect(scene->server);
  put_add(&add, "/n", 1);
  send_to(&raw, &add);
  assert_answer(&raw, NUMBER("\1"));
  close(raw.fd);
  await_forgotten(scene, raw.token);
  assert_int_equal(must_add(scene->store, "n", 0), 1);
}

/* Numbers that cannot be, and tokens that were never given out. */
static void test_what_no_client_sends_is_refused(void **state) {
  const struct scene *scene = *state;
  struct message set = {0}, old = {0}, other = {0}, invented = {0};
  uint8_t status;
  put_set(&set, "/k", "v");
  const struct raw raws[] = {raw_connect(scene->server), raw_connect(scene->server), raw_connect(scene->server)};
  send_to(&raws[0], &set);
  send_to(&raws[0], &set);
  assert_answer(&raws[0], BYTES("\0\0"));
  put_session(&old, raws[0].token, 1); /* two were done: what the first was answered is not known any more */
  put(&old, set.data, set.len);
  send_to(&raws[1], &old);
  assert_answer(&raws[1], NUMBER("\2"));
  assert_int_equal(receive(&raws[1], &status, 1), 1);
  assert_int_equal(status, STATUS_PROTOCOL);
  put_takeover(&other, raws[0].token, 2, 2); /* its second one was no add */
  put_add(&other, "/n", 1);
  const struct raw again = raw_connect(scene->server);
  send_to(&again, &other);
  assert_answer(&again, NUMBER("\2"));
  assert_int_equal(receive(&again, &status, 1), 1);
  assert_int_equal(status, STATUS_PROTOCOL);
  put_session(&invented, (const uint8_t *)"0123456789abcdef", 1);
  put_add(&invented, "/n", 1);
  send_to(&raws[2], &invented);
  assert_int_equal(receive(&raws[2], &status, 1), 1);
  assert_int_equal(status, STATUS_PROTOCOL);
  assert_int_equal(must_add(scene->store, "n", 0), 0);
  for (size_t i = 0; i < COUNT_OF(raws); i++) close(raws[i].fd);
  close(again.fd);
}

/* ---- the store ------------------------------------------------------------------------------------------------- */

struct caller {
  rdzv_store *store;
  int result;
  int64_t sum;
  rdzv_value value;
  rdzv_error error;
  pthread_t thread;
};

static void *add_one(void *arg) {
  struct caller *caller = arg;
  caller->result = rdzv_store_add(caller->store, BYTES("n"), 1, &caller->sum, &caller->error);
  return NULL;
}

static void *pop_one(void *arg) {
  struct caller *caller = arg;
  caller->result = rdzv_store_queue_pop(caller->store, BYTES("q"), true, &caller->value, &caller->error);
  return NULL;
}

/* Until the client has lost its connection and makes another one. */
static void await_accepted(struct proxy *proxy, int connections) {
  const struct timespec moment = {0, 1000000};
  for (const int64_t until = live_now_ms() + SOON_MS; atomic_load(&proxy->accepted) < connections;
       nanosleep(&moment, NULL))
    assert_true(live_now_ms() < until);
}

static void *swap_one(void *arg) {
  struct caller *caller = arg;
  caller->result =
      rdzv_store_compare_set(caller->store, BYTES("k"), BYTES(""), BYTES("late"), &caller->value, &caller->error);
  return NULL;
}

/* The second copy of a swap arrives when the third one has been refused and the key it was refused for is gone. */
static void test_the_late_copy_of_a_refused_swap_is_not_done(void **state) {
  const struct scene *scene = *state;
  struct proxy proxy;
  const rdzv_bytes key = BYTES("k");
  bool there = true;
  proxy_start(&proxy, rdzv_server_port(scene->server));
  struct caller caller = {.store = connect_to(proxy.endpoint)};
  must_set(scene->store, "k", "theirs");
  atomic_store(&proxy.cut, CUT_ANSWER_THEN_LATE);
  swap_one(&caller);
  if (caller.result < 0) fail_msg("%s", caller.error.message);
  assert_bytes(rdzv_value_bytes(&caller.value), "theirs");
  rdzv_value_free(&caller.value);
  assert_int_equal(atomic_load(&proxy.accepted), 3);
  assert_code(rdzv_store_delete_key(scene->store, key, NULL, NULL), 0);
  proxy_deliver(&proxy);
  assert_code(rdzv_store_check(scene->store, &key, 1, &there, NULL), 0);
  assert_false(there);
  rdzv_store_free(caller.store);
  proxy_end(&proxy);
}

/* A client that was away for longer than its session lived cannot know; it says so, and goes on in another one. */
static void test_a_client_whose_session_is_forgotten_does_not_know(void **state) {
  const struct scene *scene = *state;
  struct proxy proxy;
  int dead_port;
  close(peer_listen(1, &dead_port));
  proxy_start(&proxy, rdzv_server_port(scene->server));
  struct caller caller = {.store = connect_to(proxy.endpoint)};
  assert_int_equal(must_add(caller.store, "n", 1), 1);
  atomic_store(&proxy.server_port, dead_port);
  atomic_store(&proxy.cut, CUT_ANSWER);
  assert_int_equal(pthread_create(&caller.thread, NULL, add_one, &caller), 0);
  await_accepted(&proxy, 2);
  struct message add = {0};
  const struct raw raw = raw_connect(scene->server); /* its session ends later; when it is forgotten, so is the other */
  put_add(&add, "/other", 1);
  send_to(&raw, &add);
  assert_answer(&raw, NUMBER("\1"));
  close(raw.fd);
  await_forgotten(scene, raw.token);
  atomic_store(&proxy.server_port, rdzv_server_port(scene->server));
  pthread_join(caller.thread, NULL);
  assert_error(caller.result, RDZV_E_OUTCOME_UNKNOWN, &caller.error, "forgotten the session");
  assert_int_equal(must_add(scene->store, "n", 0), 2); /* it was done, and not twice */
  assert_int_equal(must_add(caller.store, "n", 1), 3);
  rdzv_store_free(caller.store);
  proxy_end(&proxy);
}

/* A write that was under way when the server was restarted: whether it was done or not, its effect is gone. */
static void test_a_write_that_outlives_its_server_is_told_so(void **state) {
  (void)state;
  for (int cut = CUT_REQUEST; cut <= CUT_ANSWER; cut++) {
    rdzv_server *server = serve(), *other = serve();
    struct proxy proxy;
    proxy_start(&proxy, rdzv_server_port(server));
    struct caller caller = {.store = connect_to(proxy.endpoint)};
    assert_int_equal(must_add(caller.store, "n", 1), 1);
    atomic_store(&proxy.server_port, rdzv_server_port(other));
    atomic_store(&proxy.cut, cut);
    add_one(&caller);
    assert_error(caller.result, RDZV_E_DATA_LOST, &caller.error, "restarted");
    assert_int_equal(must_add(caller.store, "n", 1), 1);
    rdzv_store_free(caller.store);
    proxy_end(&proxy);
    rdzv_server_free(server);
    rdzv_server_free(other);
  }
}

/* The connection of a pop that waits is lost with the item on its way. */
static void test_a_pop_whose_item_was_lost_on_the_way_gets_it(void **state) {
  (void)state;
  rdzv_server *server = serve();
  rdzv_store *straight = store_of(server);
  struct proxy proxy;
  int64_t len;
  proxy_start(&proxy, rdzv_server_port(server));
  struct caller caller = {.store = connect_to(proxy.endpoint)};
  const int relayed = atomic_load(&proxy.relayed);
  assert_int_equal(pthread_create(&caller.thread, NULL, pop_one, &caller), 0);
  proxy_await(&proxy, relayed + 1);
  atomic_store(&proxy.cut, CUT_ANSWER);
  assert_code(rdzv_store_queue_push(straight, BYTES("q"), BYTES("item"), NULL), 0);
  assert_code(rdzv_store_queue_push(straight, BYTES("q"), BYTES("next"), NULL), 0);
  pthread_join(caller.thread, NULL);
  if (caller.result < 0) fail_msg("%s", caller.error.message);
  assert_bytes(rdzv_value_bytes(&caller.value), "item");
  rdzv_value_free(&caller.value);
  assert_code(rdzv_store_queue_len(straight, BYTES("q"), &len, NULL), 0);
  assert_int_equal(len, 1);
  rdzv_store_free(caller.store);
  rdzv_store_free(straight);
  proxy_end(&proxy);
  rdzv_server_free(server);
}

#define IN_A_SCENE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
#define IN_A_FORGETFUL_SCENE(test) cmocka_unit_test_setup_teardown(test, setup_forgetful, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_A_SCENE(test_a_repeated_set_does_not_undo_a_later_one),
      IN_A_SCENE(test_late_bytes_are_fenced),
      IN_A_SCENE(test_a_popped_item_is_given_again),
      IN_A_SCENE(test_a_waiting_pop_moves_with_its_session),
      IN_A_SCENE(test_the_late_copy_of_a_write_that_had_no_effect_is_not_done),
      IN_A_SCENE(test_a_takeover_fences_what_was_sent_before),
      IN_A_FORGETFUL_SCENE(test_a_forgotten_session_is_refused),
      IN_A_SCENE(test_what_no_client_sends_is_refused),
      IN_A_SCENE(test_the_late_copy_of_a_refused_swap_is_not_done),
      IN_A_FORGETFUL_SCENE(test_a_client_whose_session_is_forgotten_does_not_know),
      cmocka_unit_test(test_a_write_that_outlives_its_server_is_told_so),
      cmocka_unit_test(test_a_pop_whose_item_was_lost_on_the_way_gets_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
