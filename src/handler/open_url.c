/* SPDX-License-Identifier: BSD-3-Clause */
/* A rendezvous by URL, as PyTorch's first generation has it: cut into what rdzv_handler_open takes. What is wrong is
 * told by its name only, for a password may be next to it. */
#include "base/buf.h"
#include "base/error.h"
#include "base/text/nearest.h"
#include "base/text/options.h"
#include "base/text/parse.h"

#include <rdzv/handler.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPTIONS = 64 };

struct url {
  char *text; /* a copy that is cut into the rest */
  char *scheme, *authority, *run_id, *query;
  struct buf conf;
  int64_t min_nodes, max_nodes; /* 0: not given */
};

static int wrong(const char *why, rdzv_error *error) {
  return error_set(error, RDZV_E_INVALID, "%s; a rendezvous is BACKEND://HOST:PORT[,HOST:PORT]/RUN_ID?NAME=VALUE&...",
                   why);
}

/* ---- decoding ------------------------------------------------------------------------------------------------- */

static int decode_part(char *text, const char *what, rdzv_error *error) {
  if (parse_percent(text)) return 0;
  return error_set(error, RDZV_E_INVALID, "%s has a '%%' that no two hexadecimal digits follow, or the byte 0", what);
}

/* ---- options -------------------------------------------------------------------------------------------------- */

/* One more of conf, which has no way to write a comma. */
static int add_option(struct url *url, const char *name, const char *value, rdzv_error *error) {
  if (strpbrk(name, ",=")) return error_set(error, RDZV_E_INVALID, "an option's name has a ',' or '='");
  if (strchr(value, ','))
    return error_set(error, RDZV_E_INVALID, "option '%s' has a comma, which is not allowed", name);
  const bool added = (url->conf.len == 0 || buf_append(&url->conf, ",", 1)) &&
                     buf_append(&url->conf, name, strlen(name)) && buf_append(&url->conf, "=", 1) &&
                     buf_append(&url->conf, value, strlen(value));
  return added ? 0 : error_no_memory(error);
}

static int take_nodes(const char *name, const char *value, int64_t *out, rdzv_error *error) {
  if (parse_number(value, 1, INT64_MAX, out)) return 0;
  return error_set(error, RDZV_E_INVALID, "invalid value '%s' for %s: expected a positive whole number", value, name);
}

static int take_option(struct url *url, const char *name, const char *value, rdzv_error *error) {
  static const char *const own[] = {"min_nodes", "max_nodes"};
  if (!*name) return wrong("an option has no name", error);
  if (strcmp(name, own[0]) == 0) return take_nodes(name, value, &url->min_nodes, error);
  if (strcmp(name, own[1]) == 0) return take_nodes(name, value, &url->max_nodes, error);
  const char *near = nearest_name(name, own, 2); /* no option of any backend is near */
  if (near) return error_set(error, RDZV_E_INVALID, "unknown option '%s' (did you mean '%s'?)", name, near);
  return add_option(url, name, value, error);
}

/* The names, to find one that is given twice. */
struct given {
  const char *names[MOST_OPTIONS];
  size_t count;
};

static int take_pair(struct url *url, struct given *given, char *name, rdzv_error *error) {
  char *value = strchr(name, '=');
  if (value) *value++ = '\0';
  int result = decode_part(name, "an option's name", error);
  if (result == 0 && value) result = decode_part(value, name, error);
  if (result < 0) return result;
  for (size_t i = 0; i < given->count; i++)
    if (strcmp(given->names[i], name) == 0) return error_set(error, RDZV_E_INVALID, "option '%s' is given twice", name);
  if (given->count == MOST_OPTIONS) return error_set(error, RDZV_E_LIMIT, "there are too many options");
  given->names[given->count++] = name;
  return take_option(url, name, value ? value : "", error);
}

static int take_query(struct url *url, rdzv_error *error) {
  struct given given = {.count = 0};
  int result = 0;
  for (char *rest = url->query; rest && result == 0;) {
    char *pair = strsep(&rest, "&");
    if (*pair) result = take_pair(url, &given, pair, error);
  }
  return result;
}

/* ---- cutting -------------------------------------------------------------------------------------------------- */

/* "user:password@host:port": user and password are two options. */
static int take_user(struct url *url, rdzv_error *error) {
  char *user = url->authority, *at = strrchr(url->authority, '@');
  if (!at) return 0;
  *at = '\0';
  url->authority = at + 1;
  char *password = strchr(user, ':');
  if (password) *password++ = '\0';
  int result = decode_part(user, "the user", error);
  if (result == 0) result = add_option(url, "user", user, error);
  if (result == 0 && password) result = decode_part(password, "the password", error);
  return result == 0 && password ? add_option(url, "password", password, error) : result;
}

static int cut(struct url *url, rdzv_error *error) {
  url->scheme = url->text;
  char *end = strstr(url->text, "://");
  if (!end || end == url->text) return wrong("there is no backend before '://'", error);
  if (strchr(end, '#')) return wrong("there is a '#', which is written '%23'", error);
  *end = '\0';
  url->authority = end + 3;
  url->query = url->authority;
  strsep(&url->query, "?");
  url->run_id = url->authority;
  strsep(&url->run_id, "/");
  size_t len = url->run_id ? strlen(url->run_id) : 0;
  while (len > 0 && url->run_id[len - 1] == '/') url->run_id[--len] = '\0';
  if (len == 0) return wrong("the run id is missing", error);
  int result = take_user(url, error);
  if (result == 0) result = decode_part(url->authority, "the endpoint", error);
  return result == 0 ? decode_part(url->run_id, "the run id", error) : result;
}

static int parse(struct url *url, const char *text, const char *conf, rdzv_error *error) {
  url->text = strdup(text);
  if (!url->text || (conf && !buf_append(&url->conf, conf, strlen(conf)))) return error_no_memory(error);
  int result = cut(url, error);
  if (result == 0) result = take_query(url, error);
  if (result == 0 && !buf_append(&url->conf, "", 1)) result = error_no_memory(error);
  return result;
}

static void fill(rdzv_params *params, const struct url *url) {
  params->size = sizeof *params;
  params->backend = url->scheme;
  params->endpoint = url->authority;
  params->run_id = url->run_id;
  params->conf = (const char *)url->conf.data;
  if (url->min_nodes > 0) params->min_nodes = url->min_nodes;
  if (url->max_nodes > 0) params->max_nodes = url->max_nodes;
}

int rdzv_handler_open_url(const char *text, const rdzv_params *params, rdzv_handler **out, rdzv_error *error) {
  if (!text || !out) return error_null(error, "rdzv_handler_open_url", text ? "out" : "url");
  struct url url = {0};
  rdzv_params own;
  int result = options_take(&own, sizeof own, params, "rdzv_params", error);
  if (result == 0) result = parse(&url, text, own.conf, error);
  if (result < 0) {
    error_prefix(error, result, "invalid URL");
  } else {
    fill(&own, &url);
    result = rdzv_handler_open(&own, out, error);
  }
  free(url.text);
  buf_free(&url.conf);
  return result;
}
