/* SPDX-License-Identifier: BSD-3-Clause */
/* HTTP connections to the servers of etcd, all with one identity. They are kept while no call uses them. Any thread may
 * call at any time. */
#ifndef RDZV_ETCD_HTTP_LINES_H
#define RDZV_ETCD_HTTP_LINES_H

#include "etcd/http/http.h"

#include <pthread.h>
#include <rdzv/etcd.h>

enum { ETCD_MAX_LINES = 64 }; /* that are kept */

struct etcd_lines {
  const char *scheme; /* "http" or "https" */
  char *ca_cert, *cert, *key, *user, *password;
  pthread_mutex_t lock; /* guards the rest */
  struct http_line *idle[ETCD_MAX_LINES];
  size_t idle_count;
};

/* After a failure it is to be closed, too. */
int etcd_lines_open(struct etcd_lines *lines, const rdzv_etcd_options *options, rdzv_error *error);
void etcd_lines_close(struct etcd_lines *lines);

/* One of the idle ones, or a new one. */
int etcd_lines_take(struct etcd_lines *lines, struct http_line **out, rdzv_error *error);
void etcd_lines_give(struct etcd_lines *lines, struct http_line *line);

/* http_perform for that path of `server` ("host:port"). `http` needs no URL. */
int etcd_lines_perform(struct etcd_lines *lines, const char *server, const char *path, struct http_request http,
                       struct http_response *response, enum http_reach *reach, rdzv_error *error);

#endif
