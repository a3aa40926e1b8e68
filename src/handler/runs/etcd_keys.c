/* SPDX-License-Identifier: BSD-3-Clause */
/* The runs that listed keys of an etcd tell of. Pure. */
#include "handler/runs/etcd_keys.h"

#include "base/buf.h"
#include "etcd/path.h"

#include <stdlib.h>
#include <string.h>

/* A run id with slashes in it makes folders. */
bool runs_take_v2(struct runs *out, const struct etcd_node *node, const char *folder) {
  for (size_t i = 0; i < node->count; i++) {
    const struct etcd_node *one = &node->nodes[i];
    rdzv_bytes id;
    if (one->dir) {
      if (!runs_take_v2(out, one, folder)) return false;
    } else if (etcd_path_below(rdzv_str(one->key), folder, &id) && id.len > 0) {
      if (!runs_add(out, id.data, id.len)) return false;
    }
  }
  return true;
}

bool runs_take_v1(struct runs *out, const struct etcd_node *node, const char *folder) {
  const size_t skip = strlen(RUNS_V1_NAME);
  for (size_t i = 0; i < node->count; i++) {
    rdzv_bytes name;
    if (!node->nodes[i].dir || !etcd_path_below(rdzv_str(node->nodes[i].key), folder, &name)) continue;
    const char *text = name.data;
    if (name.len <= skip || memcmp(text, RUNS_V1_NAME, skip) != 0) continue;
    if (!runs_add(out, text + skip, name.len - skip)) return false;
  }
  return true;
}

/* Turns %2F and %25 back, in place. */
static size_t unescape(char *name, size_t len) {
  size_t to = 0;
  for (size_t i = 0; i < len; i++) {
    const bool escaped = name[i] == '%' && i + 2 < len;
    name[to++] = escaped ? name[i + 2] == 'F' ? '/' : '%' : name[i];
    if (escaped) i += 2;
  }
  return to;
}

static bool add_escaped(struct runs *out, rdzv_bytes name) {
  rdzv_value copy;
  if (!value_copy(&copy, name.data, name.len)) return false;
  const bool added = runs_add(out, copy.data, unescape(copy.data, copy.len));
  rdzv_value_free(&copy);
  return added;
}

/* The keys are in order, so those of one run stand together. */
bool runs_take_v3(struct runs *out, const struct etcd3_result *found, const char *folder) {
  rdzv_bytes last = {0}, name;
  for (size_t i = 0; i < found->kv_count; i++) {
    if (!etcd_path_below(rdzv_value_bytes(&found->kvs[i].key), folder, &name)) continue;
    const char *end = memchr(name.data, '/', name.len);
    if (!end || end == name.data || memchr(name.data, '\0', name.len)) continue;
    name.len = (size_t)(end - (const char *)name.data);
    if (bytes_equal(name, last)) continue;
    last = name;
    if (!add_escaped(out, name)) return false;
  }
  return true;
}
