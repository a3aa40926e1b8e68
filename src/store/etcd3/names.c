/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/etcd3/names.h"

#include <stdio.h>
#include <string.h>

static rdzv_value finish(struct buf *text, bool made) {
  if (made && buf_append(text, "", 1)) return (rdzv_value){(char *)text->data, text->len - 1};
  buf_free(text);
  return (rdzv_value){0};
}

static bool add(struct buf *text, const char *more) { return buf_append(text, more, strlen(more)); }

/* A name without a slash. */
static bool add_escaped(struct buf *text, rdzv_bytes name) {
  const unsigned char *at = name.data;
  bool made = true;
  for (size_t i = 0; i < name.len && made; i++) {
    char escaped[4] = {(char)at[i]};
    const bool plain = (at[i] >= '0' && at[i] <= '9') || (at[i] >= 'A' && at[i] <= 'Z') ||
                       (at[i] >= 'a' && at[i] <= 'z') || (at[i] && strchr("-_.~:", at[i]));
    if (!plain) snprintf(escaped, sizeof escaped, "%%%02X", at[i]);
    made = buf_append(text, escaped, plain ? 1 : 3);
  }
  return made;
}

rdzv_value etcd3_name_key(const char *prefix, rdzv_bytes key) {
  struct buf text = {0};
  return finish(&text, add(&text, prefix) && add(&text, "/keys/") && buf_append(&text, key.data, key.len));
}

rdzv_value etcd3_name_item(const char *prefix, rdzv_bytes key, const char *item) {
  struct buf text = {0};
  const bool made = add(&text, prefix) && add(&text, "/queues/") && add_escaped(&text, key) && add(&text, "/");
  return finish(&text, made && add(&text, item));
}

rdzv_value etcd3_name_queue(const char *prefix, rdzv_bytes key) { return etcd3_name_item(prefix, key, ""); }

rdzv_value etcd3_name(const char *prefix, const char *folder, const char *name) {
  struct buf text = {0};
  return finish(&text, add(&text, prefix) && add(&text, folder) && add(&text, name));
}
