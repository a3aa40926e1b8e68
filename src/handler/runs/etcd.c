/* SPDX-License-Identifier: BSD-3-Clause */
/* The runs of an etcd: a key each of backend etcd-v2, a folder each of backend etcd. */
#include "base/error.h"
#include "etcd/v2/v2.h"
#include "handler/conf.h"
#include "handler/gen1/gen1.h"
#include "handler/handler.h"
#include "handler/runs/etcd_keys.h"
#include "store/etcd/etcd_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define V2_FOLDER "/torch/elastic/rendezvous"
#define V2_STORE "/torch/elastic/store"

struct runs_place {
  struct etcd_client *client;
  struct flag cancel;
  bool v2;
  char *folder; /* that all runs are in */
};

static void place_close(struct runs_place *place) {
  if (place->client) etcd_close(place->client);
  flag_close(&place->cancel);
  free(place->folder);
}

static int place_open(struct runs_place *place, const rdzv_params *params, rdzv_error *error) {
  struct conf conf;
  *place = (struct runs_place){.cancel = FLAG_NONE, .v2 = strcmp(params->backend, "etcd-v2") == 0};
  const unsigned options = place->v2 ? CONF_DYNAMIC | CONF_ETCD : CONF_ETCD | CONF_GEN1;
  int result = conf_parse(params->conf, options, params_lenient(params), &conf, error);
  if (result < 0) return result;
  const rdzv_etcd_options etcd = conf_etcd_options(params, &conf);
  place->folder = place->v2 ? strdup(V2_FOLDER) : gen1_folder(conf.etcd_prefix);
  result = place->folder ? flag_open_with(&place->cancel, params->cancel_fd, error) : error_no_memory(error);
  if (result == 0) result = etcd_open(&etcd, &place->client, error);
  conf_free(&conf);
  if (result < 0) place_close(place);
  return result;
}

static struct etcd_call call_of(const struct runs_place *place, rdzv_error *error) {
  return (struct etcd_call){deadline_after(etcd_read_timeout(place->client)), &place->cancel, error};
}

/* ---- listing -------------------------------------------------------------------------------------------------- */

static bool is_v3(const rdzv_params *params) { return strcmp(params->backend, "etcd-v3") == 0; }

int runs_list_etcd(const rdzv_params *params, struct runs *out, rdzv_error *error) {
  struct runs_place place;
  struct etcd_result found;
  if (is_v3(params)) return runs_list_etcd3(params, out, error);
  int result = place_open(&place, params, error);
  if (result < 0) return result;
  const struct etcd_call call = call_of(&place, error);
  result =
      etcd_v2_get(place.client, place.folder, ETCD_GET_QUORUM | (place.v2 ? ETCD_GET_RECURSIVE : 0), &call, &found);
  if (result == 0) {
    const bool added = (place.v2 ? runs_take_v2 : runs_take_v1)(out, &found.node, place.folder);
    etcd_result_free(&found);
    if (!added) result = error_no_memory(error);
  }
  place_close(&place);
  return result == ETCD_V2_NOT_FOUND ? 0 : result > 0 ? etcd_v2_unexpected(result) : result;
}

/* ---- removing ------------------------------------------------------------------------------------------------- */

static int remove_node(const struct runs_place *place, const char *run_id, size_t *removed, rdzv_error *error) {
  char *path = NULL;
  struct etcd_result gone;
  if (asprintf(&path, "%s/%s%s", place->folder, place->v2 ? "" : RUNS_V1_NAME, run_id) < 0)
    return error_no_memory(error);
  const struct etcd_delete what = {.dir = !place->v2, .recursive = !place->v2};
  const struct etcd_call call = call_of(place, error);
  const int result = etcd_v2_delete(place->client, path, &what, &call, &gone);
  free(path);
  if (result == 0) etcd_result_free(&gone);
  if (result == 0) (*removed)++;
  return result == ETCD_V2_NOT_FOUND ? 0 : result > 0 ? etcd_v2_unexpected(result) : result;
}

int runs_remove_etcd(const rdzv_params *params, size_t *removed, rdzv_error *error) {
  struct runs_place place;
  rdzv_store *store = NULL;
  if (is_v3(params)) return runs_remove_etcd3(params, removed, error);
  int result = place_open(&place, params, error);
  if (result < 0) return result;
  if (place.v2) {
    result = etcd_store_open(etcd_share(place.client), V2_STORE, 0, params->cancel_fd, params->log, &store, error);
    if (result == 0) result = runs_remove_store(store, params->run_id, removed, error);
    rdzv_store_free(store);
  }
  if (result == 0) result = remove_node(&place, params->run_id, removed, error);
  place_close(&place);
  return result;
}
