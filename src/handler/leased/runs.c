/* SPDX-License-Identifier: BSD-3-Clause */
/* The runs of backend etcd-v3 in an etcd: a folder each, and one for their stores. */
#include "handler/runs/etcd_keys.h"

#include "base/error.h"
#include "base/text/parse.h"
#include "handler/leased/leased_handler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct place {
  struct etcd3 *etcd;
  struct flag cancel;
  char *folder; /* that all runs are in */
};

static void place_close(struct place *place) {
  etcd3_close(place->etcd);
  flag_close(&place->cancel);
  free(place->folder);
}

static int place_open(struct place *place, const rdzv_params *params, rdzv_error *error) {
  struct conf conf;
  struct etcd_client *client;
  *place = (struct place){.cancel = FLAG_NONE};
  int result = conf_parse(params->conf, CONF_ETCD | CONF_LEASED, params_lenient(params), &conf, error);
  if (result < 0) return result;
  const rdzv_etcd_options etcd = conf_etcd_options(params, &conf);
  place->folder = leased_folder(conf.etcd_prefix);
  result = place->folder ? flag_open_with(&place->cancel, params->cancel_fd, error) : error_no_memory(error);
  if (result == 0) result = etcd_open(&etcd, &client, error);
  if (result == 0) result = etcd3_open(client, &place->etcd, error);
  conf_free(&conf);
  if (result < 0) place_close(place);
  return result;
}

static struct etcd_call call_of(const struct place *place, rdzv_error *error) {
  const int64_t timeout_ms = etcd_read_timeout(etcd3_client(place->etcd));
  return (struct etcd_call){deadline_after(timeout_ms), &place->cancel, error};
}

/* ---- listing -------------------------------------------------------------------------------------------------- */

int runs_list_etcd3(const rdzv_params *params, struct runs *out, rdzv_error *error) {
  struct place place;
  struct etcd3_reply reply;
  char prefix[1024], end[1024];
  int result = place_open(&place, params, error);
  if (result < 0) return result;
  snprintf(prefix, sizeof prefix, "%.900s/", place.folder);
  const struct etcd_call call = call_of(&place, error);
  const struct etcd3_range range = {.keys = etcd3_prefix(rdzv_str(prefix), end), .keys_only = true};
  result = etcd3_range(place.etcd, &range, &call, &reply);
  if (result == 0) {
    if (!runs_take_v3(out, &reply.results[0], prefix)) result = error_no_memory(error);
    etcd3_reply_free(&reply);
  }
  place_close(&place);
  return result;
}

/* ---- removing ------------------------------------------------------------------------------------------------- */

static int remove_below(struct place *place, const char *folder, const char *run, size_t *removed, rdzv_error *error) {
  char *prefix = NULL;
  struct etcd3_reply reply;
  if (asprintf(&prefix, "%s%s/%s/", place->folder, folder, run) < 0) return error_no_memory(error);
  char *end = malloc(strlen(prefix) + 1);
  const struct etcd_call call = call_of(place, error);
  if (!end) {
    free(prefix);
    return error_no_memory(error);
  }
  const struct etcd3_delete what = {.keys = etcd3_prefix(rdzv_str(prefix), end)};
  const int result = etcd3_delete(place->etcd, &what, ETCD3_REPEAT_FREELY, &call, &reply);
  if (result == 0) {
    *removed += (size_t)reply.results[0].count;
    etcd3_reply_free(&reply);
  }
  free(prefix);
  free(end);
  return result;
}

int runs_remove_etcd3(const rdzv_params *params, size_t *removed, rdzv_error *error) {
  struct place place;
  int result = place_open(&place, params, error);
  if (result < 0) return result;
  char *run = leased_run_name(params->run_id);
  result = run ? remove_below(&place, LEASED_STORES, run, removed, error) : error_no_memory(error);
  if (result == 0) result = remove_below(&place, "", run, removed, error);
  free(run);
  place_close(&place);
  return result;
}
