/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/net/foreign.h"

#include "base/net/net.h"

#include <string.h>

enum { QUESTIONS = 2, MOST = 2048 /* of an answer */ };

/* etcd tells of itself there; a server of HTTPS says in HTTP that it is one. */
static const char http_question[] = "GET /version HTTP/1.0\r\n\r\n";

/* A ClientHello of TLS 1.2 without extensions, which OpenSSL answers, if only with an alert. RFC 5246, 7.4.1.2. */
static const char tls_question[] =
    "\x16\x03\x01\x00\x31"             /* a record */
    "\x01\x00\x00\x2d"                 /* of a hello */
    "\x03\x03"                         /* of TLS 1.2, */
    "rdzv asks: is it TLS that you ar" /* random, */
    "\x00"                             /* no session, */
    "\x00\x06\xc0\x2f\xc0\x30\x00\x2f" /* ciphers, */
    "\x01\x00";                        /* uncompressed */

rdzv_bytes foreign_question(int which) {
  return which == 0 ? (rdzv_bytes){http_question, sizeof http_question - 1}
                    : (rdzv_bytes){tls_question, sizeof tls_question - 1};
}

bool foreign_is_question(rdzv_bytes bytes) {
  for (int i = 0; i < QUESTIONS; i++) {
    const rdzv_bytes question = foreign_question(i);
    if (bytes.len == question.len && memcmp(bytes.data, question.data, question.len) == 0) return true;
  }
  return false;
}

static bool begins(rdzv_bytes answer, const char *text) {
  const size_t len = strlen(text);
  return answer.len >= len && memcmp(answer.data, text, len) == 0;
}

static bool has(rdzv_bytes answer, const char *text) {
  return memmem(answer.data, answer.len, text, strlen(text)) != NULL;
}

enum foreign foreign_recognize(rdzv_bytes answer) {
  if (answer.len == 0) return FOREIGN_UNKNOWN;
  if (begins(answer, "SSH-")) return FOREIGN_SSH;
  if (begins(answer, "\x15\x03") || begins(answer, "\x16\x03")) return FOREIGN_TLS;
  if (!begins(answer, "HTTP/")) return FOREIGN_UNKNOWN;
  if (has(answer, "HTTPS") || has(answer, "SSL-enabled")) return FOREIGN_TLS; /* Go and nginx; Apache */
  return has(answer, "etcdserver") || has(answer, "X-Etcd-") ? FOREIGN_ETCD : FOREIGN_HTTP;
}

enum foreign foreign_ask(const struct endpoint *endpoint, deadline until, const struct flag *cancel) {
  enum foreign found = FOREIGN_UNKNOWN;
  for (int i = 0; i < QUESTIONS && found == FOREIGN_UNKNOWN && deadline_left(until) > 0; i++) {
    char answer[MOST];
    const size_t len = net_ask(endpoint, foreign_question(i), answer, sizeof answer, until, cancel);
    found = foreign_recognize((rdzv_bytes){answer, len});
  }
  return found;
}
