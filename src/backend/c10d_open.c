/* SPDX-License-Identifier: BSD-3-Clause */
/* Which store the cell is in, and who serves it. */
#include "backend/c10d.h"
#include "base/error.h"
#include "base/log.h"
#include "base/net/host.h"
#include "base/net/net.h"
#include "base/wait/waiting.h"
#include "store/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
  RESOLVE_MS = 5000,   /* for finding out whether the endpoint is us; the connection has its own time */
  FIRST_PAUSE_MS = 20, /* between two tries to serve at a port where nobody listens */
  LONGEST_PAUSE_MS = 500,
};

int c10d_serve(const struct endpoint *endpoint, bool loopback, const char *run_id, const rdzv_log *log,
               rdzv_server **out, rdzv_error *error) {
  const bool literal = loopback && endpoint->host[0] != 'l' && endpoint->host[0] != 'L'; /* not "localhost" */
  rdzv_server_options options = {.size = sizeof options,
                                 .bind = !loopback ? "::"
                                         : literal ? endpoint->host
                                                   : "127.0.0.1",
                                 .port = endpoint->port ? endpoint->port : RDZV_ANY_PORT,
                                 .log = log,
                                 .run_id = run_id};
  int result = rdzv_server_open(&options, out, error);
  if (result < 0 && result != RDZV_E_IN_USE && !loopback) { /* a machine without IPv6 */
    options.bind = "0.0.0.0";
    result = rdzv_server_open(&options, out, error);
  }
  if (result < 0) return result;
  result = rdzv_server_start(*out, error);
  if (result < 0) {
    rdzv_server_free(*out);
    *out = NULL;
  }
  return result;
}

static int open_client(const char *endpoint, const struct c10d_options *options, struct waiting *waiting,
                       rdzv_store **store, rdzv_error *error) {
  const rdzv_tcp_options tcp = {.size = sizeof tcp,
                                .timeout_ms = options->read_timeout_ms,
                                .log = options->log,
                                .cancel_fd = options->cancel_fd,
                                .dialect = options->dialect,
                                .run_id = options->run_id};
  const int result = store_open_tcp(endpoint, &tcp, waiting, store, error);
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
  int result = c10d_serve(endpoint, match->loopback, options->run_id, options->log, server, error);
  if (result < 0) return error_prefix(error, result, "cannot serve the store of the rendezvous");
  c10d_own_endpoint(*server, own);
  result = open_client(own, options, NULL, store, error);
  if (result < 0) {
    rdzv_server_free(*server);
    *server = NULL;
    return result;
  }
  log_line(options->log, RDZV_LOG_INFO, "this process serves the store of the rendezvous on %s: %s",
           rdzv_server_address(*server), why);
  return 0;
}

/* Is this node to be the host? `match` says why, for the log. */
static bool is_host(const struct endpoint *endpoint, const struct c10d_options *options, const struct flag *cancel,
                    struct host_match *match) {
  *match = host_match(endpoint, deadline_after(RESOLVE_MS), cancel);
  waiting_clear(cancel->waiting);
  return options->is_host == C10D_FIND_OUT ? match->ours : options->is_host == C10D_HOST;
}

/* Does anybody listen there? One pass. RDZV_E_CONNECTION: nobody does. */
static int look_for_listener(const struct endpoint *endpoint, deadline until, const struct flag *cancel,
                             rdzv_error *error) {
  int fd;
  const int result = net_connect(endpoint, until, cancel, &fd, error);
  if (result == 0) close(fd);
  return result;
}

#define HELD "%s; nobody listens there either: %s; does another program hold the port? end it, or choose another port"

/* The port is taken. If a server listens there, this node is its client. If nobody does, the port is held by something
 * that may go, or that is about to listen: so both are tried alternately. 0: a server listens there, or *server is
 * ours. */
static int serve_or_find(const struct endpoint *endpoint, const struct host_match *match,
                         const struct c10d_options *options, const struct flag *cancel, rdzv_store **store,
                         rdzv_server **server, rdzv_error *error) {
  struct waiting *waiting = cancel->waiting;
  rdzv_error refused = {0};
  int64_t pause = FIRST_PAUSE_MS;
  for (;;) {
    int result = try_host(endpoint, match, match->why, options, store, server, error);
    if (result != RDZV_E_IN_USE) return result;
    result = look_for_listener(endpoint, waiting->until, cancel, &refused);
    waiting_clear(waiting);
    if (result == 0) return 0;
    const deadline next = deadline_after(jitter(pause));
    if (result != RDZV_E_CONNECTION || next >= waiting->until) break;
    waiting_fail(waiting, HELD, error->message, refused.message);
    if (flag_pause(cancel, next) < 0) return error_set(error, RDZV_E_CANCELED, "opening was canceled");
    pause = 2 * pause < LONGEST_PAUSE_MS ? 2 * pause : LONGEST_PAUSE_MS;
  }
  const rdzv_error taken = *error;
  return error_set(error, refused.code, HELD, taken.message, refused.message);
}

static int open_as_client(const char *text, const struct c10d_options *options, struct waiting *waiting,
                          const char *why, rdzv_store **store, rdzv_error *error) {
  log_line(options->log, RDZV_LOG_INFO, "this process is a client of the store at '%s': %s", text, why);
  return open_client(text, options, waiting, store, error);
}

static int open_with(const char *text, const struct endpoint *endpoint, const struct c10d_options *options,
                     const struct flag *cancel, rdzv_store **store, rdzv_server **server, rdzv_error *error) {
  struct host_match match = {0};
  char taken[sizeof match.why + 64];
  const bool told = options->is_host != C10D_FIND_OUT, host = is_host(endpoint, options, cancel, &match);
  const char *why = told ? "option is_host says so" : match.why;
  if (!host && endpoint->port == 0)
    return error_set(error, RDZV_E_INVALID,
                     "invalid rendezvous endpoint '%s': port 0 is for the node that serves the store, which chooses a "
                     "free port and says which; this one does not serve: %s",
                     text, why);
  if (!host) return open_as_client(text, options, cancel->waiting, why, store, error);
  if (told) return try_host(endpoint, &match, why, options, store, server, error);
  const int result = serve_or_find(endpoint, &match, options, cancel, store, server, error);
  if (result < 0 || *server) return result;
  snprintf(taken, sizeof taken, "another process serves there, although %s", match.why);
  return open_as_client(text, options, cancel->waiting, taken, store, error);
}

static int open_tcp(const char *text, const struct c10d_options *options, rdzv_store **store, rdzv_server **server,
                    rdzv_error *error) {
  struct endpoint endpoint;
  struct flag cancel;
  struct waiting waiting;
  rdzv_error own;
  if (endpoint_parse_to_serve(text, RDZV_DEFAULT_PORT, &endpoint, error) < 0) return RDZV_E_INVALID;
  int result = flag_open_with(&cancel, options->cancel_fd, error);
  if (result < 0) return result;
  waiting_begin(&waiting, options->log, deadline_after(options->read_timeout_ms));
  const struct flag telling = flag_with(&cancel, &waiting);
  result = open_with(text, &endpoint, options, &telling, store, server, &own);
  flag_close(&cancel);
  if (result < 0 && error) *error = own;
  return result;
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
