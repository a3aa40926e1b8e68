/* SPDX-License-Identifier: BSD-3-Clause */
/* What a caller of a tcp store gets for each status that a server can send: a server of this test sends them all. */
#include "live.h"
#include "wire/writer.h"

#include <stdatomic.h>

#define SENTENCE "the sentence of the server"

enum { SHORT_MS = 2000 };

/* Answers the greeting, and refuses what follows. */
struct refuser {
  int listener, port;
  char endpoint[32];
  atomic_int status;
  atomic_bool in_greeting; /* refuses the second half of that */
  bool with_node;          /* as the refusal of an operation of nodes */
  pthread_t thread;
};

static void put_text(struct wire_writer *out, uint8_t status, bool with_node) {
  wire_put8(out, status);
  if (!with_node) {
    wire_put_bytes(out, rdzv_str(SENTENCE));
    return;
  }
  wire_put64(out, 1 + 8 + strlen(SENTENCE));
  wire_put_op(out, WIRE_DIALECT_RDZV, WIRE_OP_NODE_QUERY);
  wire_put64(out, 7);
  wire_put(out, SENTENCE, strlen(SENTENCE));
}

/* One client: VALIDATE and two PINGs come first, then a request. */
static void serve_one(struct refuser *refuser, int fd) {
  enum { GREETING = 15 };
  uint8_t bytes[4096];
  struct wire_writer out = {0};
  if (recv(fd, bytes, GREETING, MSG_WAITALL) != GREETING) return;
  wire_put32(&out, WIRE_HELLO_ANSWER);
  wire_put64(&out, 1);
  if (!atomic_load(&refuser->in_greeting)) {
    wire_put8(&out, WIRE_BYTE_DONE);
    wire_put32(&out, WIRE_SESSION_NONCE); /* no session */
    send(fd, out.buf.data, out.buf.len, MSG_NOSIGNAL);
    out.buf.len = 0;
    if (recv(fd, bytes, sizeof bytes, 0) <= 0) out.failed = true;
  }
  put_text(&out, (uint8_t)atomic_load(&refuser->status), refuser->with_node);
  send(fd, out.buf.data, out.buf.len, MSG_NOSIGNAL);
  if (recv(fd, bytes, sizeof bytes, 0) < 0) out.failed = true; /* until the client closes */
  buf_free(&out.buf);
}

static void *serve_all(void *argument) {
  struct refuser *refuser = argument;
  for (;;) {
    const int fd = accept4(refuser->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return NULL;
    serve_one(refuser, fd);
    close(fd);
  }
}

static int setup(void **state) {
  struct refuser *refuser = calloc(1, sizeof *refuser);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof address;
  if (!refuser) return -1;
  refuser->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(refuser->listener, (struct sockaddr *)&address, len) < 0 || listen(refuser->listener, 16) < 0) return -1;
  getsockname(refuser->listener, (struct sockaddr *)&address, &len);
  snprintf(refuser->endpoint, sizeof refuser->endpoint, "127.0.0.1:%d", ntohs(address.sin_port));
  *state = refuser;
  return pthread_create(&refuser->thread, NULL, serve_all, refuser);
}

static int teardown(void **state) {
  struct refuser *refuser = *state;
  shutdown(refuser->listener, SHUT_RDWR);
  pthread_join(refuser->thread, NULL);
  close(refuser->listener);
  free(refuser);
  return 0;
}

/* What the caller gets, for a status that is that of a code, or of none. */
static int expected(int status) {
  switch (-status) {
    case RDZV_E_TIMEOUT: return RDZV_E_CONNECTION; /* the server gave the connection up: tried again until the end */
    case RDZV_E_CANCELED: return RDZV_E_PROTOCOL;  /* the caller did not cancel */
    default: return strcmp(rdzv_error_name(-status), "UNKNOWN") == 0 ? RDZV_E_PROTOCOL : -status;
  }
}

static void every_status_has_its_code_and_the_sentence(void **state) {
  struct refuser *refuser = *state;
  for (int status = 2; status < 256; status++) {
    atomic_store(&refuser->status, status);
    const int code = expected(status);
    rdzv_store *store = connect_to(refuser->endpoint);
    rdzv_error error = {0};
    const int result = rdzv_store_set(store, BYTES("k"), BYTES("v"), &error);
    if (result != code) print_error("status %d: %s\n", status, error.message);
    assert_error(result, code, &error, code == RDZV_E_NOT_A_NUMBER ? rdzv_error_text(code) : SENTENCE);
    rdzv_store_free(store);
  }
}

static void a_refused_operation_of_nodes_tells_its_sentence(void **state) {
  struct refuser *refuser = *state;
  refuser->with_node = true;
  atomic_store(&refuser->status, -RDZV_E_NO_SPACE);
  rdzv_store *store = connect_to(refuser->endpoint);
  rdzv_error error = {0};
  assert_error(rdzv_store_set(store, BYTES("k"), BYTES("v"), &error), RDZV_E_NO_SPACE, &error,
               "refused by the server: " SENTENCE);
  rdzv_store_free(store);
}

/* A server that stops, or is full, may refuse between two answers of the greeting: a client tries again. */
static void a_refusal_in_the_greeting_is_tried_again(void **state) {
  struct refuser *refuser = *state;
  static const int codes[] = {RDZV_E_STOPPED, RDZV_E_LIMIT};
  atomic_store(&refuser->in_greeting, true);
  for (size_t i = 0; i < COUNT_OF(codes); i++) {
    atomic_store(&refuser->status, -codes[i]);
    const rdzv_tcp_options options = {.size = sizeof options, .timeout_ms = SHORT_MS};
    rdzv_store *store;
    rdzv_error error = {0};
    assert_error(rdzv_store_open_tcp(refuser->endpoint, &options, &store, &error), RDZV_E_CONNECTION, &error, SENTENCE);
  }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(every_status_has_its_code_and_the_sentence),
      TEST(a_refused_operation_of_nodes_tells_its_sentence),
      TEST(a_refusal_in_the_greeting_is_tried_again),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
