/* SPDX-License-Identifier: BSD-3-Clause */
/* Which store the cell is in, and who serves it. */
#include "backend/c10d.h"
#include "base/error.h"
#include "base/host.h"
#include "base/log.h"
#include "store/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RESOLVE_MS = 5000 }; /* for finding out whether the endpoint is us; the connection has its own time */

int c10d_serve(const struct endpoint *endpoint, bool loopback, const rdzv_log *log, rdzv_server **out,
               rdzv_error *error) {
  const bool literal = loopback && endpoint->host[0] != 'l' && endpoint->host[0] != 'L'; /* not "localhost" */
  rdzv_server_options options = {.size = sizeof options,
                                 .bind = !loopback ? "::"
                                         : literal ? endpoint->host
                                                   : "127.0.0.1",
                                 .port = endpoint->port ? endpoint->port : RDZV_ANY_PORT,
                                 .log = *log};
  int result = rdzv_server_open(&options, out, error);
  if (result < 0 && result != RDZV_E_IN_USE && !loopback) { /* a machine without IPv6 */
    options.bind = "0.0.0.0";
    result = rdzv_server_open(&options, out, error);
  }
  if (result < 0) return result;
  result = rdzv_server_start(*out, error);
  if (result < 0) {
    rdzv_server_close(*out);
    *out = NULL;
  }
  return result;
}

static int open_client(const char *endpoint, const struct c10d_options *options, rdzv_store **store,
                       rdzv_error *error) {
  const rdzv_tcp_options tcp = {.size = sizeof tcp,
                                .timeout_ms = options->read_timeout_ms,
                                .log = options->log,
                                .cancel_fd = options->cancel_fd,
                                .dialect = options->dialect};
  const int result = rdzv_store_open_tcp(endpoint, &tcp, store, error);
  if (result < 0) return error_prefix(error, result, "cannot reach the store of the rendezvous");
  store_forget_cancel_fd(*store);
  return 0;
}

void c10d_own_endpoint(rdzv_server *server, char out[ENDPOINT_TEXT_SIZE]) {
  struct endpoint bound;
  const bool known = endpoint_parse(rdzv_server_address(server), 0, &bound, NULL) == 0;
  const bool any = !known || strcmp(bound.host, "::") == 0 || strcmp(bound.host, "0.0.0.0") == 0;
  endpoint_format(any ? "127.0.0.1" : bound.host, rdzv_server_port(server), out);
}

static int try_host(const struct endpoint *endpoint, const struct host_match *match, const char *why,
                    const struct c10d_options *options, rdzv_store **store, rdzv_server **server, rdzv_error *error) {
  char own[ENDPOINT_TEXT_SIZE];
  int result = c10d_serve(endpoint, match->loopback, &options->log, server, error);
  if (result < 0) return error_prefix(error, result, "cannot serve the store of the rendezvous");
  c10d_own_endpoint(*server, own);
  result = open_client(own, options, store, error);
  if (result < 0) {
    rdzv_server_close(*server);
    *server = NULL;
    return result;
  }
  log_line(&options->log, RDZV_LOG_INFO, "this process serves the store of the rendezvous on %s: %s",
           rdzv_server_address(*server), why);
  return 0;
}

/* Is this node to be the host? `match` says why, for the log. */
static int find_host(const struct endpoint *endpoint, const struct c10d_options *options, struct host_match *match,
                     bool *is_host, rdzv_error *error) {
  struct cancel cancel;
  const int result = cancel_open_with(&cancel, options->cancel_fd, error);
  if (result < 0) return result;
  *match = host_match(endpoint, deadline_after(RESOLVE_MS), &cancel);
  cancel_close(&cancel);
  *is_host = options->is_host == C10D_FIND_OUT ? match->ours : options->is_host == C10D_HOST;
  return 0;
}

static int open_tcp(const char *text, const struct c10d_options *options, rdzv_store **store, rdzv_server **server,
                    rdzv_error *error) {
  struct endpoint endpoint;
  struct host_match match = {0};
  const bool told = options->is_host != C10D_FIND_OUT;
  if (endpoint_parse_to_serve(text, RDZV_DEFAULT_PORT, &endpoint, error) < 0)
    return error_prefix(error, RDZV_E_INVALID, "invalid rendezvous endpoint");
  bool host = false;
  int result = find_host(&endpoint, options, &match, &host, error);
  if (result < 0) return result;
  if (host) {
    const char *why = told ? "option is_host says so" : match.why;
    result = try_host(&endpoint, &match, why, options, store, server, error);
    if (told || result != RDZV_E_IN_USE) return result; /* only a port that is taken means that another serves */
    log_line(&options->log, RDZV_LOG_INFO,
             "this process is a client of the store at '%s', although %s: it cannot serve there: %s", text, match.why,
             error ? error->message : "");
  } else if (endpoint.port == 0) {
    return error_set(error, RDZV_E_INVALID,
                     "invalid rendezvous endpoint '%s': port 0 is for the node that serves the store, which chooses a "
                     "free port and says which; this one does not serve: %s",
                     text, told ? "option is_host says so" : match.why);
  } else {
    log_line(&options->log, RDZV_LOG_INFO, "this process is a client of the store at '%s': %s", text,
             told ? "option is_host says so" : match.why);
  }
  return open_client(text, options, store, error);
}

/* Without a path a new file, for this process and those that it tells of it. */
static int open_file(const char *path, const struct c10d_options *options, rdzv_store **store, rdzv_error *error) {
  const rdzv_file_options file = {.size = sizeof file,
                                  .timeout_ms = options->read_timeout_ms,
                                  .log = options->log,
                                  .cancel_fd = options->cancel_fd};
  const int result = rdzv_store_open_file(path, &file, store, error);
  if (result < 0) return error_prefix(error, result, "cannot open the store of the rendezvous");
  store_forget_cancel_fd(*store);
  return 0;
}

int c10d_open_store(const char *endpoint, const struct c10d_options *options, rdzv_store **store, rdzv_server **server,
                    rdzv_error *error) {
  *server = NULL;
  if (options->store_type == C10D_TCP) return open_tcp(endpoint, options, store, server, error);
  if (!*endpoint)
    return error_set(error, RDZV_E_INVALID, "option store_type=file needs the path of a file as endpoint");
  return open_file(endpoint, options, store, error);
}
