/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/foreign.h"

#include <stdint.h>
#include <string.h>

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

/* VALIDATE, and a PING whose number PyTorch's servers from 2.5 on, and ours, send back; NUM_KEYS of PyTorch 1.x. */
static const char ping_question[] = "\x00\xce\xf7\x85\x3c\x0d?rdz";
static const char count_question[] = "\x06";

rdzv_bytes foreign_store_question(int which) {
  return which == 0 ? (rdzv_bytes){ping_question, sizeof ping_question - 1}
                    : (rdzv_bytes){count_question, sizeof count_question - 1};
}

bool foreign_is_store(int which, rdzv_bytes answer) {
  int64_t count;
  if (which == 0) return answer.len == 4 && memcmp(answer.data, "?rdz", 4) == 0;
  if (answer.len != sizeof count) return false;
  memcpy(&count, answer.data, sizeof count);
  return count >= 0 && count <= UINT32_MAX;
}

static bool begins(rdzv_bytes answer, const char *text) {
  const size_t len = strlen(text);
  return answer.len >= len && memcmp(answer.data, text, len) == 0;
}

static bool has(rdzv_bytes answer, const char *text) {
  return memmem(answer.data, answer.len, text, strlen(text)) != NULL;
}

enum wire_foreign foreign_recognize(rdzv_bytes answer) {
  if (answer.len == 0) return FOREIGN_UNKNOWN;
  if (begins(answer, "SSH-")) return FOREIGN_SSH;
  if (begins(answer, "\x15\x03") || begins(answer, "\x16\x03")) return FOREIGN_TLS;
  if (!begins(answer, "HTTP/")) return FOREIGN_UNKNOWN;
  if (has(answer, "HTTPS") || has(answer, "SSL-enabled")) return FOREIGN_TLS; /* Go and nginx; Apache */
  return has(answer, "etcdserver") || has(answer, "X-Etcd-") ? FOREIGN_ETCD : FOREIGN_HTTP;
}

const char *foreign_text(enum wire_foreign foreign) {
  switch (foreign) {
    case FOREIGN_ETCD: return "etcd answers there (is it meant? --rdzv-backend etcd-v2, or rdzv store --etcd)";
    case FOREIGN_HTTP: return "a web server answers there, not a store (is the port right?)";
    case FOREIGN_TLS:
      return "a server that wants TLS answers there, not a store (is the port right? for etcd with TLS: "
             "--rdzv-backend etcd-v2 --rdzv-conf protocol=https)";
    case FOREIGN_SSH: return "an SSH server answers there, not a store (is the port right?)";
    case FOREIGN_UNKNOWN: break;
  }
  return NULL;
}
