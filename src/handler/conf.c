/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/conf.h"

#include "base/error.h"
#include "base/log.h"
#include "base/text/nearest.h"
#include "base/text/parse.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_PAUSE_MS = 1500 }; /* between two tries of a client to reach its store */

enum conf_type { CONF_SECONDS, CONF_TENTHS, CONF_COUNT, CONF_RANK, CONF_CHOICE, CONF_FLAG, CONF_VERSION, CONF_TEXT };

struct conf_option {
  const char *name;
  enum conf_type type;
  unsigned handlers;
  size_t offset;       /* of the field */
  const char *choices; /* "torch|stable|natural", in the order of the enum */
};

static const struct conf_option options[] = {
    {"join_timeout", CONF_SECONDS, CONF_DYNAMIC | CONF_LEASED, offsetof(struct conf, join_timeout), NULL},
    {"last_call_timeout", CONF_SECONDS, CONF_DYNAMIC | CONF_GEN1 | CONF_LEASED,
     offsetof(struct conf, last_call_timeout), NULL},
    {"close_timeout", CONF_SECONDS, CONF_DYNAMIC | CONF_GEN1 | CONF_LEASED, offsetof(struct conf, close_timeout), NULL},
    {"heartbeat_timeout", CONF_SECONDS, CONF_DYNAMIC, offsetof(struct conf, heartbeat_timeout), NULL},
    {"keep_alive_interval", CONF_SECONDS, CONF_DYNAMIC, offsetof(struct conf, keep_alive_interval), NULL},
    {"keep_alive_max_attempt", CONF_COUNT, CONF_DYNAMIC, offsetof(struct conf, keep_alive_max_attempt), NULL},
    {"rank_order", CONF_CHOICE, CONF_DYNAMIC | CONF_LEASED, offsetof(struct conf, rank_order), "torch|stable|natural"},
    {"torch_version", CONF_VERSION, CONF_DYNAMIC, offsetof(struct conf, torch_version), NULL},
    {"store_type", CONF_CHOICE, CONF_C10D, offsetof(struct conf, store_type), "tcp|file"},
    {"is_host", CONF_FLAG, CONF_C10D, offsetof(struct conf, is_host), NULL},
    {"read_timeout", CONF_SECONDS, CONF_C10D | CONF_ETCD, offsetof(struct conf, read_timeout), NULL},
    {"dialect", CONF_CHOICE, CONF_C10D, offsetof(struct conf, dialect), "auto|v1|v2|rdzv"},
    {"mode", CONF_CHOICE, CONF_C10D, offsetof(struct conf, mode), "auto|native|swap"},
    {"session_keep_alive", CONF_TENTHS, CONF_C10D, offsetof(struct conf, session_keep_alive), NULL},
    {"session_grace", CONF_SECONDS, CONF_C10D, offsetof(struct conf, session_grace), NULL},
    {"use_libuv", CONF_FLAG, CONF_C10D, offsetof(struct conf, use_libuv), NULL},
    {"rank", CONF_RANK, CONF_STATIC, offsetof(struct conf, rank), NULL},
    {"timeout", CONF_SECONDS, CONF_STATIC | CONF_GEN1, offsetof(struct conf, timeout), NULL},
    {"protocol", CONF_CHOICE, CONF_ETCD, offsetof(struct conf, protocol), "http|https"},
    {"ca_cert", CONF_TEXT, CONF_ETCD, offsetof(struct conf, ca_cert), NULL},
    {"cacert", CONF_TEXT, CONF_ETCD, offsetof(struct conf, ca_cert), NULL},
    {"ssl_cert", CONF_TEXT, CONF_ETCD, offsetof(struct conf, cert), NULL},
    {"cert", CONF_TEXT, CONF_ETCD, offsetof(struct conf, cert), NULL},
    {"ssl_cert_key", CONF_TEXT, CONF_ETCD, offsetof(struct conf, key), NULL},
    {"key", CONF_TEXT, CONF_ETCD, offsetof(struct conf, key), NULL},
    {"user", CONF_TEXT, CONF_ETCD, offsetof(struct conf, user), NULL},
    {"password", CONF_TEXT, CONF_ETCD, offsetof(struct conf, password), NULL},
    {"min_workers", CONF_COUNT, CONF_GEN1, offsetof(struct conf, min_workers), NULL},
    {"max_workers", CONF_COUNT, CONF_GEN1, offsetof(struct conf, max_workers), NULL},
    {"etcd_prefix", CONF_TEXT, CONF_GEN1 | CONF_LEASED, offsetof(struct conf, etcd_prefix), NULL},
    {"secret_file", CONF_TEXT, CONF_ANY, offsetof(struct conf, secret_file), NULL},
    {"tls_ca", CONF_TEXT, CONF_ANY, offsetof(struct conf, tls_ca), NULL},
    {"tls_cert", CONF_TEXT, CONF_ANY, offsetof(struct conf, tls_cert), NULL},
    {"tls_key", CONF_TEXT, CONF_ANY, offsetof(struct conf, tls_key), NULL},
    {"tls_client_ca", CONF_TEXT, CONF_ANY, offsetof(struct conf, tls_client_ca), NULL},
    {"bind", CONF_TEXT, CONF_ANY, offsetof(struct conf, bind), NULL},
    {"lease_time", CONF_SECONDS, CONF_LEASED, offsetof(struct conf, lease_time), NULL},
};

enum { MOST_ATTEMPTS = 1000000 };
enum { OPTIONS = sizeof options / sizeof options[0] };

static const struct conf defaults = {
    .join_timeout = 600000,
    .last_call_timeout = 30000,
    .close_timeout = 30000,
    .heartbeat_timeout = 5000,
    .keep_alive_interval = 5000,
    .keep_alive_max_attempt = 3,
    .rank_order = RANK_ORDER_TORCH,
    .store_type = C10D_STORE_TCP,
    .is_host = C10D_HOST_AUTO,
    .read_timeout = 60000,
    .session_keep_alive = 2000,
    .session_grace = 300,
    .rank = -1,
    .timeout = 600000,
    .lease_time = 5000,
};

/* ---- values --------------------------------------------------------------------------------------------------- */

/* What PyTorch takes for a bool. */
static bool parse_flag(const char *value, int *out) {
  int index;
  if (!parse_choice("1|true|t|yes|y|0|false|f|no|n", value, &index)) return false;
  *out = index < 5 ? C10D_HOST_YES : C10D_HOST_NO;
  return true;
}

static bool parse_value(const struct conf_option *option, const char *value, struct conf *conf) {
  void *field = (char *)conf + option->offset;
  enum torch_layout layout;
  switch (option->type) {
    case CONF_SECONDS: return parse_seconds(value, 1, field);
    case CONF_TENTHS: return parse_seconds(value, 100, field);
    case CONF_COUNT: return parse_number(value, 1, MOST_ATTEMPTS, field);
    case CONF_RANK: return parse_number(value, 0, INT64_MAX, field);
    case CONF_CHOICE: return parse_choice(option->choices, value, field);
    case CONF_FLAG: return parse_flag(value, field);
    case CONF_TEXT: *(const char **)field = value; return true;
    case CONF_VERSION: *(const char **)field = value; return torch_layout_parse(value, &layout, NULL) == 0;
  }
  return false;
}

static const char *expected(const struct conf_option *option) {
  switch (option->type) {
    case CONF_SECONDS: return "a positive number of seconds";
    case CONF_TENTHS: return "a number of seconds, at least 0.1";
    case CONF_COUNT: return "a positive whole number, at most 1000000";
    case CONF_RANK: return "a whole number, 0 or more";
    case CONF_FLAG: return "true or false";
    case CONF_VERSION: return "a version of PyTorch, such as 1.13 or 2.6";
    case CONF_TEXT: return "a text";
    case CONF_CHOICE: break;
  }
  return option->choices;
}

/* ---- options -------------------------------------------------------------------------------------------------- */

static const struct conf_option *find(const char *name) {
  for (int i = 0; i < OPTIONS; i++)
    if (strcmp(options[i].name, name) == 0) return &options[i];
  return NULL;
}

/* The backend's own option for what another one's is called by that name; NULL: none. */
static const char *meant_by(const char *name, unsigned handlers) {
  if (strcmp(name, "timeout") == 0 && (handlers & (CONF_DYNAMIC | CONF_LEASED))) return "join_timeout";
  if (strcmp(name, "join_timeout") == 0 && !(handlers & (CONF_DYNAMIC | CONF_LEASED))) return "timeout";
  return NULL;
}

/* 0: the option is ignored, with a word in the log. */
static int ignore(const char *name, unsigned handlers, const rdzv_log *lenient, rdzv_error *error) {
  const char *meant = meant_by(name, handlers);
  char text[128] = "";
  if (meant) snprintf(text, sizeof text, " (did you mean '%s'?)", meant);
  if (!lenient) return error_set(error, RDZV_E_INVALID, "option '%s' does not apply to this backend%s", name, text);
  log_line(lenient, RDZV_LOG_WARNING, "option '%s' does not apply to this backend and has no effect%s", name, text);
  return 0;
}

static int unknown(const char *name, unsigned handlers, const rdzv_log *lenient, rdzv_error *error) {
  const char *names[OPTIONS];
  size_t count = 0;
  for (int i = 0; i < OPTIONS; i++)
    if (options[i].handlers & handlers) names[count++] = options[i].name;
  const char *near = nearest_name(name, names, count);
  if (near) return error_set(error, RDZV_E_INVALID, "unknown option '%s' (did you mean '%s'?)", name, near);
  if (!lenient) return error_set(error, RDZV_E_INVALID, "unknown option '%s'", name);
  log_line(lenient, RDZV_LOG_WARNING, "option '%s' is unknown and has no effect", name);
  return 0;
}

static int take(const char *name, const char *value, unsigned handlers, const rdzv_log *lenient, struct conf *conf,
                rdzv_error *error) {
  const struct conf_option *option = find(name);
  if (!option) return unknown(name, handlers, lenient, error);
  if (!(option->handlers & handlers)) return ignore(name, handlers, lenient, error);
  if (!*value) return error_set(error, RDZV_E_INVALID, "option '%s' has no value", name);
  if (!parse_value(option, value, conf))
    return error_set(error, RDZV_E_INVALID, "invalid value '%.200s' for option '%s': expected %s", value, name,
                     expected(option));
  return 0;
}

/* Cuts the blanks off both ends. */
static char *trim(char *text) {
  while (isspace((unsigned char)*text)) text++;
  size_t len = strlen(text);
  while (len > 0 && isspace((unsigned char)text[len - 1])) text[--len] = '\0';
  return text;
}

static int take_all(char *text, unsigned handlers, const rdzv_log *lenient, struct conf *conf, rdzv_error *error) {
  text = trim(text);
  for (char *rest = *text ? text : NULL; rest;) {
    char *pair = strsep(&rest, ",");
    char *value = strchr(pair, '=');
    if (value) *value++ = '\0';
    const char *name = trim(pair);
    if (!*name)
      return error_set(error, RDZV_E_INVALID, "invalid options: a name is missing (expected name=value,name=value)");
    const int result = take(name, value ? trim(value) : "", handlers, lenient, conf, error);
    if (result < 0) return result;
  }
  return 0;
}

/* A join that waits for a store that does not answer waits in vain: its own time bounds that. */
static void settle_reach(unsigned handlers, struct conf *conf) {
  const bool gen1 = handlers & CONF_GEN1;
  const int64_t join = gen1 ? conf->timeout : conf->join_timeout;
  const bool join_is_less = join < conf->read_timeout;
  conf->reach_timeout = join_is_less ? join : conf->read_timeout;
  conf->reach_option = !join_is_less ? "read_timeout" : gen1 ? "timeout" : "join_timeout";
}

/* A client gives up when the pause before its next try would outlast the time. */
int conf_fail_reach(const struct conf *conf, deadline until, int code, rdzv_error *error) {
  const bool is_over = deadline_left(until) <= LONGEST_PAUSE_MS;
  if (!is_over || (code != RDZV_E_TIMEOUT && code != RDZV_E_CONNECTION)) return code;
  return error_prefix(error, code, "not within %s (%g s)", conf->reach_option, (double)conf->reach_timeout / 1000);
}

int conf_parse(const char *text, unsigned handlers, const rdzv_log *lenient, struct conf *out, rdzv_error *error) {
  *out = defaults;
  out->text = strdup(text ? text : "");
  if (!out->text) return error_no_memory(error);
  const int result = take_all(out->text, handlers, lenient, out, error);
  settle_reach(handlers, out);
  if (result < 0) conf_free(out);
  return result;
}

void conf_free(struct conf *conf) {
  free(conf->text);
  conf->text = NULL;
}

struct tls_names conf_tls_names(const struct conf *conf) {
  struct tls_names names = {.secret = conf->secret_file,
                            .ca = conf->tls_ca,
                            .cert = conf->tls_cert,
                            .key = conf->tls_key,
                            .client_ca = conf->tls_client_ca};
  tls_names_settle(&names);
  return names;
}

rdzv_etcd_options conf_etcd_options(const rdzv_params *params, const struct conf *conf) {
  return (rdzv_etcd_options){.size = sizeof(rdzv_etcd_options),
                             .endpoints = params->endpoint,
                             .https = conf->protocol == 1,
                             .ca_cert = conf->ca_cert,
                             .cert = conf->cert,
                             .key = conf->key,
                             .user = conf->user,
                             .password = conf->password,
                             .read_timeout_ms = conf->reach_timeout,
                             .log = params->log};
}
