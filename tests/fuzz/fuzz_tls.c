/* SPDX-License-Identifier: BSD-3-Clause */
/* What a stranger sends to a protected server: cut anywhere, it never completes the handshake, nothing of it is taken
 * for a request, and the answer is records of TLS. The secret is random, so that no input can have it. */
#include "fuzz.h"
#include "tls/stream.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

static struct tls_context *context_of(void) {
  char path[] = "/tmp/rdzv-fuzz-XXXXXX", text[65];
  uint8_t random[32];
  struct tls_context *context = NULL;
  const struct tls_names names = {.secret = path};
  rdzv_error error;
  const int fd = mkstemp(path);
  CHECK(fd >= 0 && getrandom(random, sizeof random, 0) == sizeof random);
  for (size_t i = 0; i < sizeof random; i++) snprintf(text + 2 * i, 3, "%02x", random[i]);
  CHECK(write(fd, text, 64) == 64);
  close(fd);
  CHECK(tls_context_server(&names, &context, &error) == 0);
  unlink(path);
  return context;
}

/* Whole records, each of a kind that may be in an answer. */
static void check_records(rdzv_bytes out) {
  const uint8_t *data = out.data;
  for (size_t at = 0; at < out.len;) {
    CHECK(out.len - at >= 5); /* the version of an alert may be the one that the client has sent */
    CHECK(data[at] == 20 || data[at] == 21 || data[at] == 22); /* change of cipher, alert, handshake: no data */
    at += 5 + (size_t)(data[at + 3] << 8 | data[at + 4]);
    CHECK(at <= out.len);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  static struct tls_context *context;
  if (!context) context = context_of();
  struct tls_stream *stream;
  uint64_t seed = fuzz_seed(data, len);
  CHECK(tls_open(context, NULL, &stream, NULL) == 0);
  for (size_t at = 0; at < len;) {
    const size_t piece = fuzz_step(&seed, len - at);
    uint8_t *copy = fuzz_copy(data + at, piece), out[TLS_RECORD + 64];
    size_t got = 0;
    tls_feed(stream, copy, piece);
    const int result = tls_handshake(stream, NULL);
    CHECK(result != 1);
    check_records(tls_output(stream));
    tls_sent(stream, tls_output(stream).len);
    const int read = result < 0 ? tls_read(stream, out, sizeof out, &got, NULL) : -1;
    CHECK(read < 0 && got == 0);
    free(copy);
    if (result < 0) {
      CHECK(*tls_why(stream));
      break;
    }
    at += piece;
  }
  tls_close(stream);
  return 0;
}
