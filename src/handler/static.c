/* SPDX-License-Identifier: BSD-3-Clause */
/* The static rendezvous: each node is given its rank, rank 0 serves the store, and there is one round for good. */
#include "backend/c10d/store.h"
#include "base/error.h"
#include "base/log.h"
#include "base/net/host.h"
#include "base/wait/waiting.h"
#include "handler/conf.h"
#include "handler/events.h"
#include "handler/handler.h"
#include "handler/master.h"
#include "handler/result.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct fixed {
  rdzv_handler base;
  struct endpoint endpoint;
  int64_t rank, world_size, timeout;
  pthread_mutex_t lock; /* guards what follows */
  rdzv_server *server;
  rdzv_store *store;
  char text[2 * ENDPOINT_TEXT_SIZE];
};

static struct fixed *self(rdzv_handler *handler) { return (struct fixed *)handler; }

static struct c10d_protection protection_of(const rdzv_handler *handler) {
  const rdzv_protection *from = &handler->protection;
  struct c10d_protection protection = {{.secret = from->secret_file,
                                        .ca = from->tls_ca,
                                        .cert = from->tls_cert,
                                        .key = from->tls_key,
                                        .client_ca = from->tls_client_ca},
                                       *from->bind ? from->bind : NULL};
  tls_names_settle(&protection.names);
  return protection;
}

/* Rank 0 serves, or fails: a server that is there already belongs to another job. */
static int serve(struct fixed *handler, rdzv_error *error) {
  const struct c10d_host host = c10d_host_decide(&handler->endpoint, C10D_HOST_AUTO, &handler->base.cancel);
  if (!host.is_host && handler->world_size > 1)
    log_line(&handler->base.log, RDZV_LOG_WARNING,
             "this node is rank 0 and serves the store, but not at the endpoint: %s (check --node-rank)", host.why);
  const struct c10d_protection protection = protection_of(&handler->base);
  const int result = c10d_store_serve(&handler->endpoint, &protection, handler->base.run_id, &handler->base.log,
                                      &handler->server, error);
  if (result < 0) return error_prefix(error, result, "rank 0 cannot serve the store");
  handler->endpoint.port = rdzv_server_port(handler->server);
  return 0;
}

static int connect_store(struct fixed *handler, rdzv_error *error) {
  const struct c10d_protection protection = protection_of(&handler->base);
  rdzv_tcp_options options = {.size = sizeof options,
                              .timeout_ms = handler->timeout,
                              .log = &handler->base.log,
                              .cancel_fd = flag_fd(&handler->base.cancel),
                              .announce_worker = true,
                              .run_id = handler->base.run_id};
  if (handler->store) return 0;
  c10d_protect_client(&protection, handler->endpoint.host, &options);
  struct waiting waiting;
  waiting_begin(&waiting, &handler->base.log, deadline_after(handler->timeout));
  if (handler->rank != 0) waiting_about(&waiting, "rank 0 at '%s' has not started", handler->base.endpoint);
  const int result =
      c10d_store_connect(handler->server, handler->base.endpoint, &options, false, &waiting, &handler->store, error);
  if (result == 0) store_forget_cancel_fd(handler->store);
  return result;
}

static int make_result(struct fixed *handler, rdzv_result **out, rdzv_error *error) {
  const deadline until = deadline_after(handler->timeout);
  int outcome = connect_store(handler, error);
  if (outcome < 0 && outcome != RDZV_E_CANCELED && deadline_left(until) == 0)
    error_prefix(error, outcome, "not within timeout (%g s)", (double)handler->timeout / 1000);
  if (outcome < 0) return error_prefix(error, outcome, "cannot join as rank %" PRId64, handler->rank);
  struct round_result *result = result_new(handler->base.run_id, "static", handler->base.node);
  if (!result) return error_no_memory(error);
  if (!result_set_master(result, handler->endpoint.host, handler->endpoint.port)) outcome = error_no_memory(error);
  if (outcome == 0)
    outcome = result_open_store(result, handler->store, handler->base.run_id, &handler->base.cancel, error);
  if (outcome == 0 && handler->rank == 0) /* for PyTorch before 2.4, whose agents ask the store */
    outcome = master_publish(result, NULL, handler->endpoint.host, handler->endpoint.port, error);
  if (outcome < 0) {
    rdzv_result_free(&result->base);
    return outcome;
  }
  result_forget_cancel(result);
  result->base.rank = handler->rank;
  result->base.world_size = handler->world_size;
  *out = &result->base;
  return 0;
}

static int static_next(rdzv_handler *base, rdzv_result **out, rdzv_error *error) {
  struct fixed *handler = self(base);
  if (flag_raised(&base->cancel)) return error_set(error, RDZV_E_CANCELED, "cannot join the rendezvous: canceled");
  pthread_mutex_lock(&handler->lock);
  const int result = make_result(handler, out, error);
  pthread_mutex_unlock(&handler->lock);
  return result;
}

/* Nothing ever happens. */
static int static_wait_change(rdzv_handler *base, int64_t timeout_ms, rdzv_change **out, rdzv_error *error) {
  (void)out;
  if (flag_pause(&base->cancel, deadline_after(timeout_ms)) < 0)
    return error_set(error, RDZV_E_CANCELED, "waiting for changes of the round: canceled");
  return error_set(error, RDZV_E_TIMEOUT, "nothing happened in %" PRId64 " ms: the rendezvous is static", timeout_ms);
}

static int static_is_closed(rdzv_handler *base, bool *closed, rdzv_error *error) {
  (void)base, (void)error;
  *closed = false;
  return 0;
}

static int static_num_waiting(rdzv_handler *base, int64_t *count, rdzv_error *error) {
  (void)base, (void)error;
  *count = 0;
  return 0;
}

static int static_set_closed(rdzv_handler *base, const char *reason, rdzv_error *error) {
  (void)base, (void)reason, (void)error;
  return 0;
}

static int static_farewell(rdzv_handler *base, rdzv_error *error) {
  (void)base, (void)error;
  return 0;
}

static int static_status_read(rdzv_handler *base, int64_t wait_ms, rdzv_status **out, rdzv_error *error) {
  (void)base, (void)wait_ms, (void)out;
  return error_set(error, RDZV_E_UNSUPPORTED, "a static rendezvous has no shared state");
}

static const char *static_describe(rdzv_handler *base) { return self(base)->text; }

static void static_close(rdzv_handler *base) {
  struct fixed *handler = self(base);
  rdzv_store_free(handler->store);
  if (handler->server && base->linger_ms > 0) rdzv_server_drain(handler->server, base->linger_ms);
  rdzv_server_free(handler->server);
  pthread_mutex_destroy(&handler->lock);
  handler_deinit(base);
  free(handler);
}

static void static_abandon(rdzv_handler *base) {
  struct fixed *handler = self(base);
  rdzv_store_free(handler->store);
  rdzv_server_free(handler->server);
  handler_deinit(base);
  free(handler);
}

static const struct handler_ops static_ops = {
    .next = static_next,
    .wait_change = static_wait_change,
    .is_closed = static_is_closed,
    .num_waiting = static_num_waiting,
    .set_closed = static_set_closed,
    .leave = static_farewell,
    .shutdown = static_farewell,
    .status_read = static_status_read,
    .describe = static_describe,
    .close = static_close,
    .abandon = static_abandon,
};

static int check(const rdzv_params *params, const struct conf *conf, struct endpoint *endpoint, rdzv_error *error) {
  if (conf->rank < 0) return error_set(error, RDZV_E_INVALID, "option 'rank' is missing (the rank of this node)");
  if (!*params->endpoint)
    return error_set(error, RDZV_E_INVALID, "the endpoint is missing (the address at which rank 0 serves the store)");
  if (conf->rank >= params->max_nodes)
    return error_set(error, RDZV_E_INVALID,
                     "option 'rank' is '%" PRId64 "': there %s %" PRId64
                     " node%s, and ranks begin with 0 (are --nnodes and "
                     "--node-rank right?)",
                     conf->rank, params->max_nodes == 1 ? "is" : "are", params->max_nodes,
                     params->max_nodes == 1 ? "" : "s");
  if (endpoint_parse_to_serve(params->endpoint, RDZV_DEFAULT_PORT, endpoint, error) < 0) return RDZV_E_INVALID;
  if (endpoint->port == 0 && conf->rank > 0)
    return error_set(error, RDZV_E_INVALID,
                     "invalid rendezvous endpoint '%s': port 0 is for rank 0, which picks a free port and logs it",
                     params->endpoint);
  return 0;
}

int static_create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error) {
  (void)user;
  struct conf conf;
  struct endpoint endpoint;
  int result = conf_parse(params->conf, CONF_STATIC, params_lenient(params), &conf, error);
  if (result < 0) return result;
  conf_free(&conf);
  result = check(params, &conf, &endpoint, error);
  if (result < 0) return result;
  struct fixed *handler = calloc(1, sizeof *handler);
  if (!handler) return error_no_memory(error);
  char host[HOST_NAME_SIZE], node[HOST_NAME_SIZE + 48];
  host_name(host);
  snprintf(node, sizeof node, "%s_%ld_%" PRId64, params->local_addr ? params->local_addr : host, (long)getpid(),
           conf.rank);
  handler->endpoint = endpoint;
  handler->rank = conf.rank;
  handler->world_size = params->max_nodes;
  handler->timeout = conf.timeout;
  pthread_mutex_init(&handler->lock, NULL);
  result = handler_init(&handler->base, &static_ops, params, node, error);
  if (result == 0 && handler->rank == 0) result = serve(handler, error);
  if (result < 0) {
    static_close(&handler->base);
    return result;
  }
  char where[ENDPOINT_TEXT_SIZE];
  endpoint_format(endpoint.host, handler->endpoint.port, where);
  snprintf(handler->text, sizeof handler->text, "static %s", where);
  *out = &handler->base;
  return 0;
}
