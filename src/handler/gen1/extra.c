/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "handler/gen1/gen1.h"
#include "state/gen1/extra_data.h"

#include <inttypes.h>
#include <stdlib.h>

static struct gen1 *self(rdzv_handler *handler) { return (struct gen1 *)handler; }

/* One more member of the JSON object, whatever it is now. */
static int put_extra(struct gen1 *handler, const char *path, const char *key, const char *value,
                     const struct etcd_call *call) {
  struct etcd_result result;
  int code = etcd_v2_get(handler->client, path, ETCD_GET_QUORUM, call, &result);
  if (code != 0 && code != ETCD_V2_NOT_FOUND) return code;
  const bool there = code == 0;
  char *text = extra_with(there ? result.node.value : NULL, key, value);
  const struct etcd_put put = {.value = text,
                               .prev_index = there ? result.node.modified : 0,
                               .exist = there ? ETCD_EXIST_ANY : ETCD_EXIST_ABSENT};
  struct etcd_result written;
  code =
      text ? etcd_v2_put(handler->client, path, &put, call, &written)
           : error_set(call->error, RDZV_E_CORRUPT, "the extra data under '%s' is no JSON object, or no memory", path);
  if (there) etcd_result_free(&result);
  if (code == 0) etcd_result_free(&written);
  free(text);
  return code;
}

int gen1_extra_set(rdzv_handler *base, const char *key, const char *value, rdzv_error *error) {
  struct gen1 *handler = self(base);
  const struct etcd_call call = {deadline_after(etcd_read_timeout(handler->client)), &base->cancel, error};
  char path[GEN1_PATH];
  int code = gen1_round_path(handler, "extra_data", path, error);
  if (code < 0) return code;
  do code = put_extra(handler, path, key, value, &call);
  while ((code == ETCD_V2_COMPARE_FAILED || code == ETCD_V2_EXISTS || code == RDZV_E_OUTCOME_UNKNOWN) &&
         deadline_left(call.until) > 0);
  return code > 0 ? etcd_v2_unexpected(code) : code;
}

/* Reads, and watches where it is not there yet. */
int gen1_extra_get(rdzv_handler *base, const char *key, int64_t timeout_ms, rdzv_value *out, rdzv_error *error) {
  struct gen1 *handler = self(base);
  const deadline until = deadline_after(timeout_ms);
  char path[GEN1_PATH];
  const int inside = gen1_round_path(handler, "extra_data", path, error);
  if (inside < 0) return inside;
  for (;;) {
    const struct etcd_call quick = {deadline_after(etcd_read_timeout(handler->client)), &base->cancel, error};
    const struct etcd_call slow = {until, &base->cancel, error};
    struct etcd_result result;
    int code = etcd_v2_get(handler->client, path, ETCD_GET_QUORUM, &quick, &result);
    if (code != 0 && code != ETCD_V2_NOT_FOUND) return etcd_v2_unexpected(code);
    const uint64_t index = result.index;
    const int found = code == 0 ? extra_of(result.node.value, key, out, error) : 0;
    if (code == 0) etcd_result_free(&result);
    if (found != 0) return found < 0 ? found : 0;
    if (deadline_left(until) == 0)
      return error_set(error, RDZV_E_TIMEOUT, "extra data '%s': timed out after %" PRId64 " ms", key, timeout_ms);
    code = etcd_v2_watch(handler->client, path, false, index + 1, &slow, &result);
    if (code == 0) etcd_result_free(&result);
    if (code < 0 && code != RDZV_E_TIMEOUT) return code;
  }
}
