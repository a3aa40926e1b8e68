/* SPDX-License-Identifier: BSD-3-Clause */
/* The backend named c10d: the dynamic rendezvous over one key of a store. */
#include "handler/conf.h"
#include "handler/dynamic/dynamic.h"
#include "handler/handler.h"

int c10d_create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error) {
  (void)user;
  struct conf conf;
  rdzv_store *store;
  rdzv_server *server;
  rdzv_backend *backend;
  int result = conf_parse(params->conf, CONF_DYNAMIC | CONF_C10D, params_lenient(params), &conf, error);
  if (result < 0) return result;
  const struct c10d_options options = {.store_type = (enum c10d_store_type)conf.store_type,
                                       .is_host = (enum c10d_is_host)conf.is_host,
                                       .read_timeout_ms = conf.read_timeout,
                                       .dialect = (rdzv_dialect)conf.dialect,
                                       .cancel_fd = params->cancel_fd,
                                       .log = params->log,
                                       .run_id = params->run_id};
  const char *endpoint = params->endpoint;
  if (!*endpoint && options.store_type == C10D_TCP) endpoint = "localhost";
  conf_free(&conf);
  result = c10d_open_store(endpoint, &options, &store, &server, error);
  if (result < 0) return result;
  result = c10d_open(store, server, params->run_id, params->log, &backend, error);
  if (result < 0) {
    rdzv_store_free(store);
    return result;
  }
  result = dynamic_open(params, CONF_DYNAMIC | CONF_C10D, backend, store, out, error);
  if (result == 0) ((struct dynamic *)*out)->server = server;
  return result;
}
