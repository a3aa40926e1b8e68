/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/os/descriptors.h"
#include "etcd/http/transfer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_about_certificates(int code) {
  switch (code) {
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CIPHER:
    case CURLE_USE_SSL_FAILED: return true;
    default: return false;
  }
}

/* "http://10.0.0.7:2379", the part of a URL that a person needs to know. */
struct server_text {
  char text[300];
};

static struct server_text server_of(const char *url) {
  struct server_text server;
  const char *host = strstr(url, "://");
  const size_t len = host ? (size_t)(host + 3 - url) + strcspn(host + 3, "/?") : strlen(url);
  snprintf(server.text, sizeof server.text, "%.*s", (int)len, url);
  return server;
}

/* curl's sentence on a certificate does not always say which file or name it is about. */
static int fail_certificate(const struct http_transfer *transfer, const char *server, int code, rdzv_error *error) {
  const struct http_identity *identity = &transfer->line->identity;
  const char *reason = transfer->reason[0] ? transfer->reason : curl.easy_strerror((CURLcode)code);
  if (code == CURLE_PEER_FAILED_VERIFICATION)
    return error_set(error, RDZV_E_INVALID, "the certificate of %s does not verify%s%s: %s", server,
                     identity->ca_cert ? " with " : "", identity->ca_cert ? identity->ca_cert : "", reason);
  if (code == CURLE_SSL_CACERT_BADFILE)
    return error_set(error, RDZV_E_INVALID, "cannot use the CA certificates in '%s': %s",
                     identity->ca_cert ? identity->ca_cert : "", reason);
  return error_set(error, RDZV_E_INVALID, "cannot use the client certificate '%s' with key '%s': %s",
                   identity->cert ? identity->cert : "", identity->key ? identity->key : "", reason);
}

/* Their side ended TLS with an alert about our certificate. */
static bool is_refused_certificate(const struct http_transfer *transfer) {
  return strstr(transfer->reason, "alert") &&
         (strstr(transfer->reason, "certificate") || strstr(transfer->reason, "unknown ca"));
}

static int fail_refused_certificate(const struct http_transfer *transfer, const char *server, rdzv_error *error) {
  const char *cert = transfer->line->identity.cert;
  if (!cert)
    return error_set(error, RDZV_E_INVALID, "%s requires a client certificate (options cert and key): %s", server,
                     transfer->reason);
  return error_set(error, RDZV_E_INVALID, "%s refuses the client certificate '%s': %s", server, cert, transfer->reason);
}

static const char *cure(int errnum) {
  switch (errnum) {
    case ECONNREFUSED: return " (is etcd up, and the port right?)";
    case EHOSTUNREACH:
    case ENETUNREACH: return " (check the address and the route)";
    default: return "";
  }
}

/* The connection was not accepted. */
static int fail_connect(const struct http_transfer *transfer, const char *server, int code, rdzv_error *error) {
  long errnum = 0;
  if (code == CURLE_COULDNT_RESOLVE_HOST)
    return error_set(error, RDZV_E_CONNECTION, "%s: cannot resolve the name (is it right, and known to this machine?)",
                     server);
  curl.easy_getinfo(transfer->easy, CURLINFO_OS_ERRNO, &errnum);
  const int lack = errnum == 0 ? descriptors_lack(1) : 0; /* curl does not say so */
  if (lack) return error_errno(error, RDZV_E_CONNECTION, lack, "%s: cannot open a socket", server);
  if (code == CURLE_COULDNT_CONNECT && errnum != 0) {
    char text[128];
    return error_set(error, RDZV_E_CONNECTION, "%s: %s%s", server, strerror_r((int)errnum, text, sizeof text),
                     cure((int)errnum));
  }
  return error_set(error, RDZV_E_CONNECTION, "%s: %s", server,
                   transfer->reason[0] ? transfer->reason : curl.easy_strerror((CURLcode)code));
}

static int fail_no_answer(const struct http_transfer *transfer, const char *server, int code, enum http_reach reach,
                          rdzv_error *error) {
  if (reach == HTTP_REACH_NONE && code != RDZV_E_TIMEOUT) return fail_connect(transfer, server, code, error);
  if (code == RDZV_E_TIMEOUT)
    return error_set(error, code, "%s: no answer in time (%s)", server,
                     reach == HTTP_REACH_NONE ? "is the machine up? does a firewall drop packets?"
                                              : "it accepts connections: is it etcd, and is it running?");
  return error_set(error, RDZV_E_CONNECTION, "%s: the connection was closed without an answer: %s", server,
                   transfer->reason[0] ? transfer->reason : curl.easy_strerror((CURLcode)code));
}

static bool is_no_http(int code) {
  return code == CURLE_WEIRD_SERVER_REPLY || code == CURLE_UNSUPPORTED_PROTOCOL; /* the latter: HTTP/0.9 */
}

int http_fail(const struct http_transfer *transfer, const char *url, int code, enum http_reach reach,
              rdzv_error *error) {
  const struct server_text server = server_of(url);
  if (code == RDZV_E_CANCELED) return error_set(error, code, "%s: canceled", server.text);
  if (code == RDZV_E_NO_MEMORY || code == CURLE_OUT_OF_MEMORY) return error_no_memory(error);
  if (transfer->over_limit)
    return error_set(error, RDZV_E_LIMIT, "%s: the answer is longer than %d bytes", server.text, HTTP_MAX_BODY);
  if (code == CURLE_WRITE_ERROR) return error_no_memory(error);
  if (code == CURLE_URL_MALFORMAT)
    return error_set(error, RDZV_E_INVALID, "'%s' is not an address: %s", server.text, transfer->reason);
  if (is_about_certificates(code)) return fail_certificate(transfer, server.text, code, error);
  if (is_refused_certificate(transfer)) return fail_refused_certificate(transfer, server.text, error);
  if (is_no_http(code))
    return error_set(error, RDZV_E_PROTOCOL, "%s does not speak HTTP: %s", server.text, transfer->reason);
  return fail_no_answer(transfer, server.text, code, reach, error);
}
