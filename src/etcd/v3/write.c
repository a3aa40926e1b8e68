/* SPDX-License-Identifier: BSD-3-Clause */
/* By hand, since a JSON tree of a value of a megabyte would be copied thrice. Numbers of 64 bits are strings, as the
 * gateway's are; bytes are base64; what has its default is left out. */
#include "etcd/v3/write.h"

#include "base/text/base64.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A JSON object that grows. */
struct writer {
  struct buf *out;
  bool failed; /* no memory */
  bool first;  /* no comma yet */
};

static void text(struct writer *w, const char *text) {
  w->failed = w->failed || !buf_append(w->out, text, strlen(text));
}

static void name(struct writer *w, const char *name) {
  if (!w->first) text(w, ",");
  w->first = false;
  text(w, "\"");
  text(w, name);
  text(w, "\":");
}

/* Begins an object or a list; ends it. */
static void open(struct writer *w, const char *bracket) {
  text(w, bracket);
  w->first = true;
}

static void close(struct writer *w, const char *bracket) {
  text(w, bracket);
  w->first = false;
}

static void bytes(struct writer *w, const char *field, rdzv_bytes value) {
  name(w, field);
  text(w, "\"");
  w->failed = w->failed || !base64_encode(value, w->out);
  text(w, "\"");
}

static void number(struct writer *w, const char *field, int64_t value) {
  char digits[32];
  if (value == 0) return;
  snprintf(digits, sizeof digits, "\"%" PRId64 "\"", value);
  name(w, field);
  text(w, digits);
}

static void yes(struct writer *w, const char *field, bool value) {
  if (!value) return;
  name(w, field);
  text(w, "true");
}

static void word(struct writer *w, const char *field, const char *value) {
  name(w, field);
  text(w, "\"");
  text(w, value);
  text(w, "\"");
}

static struct writer begin(struct buf *out) { return (struct writer){.out = out, .first = true}; }

static bool end(struct writer *w) {
  if (w->failed || !buf_append(w->out, "", 1)) return false;
  w->out->len--;
  return true;
}

/* etcd has no empty key: a range from the first one on begins at the byte 0. */
static void keys(struct writer *w, const struct etcd3_keys *keys) {
  bytes(w, "key", keys->key.len > 0 ? keys->key : (rdzv_bytes){"", keys->end.len > 0});
  if (keys->end.len > 0) bytes(w, "range_end", keys->end);
}

static void range_fields(struct writer *w, const struct etcd3_range *range) {
  static const char *const targets[] = {
      [ETCD3_ORDER_KEY] = "KEY", [ETCD3_ORDER_CREATE] = "CREATE", [ETCD3_ORDER_MOD] = "MOD"};
  keys(w, &range->keys);
  number(w, "revision", range->revision);
  number(w, "limit", range->limit);
  if (range->order != ETCD3_ORDER_KEY || range->newest_first) {
    word(w, "sort_order", range->newest_first ? "DESCEND" : "ASCEND");
    word(w, "sort_target", targets[range->order]);
  }
  yes(w, "keys_only", range->keys_only);
  yes(w, "count_only", range->count_only);
}

static void put_fields(struct writer *w, const struct etcd3_put *put) {
  bytes(w, "key", put->key);
  bytes(w, "value", put->value);
  number(w, "lease", put->lease);
  yes(w, "ignore_lease", put->keep_lease);
}

static void delete_fields(struct writer *w, const struct etcd3_delete *what) {
  keys(w, &what->keys);
  yes(w, "prev_kv", what->prev);
}

bool etcd3_write_range(const struct etcd3_range *range, struct buf *out) {
  struct writer w = begin(out);
  open(&w, "{");
  range_fields(&w, range);
  close(&w, "}");
  return end(&w);
}

bool etcd3_write_put(const struct etcd3_put *put, struct buf *out) {
  struct writer w = begin(out);
  open(&w, "{");
  put_fields(&w, put);
  close(&w, "}");
  return end(&w);
}

bool etcd3_write_delete(const struct etcd3_delete *what, struct buf *out) {
  struct writer w = begin(out);
  open(&w, "{");
  delete_fields(&w, what);
  close(&w, "}");
  return end(&w);
}

/* ---- transactions --------------------------------------------------------------------------------------------- */

static void compare(struct writer *w, const struct etcd3_compare *compare) {
  static const char *const targets[] = {[ETCD3_TARGET_VERSION] = "VERSION",
                                        [ETCD3_TARGET_CREATE] = "CREATE",
                                        [ETCD3_TARGET_MOD] = "MOD",
                                        [ETCD3_TARGET_VALUE] = "VALUE",
                                        [ETCD3_TARGET_LEASE] = "LEASE"};
  static const char *const fields[] = {[ETCD3_TARGET_VERSION] = "version",
                                       [ETCD3_TARGET_CREATE] = "create_revision",
                                       [ETCD3_TARGET_MOD] = "mod_revision",
                                       [ETCD3_TARGET_LEASE] = "lease"};
  static const char *const relations[] = {
      [ETCD3_EQUAL] = "EQUAL", [ETCD3_GREATER] = "GREATER", [ETCD3_LESS] = "LESS", [ETCD3_NOT_EQUAL] = "NOT_EQUAL"};
  char digits[32];
  if (!w->first) text(w, ",");
  open(w, "{");
  keys(w, &compare->keys);
  word(w, "target", targets[compare->target]);
  word(w, "result", relations[compare->relation]);
  if (compare->target == ETCD3_TARGET_VALUE) {
    bytes(w, "value", compare->value);
  } else { /* also 0: without it etcd has nothing to compare with */
    snprintf(digits, sizeof digits, "%" PRId64, compare->number);
    word(w, fields[compare->target], digits);
  }
  close(w, "}");
}

static void op(struct writer *w, const struct etcd3_op *op) {
  static const char *const names[] = {
      [ETCD3_OP_RANGE] = "request_range", [ETCD3_OP_PUT] = "request_put", [ETCD3_OP_DELETE] = "request_delete_range"};
  if (!w->first) text(w, ",");
  open(w, "{");
  name(w, names[op->kind]);
  open(w, "{");
  switch (op->kind) {
    case ETCD3_OP_RANGE: range_fields(w, &op->range); break;
    case ETCD3_OP_PUT: put_fields(w, &op->put); break;
    case ETCD3_OP_DELETE: delete_fields(w, &op->remove); break;
  }
  close(w, "}");
  close(w, "}");
}

static void ops(struct writer *w, const char *field, const struct etcd3_op *list, size_t count) {
  if (count == 0) return;
  name(w, field);
  open(w, "[");
  for (size_t i = 0; i < count; i++) op(w, &list[i]);
  close(w, "]");
}

bool etcd3_write_txn(const struct etcd3_txn *txn, struct buf *out) {
  struct writer w = begin(out);
  open(&w, "{");
  if (txn->compare_count > 0) {
    name(&w, "compare");
    open(&w, "[");
    for (size_t i = 0; i < txn->compare_count; i++) compare(&w, &txn->compares[i]);
    close(&w, "]");
  }
  ops(&w, "success", txn->then, txn->then_count);
  ops(&w, "failure", txn->otherwise, txn->otherwise_count);
  close(&w, "}");
  return end(&w);
}

/* ---- the others ----------------------------------------------------------------------------------------------- */

bool etcd3_write_lease(int64_t id, int64_t ttl_s, struct buf *out) {
  struct writer w = begin(out);
  open(&w, "{");
  number(&w, "ID", id);
  number(&w, "TTL", ttl_s);
  close(&w, "}");
  return end(&w);
}

bool etcd3_write_watch(const struct etcd3_keys *watched, int64_t from, int64_t id, bool removals, struct buf *out) {
  struct writer w = begin(out);
  open(&w, "{");
  name(&w, "create_request");
  open(&w, "{");
  keys(&w, watched);
  number(&w, "start_revision", from);
  number(&w, "watch_id", id);
  yes(&w, "progress_notify", true);
  if (removals) {
    name(&w, "filters");
    text(&w, "[\"NOPUT\"]");
  }
  yes(&w, "prev_kv", removals);
  close(&w, "}");
  close(&w, "}");
  return end(&w);
}

/* A text as a JSON string. */
static void string(struct writer *w, const char *field, const char *value) {
  name(w, field);
  text(w, "\"");
  for (; *value; value++) {
    const unsigned char byte = (unsigned char)*value;
    char escaped[8];
    if (byte < 0x20 || byte == '"' || byte == '\\')
      snprintf(escaped, sizeof escaped, "\\u%04x", byte);
    else
      snprintf(escaped, sizeof escaped, "%c", byte);
    text(w, escaped);
  }
  text(w, "\"");
}

bool etcd3_write_login(const char *user, const char *password, struct buf *out) {
  struct writer w = begin(out);
  open(&w, "{");
  string(&w, "name", user);
  string(&w, "password", password);
  close(&w, "}");
  return end(&w);
}
