/* SPDX-License-Identifier: BSD-3-Clause */
/* Every listing of keys: the first line is the folder that was asked for, each other line a key of the answer, which
 * may be of another place, shorter than the folder, or empty. Nothing is read beyond a key, and only what is below the
 * folder is taken. */
#include "base/buf.h"
#include "etcd/path.h"
#include "fuzz.h"
#include "handler/leased/look.h"
#include "handler/runs/etcd_keys.h"
#include "keep/etcd/names.h"
#include "store/etcd/keys.h"

enum { MOST = 64 };

static rdzv_bytes next_line(rdzv_bytes *rest) {
  const char *at = rest->data, *end = rest->len > 0 ? memchr(at, '\n', rest->len) : NULL;
  const rdzv_bytes line = {at, end ? (size_t)(end - at) : rest->len};
  const size_t used = line.len + (end != NULL);
  *rest = (rdzv_bytes){at + used, rest->len - used};
  return line;
}

static char *text_of(rdzv_bytes line) {
  char *text = strndup(line.data ? line.data : "", line.len);
  CHECK(text);
  return text;
}

static void check_path(const char *folder, rdzv_bytes key) {
  char *clean = etcd_path_clean(folder), *again = etcd_path_clean(clean);
  rdzv_bytes rest;
  CHECK(strcmp(clean, again) == 0 && strlen(clean) <= strlen(folder) + 1);
  CHECK(!strstr(clean, "//") && (!*clean || (*clean == '/' && clean[strlen(clean) - 1] != '/')));
  if (etcd_path_below(key, clean, &rest)) {
    const char *begin = key.data;
    CHECK((const char *)rest.data + rest.len == begin + key.len && rest.len < key.len);
    CHECK(memcmp(begin, clean, strlen(clean)) == 0 && begin[strlen(clean)] == '/');
  }
  free(clean);
  free(again);
}

static void check_record(const char *folder, rdzv_bytes key) {
  uint8_t name[KEEP_MAX_NAME];
  size_t len;
  if (place_read_record(folder, key, name, &len)) CHECK(len > 0 && len <= KEEP_MAX_NAME);
}

static void check_runs(struct runs *runs) {
  for (size_t i = 0; i < runs->count; i++) CHECK(runs->ids[i].len > 0 && runs->ids[i].data[runs->ids[i].len] == '\0');
  rdzv_values_free(runs->ids, runs->count);
  *runs = (struct runs){0};
}

static int visit(void *count, rdzv_bytes key, rdzv_error *error) {
  for (size_t i = 0; i < key.len; i++) *(unsigned *)count += ((const uint8_t *)key.data)[i];
  return (void)error, 0;
}

static void list_v2(const char *folder, struct etcd_node *nodes, size_t count) {
  const struct etcd_node all = {.key = "", .value = "", .dir = true, .nodes = nodes, .count = count};
  struct runs runs = {0};
  unsigned sum = 0;
  for (int dir = 0; dir < 2; dir++) {
    for (size_t i = 0; i < count; i++) nodes[i].dir = dir != 0;
    CHECK(runs_take_v1(&runs, &all, folder));
    check_runs(&runs);
    CHECK(runs_take_v2(&runs, &all, folder));
    check_runs(&runs);
    CHECK(etcd_visit_keys(folder, &all, visit, &sum, NULL) == 0);
  }
}

static void list_v3(const char *folder, const struct etcd3_result *found) {
  struct runs runs = {0};
  struct look look = LOOK_NONE;
  rdzv_error error = {0};
  CHECK(runs_take_v3(&runs, found, folder));
  check_runs(&runs);
  const int taken = look_take(&look, folder, found, &error);
  CHECK(taken == 0 || (taken == error.code && error.message[0]));
  CHECK(look.count <= found->kv_count);
  look_free(&look);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  rdzv_bytes rest = {data, len};
  char *folder = text_of(next_line(&rest));
  struct etcd_node nodes[MOST] = {0};
  struct etcd3_kv kvs[MOST] = {0};
  size_t count = 0;
  for (; rest.len > 0 && count < MOST; count++) {
    const rdzv_bytes key = next_line(&rest);
    nodes[count].key = text_of(key);
    nodes[count].value = "";
    CHECK(value_copy(&kvs[count].key, key.data, key.len) && value_copy(&kvs[count].value, "{}", 2));
    check_path(folder, rdzv_value_bytes(&kvs[count].key));
    check_record(folder, rdzv_value_bytes(&kvs[count].key));
  }
  list_v2(folder, nodes, count);
  list_v3(folder, &(struct etcd3_result){.kvs = kvs, .kv_count = count});
  for (size_t i = 0; i < count; i++) {
    free(nodes[i].key);
    rdzv_value_free(&kvs[i].key);
    rdzv_value_free(&kvs[i].value);
  }
  free(folder);
  return 0;
}
