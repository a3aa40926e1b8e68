/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/http/http.h"

#include "base/error.h"
#include "base/net/net.h"
#include "base/wait/waiting.h"
#include "etcd/http/transfer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  CONNECT_MS = 3000,
  KEPT_CONNECTIONS = 2, /* of a line: the one in use, and that of a stream */
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
    curl.multi_setopt(line->multi, CURLMOPT_MAXCONNECTS, (long)KEPT_CONNECTIONS);
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

/* The answer to a request that goes on. */
struct http_stream {
  struct http_transfer transfer;
  struct http_response response;
  char *url;
};

static size_t on_body(char *data, size_t one, size_t count, void *user) {
  struct http_transfer *transfer = user;
  const size_t len = one * count;
  struct buf *body = &transfer->response->body;
  transfer->over_limit = len > HTTP_MAX_BODY || body->len > HTTP_MAX_BODY - len;
  if (transfer->over_limit || !buf_append(body, data, len)) return 0;
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

static void set_identity(struct setup *setup, const struct http_identity *identity, bool basic) {
  if (identity->ca_cert) SET(setup, CAINFO, identity->ca_cert);
  if (identity->cert) SET(setup, SSLCERT, identity->cert);
  if (identity->key) SET(setup, SSLKEY, identity->key);
  if (!identity->user || !basic) return;
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

/* A body of JSON, and who asks for it. False: no memory. */
static bool set_json(struct setup *setup, const struct http_request *request, struct http_transfer *transfer) {
  /* The last one: of etcd, that it ends a stream where it has no leader. */
  static const char *const fixed[] = {"Content-Type: application/json", "Expect:", "Grpc-Metadata-hasleader: true"};
  const size_t count = request->stream ? 3 : 2;
  char *text = NULL;
  bool added = !request->authorization || asprintf(&text, "Authorization: %s", request->authorization) >= 0;
  for (size_t i = 0; added && i <= count; i++) {
    const char *header = i < count ? fixed[i] : text;
    struct curl_slist *more = header ? curl.slist_append(transfer->headers, header) : transfer->headers;
    added = more != NULL;
    if (added) transfer->headers = more;
  }
  free(text);
  SET(setup, HTTPHEADER, transfer->headers);
  return added;
}

static int set_up(const struct http_request *request, struct http_transfer *transfer, rdzv_error *error) {
  struct setup setup = {.easy = transfer->easy, .code = CURLE_OK};
  curl.easy_reset(transfer->easy);
  SET(&setup, ERRORBUFFER, transfer->reason);
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
  set_identity(&setup, &transfer->line->identity, !request->json);
  if (request->json && !set_json(&setup, request, transfer)) return error_no_memory(error);
  if (setup.code == CURLE_OK) return 0;
  if (setup.code == CURLE_OUT_OF_MEMORY) return error_no_memory(error);
  return error_set(error, RDZV_E_INVALID, "libcurl rejects the option %s: %s", setup.failed,
                   curl.easy_strerror(setup.code));
}

/* Takes down which transfers curl is through with. */
static void collect(struct http_line *line, struct http_transfer *transfer) {
  struct http_transfer *stream = line->stream ? &line->stream->transfer : NULL;
  const CURLMsg *message;
  int left;
  while ((message = curl.multi_info_read(line->multi, &left))) {
    struct http_transfer *of = message->easy_handle == transfer->easy           ? transfer
                               : stream && message->easy_handle == stream->easy ? stream
                                                                                : NULL;
    if (message->msg != CURLMSG_DONE || !of) continue;
    of->done = true;
    of->code = (int)message->data.result;
  }
}

static bool has_line(const struct http_transfer *transfer) {
  const struct buf *body = &transfer->response->body;
  long status = 0;
  if (!transfer->goes_on || !body->data || !memchr(body->data, '\n', body->len)) return false;
  curl.easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
  return status == 200;
}

/* Moves the transfer, and the stream beside it, until it has come as far as it is wanted: to its end, to its first
 * line, or to a body longer than `len`. Returns curl's code, or a negative RDZV_E code. */
static int run_transfer(struct http_transfer *transfer, size_t len, deadline until, const struct flag *cancel) {
  if (flag_need_fd(cancel, NULL) < 0) return RDZV_E_NO_MEMORY; /* a call that cannot be canceled is not begun */
  const int also = flag_thread_fd(cancel);
  struct curl_waitfd fds[2] = {{.fd = cancel ? flag_fd(cancel) : -1, .events = CURL_WAIT_POLLIN},
                               {.fd = also, .events = CURL_WAIT_POLLIN}};
  CURLM *multi = transfer->line->multi;
  struct waiting *waiting = flag_waiting(cancel);
  for (int running;;) {
    if (curl.multi_perform(multi, &running) != CURLM_OK) return RDZV_E_NO_MEMORY;
    collect(transfer->line, transfer);
    if (transfer->done) return transfer->code;
    if (has_line(transfer) || transfer->response->body.len > len) return CURLE_OK;
    if (running == 0) return RDZV_E_NO_MEMORY;
    if (deadline_left(until) == 0) return RDZV_E_TIMEOUT;
    const int left = deadline_poll(waiting_until(waiting, until));
    if (curl.multi_poll(multi, fds, !cancel ? 0 : also < 0 ? 1 : 2, left, NULL) != CURLM_OK) return RDZV_E_NO_MEMORY;
    waiting_tick(waiting);
    if ((cancel && flag_raised(cancel)) || (also >= 0 && (fds[1].revents & CURL_WAIT_POLLIN))) return RDZV_E_CANCELED;
  }
}

/* To be asked before the transfer is taken apart, which closes the socket. */
static enum http_reach reach_of(const struct http_transfer *transfer, int code) {
  struct sockaddr_storage peer;
  socklen_t len = sizeof peer;
  if (transfer->begun > 0) return HTTP_REACH_SENT;
  if (code < 0) /* RDZV_E: it was still under way */
    return getpeername(transfer->fd, (struct sockaddr *)&peer, &len) == 0 ? HTTP_REACH_CONNECTED : HTTP_REACH_NONE;
  switch (code) {
    case CURLE_URL_MALFORMAT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT: return HTTP_REACH_NONE;
    default: return HTTP_REACH_CONNECTED;
  }
}

static int begin(struct http_transfer *transfer, const struct http_request *request, rdzv_error *error) {
  const int ready = set_up(request, transfer, error);
  if (ready < 0) return ready;
  return curl.multi_add_handle(transfer->line->multi, transfer->easy) == CURLM_OK ? 0 : error_no_memory(error);
}

/* Runs it to its end, or to its first line, and gives the answer to *response. */
static int perform(struct http_transfer *transfer, const struct http_request *request, enum http_reach *reach,
                   rdzv_error *error) {
  int code = run_transfer(transfer, SIZE_MAX, request->until, request->cancel);
  if (code == CURLE_OK && !transfer->ended) code = CURLE_PARTIAL_FILE;
  *reach = reach_of(transfer, code);
  curl.easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &transfer->response->status);
  return code == CURLE_OK ? 0 : http_fail(transfer, request->url, code, *reach, error);
}

static int perform_once(struct http_line *line, const struct http_request *request, struct http_response *response,
                        enum http_reach *reach, rdzv_error *error) {
  struct http_transfer transfer = {
      .line = line, .easy = line->easy, .response = response, .once = request->once, .fd = -1};
  int result = begin(&transfer, request, error);
  if (result == 0) {
    result = perform(&transfer, request, reach, error);
    curl.multi_remove_handle(line->multi, line->easy);
  }
  curl.slist_free_all(transfer.headers);
  return result;
}

/* ---- streams -------------------------------------------------------------------------------------------------- */

void http_stream_close(struct http_stream *stream) {
  if (!stream) return;
  struct http_transfer *transfer = &stream->transfer;
  if (transfer->line->stream == stream) transfer->line->stream = NULL;
  if (transfer->easy) {
    curl.multi_remove_handle(transfer->line->multi, transfer->easy);
    curl.easy_cleanup(transfer->easy);
  }
  curl.slist_free_all(transfer->headers);
  buf_free(&stream->response.body);
  free(stream->url);
  free(stream);
}

struct buf *http_stream_body(struct http_stream *stream) {
  return &stream->response.body;
}

int http_stream_wait(struct http_stream *stream, deadline until, const struct flag *cancel, rdzv_error *error) {
  struct http_transfer *transfer = &stream->transfer;
  const size_t len = stream->response.body.len;
  int code = transfer->done ? transfer->code : run_transfer(transfer, len, until, cancel);
  if (stream->response.body.len > len) return 0;
  if (code == CURLE_OK) code = CURLE_GOT_NOTHING;
  return http_fail(transfer, stream->url, code, HTTP_REACH_SENT, error);
}

static int open_stream(struct http_line *line, const struct http_request *request, struct http_response *response,
                       enum http_reach *reach, rdzv_error *error) {
  struct http_stream *stream = calloc(1, sizeof *stream);
  if (!stream) return error_no_memory(error);
  struct http_transfer *transfer = &stream->transfer;
  *transfer = (struct http_transfer){
      .line = line, .easy = curl.easy_init(), .response = &stream->response, .goes_on = true, .fd = -1};
  stream->url = strdup(request->url);
  int result = transfer->easy && stream->url ? begin(transfer, request, error) : error_no_memory(error);
  if (result == 0) result = perform(transfer, request, reach, error);
  *response = stream->response;
  const bool goes_on = result == 0 && has_line(transfer);
  if (!goes_on) stream->response = (struct http_response){0}; /* the answer is the caller's */
  transfer->goes_on = false;
  if (!goes_on) {
    http_stream_close(stream);
    return result;
  }
  line->stream = *request->stream = stream;
  response->body = (struct buf){0};
  const struct buf *begun = &stream->response.body;
  return buf_append(&response->body, begun->data, begun->len) ? 0 : error_no_memory(error);
}

int http_perform(struct http_line *line, const struct http_request *request, struct http_response *response,
                 enum http_reach *reach, rdzv_error *error) {
  *response = (struct http_response){0};
  *reach = HTTP_REACH_NONE;
  if (request->stream) *request->stream = NULL;
  const int result = request->stream ? open_stream(line, request, response, reach, error)
                                     : perform_once(line, request, response, reach, error);
  if (result == 0) return 0;
  if (request->stream && *request->stream) {
    http_stream_close(*request->stream);
    *request->stream = NULL;
  }
  buf_free(&response->body);
  *response = (struct http_response){0};
  return result;
}
