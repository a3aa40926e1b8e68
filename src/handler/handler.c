/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/handler.h"

#include "base/error.h"
#include "base/log.h"
#include "base/text/utf8.h"
#include "handler/conf.h"
#include "state/native/native.h"
#include "tls/names.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- for the kinds -------------------------------------------------------------------------------------------- */

static bool copy(char **to, const char *text) { return !text || (*to = strdup(text)) != NULL; }

static bool copy_all(rdzv_protection *to, const struct conf *conf, const struct tls_names *names) {
  const char *const from[] = {names->secret, names->ca, names->cert, names->key, names->client_ca, conf->bind};
  const char **const texts[] = {&to->secret_file, &to->tls_ca,        &to->tls_cert,
                                &to->tls_key,     &to->tls_client_ca, &to->bind};
  for (size_t i = 0; i < sizeof from / sizeof from[0]; i++)
    if (!(*texts[i] = strdup(from[i] ? from[i] : ""))) return false;
  return true;
}

/* The kind has read its options, and said what it thinks of those that are not its own. */
static int take_protection(rdzv_handler *handler, const char *text, rdzv_error *error) {
  const rdzv_log silent = {.size = sizeof silent};
  struct conf conf;
  const int result = conf_parse(text, CONF_ANY, &silent, &conf, error);
  if (result < 0) return result;
  struct tls_names names = conf_tls_names(&conf);
  const bool done = copy_all(&handler->protection, &conf, &names);
  conf_free(&conf);
  return done ? 0 : error_no_memory(error);
}

const rdzv_protection *rdzv_handler_protection(const rdzv_handler *handler) { return &handler->protection; }

int handler_init(rdzv_handler *handler, const struct handler_ops *ops, const rdzv_params *params, const char *node,
                 rdzv_error *error) {
  handler->ops = ops;
  handler->born = fork_mark_here();
  handler->cancel = handler->hurry = FLAG_NONE;
  handler->master_later = params->find_master_later;
  if (!copy(&handler->run_id, params->run_id) || !copy(&handler->endpoint, params->endpoint) ||
      !copy(&handler->local_addr, params->local_addr) || !copy(&handler->node, node))
    return error_no_memory(error);
  int result = take_protection(handler, params->conf, error);
  if (result < 0) return result;
  const rdzv_log *log = params->log;
  result = log_take(&log, &handler->log, error);
  if (result == 0) result = flag_open_in(&handler->hurry, &handler->flags, 0, error);
  return result < 0 ? result : flag_open_in(&handler->cancel, &handler->flags, params->cancel_fd, error);
}

void handler_deinit(rdzv_handler *handler) {
  flag_close(&handler->cancel);
  flag_close(&handler->hurry);
  free(handler->run_id);
  free(handler->endpoint);
  free(handler->local_addr);
  free(handler->node);
  const rdzv_protection *protection = &handler->protection;
  free((char *)protection->secret_file);
  free((char *)protection->tls_ca);
  free((char *)protection->tls_cert);
  free((char *)protection->tls_key);
  free((char *)protection->tls_client_ca);
  free((char *)protection->bind);
}

int64_t handler_farewell(rdzv_handler *handler, int64_t usual) {
  flag_lower(&handler->hurry); /* first: what is set from here on raises it again */
  const int64_t own = atomic_load(&handler->farewell_ms);
  return own > 0 && own < usual ? own : usual;
}

/* ---- for the callers ------------------------------------------------------------------------------------------ */

/* Every call that can fail comes through here. */
#define NOT_FORKED(handler) \
  if (fork_crossed((handler)->born)) return fork_fail("the handler", error)

int rdzv_handler_next(rdzv_handler *handler, rdzv_result **out, rdzv_error *error) {
  if (!out) return error_null(error, "rdzv_handler_next", "out");
  NOT_FORKED(handler);
  return handler->ops->next(handler, out, error);
}

int rdzv_handler_set_workers(rdzv_handler *handler, const char *role, int64_t local_world_size, int64_t restarts,
                             rdzv_error *error) {
  const char *name = role ? role : "";
  if (local_world_size < 0 || restarts < 0)
    return error_set(error, RDZV_E_INVALID, "a number of workers or restarts is negative");
  if (strlen(name) > NATIVE_MAX_ROLE || !utf8_is_valid(rdzv_str(name)))
    return error_set(error, RDZV_E_INVALID, "a role is UTF-8 of at most %d bytes", NATIVE_MAX_ROLE);
  NOT_FORKED(handler);
  return handler->ops->set_workers ? handler->ops->set_workers(handler, name, local_world_size, restarts, error) : 0;
}

int rdzv_handler_wait_change(rdzv_handler *handler, int64_t timeout_ms, rdzv_change **out, rdzv_error *error) {
  if (!out) return error_null(error, "rdzv_handler_wait_change", "out");
  if (timeout_ms < 0) return error_timeout(error, timeout_ms);
  NOT_FORKED(handler);
  return handler->ops->wait_change(handler, timeout_ms, out, error);
}

int rdzv_handler_is_closed(rdzv_handler *handler, bool *closed, rdzv_error *error) {
  if (!closed) return error_null(error, "rdzv_handler_is_closed", "closed");
  NOT_FORKED(handler);
  return handler->ops->is_closed(handler, closed, error);
}

int rdzv_handler_num_nodes_waiting(rdzv_handler *handler, int64_t *count, rdzv_error *error) {
  if (!count) return error_null(error, "rdzv_handler_num_nodes_waiting", "count");
  NOT_FORKED(handler);
  return handler->ops->num_waiting(handler, count, error);
}

int rdzv_handler_set_closed(rdzv_handler *handler, const char *reason, rdzv_error *error) {
  NOT_FORKED(handler);
  return handler->ops->set_closed(handler, reason, error);
}

int rdzv_handler_leave(rdzv_handler *handler, rdzv_error *error) {
  NOT_FORKED(handler);
  return handler->ops->leave(handler, error);
}

int rdzv_handler_shutdown(rdzv_handler *handler, rdzv_error *error) {
  NOT_FORKED(handler);
  return handler->ops->shutdown(handler, error);
}

void rdzv_handler_cancel(rdzv_handler *handler) {
  if (!fork_crossed(handler->born)) flag_raise(&handler->cancel);
}

int rdzv_handler_status(rdzv_handler *handler, int64_t wait_ms, rdzv_status **out, rdzv_error *error) {
  if (!out) return error_null(error, "rdzv_handler_status", "out");
  if (wait_ms < 0)
    return error_set(error, RDZV_E_INVALID, "invalid wait of %lld ms: it is negative", (long long)wait_ms);
  NOT_FORKED(handler);
  return handler->ops->status_read(handler, wait_ms, out, error);
}

int rdzv_handler_change_fd(const rdzv_handler *handler) {
  return handler->ops->change_fd && !fork_crossed(handler->born) ? handler->ops->change_fd(handler) : -1;
}

int rdzv_handler_ended_fd(const rdzv_handler *handler) {
  return handler->ops->ended_fd && !fork_crossed(handler->born) ? handler->ops->ended_fd(handler) : -1;
}

int rdzv_handler_find_master(rdzv_handler *handler, rdzv_result *result, rdzv_error *error) {
  if (!result) return error_null(error, "rdzv_handler_find_master", "result");
  NOT_FORKED(handler);
  return handler->ops->find_master && handler->master_later ? handler->ops->find_master(handler, result, error) : 0;
}

static int set_time(_Atomic int64_t *to, int64_t timeout_ms, rdzv_error *error) {
  if (timeout_ms < 0) return error_timeout(error, timeout_ms);
  atomic_store(to, timeout_ms);
  return 0;
}

int rdzv_handler_set_linger(rdzv_handler *handler, int64_t timeout_ms, rdzv_error *error) {
  NOT_FORKED(handler);
  return set_time(&handler->linger_ms, timeout_ms, error);
}

int rdzv_handler_set_close_timeout(rdzv_handler *handler, int64_t timeout_ms, rdzv_error *error) {
  NOT_FORKED(handler);
  const int result = set_time(&handler->farewell_ms, timeout_ms, error);
  if (result == 0) flag_raise(&handler->hurry);
  return result;
}

static int no_extra(rdzv_error *error) {
  return error_set(error, RDZV_E_UNSUPPORTED, "this kind of rendezvous has no extra data");
}

int rdzv_handler_set_extra(rdzv_handler *handler, const char *key, const char *value, rdzv_error *error) {
  if (!key || !value) return error_null(error, "rdzv_handler_set_extra", key ? "value" : "key");
  NOT_FORKED(handler);
  return handler->ops->extra_set ? handler->ops->extra_set(handler, key, value, error) : no_extra(error);
}

int rdzv_handler_get_extra(rdzv_handler *handler, const char *key, int64_t timeout_ms, rdzv_value *out,
                           rdzv_error *error) {
  if (!key) return error_null(error, "rdzv_handler_get_extra", "key");
  if (!out) return error_null(error, "rdzv_handler_get_extra", "out");
  NOT_FORKED(handler);
  return handler->ops->extra_get ? handler->ops->extra_get(handler, key, timeout_ms, out, error) : no_extra(error);
}

const char *rdzv_handler_node(const rdzv_handler *handler) { return handler->node; }
const char *rdzv_handler_describe(rdzv_handler *handler) { return handler->ops->describe(handler); }

void rdzv_handler_free(rdzv_handler *handler) {
  if (handler) (fork_crossed(handler->born) ? handler->ops->abandon : handler->ops->close)(handler);
}
