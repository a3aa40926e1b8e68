/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/http/http.h"

#include "base/error.h"
#include "base/net/net.h"
#include "base/wait/waiting.h"
#include "etcd/http/curl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONNECT_MS = 3000 };

struct http_line {
  CURL *easy;
  CURLM *multi;
  char reason[CURL_ERROR_SIZE];
  struct http_identity identity; /* its texts are borrowed */
  bool over_limit;
};

int http_line_open(const struct http_identity *identity, struct http_line **out, rdzv_error *error) {
  const int result = curl_load(error);
  if (result < 0) return result;
  struct http_line *line = calloc(1, sizeof *line);
  if (!line) return error_no_memory(error);
  line->identity = *identity;
  line->easy = curl.easy_init();
  line->multi = curl.multi_init();
  if (line->easy && line->multi) {
    *out = line;
    return 0;
  }
  http_line_close(line);
  return error_no_memory(error);
}

void http_line_close(struct http_line *line) {
  if (!line) return;
  if (line->easy) curl.easy_cleanup(line->easy);
  if (line->multi) curl.multi_cleanup(line->multi);
  free(line);
}

char *http_escape(rdzv_bytes bytes) {
  static const char digits[] = "0123456789ABCDEF";
  char *out = malloc(3 * bytes.len + 1), *to = out;
  const unsigned char *from = bytes.data;
  for (size_t i = 0; out && i < bytes.len; i++) {
    const unsigned char byte = from[i];
    const bool plain = (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') ||
                       byte == '-' || byte == '_' || byte == '.' || byte == '~' || byte == '/';
    if (plain) {
      *to++ = (char)byte;
      continue;
    }
    *to++ = '%';
    *to++ = digits[byte >> 4];
    *to++ = digits[byte & 15];
  }
  if (out) *to = '\0';
  return out;
}

/* ---- what comes in -------------------------------------------------------------------------------------------- */

struct http_transfer {
  struct http_line *line;
  struct http_response *response;
  bool once;
  int begun;  /* how often the request was about to be sent */
  int fd;     /* the socket that was opened last; -1: none */
  bool ended; /* the headers were followed by their empty line: curl takes it for an answer, too, if they break off */
};

static size_t on_body(char *data, size_t one, size_t count, void *user) {
  struct http_transfer *transfer = user;
  const size_t len = one * count;
  struct buf *body = &transfer->response->body;
  transfer->line->over_limit = len > HTTP_MAX_BODY || body->len > HTTP_MAX_BODY - len;
  if (transfer->line->over_limit || !buf_append(body, data, len)) return 0;
  return len;
}

static void take_number(const char *line, size_t len, const char *name, int base, uint64_t *out) {
  const size_t skip = strlen(name);
  char number[32] = "";
  if (len <= skip || strncasecmp(line, name, skip) != 0) return;
  memcpy(number, line + skip, len - skip < sizeof number - 1 ? len - skip : sizeof number - 1);
  *out = strtoull(number, NULL, base);
}

static size_t on_header(char *data, size_t one, size_t count, void *user) {
  struct http_transfer *transfer = user;
  const size_t len = one * count;
  if (len >= 5 && memcmp(data, "HTTP/", 5) == 0) transfer->ended = false;
  if (len <= 2 && (data[0] == '\r' || data[0] == '\n')) transfer->ended = true;
  take_number(data, one * count, "x-etcd-index:", 10, &transfer->response->etcd_index);
  take_number(data, one * count, "x-etcd-cluster-id:", 16, &transfer->response->cluster);
  return one * count;
}

/* ---- one transfer --------------------------------------------------------------------------------------------- */

/* Setting options of a handle, which stops at the first one that fails: a request without one of them is not sent. */
struct setup {
  CURL *easy;
  CURLcode code;      /* CURLE_OK: all are set so far */
  const char *failed; /* else: which is not */
};

#define SET(setup, option, value)                                             \
  do {                                                                        \
    if ((setup)->code != CURLE_OK) break;                                     \
    (setup)->code = curl.easy_setopt((setup)->easy, CURLOPT_##option, value); \
    if ((setup)->code != CURLE_OK) (setup)->failed = #option;                 \
  } while (0)

static void set_identity(struct setup *setup, const struct http_identity *identity) {
  if (identity->ca_cert) SET(setup, CAINFO, identity->ca_cert);
  if (identity->cert) SET(setup, SSLCERT, identity->cert);
  if (identity->key) SET(setup, SSLKEY, identity->key);
  if (!identity->user) return;
  SET(setup, HTTPAUTH, CURLAUTH_BASIC);
  SET(setup, USERNAME, identity->user);
  SET(setup, PASSWORD, identity->password ? identity->password : "");
}

/* curl sends a request again, unasked, where a connection that it had kept is closed without an answer. */
static int on_begin(void *user, char *their_address, char *our_address, int their_port, int our_port) {
  struct http_transfer *transfer = user;
  (void)their_address, (void)our_address, (void)their_port, (void)our_port;
  transfer->begun++;
  return transfer->once && transfer->begun > 1 ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

/* Not for the processes that we start. */
static curl_socket_t open_socket(void *user, curlsocktype why, struct curl_sockaddr *to) {
  struct http_transfer *transfer = user;
  (void)why;
  transfer->fd = socket(to->family, to->socktype | SOCK_CLOEXEC, to->protocol);
  if (transfer->fd >= 0) net_tune(transfer->fd);
  return transfer->fd;
}

static void set_callbacks(struct setup *setup, struct http_transfer *transfer) {
  SET(setup, WRITEFUNCTION, on_body);
  SET(setup, WRITEDATA, transfer);
  SET(setup, HEADERFUNCTION, on_header);
  SET(setup, HEADERDATA, transfer);
  SET(setup, PREREQFUNCTION, on_begin);
  SET(setup, PREREQDATA, transfer);
  SET(setup, OPENSOCKETFUNCTION, open_socket);
  SET(setup, OPENSOCKETDATA, transfer);
}

static int set_up(struct http_line *line, const struct http_request *request, struct http_transfer *transfer,
                  rdzv_error *error) {
  struct setup setup = {.easy = line->easy, .code = CURLE_OK};
  curl.easy_reset(line->easy);
  line->reason[0] = '\0';
  line->over_limit = false;
  SET(&setup, ERRORBUFFER, line->reason);
  SET(&setup, URL, request->url);
  SET(&setup, CUSTOMREQUEST, request->method);
  SET(&setup, NOSIGNAL, 1L);
  SET(&setup, PROXY, ""); /* nor one of the environment's, which are for the web */
  SET(&setup, HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
  SET(&setup, CONNECTTIMEOUT_MS, (long)CONNECT_MS);
  if (request->form) SET(&setup, POSTFIELDS, request->form);
  SET(&setup, QUICK_EXIT, 1L);                                   /* a name look-up that hangs is left behind */
  if (setup.code == CURLE_UNKNOWN_OPTION) setup.code = CURLE_OK; /* before 7.87 closing the line waits for it */
  if (request->tls12) SET(&setup, SSLVERSION, (long)(CURL_SSLVERSION_TLSv1_2 | CURL_SSLVERSION_MAX_TLSv1_2));
  set_callbacks(&setup, transfer);
  set_identity(&setup, &line->identity);
  if (setup.code == CURLE_OK) return 0;
  if (setup.code == CURLE_OUT_OF_MEMORY) return error_no_memory(error);
  return error_set(error, RDZV_E_INVALID, "libcurl rejects the option %s: %s", setup.failed,
                   curl.easy_strerror(setup.code));
}

/* Runs the transfer to its end. Gives curl's code, or a code of ours that is negative. */
static int run_transfer(struct http_line *line, const struct http_request *request) {
  struct curl_waitfd fds[1] = {{.fd = request->cancel ? request->cancel->fd : -1, .events = CURL_WAIT_POLLIN}};
  struct waiting *waiting = flag_waiting(request->cancel);
  int running = 1;
  while (running > 0) {
    if (curl.multi_perform(line->multi, &running) != CURLM_OK) return RDZV_E_NO_MEMORY;
    if (running == 0) break;
    if (deadline_left(request->until) == 0) return RDZV_E_TIMEOUT;
    const int left = deadline_poll(waiting_until(waiting, request->until));
    if (curl.multi_poll(line->multi, fds, request->cancel ? 1 : 0, left, NULL) != CURLM_OK) return RDZV_E_NO_MEMORY;
    waiting_tick(waiting);
    if (request->cancel && flag_raised(request->cancel)) return RDZV_E_CANCELED;
  }
  int left = 0;
  const CURLMsg *message = curl.multi_info_read(line->multi, &left);
  return message && message->msg == CURLMSG_DONE ? (int)message->data.result : RDZV_E_NO_MEMORY;
}

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
static int fail_certificate(struct http_line *line, const char *server, int code, rdzv_error *error) {
  const struct http_identity *identity = &line->identity;
  const char *reason = line->reason[0] ? line->reason : curl.easy_strerror((CURLcode)code);
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
static bool is_refused_certificate(const struct http_line *line) {
  return strstr(line->reason, "alert") && (strstr(line->reason, "certificate") || strstr(line->reason, "unknown ca"));
}

static int fail_refused_certificate(const struct http_line *line, const char *server, rdzv_error *error) {
  const char *cert = line->identity.cert;
  if (!cert)
    return error_set(error, RDZV_E_INVALID, "%s requires a client certificate (options cert and key): %s", server,
                     line->reason);
  return error_set(error, RDZV_E_INVALID, "%s refuses the client certificate '%s': %s", server, cert, line->reason);
}

static const char *cure(int errnum) {
  switch (errnum) {
    case ECONNREFUSED: return " (is etcd up, and the port right?)";
    case EHOSTUNREACH:
    case ENETUNREACH: return " (is the address right, and is there a network to it?)";
    default: return "";
  }
}

/* The connection was not accepted. */
static int fail_connect(struct http_line *line, const char *server, int code, rdzv_error *error) {
  long errnum = 0;
  if (code == CURLE_COULDNT_RESOLVE_HOST)
    return error_set(error, RDZV_E_CONNECTION, "%s: cannot resolve the name (is it right, and known to this machine?)",
                     server);
  curl.easy_getinfo(line->easy, CURLINFO_OS_ERRNO, &errnum);
  if (code == CURLE_COULDNT_CONNECT && errnum != 0) {
    char text[128];
    return error_set(error, RDZV_E_CONNECTION, "%s: %s%s", server, strerror_r((int)errnum, text, sizeof text),
                     cure((int)errnum));
  }
  return error_set(error, RDZV_E_CONNECTION, "%s: %s", server,
                   line->reason[0] ? line->reason : curl.easy_strerror((CURLcode)code));
}

static int fail_no_answer(struct http_line *line, const char *server, int code, enum http_reach reach,
                          rdzv_error *error) {
  if (reach == HTTP_REACH_NONE && code != RDZV_E_TIMEOUT) return fail_connect(line, server, code, error);
  if (code == RDZV_E_TIMEOUT)
    return error_set(error, code, "%s: no answer in time (%s)", server,
                     reach == HTTP_REACH_NONE ? "is the machine up? does a firewall drop packets?"
                                              : "it accepts connections: is it etcd, and is it running?");
  return error_set(error, RDZV_E_CONNECTION, "%s: the connection was closed without an answer: %s", server,
                   line->reason[0] ? line->reason : curl.easy_strerror((CURLcode)code));
}

static bool is_no_http(int code) {
  return code == CURLE_WEIRD_SERVER_REPLY || code == CURLE_UNSUPPORTED_PROTOCOL; /* the latter: HTTP/0.9 */
}

static int fail_transfer(struct http_line *line, const struct http_request *request, int code, enum http_reach reach,
                         rdzv_error *error) {
  const struct server_text server = server_of(request->url);
  if (code == RDZV_E_CANCELED) return error_set(error, code, "%s %s: canceled", request->method, server.text);
  if (code == RDZV_E_NO_MEMORY || code == CURLE_OUT_OF_MEMORY) return error_no_memory(error);
  if (line->over_limit)
    return error_set(error, RDZV_E_LIMIT, "%s: the answer is longer than %d bytes", server.text, HTTP_MAX_BODY);
  if (code == CURLE_WRITE_ERROR) return error_no_memory(error);
  if (code == CURLE_URL_MALFORMAT)
    return error_set(error, RDZV_E_INVALID, "'%s' is not an address: %s", server.text, line->reason);
  if (is_about_certificates(code)) return fail_certificate(line, server.text, code, error);
  if (is_refused_certificate(line)) return fail_refused_certificate(line, server.text, error);
  if (is_no_http(code))
    return error_set(error, RDZV_E_PROTOCOL, "%s does not speak HTTP: %s", server.text, line->reason);
  return fail_no_answer(line, server.text, code, reach, error);
}

/* To be asked before the transfer is taken apart, which closes the socket. */
static enum http_reach reach_of(const struct http_transfer *transfer, int code) {
  struct sockaddr_storage peer;
  socklen_t len = sizeof peer;
  if (transfer->begun > 0) return HTTP_REACH_SENT;
  if (code < 0) /* of ours: it was still under way */
    return getpeername(transfer->fd, (struct sockaddr *)&peer, &len) == 0 ? HTTP_REACH_CONNECTED : HTTP_REACH_NONE;
  switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT: return HTTP_REACH_NONE;
    default: return HTTP_REACH_CONNECTED;
  }
}

int http_perform(struct http_line *line, const struct http_request *request, struct http_response *response,
                 enum http_reach *reach, rdzv_error *error) {
  struct http_transfer transfer = {.line = line, .response = response, .once = request->once, .fd = -1};
  *response = (struct http_response){0};
  *reach = HTTP_REACH_NONE;
  const int ready = set_up(line, request, &transfer, error);
  if (ready < 0) return ready;
  if (curl.multi_add_handle(line->multi, line->easy) != CURLM_OK) return error_no_memory(error);
  int code = run_transfer(line, request);
  if (code == CURLE_OK && !transfer.ended) code = CURLE_PARTIAL_FILE;
  *reach = reach_of(&transfer, code);
  curl.easy_getinfo(line->easy, CURLINFO_RESPONSE_CODE, &response->status);
  curl.multi_remove_handle(line->multi, line->easy);
  if (code == CURLE_OK) return 0;
  buf_free(&response->body);
  *response = (struct http_response){0};
  return fail_transfer(line, request, code, *reach, error);
}
