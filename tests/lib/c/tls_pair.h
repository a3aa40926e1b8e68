/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ends of TLS in memory, with secrets or certificates of the test's. */
#ifndef RDZV_TEST_TLS_PAIR_H
#define RDZV_TEST_TLS_PAIR_H

#include "tls/stream.h"
#include "unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET_A "this is the secret of the tests, number a"
#define SECRET_B "this is the secret of the tests, number b"

/* Writes a file with that mode, and returns its name, which is static for each place. */
static inline const char *secret_file(int place, const char *text, mode_t mode) {
  static char names[8][64];
  snprintf(names[place], sizeof names[place], "/tmp/rdzv-test-secret-%d-%d", (int)getpid(), place);
  unlink(names[place]);
  const int fd = open(names[place], O_WRONLY | O_CREAT | O_EXCL, 0600);
  assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fchmod(fd, mode) == 0);
  close(fd);
  return names[place];
}

struct tls_pair {
  struct tls_context *server_context, *client_context;
  struct tls_client *client;
  struct tls_stream *server, *client_end;
};

static inline void pair_contexts(struct tls_pair *pair, const char *server_secret, const char *client_secret) {
  rdzv_error error;
  const struct tls_names at_server = {.secret = server_secret}, at_client = {.secret = client_secret};
  if (tls_context_server(&at_server, &pair->server_context, &error) < 0) fail_msg("%s", error.message);
  if (tls_client_open(&at_client, &pair->client, &error) < 0) fail_msg("%s", error.message);
  if (tls_client_context(pair->client, &pair->client_context, &error) < 0) fail_msg("%s", error.message);
}

static inline void pair_open(struct tls_pair *pair) {
  assert_int_equal(tls_open(pair->server_context, NULL, &pair->server, NULL), 0);
  assert_int_equal(tls_open(pair->client_context, "localhost", &pair->client_end, NULL), 0);
}

static inline void pair_close(struct tls_pair *pair) {
  tls_close(pair->server);
  tls_close(pair->client_end);
  pair->server = pair->client_end = NULL;
}

static inline void pair_free(struct tls_pair *pair) {
  pair_close(pair);
  tls_context_drop(pair->server_context);
  tls_context_drop(pair->client_context);
  tls_client_drop(pair->client);
}

/* Takes what is for the peer out of a stream. */
static inline size_t pair_take(struct tls_stream *from, uint8_t *to, size_t cap) {
  const rdzv_bytes out = tls_output(from);
  assert_true(out.len <= cap);
  if (out.len > 0) memcpy(to, out.data, out.len);
  tls_sent(from, out.len);
  return out.len;
}

/* The client's hello. */
static inline size_t pair_hello(struct tls_pair *pair, uint8_t *to, size_t cap) {
  assert_int_equal(tls_handshake(pair->client_end, NULL), 0);
  return pair_take(pair->client_end, to, cap);
}

/* Both ends, to the end: what each of them came to. */
static inline void pair_shake(struct tls_pair *pair, int *server, int *client, rdzv_error *error) {
  uint8_t hello[4096], answer[8192], rest[4096];
  const size_t len = pair_hello(pair, hello, sizeof hello);
  tls_feed(pair->server, hello, len);
  *server = tls_handshake(pair->server, NULL);
  const size_t answered = pair_take(pair->server, answer, sizeof answer);
  tls_feed(pair->client_end, answer, answered);
  *client = tls_handshake(pair->client_end, error);
  const size_t more = pair_take(pair->client_end, rest, sizeof rest);
  if (*server != 0) return;
  tls_feed(pair->server, rest, more);
  *server = tls_handshake(pair->server, NULL);
}

#endif
