/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/client/explain.h"

#include "base/error.h"
#include "base/net/foreign.h"
#include "base/net/net.h"
#include "etcd/v3/read.h"
#include "wire/probe.h"

#include <jansson.h>
#include <rdzv/etcd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SILENCE_MS = 4000 };

#define WANTS_TLS "%s requires TLS (set protocol=https, or https:// in a URL)"
#define IS_THE_PORT_RIGHT "(is the port right?)"

static bool has(const struct buf *body, const char *text) {
  return body->data && memmem(body->data, body->len, text, strlen(text));
}

/* ---- answers -------------------------------------------------------------------------------------------------- */

/* etcd's have a header, or by way of a proxy at least a body that says so. */
bool etcd_is_foreign(const struct http_response *response, bool v3) {
  static const char *const signs[] = {"\"errorCode\"", "\"action\"", "\"members\""};
  struct etcd3_error error;
  const long status = response->status;
  const bool passing =
      status == 408 || status == 499 || status == 500 || status == 502 || status == 503 || status == 504;
  if (passing || response->etcd_index != 0 || response->cluster != 0) return false;
  if (v3) return !etcd3_read_error((rdzv_bytes){response->body.data, response->body.len}, &error);
  for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
    if (has(&response->body, signs[i])) return false;
  return true;
}

/* The text at that name of a JSON object, cut to what fits; "": none. */
static void text_in(const struct buf *body, const char *name, char *out, size_t size) {
  json_t *json = json_loadb((const char *)body->data, body->len, 0, NULL);
  const char *text = json_string_value(json_object_get(json, name));
  snprintf(out, size, "%s", text ? text : "");
  json_decref(json);
}

/* The members of a cluster, as the port for peers lists them: where the first one serves clients. Their ids are of 64
 * bits, which is more than a JSON integer of jansson has. */
static void client_url_in(const struct buf *body, char *out, size_t size) {
  json_t *json = json_loadb((const char *)body->data, body->len, JSON_DECODE_INT_AS_REAL, NULL);
  const json_t *urls = json_object_get(json_array_get(json, 0), "clientURLs");
  const char *text = json_string_value(json_array_get(urls, 0));
  snprintf(out, size, "%s", text ? text : "another port, usually 2379");
  json_decref(json);
}

/* "3.5.16" is 305. */
static int number_of(const char *version) {
  int major = 0, minor = 0;
  sscanf(version, "%d.%d", &major, &minor); /* NOLINT: a part that is not a number stays 0 */
  return 100 * major + minor;
}

static int explain_no_v2(const char *endpoint, const char *version, rdzv_error *error) {
  const bool gone = number_of(version) >= 306;
  return error_set(error, RDZV_E_UNSUPPORTED,
                   "etcd %s at %s has no v2 API (%s; for its v3 API: --rdzv-backend etcd-v3, rdzv store --etcd3)",
                   version, endpoint, gone ? "etcd 3.5 was the last with it" : "start etcd with --enable-v2");
}

/* What etcd says of a path that it does not have; a proxy says it in other words. */
static bool is_missing(const struct http_response *response) {
  return response->status == 404 && has(&response->body, "404 page not found");
}

/* Without its gateway etcd lacks this path, too; with it, only another method is expected. */
static bool has_no_gateway(const struct http_response *answer, etcd_ask *ask, void *argument) {
  struct http_response range = {0};
  if (!is_missing(answer) || ask(argument, "/v3/kv/range", &range) != 0) return false;
  const bool missing = is_missing(&range);
  buf_free(&range.body);
  return missing;
}

/* An answer that says nothing about etcd itself. */
static int explain_status(const char *endpoint, const char *version, bool v3, long status, rdzv_error *error) {
  return error_set(error, RDZV_E_PROTOCOL,
                   "etcd %s answers at %s, but a request of its %s API gets status %ld (does a proxy answer in its "
                   "place?)",
                   version, endpoint, v3 ? "v3" : "v2", status);
}

static int explain_old(const char *endpoint, const char *version, rdzv_error *error) {
  return error_set(error, RDZV_E_UNSUPPORTED, "etcd %s at %s is too old for its v3 API (3.4 or later is required)",
                   version, endpoint);
}

static int explain_no_gateway(const char *endpoint, const char *version, rdzv_error *error) {
  return error_set(
      error, RDZV_E_UNSUPPORTED,
      "etcd %s at %s has its gateway for HTTP switched off (start etcd without --enable-grpc-gateway=false)", version,
      endpoint);
}

/* The port for peers has no /health, and lists the members. */
static bool explain_peer_port(const char *endpoint, etcd_ask *ask, void *argument, rdzv_error *error) {
  struct http_response health = {0}, members = {0};
  char url[200];
  const bool asked = ask(argument, "/health", &health) == 0;
  const bool peers = asked && health.status == 404 && ask(argument, "/members", &members) == 0;
  const bool listed = peers && members.status == 200;
  if (listed) {
    client_url_in(&members.body, url, sizeof url);
    error_set(error, RDZV_E_PROTOCOL, "%s is etcd's port for peers (clients are served at %s)", endpoint, url);
  }
  if (asked) buf_free(&health.body);
  if (peers) buf_free(&members.body);
  return listed;
}

static int explain_etcd(const char *endpoint, bool v3, const struct http_response *answer, const struct buf *about,
                        etcd_ask *ask, void *argument, rdzv_error *error) {
  char version[32];
  text_in(about, "etcdserver", version, sizeof version);
  if (explain_peer_port(endpoint, ask, argument, error)) return RDZV_E_PROTOCOL;
  if (v3 && number_of(version) < 304) return explain_old(endpoint, version, error);
  if (v3 && has_no_gateway(answer, ask, argument)) return explain_no_gateway(endpoint, version, error);
  if (!v3 && is_missing(answer)) return explain_no_v2(endpoint, version, error);
  return explain_status(endpoint, version, v3, answer->status, error);
}

int etcd_explain_answer(const char *endpoint, bool v3, const struct http_response *response, etcd_ask *ask,
                        void *argument, rdzv_error *error) {
  struct http_response about = {0};
  if (response->status == 400 && has(&response->body, "HTTPS"))
    return error_set(error, RDZV_E_PROTOCOL, WANTS_TLS, endpoint);
  if (response->status == 400) /* of a server that has heard only a part of the request */
    return error_set(error, RDZV_E_CONNECTION, "%s answers with status 400, and not as etcd", endpoint);
  const bool asked = ask(argument, "/version", &about) == 0;
  int result = 0;
  if (asked && has(&about.body, "\"etcdserver\""))
    result = explain_etcd(endpoint, v3, response, &about.body, ask, argument, error);
  if (asked) buf_free(&about.body);
  if (result < 0) return result;
  return error_set(error, RDZV_E_PROTOCOL,
                   "a web server answers at %s, not etcd: status %ld for a request for keys " IS_THE_PORT_RIGHT,
                   endpoint, response->status);
}

/* ---- no answers ----------------------------------------------------------------------------------------------- */

static bool is_store(const struct endpoint *endpoint, deadline until, const struct flag *cancel) {
  bool found = false;
  for (int i = 0; i < PROBE_QUESTIONS && !found && deadline_left(until) > 0; i++) {
    char answer[16];
    const size_t len = net_ask(endpoint, probe_question(i), answer, sizeof answer, until, cancel);
    found = probe_is_store(i, (rdzv_bytes){answer, len});
  }
  return found;
}

/* What was recognized, to a client that speaks HTTP, or HTTPS. 0: it is what we expect, so it is in trouble. */
static int explain_found(enum foreign found, const char *endpoint, bool https, rdzv_error *error) {
  switch (found) {
    case FOREIGN_SSH:
      return error_set(error, RDZV_E_PROTOCOL, "an SSH server answers at %s, not etcd " IS_THE_PORT_RIGHT, endpoint);
    case FOREIGN_TLS: return https ? 0 : error_set(error, RDZV_E_PROTOCOL, WANTS_TLS, endpoint);
    case FOREIGN_ETCD:
    case FOREIGN_HTTP:
      return !https ? 0
                    : error_set(error, RDZV_E_PROTOCOL, "%s at %s does not speak TLS (set protocol=http)",
                                found == FOREIGN_ETCD ? "etcd" : "the web server", endpoint);
    case FOREIGN_UNKNOWN: break;
  }
  return 0;
}

int etcd_explain_silence(const char *endpoint, bool https, deadline until, const struct flag *cancel,
                         rdzv_error *error) {
  struct endpoint at;
  const deadline by = deadline_sooner(deadline_after(SILENCE_MS), until);
  if (endpoint_parse(endpoint, RDZV_ETCD_PORT, &at, NULL) < 0) return 0;
  const enum foreign found = foreign_ask(&at, by, cancel);
  if (found != FOREIGN_UNKNOWN) return explain_found(found, endpoint, https, error);
  if (!is_store(&at, by, cancel)) return 0;
  return error_set(error, RDZV_E_PROTOCOL,
                   "a TCPStore answers at %s, not etcd (is the port right? for that store: --rdzv-backend c10d)",
                   endpoint);
}
