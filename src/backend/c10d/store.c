/* SPDX-License-Identifier: BSD-3-Clause */
#include "backend/c10d/store.h"

#include "base/error.h"
#include "base/log.h"
#include "base/net/net.h"
#include "base/os/descriptors.h"
#include "base/wait/waiting.h"
#include "store/store.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
  FIRST_PAUSE_MS = 20, /* between two tries to serve at a port where no process listens */
  LONGEST_PAUSE_MS = 500,
  RESOLVE_MS = 5000,   /* to look up where to listen */
  OWN_DESCRIPTORS = 5, /* of a connection to our own server: both ends, and flags */
};

/* ---- serving and connecting ----------------------------------------------------------------------------------- */

/* "" means none; NULL would mean the value from the environment. */
static const char *or_none(const char *path) { return path ? path : ""; }

void c10d_protect_client(const struct c10d_protection *protection, const char *host, rdzv_tcp_options *to) {
  const struct tls_names *names = &protection->names;
  to->secret_file = or_none(names->secret);
  to->tls_ca = names->ca;
  to->tls_cert = names->ca ? names->cert : NULL;
  to->tls_key = names->ca ? names->key : NULL;
  to->tls_host = host;
}

static int check_certificate(const struct tls_names *names, rdzv_error *error) {
  if (!names->ca || names->cert) return 0;
  return error_set(error, RDZV_E_INVALID,
                   "a node that serves the store needs a certificate to show (options tls_cert and tls_key)");
}

int c10d_store_serve(const struct endpoint *endpoint, const struct c10d_protection *protection, const char *run_id,
                     const rdzv_log *log, rdzv_server **out, rdzv_error *error) {
  const struct tls_names *names = &protection->names;
  struct host_bind at = {.address = ""};
  if (!protection->bind) host_bind(endpoint, deadline_after(RESOLVE_MS), NULL, &at);
  if (at.why)
    log_line(log, RDZV_LOG_INFO, "this process listens on all its addresses: %s (choose one with option bind=ADDR)",
             at.why);
  const rdzv_server_options options = {.size = sizeof options,
                                       .bind = protection->bind ? protection->bind : at.address,
                                       .port = endpoint->port ? endpoint->port : RDZV_ANY_PORT,
                                       .log = log,
                                       .run_id = run_id,
                                       .renew_groups = true,
                                       .secret_file = or_none(names->secret),
                                       .tls_cert = names->cert,
                                       .tls_key = names->key,
                                       .tls_client_ca = names->client_ca};
  int result = check_certificate(names, error);
  if (result == 0) result = rdzv_server_open(&options, out, error);
  if (result < 0) return result;
  result = rdzv_server_start(*out, error);
  if (result < 0) {
    rdzv_server_free(*out);
    *out = NULL;
  }
  return result;
}

int c10d_store_connect(rdzv_server *server, const char *endpoint, const rdzv_tcp_options *options, bool asks_native,
                       struct waiting *waiting, rdzv_store **out, rdzv_error *error) {
  char own[ENDPOINT_TEXT_SIZE];
  if (server) c10d_host_own_endpoint(server, own);
  return store_open_tcp(server ? own : endpoint, options, asks_native, waiting, out, error);
}

/* ---- opening as decided --------------------------------------------------------------------------------------- */

/* A store that is being opened, and what it comes to. */
struct opening {
  const char *text; /* of the endpoint */
  struct endpoint endpoint;
  const struct c10d_options *options;
  const struct flag *cancel; /* with the wait to describe */
  rdzv_store *store;
  rdzv_server *server; /* NULL: another process serves */
};

static int connect_to(struct opening *opening, struct waiting *waiting, rdzv_error *error) {
  const struct c10d_options *options = opening->options;
  rdzv_tcp_options tcp = {.size = sizeof tcp,
                          .timeout_ms = options->read_timeout_ms,
                          .log = options->log,
                          .cancel_fd = options->cancel_fd,
                          .dialect = options->dialect,
                          .run_id = options->run_id};
  c10d_protect_client(&options->protection, opening->endpoint.host, &tcp);
  const int result =
      c10d_store_connect(opening->server, opening->text, &tcp, options->asks_native, waiting, &opening->store, error);
  return result < 0 ? error_prefix(error, result, "cannot reach the store of the rendezvous") : 0;
}

/* A server that finds no descriptor closes the connection, and its client would not know why. */
static int connect_to_own(struct opening *opening, rdzv_error *error) {
  const int errnum = descriptors_lack(OWN_DESCRIPTORS);
  if (errnum == 0) return connect_to(opening, NULL, error);
  return error_errno(error, RDZV_E_IO, errnum, "cannot connect to the store of this process");
}

static int open_as_host(struct opening *opening, const char *why, rdzv_error *error) {
  const struct c10d_options *options = opening->options;
  int result = c10d_store_serve(&opening->endpoint, &options->protection, options->run_id, options->log,
                                &opening->server, error);
  if (result < 0) return error_prefix(error, result, "cannot serve the store of the rendezvous");
  result = connect_to_own(opening, error);
  if (result < 0) {
    rdzv_server_free(opening->server);
    opening->server = NULL;
    return result;
  }
  log_line(options->log, RDZV_LOG_INFO, "this process serves the store of the rendezvous on %s: %s",
           rdzv_server_address(opening->server), why);
  return 0;
}

static int open_as_client(struct opening *opening, const char *why, rdzv_error *error) {
  log_line(opening->options->log, RDZV_LOG_INFO, "this process is a client of the store at '%s': %s", opening->text,
           why);
  return connect_to(opening, opening->cancel->waiting, error);
}

/* Does a process listen there? One pass. RDZV_E_CONNECTION: none does. */
static int look_for_listener(const struct endpoint *endpoint, deadline until, const struct flag *cancel,
                             rdzv_error *error) {
  int fd;
  const int result = net_connect(endpoint, until, cancel, &fd, error);
  if (result == 0) close(fd);
  return result;
}

#define HELD "%s; nothing listens there either: %s; does another program hold the port? end it, or choose another port"

/* The port may be taken. If a server listens there, this node is its client. If none does, the port is held by a
 * program that may end, or is about to listen: so both are tried alternately. 0: a server listens there, or
 * opening->server is ours. */
static int serve_or_find(struct opening *opening, const char *why, rdzv_error *error) {
  struct waiting *waiting = opening->cancel->waiting;
  rdzv_error refused = {0};
  struct backoff backoff = {FIRST_PAUSE_MS, LONGEST_PAUSE_MS};
  for (;;) {
    int result = open_as_host(opening, why, error);
    if (result != RDZV_E_IN_USE) return result;
    result = look_for_listener(&opening->endpoint, waiting->until, opening->cancel, &refused);
    waiting_clear(waiting);
    if (result == 0) return 0;
    const deadline next = backoff_next(&backoff);
    if (result != RDZV_E_CONNECTION || next >= waiting->until) break;
    waiting_fail(waiting, HELD, error->message, refused.message);
    if (flag_pause(opening->cancel, next) < 0) return error_set(error, RDZV_E_CANCELED, "opening was canceled");
  }
  const rdzv_error taken = *error;
  return error_set(error, refused.code, HELD, taken.message, refused.message);
}

static int open_as_decided(struct opening *opening, const struct c10d_host *host, rdzv_error *error) {
  char taken[sizeof host->why + 64];
  if (!host->is_host && opening->endpoint.port == 0)
    return error_set(error, RDZV_E_INVALID,
                     "invalid rendezvous endpoint '%s': port 0 is for the node that serves the store, which picks a "
                     "free port and logs it; this node does not serve: %s",
                     opening->text, host->why);
  if (!host->is_host) return open_as_client(opening, host->why, error);
  if (host->is_told) return open_as_host(opening, host->why, error);
  const int result = serve_or_find(opening, host->why, error);
  if (result < 0 || opening->server) return result;
  snprintf(taken, sizeof taken, "another process serves there, although %s", host->why);
  return open_as_client(opening, taken, error);
}

/* Several endpoints name servers that run by themselves: no node serves. */
static int open_at_several(struct opening *opening, rdzv_error *error) {
  if (opening->options->is_host == C10D_HOST_YES)
    return error_set(error, RDZV_E_INVALID, "option is_host: a node cannot serve several endpoints, as in '%.200s'",
                     opening->text);
  return open_as_client(opening, "there are several endpoints", error);
}

static int open_at_one(struct opening *opening, rdzv_error *error) {
  if (endpoint_parse_to_serve(opening->text, RDZV_DEFAULT_PORT, &opening->endpoint, error) < 0) return RDZV_E_INVALID;
  const struct c10d_host host = c10d_host_decide(&opening->endpoint, opening->options->is_host, opening->cancel);
  return open_as_decided(opening, &host, error);
}

static int open_tcp(const char *text, const struct c10d_options *options, rdzv_store **store, rdzv_server **server,
                    rdzv_error *error) {
  struct opening opening = {.text = *text ? text : "localhost", .options = options};
  struct flag cancel;
  struct waiting waiting;
  rdzv_error own;
  int result = flag_open_with(&cancel, options->cancel_fd, error);
  if (result < 0) return result;
  waiting_begin(&waiting, options->log, deadline_after(options->read_timeout_ms));
  const struct flag telling = flag_with(&cancel, &waiting);
  opening.cancel = &telling;
  result = strchr(opening.text, ',') ? open_at_several(&opening, &own) : open_at_one(&opening, &own);
  flag_close(&cancel);
  if (result < 0) {
    if (error) *error = own;
    return result;
  }
  *store = opening.store;
  *server = opening.server;
  return 0;
}

static int open_file(const char *path, const struct c10d_options *options, rdzv_store **store, rdzv_error *error) {
  const rdzv_file_options file = {.size = sizeof file,
                                  .timeout_ms = options->read_timeout_ms,
                                  .log = options->log,
                                  .cancel_fd = options->cancel_fd};
  const int result = rdzv_store_open_file(path, &file, store, error);
  return result < 0 ? error_prefix(error, result, "cannot open the store of the rendezvous") : 0;
}

int c10d_store_open(const char *endpoint, const struct c10d_options *options, rdzv_store **store, rdzv_server **server,
                    rdzv_error *error) {
  if (options->store_type == C10D_STORE_TCP) return open_tcp(endpoint, options, store, server, error);
  if (!*endpoint)
    return error_set(error, RDZV_E_INVALID, "option store_type=file needs the path of a file as endpoint");
  const int result = open_file(endpoint, options, store, error);
  if (result == 0) *server = NULL;
  return result;
}
