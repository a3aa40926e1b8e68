/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "etcd/v2/modify.h"
#include "handler/gen1/gen1.h"
#include "state/gen1/extra_data.h"

#include <inttypes.h>

static struct gen1 *self(rdzv_handler *handler) { return (struct gen1 *)handler; }

/* One more name in the object, or another value of one. */
struct extra_addition {
  const char *path, *key, *value;
};

static int add_extra(void *argument, const struct etcd_node *old, char **value, rdzv_error *error) {
  const struct extra_addition *addition = argument;
  *value = extra_with(old ? old->value : NULL, addition->key, addition->value);
  if (*value) return 0;
  return error_set(error, RDZV_E_CORRUPT, "the extra data under '%s' is not a JSON object, or memory is out",
                   addition->path);
}

int gen1_extra_set(rdzv_handler *base, const char *key, const char *value, rdzv_error *error) {
  struct gen1 *handler = self(base);
  const struct etcd_call call = {deadline_after(etcd_read_timeout(handler->client)), &base->cancel, error};
  char path[GEN1_PATH];
  struct extra_addition addition = {path, key, value};
  const int inside = gen1_round_path(handler, "extra_data", path, error);
  const struct etcd_modification what = {
      .key = path, .get = ETCD_GET_QUORUM, .repeatable = true, .change = add_extra, .argument = &addition};
  return inside < 0 ? inside : etcd_v2_unexpected(etcd_modify(handler->client, &what, &call, NULL));
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
    code = etcd_v2_await(handler->client, path, false, index + 1, &slow);
    if (code < 0 && code != RDZV_E_TIMEOUT) return code;
  }
}
