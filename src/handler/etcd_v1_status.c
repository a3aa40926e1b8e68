/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/status.h"

#include "base/error.h"
#include "handler/etcd_v1.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHOWN = 1000 };

static struct etcd_v1 *self(rdzv_handler *handler) { return (struct etcd_v1 *)handler; }

/* What is there now; it may be nothing. */
static int read_active(struct etcd_v1 *handler, struct active_version *out, bool *there, rdzv_error *error) {
  const struct etcd_call call = {deadline_after(etcd_read_timeout(handler->client)), NULL, error};
  char path[ETCD_V1_PATH];
  struct etcd_result result;
  etcd_v1_path(handler, path, "/rdzv/active_version");
  int outcome = etcd_v2_get(handler->client, path, ETCD_QUORUM, &call, &result);
  *there = outcome == 0;
  if (outcome == ETCD_NOT_FOUND) return 0;
  if (outcome != 0) return etcd_v2_unexpected(outcome);
  outcome = active_read(result.node.value, out, error);
  etcd_result_free(&result);
  return outcome;
}

int etcd_v1_is_closed(rdzv_handler *base, bool *closed, rdzv_error *error) {
  struct active_version active = {0};
  bool there;
  const int result = read_active(self(base), &active, &there, error);
  if (result == 0) *closed = there && active.status == ACTIVE_CLOSED;
  active_free(&active);
  return result;
}

int etcd_v1_num_waiting(rdzv_handler *base, int64_t *count, rdzv_error *error) {
  struct active_version active = {0};
  bool there;
  const int result = read_active(self(base), &active, &there, error);
  if (result == 0) *count = there && active.status == ACTIVE_FINAL ? active.waiting : 0;
  active_free(&active);
  return result;
}

/* Of those who wait only the number is known. */
static bool add_nodes(struct status *status, const struct active_version *active) {
  const bool final = active->status == ACTIVE_FINAL;
  const size_t waiting = !final ? 0 : active->waiting < MOST_SHOWN ? (size_t)active->waiting : MOST_SHOWN;
  status->nodes = calloc(active->participants + waiting + 1, sizeof *status->nodes);
  status->base.nodes = status->nodes;
  for (size_t i = 0; status->nodes && i < active->participants + waiting; i++) {
    const bool in = i < active->participants;
    char name[32];
    snprintf(name, sizeof name, in ? "rank_%zu" : "waiting_%zu", in ? i : i - active->participants);
    status->nodes[i] = (rdzv_node_status){strdup(name), in ? RDZV_ROLE_PARTICIPANT : RDZV_ROLE_WAITING,
                                          in && final ? (int64_t)i : -1, -1};
    in ? status->base.participants++ : status->base.waiting++;
    if (!status->nodes[i].node) return false;
  }
  return status->nodes != NULL;
}

int etcd_v1_status_read(rdzv_handler *base, int64_t wait_ms, rdzv_status **out, rdzv_error *error) {
  struct etcd_v1 *handler = self(base);
  struct active_version active = {0};
  bool there;
  if (wait_ms > 0 &&
      cancel_pause(&base->cancel, deadline_after(wait_ms < ETCD_V1_GRACE_MS ? wait_ms : ETCD_V1_GRACE_MS)) < 0)
    return error_set(error, RDZV_E_CANCELED, "cannot look at the rendezvous: canceled");
  int result = read_active(handler, &active, &there, error);
  struct status *status = result == 0 ? calloc(1, sizeof *status) : NULL;
  if (result == 0 && !status) result = error_no_memory(error);
  if (status) {
    status->base = (rdzv_status){.exists = there,
                                 .round = there ? strtoll(active.version, NULL, 10) : 0,
                                 .phase = there ? active_status_name(active.status) : "gathering",
                                 .complete = active.status == ACTIVE_FINAL,
                                 .closed = active.status == ACTIVE_CLOSED,
                                 .deadline_left_ms = -1,
                                 .min_nodes = handler->barrier.settings.min_nodes,
                                 .max_nodes = handler->barrier.settings.max_nodes,
                                 .layout = "etcd"};
    if (!add_nodes(status, &active)) {
      rdzv_status_free(&status->base);
      result = error_no_memory(error);
    } else {
      *out = &status->base;
    }
  }
  active_free(&active);
  return result;
}
