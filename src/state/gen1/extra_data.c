/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/gen1/extra_data.h"

#include "base/buf.h"
#include "base/error.h"

#include <jansson.h>
#include <stdlib.h>

char *extra_with(const char *object, const char *key, const char *value) {
  json_t *json = object ? json_loads(object, 0, NULL) : json_object();
  const bool done = json_is_object(json) && json_object_set_new(json, key, json_string(value)) == 0;
  char *text = done ? json_dumps(json, 0) : NULL;
  json_decref(json);
  return text;
}

int extra_of(const char *object, const char *key, rdzv_value *out, rdzv_error *error) {
  json_t *json = json_loads(object, 0, NULL);
  if (!json_is_object(json)) {
    json_decref(json);
    return error_set(error, RDZV_E_CORRUPT, "the extra data of the rendezvous is not a JSON object");
  }
  const json_t *value = json_object_get(json, key);
  char *dumped = value && !json_is_string(value) ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
  int result = 0;
  if (value) {
    const rdzv_bytes text =
        dumped ? rdzv_str(dumped) : (rdzv_bytes){json_string_value(value), json_string_length(value)};
    result = text.data && value_copy(out, text.data, text.len) ? 1 : error_no_memory(error);
  }
  free(dumped);
  json_decref(json);
  return result;
}
