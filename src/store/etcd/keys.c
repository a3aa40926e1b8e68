/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/etcd/keys.h"

#include "base/error.h"
#include "base/text/base64.h"
#include "etcd/path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---------------------------------------------------------------------------------------------------- */

/* etcd takes slashes that stand side by side for one, so that a name with such is written with what base64 has not. */
static void guard_slashes(char *name) {
  if (name[0] != '/' && !strstr(name, "//")) return;
  for (; *name; name++)
    if (*name == '/') *name = '_';
}

int etcd_key_path(const char *prefix, rdzv_bytes key, char **out, rdzv_error *error) {
  struct buf text = {0};
  if (key.len == 0) return error_set(error, RDZV_E_INVALID, "an etcd store cannot hold an empty key");
  const bool encoded = base64_encode(key, &text);
  if (encoded) guard_slashes((char *)text.data);
  const int printed = encoded ? asprintf(out, "%s/%s", prefix, (const char *)text.data) : -1;
  buf_free(&text);
  return printed < 0 ? error_no_memory(error) : 0;
}

/* Undoes guard_slashes; a slash at the end, which etcd leaves off, is put there again. */
static bool restore_slashes(const char *name, struct buf *out) {
  const size_t len = strlen(name);
  if (!buf_append(out, name, len) || (len % 4 == 3 && !buf_append(out, "/", 1))) return false;
  for (size_t i = 0; i < len; i++)
    if (name[i] == '_') out->data[i] = '/';
  return true;
}

/* The key of a node, from its path below the prefix. *valid false: it is not a key of the store. False: no memory. */
static bool key_of(const char *prefix, const char *path, struct buf *out, bool *valid) {
  struct buf name = {0};
  rdzv_bytes rest;
  *valid = false;
  if (!etcd_path_below(rdzv_str(path), prefix, &rest)) return true;
  const bool done = restore_slashes(rest.data, &name) && base64_decode((rdzv_bytes){name.data, name.len}, out, valid);
  buf_free(&name);
  return done;
}

/* ---- visiting ------------------------------------------------------------------------------------------------- */

int etcd_visit_keys(const char *prefix, const struct etcd_node *node, etcd_visit_key *visitor, void *argument,
                    rdzv_error *error) {
  int outcome = 0;
  for (size_t i = 0; i < node->count && outcome == 0; i++)
    outcome = etcd_visit_keys(prefix, &node->nodes[i], visitor, argument, error);
  if (node->dir || outcome < 0) return outcome;
  struct buf key = {0};
  bool valid;
  if (!key_of(prefix, node->key, &key, &valid)) outcome = error_no_memory(error);
  if (outcome == 0 && valid) outcome = visitor(argument, (rdzv_bytes){key.data, key.len}, error);
  buf_free(&key);
  return outcome;
}

int etcd_count_key(void *int64, rdzv_bytes key, rdzv_error *error) {
  (void)key, (void)error;
  (*(int64_t *)int64)++;
  return 0;
}

int etcd_list_key(void *key_list, rdzv_bytes key, rdzv_error *error) {
  struct etcd_key_list *list = key_list;
  if (list->count == list->cap) {
    const size_t cap = list->cap ? 2 * list->cap : 16;
    rdzv_value *keys = realloc(list->keys, cap * sizeof *keys);
    if (!keys) return error_no_memory(error);
    list->keys = keys;
    list->cap = cap;
  }
  return value_copy(&list->keys[list->count], key.data, key.len) ? (list->count++, 0) : error_no_memory(error);
}

static int by_bytes(const void *a, const void *b) {
  const rdzv_bytes *one = a, *two = b;
  const size_t shorter = one->len < two->len ? one->len : two->len;
  const int order = shorter > 0 ? memcmp(one->data, two->data, shorter) : 0;
  return order != 0 ? order : (one->len > two->len) - (one->len < two->len);
}

bool etcd_key_check_open(struct etcd_key_check *check, const rdzv_bytes *keys, size_t count) {
  *check = (struct etcd_key_check){calloc(count + 1, sizeof *check->keys), calloc(count + 1, sizeof(bool)), 0, 0};
  if (!check->keys || !check->found) {
    etcd_key_check_close(check);
    return false;
  }
  for (size_t i = 0; i < count; i++) check->keys[i] = keys[i];
  qsort(check->keys, count, sizeof *check->keys, by_bytes);
  for (size_t i = 0; i < count; i++)
    if (i == 0 || by_bytes(&check->keys[i], &check->keys[check->count - 1]) != 0)
      check->keys[check->count++] = check->keys[i];
  check->missing = check->count;
  return true;
}

void etcd_key_check_close(struct etcd_key_check *check) {
  free(check->keys);
  free(check->found);
}

int etcd_check_key(void *key_check, rdzv_bytes key, rdzv_error *error) {
  struct etcd_key_check *check = key_check;
  const rdzv_bytes *at = bsearch(&key, check->keys, check->count, sizeof *check->keys, by_bytes);
  (void)error;
  if (!at || check->found[at - check->keys]) return 0;
  check->found[at - check->keys] = true;
  check->missing--;
  return 0;
}
