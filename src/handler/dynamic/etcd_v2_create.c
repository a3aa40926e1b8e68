/* SPDX-License-Identifier: BSD-3-Clause */
/* The backend named etcd-v2: the dynamic rendezvous over one key of etcd, with a store beside it. */
#include "backend/etcd_v2.h"
#include "base/error.h"
#include "etcd/v2/v2.h"
#include "handler/conf.h"
#include "handler/dynamic/dynamic.h"
#include "handler/handler.h"
#include "store/etcd/etcd_store.h"

#define STORE_PREFIX "/torch/elastic/store"

/* Is it there, and does it speak v2? Better said now than at the first join. */
static int ask(struct etcd_client *client, const rdzv_params *params, rdzv_error *error) {
  struct flag cancel;
  struct etcd_result result;
  int outcome = flag_open_with(&cancel, params->cancel_fd, error);
  if (outcome < 0) return outcome;
  const struct etcd_call call = {deadline_after(etcd_read_timeout(client)), &cancel, error};
  outcome = etcd_v2_get(client, "/", 0, &call, &result);
  flag_close(&cancel);
  if (outcome == 0) etcd_result_free(&result);
  return outcome > 0 ? etcd_v2_unexpected(outcome) : outcome;
}

/* Both on one client: where the endpoints given are gone when the store is first used, it knows the other members. */
static int open_both(const rdzv_etcd_options *etcd, const rdzv_params *params, rdzv_backend **backend,
                     rdzv_store **store, rdzv_error *error) {
  struct etcd_client *client;
  int result = etcd_open(etcd, &client, error);
  if (result < 0) return result;
  result = ask(client, params, error);
  if (result == 0) result = etcd_v2_cell_open(etcd_share(client), params->run_id, backend, error);
  if (result == 0) result = etcd_store_open(etcd_share(client), STORE_PREFIX, 0, 0, params->log, store, error);
  etcd_close(client);
  return result;
}

int etcd_v2_create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error) {
  (void)user;
  struct conf conf;
  struct dynamic_parts parts = {0};
  int result = conf_parse(params->conf, CONF_DYNAMIC | CONF_ETCD, params_lenient(params), &conf, error);
  if (result < 0) return result;
  const rdzv_etcd_options etcd = conf_etcd_options(params, &conf);
  const deadline until = deadline_after(conf.reach_timeout);
  result = open_both(&etcd, params, &parts.backend, &parts.store, error);
  if (result < 0) result = conf_fail_reach(&conf, until, result, error);
  conf_free(&conf);
  if (result < 0) {
    if (parts.backend) parts.backend->ops->close(parts.backend);
    return result;
  }
  return dynamic_open(params, CONF_DYNAMIC | CONF_ETCD, &parts, out, error);
}
