/* SPDX-License-Identifier: BSD-3-Clause */
/* Both ends of a protected connection, in memory: each cut, each changed byte, and what each end makes of the other. */
#include "tls_pair.h"

static const char *file_a, *file_b, *file_both;

static int set_up(void **state) {
  (void)state;
  file_a = secret_file(0, SECRET_A "\n", 0600);
  file_b = secret_file(1, SECRET_B "\n", 0600);
  file_both = secret_file(2, SECRET_B "\n" SECRET_A "\n", 0600);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  unlink(file_a), unlink(file_b), unlink(file_both);
  return 0;
}

static void assert_meet(const char *at_server, const char *at_client) {
  struct tls_pair pair = {0};
  int server, client;
  pair_contexts(&pair, at_server, at_client);
  pair_open(&pair);
  pair_shake(&pair, &server, &client, NULL);
  assert_int_equal(server, 1);
  assert_int_equal(client, 1);
  pair_free(&pair);
}

static void test_both_ends_have_the_secret(void **state) {
  (void)state;
  assert_meet(file_a, file_a);
}

/* A server accepts each secret of its file, a client proves the first of its own. */
static void test_a_server_accepts_each_of_its_secrets(void **state) {
  (void)state;
  assert_meet(file_both, file_a);
  assert_meet(file_both, file_b);
  assert_meet(file_b, file_both);
}

static void test_another_secret_is_refused_by_both(void **state) {
  (void)state;
  struct tls_pair pair = {0};
  rdzv_error error;
  int server, client;
  pair_contexts(&pair, file_a, file_b);
  pair_open(&pair);
  pair_shake(&pair, &server, &client, &error);
  assert_int_equal(server, RDZV_E_PROTOCOL);
  assert_string_equal(tls_why(pair.server), "its secret is not in the secret file");
  assert_error(client, RDZV_E_PROTOCOL, &error, "the server does not accept the secret");
  pair_free(&pair);
}

/* Sends data in one direction. */
static void pass(struct tls_stream *from, struct tls_stream *to, size_t len) {
  uint8_t *data = malloc(len), *out = malloc(2 * len + 2 * TLS_RECORD);
  assert_non_null(data);
  assert_non_null(out);
  for (size_t i = 0; i < len; i++) data[i] = (uint8_t)(i * 7 + i / 251);
  assert_int_equal(tls_write(from, data, len, NULL), 0);
  const rdzv_bytes cipher = tls_output(from);
  if (len > 32) assert_null(memmem(cipher.data, cipher.len, data, 32)); /* it is not to be seen */
  size_t got = 0;
  for (size_t at = 0; at < cipher.len;) { /* in pieces of all lengths */
    const size_t piece = at % 4099 + 1 < cipher.len - at ? at % 4099 + 1 : cipher.len - at;
    size_t part;
    const size_t room = tls_room(to, piece);
    tls_feed(to, (const uint8_t *)cipher.data + at, piece);
    assert_true(room <= piece + TLS_RECORD);
    assert_int_equal(tls_read(to, out + got, room, &part, NULL), 0);
    got += part;
    at += piece;
  }
  assert_int_equal(got, len);
  assert_memory_equal(out, data, len);
  tls_sent(from, cipher.len);
  free(data);
  free(out);
}

static void test_data_arrives_whole_in_both_directions(void **state) {
  (void)state;
  static const size_t sizes[] = {1, 17, 16384, 16385, 1000000};
  struct tls_pair pair = {0};
  int server, client;
  pair_contexts(&pair, file_a, file_a);
  pair_open(&pair);
  pair_shake(&pair, &server, &client, NULL);
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    pass(pair.client_end, pair.server, sizes[i]);
    pass(pair.server, pair.client_end, sizes[i]);
  }
  pair_free(&pair);
}

/* A hello that is cut anywhere is neither complete nor an error, and is not answered. */
static void test_a_hello_that_is_cut_waits(void **state) {
  (void)state;
  struct tls_pair pair = {0};
  uint8_t hello[4096];
  pair_contexts(&pair, file_a, file_a);
  pair_open(&pair);
  const size_t len = pair_hello(&pair, hello, sizeof hello);
  for (size_t i = 0; i < len; i++) {
    tls_feed(pair.server, hello + i, 1);
    const int result = tls_handshake(pair.server, NULL);
    assert_int_equal(result, 0);
    assert_int_equal(tls_output(pair.server).len > 0, i + 1 == len);
  }
  pair_free(&pair);
}

/* The client's proof covers each byte of its hello: none can be changed on the way. */
static void test_a_changed_hello_is_never_good(void **state) {
  (void)state;
  struct tls_pair pair = {0};
  uint8_t hello[4096], answer[8192];
  pair_contexts(&pair, file_a, file_a);
  pair_open(&pair);
  const size_t len = pair_hello(&pair, hello, sizeof hello);
  for (size_t i = 0; i < len; i++) {
    if (i == 1 || i == 2) continue; /* the version of the record, which RFC 8446, 5.1 says to ignore */
    struct tls_stream *server;
    assert_int_equal(tls_open(pair.server_context, NULL, &server, NULL), 0);
    hello[i] ^= (uint8_t)(1 << i % 8);
    tls_feed(server, hello, len);
    const int result = tls_handshake(server, NULL);
    const size_t out = pair_take(server, answer, sizeof answer);
    const bool agreed = result >= 0 && out > 7; /* more than an alert */
    if (agreed) fail_msg("byte %zu can be changed", i);
    hello[i] ^= (uint8_t)(1 << i % 8);
    tls_close(server);
  }
  pair_free(&pair);
}

/* The same for the server's answer, on its way to the client. */
static void test_a_changed_answer_is_never_good(void **state) {
  (void)state;
  struct tls_pair pair = {0};
  uint8_t hello[4096], answer[8192];
  pair_contexts(&pair, file_a, file_a);
  for (size_t i = 0, len = 1; i < len; i++) {
    pair_open(&pair);
    const size_t said = pair_hello(&pair, hello, sizeof hello);
    tls_feed(pair.server, hello, said);
    assert_int_equal(tls_handshake(pair.server, NULL), 0);
    len = pair_take(pair.server, answer, sizeof answer);
    answer[i] ^= (uint8_t)(1 << i % 8);
    tls_feed(pair.client_end, answer, len);
    const bool is_version = i == 1 || i == 2; /* of the first record, as above */
    if (tls_handshake(pair.client_end, NULL) == 1 && !is_version) fail_msg("byte %zu of %zu can be changed", i, len);
    pair_close(&pair);
  }
  pair_free(&pair);
}

/* What a client has sent in one connection is nothing in another: the server's part of the key is another one. */
static void test_a_replayed_connection_is_refused(void **state) {
  (void)state;
  struct tls_pair pair = {0};
  uint8_t hello[4096], answer[8192], rest[4096], out[8192 + TLS_RECORD];
  pair_contexts(&pair, file_a, file_a);
  pair_open(&pair);
  const size_t said = pair_hello(&pair, hello, sizeof hello);
  tls_feed(pair.server, hello, said);
  assert_int_equal(tls_handshake(pair.server, NULL), 0);
  tls_feed(pair.client_end, answer, pair_take(pair.server, answer, sizeof answer));
  assert_int_equal(tls_handshake(pair.client_end, NULL), 1);
  assert_int_equal(tls_write(pair.client_end, "a request", 9, NULL), 0);
  const size_t more = pair_take(pair.client_end, rest, sizeof rest);
  struct tls_stream *other;
  assert_int_equal(tls_open(pair.server_context, NULL, &other, NULL), 0);
  tls_feed(other, hello, said);
  assert_int_equal(tls_handshake(other, NULL), 0); /* the hello alone is as good as new */
  tls_feed(other, rest, more);
  assert_int_equal(tls_handshake(other, NULL), RDZV_E_PROTOCOL);
  size_t got;
  assert_int_not_equal(tls_read(other, out, sizeof out, &got, NULL), 0);
  assert_int_equal(got, 0);
  tls_close(other);
  pair_free(&pair);
}

/* A client whose secret was taken out of the file is not one of the new context's. */
static void test_a_removed_secret_is_not_known(void **state) {
  (void)state;
  struct tls_pair pair = {0}, later = {0};
  int server, client;
  pair_contexts(&pair, file_both, file_a);
  pair_contexts(&later, file_b, file_b);
  pair_open(&pair);
  pair_shake(&pair, &server, &client, NULL);
  assert_true(tls_is_known(pair.server, pair.server_context));
  assert_false(tls_is_known(pair.server, later.server_context));
  pair_free(&pair);
  pair_free(&later);
}

/* A client reads its file again if it was replaced, for the next connection. */
static void test_a_client_takes_a_replaced_file(void **state) {
  (void)state;
  const char *path = secret_file(3, SECRET_A "\n", 0600);
  const struct tls_names names = {.secret = path};
  struct tls_client *one, *two;
  struct tls_context *first, *same, *other;
  assert_int_equal(tls_client_open(&names, &one, NULL), 0);
  assert_int_equal(tls_client_open(&names, &two, NULL), 0);
  assert_ptr_equal(one, two);
  assert_int_equal(tls_client_context(one, &first, NULL), 0);
  assert_int_equal(tls_client_context(one, &same, NULL), 0);
  assert_ptr_equal(first, same);
  secret_file(3, SECRET_B "\n", 0600);
  assert_int_equal(tls_client_context(one, &other, NULL), 0);
  assert_ptr_not_equal(first, other);
  unlink(path);
  struct tls_context *none;
  assert_int_equal(tls_client_context(one, &none, NULL), RDZV_E_IO);
  tls_context_drop(first), tls_context_drop(same), tls_context_drop(other);
  tls_client_drop(one), tls_client_drop(two);
}

static void test_files_that_do_not_go_together_are_refused(void **state) {
  (void)state;
  static const struct {
    struct tls_names names;
    const char *client, *server; /* NULL: they do */
  } cases[] = {
      {{.secret = "s"}, NULL, NULL},
      {{.ca = "c"}, NULL, NULL},
      {{.secret = "s", .ca = "c"}, "not both", NULL},
      {{.cert = "x", .key = "k"}, "tls_ca", NULL},
      {{.cert = "x"}, "tls_ca", "tls_key"},
      {{.ca = "c", .key = "k"}, "tls_cert", "tls_cert"},
      {{.client_ca = "c"}, NULL, "needs a certificate itself"},
      {{.secret = "s", .cert = "x", .key = "k"}, "tls_ca", "tls_client_ca"},
      {{.secret = "s", .cert = "x", .key = "k", .client_ca = "c"}, "tls_ca", NULL},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    rdzv_error error = {0};
    assert_int_equal(tls_names_check_client(&cases[i].names, &error), cases[i].client ? RDZV_E_INVALID : 0);
    if (cases[i].client) assert_non_null(strstr(error.message, cases[i].client));
    assert_int_equal(tls_names_check_server(&cases[i].names, &error), cases[i].server ? RDZV_E_INVALID : 0);
    if (cases[i].server) assert_non_null(strstr(error.message, cases[i].server));
  }
}

/* The variable counts where nothing is said; "" is something. */
static void test_the_environment_names_a_secret(void **state) {
  (void)state;
  struct tls_names silent = {0}, none = {.secret = ""}, other = {.ca = "c"};
  setenv("RDZV_SECRET_FILE", "/a/secret", 1);
  tls_names_settle(&silent), tls_names_settle(&none), tls_names_settle(&other);
  assert_string_equal(silent.secret, "/a/secret");
  assert_false(tls_names_any(&none));
  assert_null(other.secret);
  setenv("RDZV_SECRET_FILE", "", 1);
  silent = (struct tls_names){0};
  tls_names_settle(&silent);
  assert_false(tls_names_any(&silent));
  unsetenv("RDZV_SECRET_FILE");
}

int main(void) {
  unsetenv("RDZV_SECRET_FILE");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_both_ends_have_the_secret),
      cmocka_unit_test(test_a_server_accepts_each_of_its_secrets),
      cmocka_unit_test(test_another_secret_is_refused_by_both),
      cmocka_unit_test(test_data_arrives_whole_in_both_directions),
      cmocka_unit_test(test_a_hello_that_is_cut_waits),
      cmocka_unit_test(test_a_changed_hello_is_never_good),
      cmocka_unit_test(test_a_changed_answer_is_never_good),
      cmocka_unit_test(test_a_replayed_connection_is_refused),
      cmocka_unit_test(test_a_removed_secret_is_not_known),
      cmocka_unit_test(test_a_client_takes_a_replaced_file),
      cmocka_unit_test(test_files_that_do_not_go_together_are_refused),
      cmocka_unit_test(test_the_environment_names_a_secret),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
