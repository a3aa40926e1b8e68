/* SPDX-License-Identifier: BSD-3-Clause */
/* One HTTP transfer at a time on a connection that is kept, with a deadline and a cancel flag; libcurl does the work.
 * Beside it, a line may have a stream: an answer that goes on, on a connection of its own. */
#ifndef RDZV_ETCD_HTTP_HTTP_H
#define RDZV_ETCD_HTTP_HTTP_H

#include "base/buf.h"
#include "base/wait/flag.h"

#include <rdzv/log.h>

enum { HTTP_MAX_BODY = 32 << 20 };

/* CA certificates, client certificate and key (PEM files), user and password; each may be NULL. */
struct http_identity {
  const char *ca_cert, *cert, *key;
  const char *user, *password;
};

struct http_line;
struct http_stream;

struct http_request {
  const char *method;
  const char *url;
  const char *form;          /* the body, application/x-www-form-urlencoded; NULL: none */
  bool json;                 /* the body is JSON. User and password are not sent, but `authorization` */
  const char *authorization; /* that header; NULL: none */
  struct http_line *line;    /* the caller's, for etcd_lines_perform; NULL: one that is idle */
  struct http_stream *
      *stream; /* not NULL: an answer of status 200 is given at the end of its first line, and goes on */
  bool once;   /* never sent a second time, not even where the first was to a connection that was dead already */
  bool tls12;  /* at most TLS 1.2, which reliably reports a refused client certificate */
  deadline until;
  const struct flag *cancel; /* may be NULL */
};

struct http_response {
  long status;
  uint64_t etcd_index; /* the header X-Etcd-Index; 0: there was none */
  uint64_t cluster;    /* X-Etcd-Cluster-Id, the same */
  struct buf body;
};

/* A line to some server; it keeps the connections that it made. For one thread at a time. */
int http_line_open(const struct http_identity *identity, struct http_line **out, rdzv_error *error);
void http_line_close(struct http_line *line);

/* How far a request came that was not answered. */
enum http_reach {
  HTTP_REACH_NONE,
  HTTP_REACH_CONNECTED, /* the server took the connection */
  HTTP_REACH_SENT,      /* the server may have got the request */
};

/*
 * Any status is an answer. RDZV_E_CONNECTION: no answer. RDZV_E_TIMEOUT: the same, by the deadline. RDZV_E_PROTOCOL:
 * the answer is not HTTP. RDZV_E_CANCELED. RDZV_E_INVALID: the client's certificate or key cannot be used, the
 * server's does not verify, or the server requires a client certificate; the sentence says which. RDZV_E_LIMIT: the
 * answer is too long. On failure *response is empty. *reach is always written. The wait of the cancel flag describes
 * what the request waits for.
 */
int http_perform(struct http_line *line, const struct http_request *request, struct http_response *response,
                 enum http_reach *reach, rdzv_error *error);

/* What came of the stream, its first line included, which http_perform gave, too: the caller takes from its front what
 * it has read. */
struct buf *http_stream_body(struct http_stream *stream);

/* Waits until more has come. RDZV_E_CONNECTION: it has ended. RDZV_E_TIMEOUT, RDZV_E_CANCELED: it goes on.
 * RDZV_E_LIMIT: too much is waiting to be read. */
int http_stream_wait(struct http_stream *stream, deadline until, const struct flag *cancel, rdzv_error *error);

/* Before its line is closed. */
void http_stream_close(struct http_stream *stream);

/* `bytes` as they are written in a query or form. To be freed; NULL: no memory. */
char *http_escape(rdzv_bytes bytes);

#endif
