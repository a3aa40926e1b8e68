/* SPDX-License-Identifier: BSD-3-Clause */
/* What http.c is made of, and the error of a failed transfer. */
#ifndef RDZV_ETCD_HTTP_TRANSFER_H
#define RDZV_ETCD_HTTP_TRANSFER_H

#include "etcd/http/curl.h"
#include "etcd/http/http.h"

struct http_line {
  CURL *easy; /* of the transfer */
  CURLM *multi;
  struct http_identity identity; /* its texts are borrowed */
  struct http_stream *stream;    /* NULL: none */
};

struct http_transfer {
  struct http_line *line;
  CURL *easy;
  struct http_response *response;
  struct curl_slist *headers; /* of the request */
  bool once;
  bool goes_on; /* it is done when the first line of the body is there */
  int begun;    /* how often the request was about to be sent */
  int fd;       /* the socket that was opened last; -1: none */
  bool ended;   /* the headers were followed by their empty line: curl takes it for an answer, too, if they break off */
  bool over_limit; /* of the body */
  bool done;       /* curl is through with it, with that code */
  int code;
  char reason[CURL_ERROR_SIZE];
};

/* The sentence and the code of a transfer that ended with `code`, curl's or RDZV_E, as http_perform gives it. */
int http_fail(const struct http_transfer *transfer, const char *url, int code, enum http_reach reach,
              rdzv_error *error);

#endif
