/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/v2/modify.h"

#include "base/error.h"

#include <stdlib.h>

enum { FIRST_PAUSE_MS = 5, LAST_PAUSE_MS = 200 };

static int write_changed(struct etcd_client *client, const struct etcd_modification *what, const char *value,
                         uint64_t over, const struct etcd_call *call, uint64_t *index) {
  struct etcd_put put = what->put;
  struct etcd_result written;
  put.value = value;
  etcd_put_over(&put, over);
  const int outcome = etcd_v2_put(client, what->key, &put, call, &written);
  if (outcome != 0) return outcome;
  if (index) *index = written.node.modified;
  etcd_result_free(&written);
  return 0;
}

static int modify_once(struct etcd_client *client, const struct etcd_modification *what, const struct etcd_call *call,
                       uint64_t *index) {
  struct etcd_result old = {0};
  char *value = NULL;
  const int found = etcd_v2_get(client, what->key, what->get, call, &old);
  const bool blocked = found == ETCD_V2_NOT_A_DIR || (found == 0 && old.node.dir), there = found == 0 && !blocked;
  if (found != 0 && found != ETCD_V2_NOT_FOUND && !blocked) return found;
  int outcome = what->change(what->argument, there ? &old.node : NULL, &value, call->error);
  if (outcome == 0 && blocked && found == 0)
    outcome = error_set(call->error, RDZV_E_UNSUPPORTED, "'%s' is a directory in etcd", what->key);
  else if (outcome == 0 && blocked)
    outcome = found;
  else if (outcome == 0)
    outcome = write_changed(client, what, value, there ? old.node.modified : 0, call, index);
  if (found == 0) etcd_result_free(&old);
  free(value);
  return outcome;
}

int etcd_modify(struct etcd_client *client, const struct etcd_modification *what, const struct etcd_call *call,
                uint64_t *index) {
  struct backoff pauses = {FIRST_PAUSE_MS, LAST_PAUSE_MS};
  for (;;) {
    struct etcd_call own = *call;
    if (what->request_ms > 0) own.until = deadline_after(what->request_ms);
    const int outcome = modify_once(client, what, &own, index);
    const bool unknown = outcome == RDZV_E_OUTCOME_UNKNOWN && what->repeatable;
    if (!unknown && !etcd_v2_is_lost_race(outcome)) return outcome;
    if (deadline_left(call->until) == 0)
      return unknown ? outcome : error_set(call->error, RDZV_E_TIMEOUT, "others wrote it first each time");
    if (flag_pause(call->cancel, backoff_next(&pauses)) < 0) return error_set(call->error, RDZV_E_CANCELED, "canceled");
  }
}
