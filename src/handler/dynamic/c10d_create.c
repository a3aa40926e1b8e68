/* SPDX-License-Identifier: BSD-3-Clause */
/* The backend named c10d: the dynamic rendezvous over one key of a store. */
#include "backend/c10d/cell.h"
#include "handler/conf.h"
#include "handler/dynamic/dynamic.h"
#include "handler/handler.h"

int c10d_open_store(const rdzv_params *params, bool may_serve, rdzv_store **store, rdzv_server **server,
                    rdzv_error *error) {
  struct conf conf;
  const int result = conf_parse(params->conf, CONF_DYNAMIC | CONF_C10D, params_lenient(params), &conf, error);
  if (result < 0) return result;
  const struct c10d_options options = {.store_type = (enum c10d_store_type)conf.store_type,
                                       .is_host = may_serve ? (enum c10d_is_host)conf.is_host : C10D_HOST_NO,
                                       .read_timeout_ms = conf.read_timeout,
                                       .dialect = (rdzv_dialect)conf.dialect,
                                       .cancel_fd = params->cancel_fd,
                                       .log = params->log,
                                       .run_id = may_serve ? params->run_id : NULL};
  conf_free(&conf);
  return c10d_store_open(params->endpoint, &options, store, server, error);
}

int c10d_create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error) {
  (void)user;
  rdzv_store *store;
  rdzv_server *server;
  rdzv_backend *backend;
  int result = c10d_open_store(params, true, &store, &server, error);
  if (result < 0) return result;
  result = c10d_open(store, server, params->run_id, params->log, &backend, error);
  if (result < 0) {
    rdzv_store_free(store);
    return result;
  }
  return dynamic_open(params, CONF_DYNAMIC | CONF_C10D, backend, store, server, out, error);
}
