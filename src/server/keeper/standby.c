/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A server with its state in etcd (keep/etcd/place.h). It listens from the begin, and stands by until it is the active
 * one: a thread waits for that, and hands the keep to the loop. A standby refuses every client: rdzv clients
 * get the address of the active server, the connections of others are closed.
 *
 * Failure modes: etcd cannot be used, or what is there cannot be loaded: the server ends with the error. The server
 * stops while it stands by: the wait is canceled.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/net/endpoint.h"
#include "base/wait/thread.h"
#include "server/keeper/keeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct standby {
  struct rdzv_server *server;
  struct keep *keep; /* NULL: the keeper has it */
  uv_async_t entered;
  pthread_t thread;
  bool has_thread;
  int result; /* of the thread, after it was joined */
  rdzv_error error;
  pthread_mutex_t lock; /* guards: */
  char active[ENDPOINT_TEXT_SIZE];
};

/* ---- waiting -------------------------------------------------------------------------------------------------- */

static void note_active(void *user, const char *active) {
  struct standby *standby = user;
  pthread_mutex_lock(&standby->lock);
  snprintf(standby->active, sizeof standby->active, "%s", active ? active : "");
  pthread_mutex_unlock(&standby->lock);
}

static void *enter(void *argument) {
  struct standby *standby = argument;
  standby->result = keep_enter_etcd(standby->keep, &standby->error);
  uv_async_send(&standby->entered);
  return NULL;
}

static void end_thread(struct standby *standby) {
  if (!standby->has_thread) return;
  pthread_join(standby->thread, NULL);
  standby->has_thread = false;
}

/* The wait is over: this server is the active one, or cannot be. */
static void on_entered(uv_async_t *async) {
  struct standby *standby = async->data;
  struct rdzv_server *server = standby->server;
  if (!standby->has_thread || server->stopping) return;
  end_thread(standby);
  int result = standby->result;
  if (result == 0) {
    struct keep *keep = standby->keep;
    standby->keep = NULL;
    result = keeper_take(server, keep, "etcd", &standby->error);
  }
  if (result < 0) {
    server_fail(server, &standby->error);
    return;
  }
  tenants_enforce(server);
  server->stands_by = false;
  const size_t keys = ks_count(server->ks);
  log_line(&server->log, RDZV_LOG_WARNING, "became the active server (%zu key%s)", keys, keys == 1 ? "" : "s");
}

/* ---- refusing ------------------------------------------------------------------------------------------------- */

bool standby_refuse(struct conn *conn, const struct wire_request *request) {
  struct rdzv_server *server = conn->server;
  struct standby *standby = server->standby;
  if (request->op == WIRE_OP_VALIDATE) return true;
  char active[ENDPOINT_TEXT_SIZE];
  pthread_mutex_lock(&standby->lock);
  snprintf(active, sizeof active, "%s", standby->active);
  pthread_mutex_unlock(&standby->lock);
  if (request->op == WIRE_OP_PING && request->number == WIRE_HELLO_NONCE) {
    wire_put32(&server->answers, WIRE_STANDBY_ANSWER);
    wire_put_bytes(&server->answers, rdzv_str(active));
    conn_doom(conn, RDZV_E_CONNECTION, NULL);
    return true;
  }
  snprintf(server->doom_text, sizeof server->doom_text, "this server is a standby%s%.70s",
           *active ? ", and the active one is at " : "", active);
  conn_doom(conn, RDZV_E_CONNECTION, server->doom_text);
  return true;
}

/* ---- life ----------------------------------------------------------------------------------------------------- */

static bool is_every_address(const char *host) { return strcmp(host, "::") == 0 || strcmp(host, "0.0.0.0") == 0; }

/* The address for clients: the one given, or the one that the server listens on. */
static int find_address(const struct rdzv_server *server, char out[ENDPOINT_TEXT_SIZE], rdzv_error *error) {
  struct endpoint found;
  const char *given = server->options.advertise;
  if (endpoint_parse(given ? given : server->address, server->port, &found, error) < 0)
    return error_prefix(error, RDZV_E_INVALID, "cannot advertise '%s'", given ? given : server->address);
  if (is_every_address(found.host))
    return error_set(error, RDZV_E_INVALID,
                     "cannot tell clients where this server is, which listens on every address: %s (name its own "
                     "address with --bind or --advertise)",
                     given ? given : server->address);
  endpoint_format(found.host, found.port, out);
  return 0;
}

static int set_up(struct standby *standby, rdzv_error *error) {
  struct rdzv_server *server = standby->server;
  char address[ENDPOINT_TEXT_SIZE];
  int result = find_address(server, address, error);
  if (result < 0) return result;
  const struct keep_etcd_options options = {.etcd = server->options.state_etcd,
                                            .prefix = server->options.state_prefix,
                                            .address = address,
                                            .lease_ms = server->options.state_lease_ms,
                                            .log = &server->log,
                                            .told = note_active,
                                            .user = standby};
  return keep_new_etcd(&options, &standby->keep, error);
}

static int make(struct rdzv_server *server, rdzv_error *error) {
  struct standby *standby = server->standby = calloc(1, sizeof *standby);
  if (!standby) return error_no_memory(error);
  standby->server = server;
  pthread_mutex_init(&standby->lock, NULL);
  return set_up(standby, error);
}

int standby_open(struct rdzv_server *server, rdzv_error *error) {
  if (!server->options.state_etcd) return 0;
  int result = server->standby ? 0 : make(server, error);
  if (result < 0) return result;
  struct standby *standby = server->standby;
  result = uv_async_init(&server->loop, &standby->entered, on_entered);
  standby->entered.data = standby;
  server->stands_by = true;
  return result == 0 ? 0 : error_errno(error, RDZV_E_IO, -result, "cannot create an event loop");
}

int standby_again(struct rdzv_server *server, rdzv_error *error) {
  struct standby *standby = server->standby;
  struct keep *before = standby->keep, *fresh = NULL;
  if (!before && !server->keeper) return error_no_memory(error); /* for the keeper */
  const int result = keep_again_etcd(before ? before : server->keeper->keep, &fresh, error);
  standby->keep = fresh;
  keep_close(before);
  return result;
}

int standby_begin(struct rdzv_server *server, rdzv_error *error) {
  struct standby *standby = server->standby;
  if (!standby || standby->has_thread) return 0;
  const int failed = thread_start(&standby->thread, enter, standby);
  if (failed) return error_errno(error, RDZV_E_NO_MEMORY, failed, "cannot start the standby thread");
  standby->has_thread = true;
  return 0;
}

/* Joins the thread before it closes the handle that the thread signals. */
void standby_shut_down(struct rdzv_server *server, void (*close_handle)(void *handle)) {
  struct standby *standby = server->standby;
  if (!standby) return;
  if (standby->keep) keep_cancel(standby->keep);
  end_thread(standby);
  close_handle(&standby->entered);
}

void standby_free(struct rdzv_server *server) {
  struct standby *standby = server->standby;
  if (!standby) return;
  keep_close(standby->keep);
  pthread_mutex_destroy(&standby->lock);
  free(standby);
  server->standby = NULL;
}
