/* SPDX-License-Identifier: BSD-3-Clause */
#include "backend/etcd_v2.h"

#include "base/error.h"
#include "base/text/base64.h"
#include "base/wait/fork.h"
#include "etcd/v2/v2.h"

#include <stdio.h>
#include <stdlib.h>

enum { TTL_S = 7200 };

struct cell {
  rdzv_backend base;
  fork_mark born;
  struct etcd_client *client;
  struct flag wake; /* what waits */
  struct flag stop; /* everything */
  char *key;
  char text[640];
  uint64_t index; /* of etcd, at the last look */
};

static struct cell *self(rdzv_backend *backend) { return (struct cell *)backend; }

static struct etcd_call quick(struct cell *cell, rdzv_error *error) {
  return (struct etcd_call){deadline_after(etcd_read_timeout(cell->client)), &cell->stop, error};
}

static int fail(struct cell *cell, int code, rdzv_error *error) {
  const int result = code > 0 ? etcd_v2_unexpected(code) : code;
  if (error) error->code = result;
  return error_prefix(error, result, "the state of the rendezvous at %s", cell->text);
}

static int decode(struct cell *cell, const struct etcd_node *node, rdzv_value *out, rdzv_error *error) {
  bool valid;
  if (!base64_decode_value(rdzv_str(node->value), out, &valid)) return error_no_memory(error);
  if (valid) return 0;
  return error_set(error, RDZV_E_CORRUPT, "the state under '%s' in etcd is corrupt: not base64", cell->key);
}

static int give_nothing(uint64_t held, rdzv_value *out, uint64_t *token, rdzv_error *error) {
  if (!value_copy(out, NULL, 0)) return error_no_memory(error);
  *token = held;
  return 0;
}

static int cell_get(rdzv_backend *backend, rdzv_value *out, uint64_t *token, rdzv_error *error) {
  struct cell *cell = self(backend);
  const struct etcd_call call = quick(cell, error);
  struct etcd_result result;
  int outcome = etcd_v2_get(cell->client, cell->key, ETCD_GET_QUORUM, &call, &result);
  if (outcome >= 0) cell->index = result.index;
  if (outcome == ETCD_V2_NOT_FOUND) return give_nothing(0, out, token, error);
  if (outcome != 0) return fail(cell, outcome, error);
  outcome = decode(cell, &result.node, out, error);
  if (outcome == 0) *token = result.node.modified;
  etcd_result_free(&result);
  return outcome;
}

static int cell_set(rdzv_backend *backend, rdzv_bytes state, unsigned flags, uint64_t *token, bool *written,
                    rdzv_value *out, rdzv_error *error) {
  struct cell *cell = self(backend);
  const struct etcd_call call = quick(cell, error);
  struct etcd_result result;
  struct buf text = {0};
  (void)flags;
  if (!base64_encode(state, &text)) return error_no_memory(error);
  struct etcd_put put = {.value = (const char *)text.data, .ttl = TTL_S, .unique = true};
  etcd_put_over(&put, *token);
  int outcome = etcd_v2_put(cell->client, cell->key, &put, &call, &result);
  buf_free(&text);
  if (outcome != 0 && !etcd_v2_is_lost_race(outcome)) return fail(cell, outcome, error);
  const bool done = outcome == 0;
  outcome = done ? give_nothing(result.node.modified, out, token, error) : cell_get(backend, out, token, error);
  if (done) etcd_result_free(&result);
  if (outcome == 0) *written = done;
  return outcome;
}

static int cell_await_change(rdzv_backend *backend, int64_t timeout_ms, uint64_t *token, rdzv_value *out,
                             rdzv_error *error) {
  struct cell *cell = self(backend);
  const struct etcd_call call = {deadline_after(timeout_ms), &cell->wake, error};
  const uint64_t known = *token;
  if (flag_raised(&cell->stop)) return error_set(error, RDZV_E_CANCELED, "waiting for a change: canceled");
  for (;;) {
    const uint64_t seen = known > cell->index ? known : cell->index;
    int outcome = etcd_v2_await(cell->client, cell->key, false, seen + 1, &call);
    if (outcome == RDZV_E_CANCELED) flag_lower(&cell->wake);
    if (outcome == 0) outcome = cell_get(backend, out, token, error);
    if (outcome != 0) return outcome > 0 ? fail(cell, outcome, error) : outcome;
    if (*token != known) return 0;
    rdzv_value_free(out);
  }
}

static void cell_wake(rdzv_backend *backend) { flag_raise(&self(backend)->wake); }

static void cell_cancel(rdzv_backend *backend) {
  flag_raise(&self(backend)->stop);
  cell_wake(backend);
}

static const char *cell_describe(rdzv_backend *backend) { return self(backend)->text; }

static void cell_close(rdzv_backend *backend) {
  struct cell *cell = self(backend);
  if (!fork_crossed(cell->born)) etcd_close(cell->client); /* whose connections are the parent's */
  flag_close(&cell->wake);
  flag_close(&cell->stop);
  free(cell->key);
  free(cell);
}

static const rdzv_backend_ops cell_ops = {
    .size = sizeof(rdzv_backend_ops),
    .name = "etcd-v2",
    .describe = cell_describe,
    .get = cell_get,
    .set = cell_set,
    .await_change = cell_await_change,
    .wake = cell_wake,
    .cancel = cell_cancel,
    .close = cell_close,
};

int etcd_v2_cell_open(struct etcd_client *client, const char *run_id, rdzv_backend **out, rdzv_error *error) {
  struct cell *cell = calloc(1, sizeof *cell);
  if (!cell) {
    etcd_close(client);
    return error_no_memory(error);
  }
  cell->base.ops = &cell_ops;
  cell->born = fork_mark_here();
  cell->client = client;
  cell->wake = cell->stop = FLAG_NONE;
  int result = *run_id ? 0 : error_set(error, RDZV_E_INVALID, "the run id is empty");
  if (result == 0 && asprintf(&cell->key, "/torch/elastic/rendezvous/%s", run_id) < 0) result = error_no_memory(error);
  if (result == 0) result = flag_open(&cell->wake, error);
  if (result == 0) result = flag_open(&cell->stop, error);
  snprintf(cell->text, sizeof cell->text, "etcd-v2 %s", etcd_describe(client));
  if (result < 0)
    cell_close(&cell->base);
  else
    *out = &cell->base;
  return result;
}
