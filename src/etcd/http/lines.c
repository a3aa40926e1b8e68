/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/http/lines.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool copy(char **to, const char *text) { return !text || !*text || (*to = strdup(text)) != NULL; }

int etcd_lines_open(struct etcd_lines *lines, const rdzv_etcd_options *options, rdzv_error *error) {
  *lines = (struct etcd_lines){.scheme = options->https ? "https" : "http"};
  pthread_mutex_init(&lines->lock, NULL);
  const bool copied = copy(&lines->ca_cert, options->ca_cert) && copy(&lines->cert, options->cert) &&
                      copy(&lines->key, options->key) && copy(&lines->user, options->user) &&
                      copy(&lines->password, options->password);
  return copied ? 0 : error_no_memory(error);
}

void etcd_lines_close(struct etcd_lines *lines) {
  for (size_t i = 0; i < lines->idle_count; i++) http_line_close(lines->idle[i]);
  pthread_mutex_destroy(&lines->lock);
  free(lines->ca_cert);
  free(lines->cert);
  free(lines->key);
  free(lines->user);
  free(lines->password);
}

int etcd_lines_take(struct etcd_lines *lines, struct http_line **out, rdzv_error *error) {
  const struct http_identity identity = {lines->ca_cert, lines->cert, lines->key, lines->user, lines->password};
  pthread_mutex_lock(&lines->lock);
  const bool kept = lines->idle_count > 0;
  if (kept) *out = lines->idle[--lines->idle_count];
  pthread_mutex_unlock(&lines->lock);
  return kept ? 0 : http_line_open(&identity, out, error);
}

void etcd_lines_give(struct etcd_lines *lines, struct http_line *line) {
  pthread_mutex_lock(&lines->lock);
  const bool room = lines->idle_count < ETCD_MAX_LINES;
  if (room) lines->idle[lines->idle_count++] = line;
  pthread_mutex_unlock(&lines->lock);
  if (!room) http_line_close(line);
}

int etcd_lines_perform(struct etcd_lines *lines, const char *server, const char *path, struct http_request http,
                       struct http_response *response, enum http_reach *reach, rdzv_error *error) {
  struct http_line *line;
  char *url;
  if (asprintf(&url, "%s://%s%s", lines->scheme, server, path) < 0) return error_no_memory(error);
  http.url = url;
  int result = http.line ? 0 : etcd_lines_take(lines, &line, error);
  if (http.line) {
    result = http_perform(http.line, &http, response, reach, error);
  } else if (result == 0) {
    result = http_perform(line, &http, response, reach, error);
    if (result == RDZV_E_LIMIT || result == RDZV_E_CANCELED)
      http_line_close(line); /* the rest of the answer may still come */
    else
      etcd_lines_give(lines, line);
  }
  free(url);
  return result;
}
