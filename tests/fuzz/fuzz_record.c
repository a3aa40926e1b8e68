/* SPDX-License-Identifier: BSD-3-Clause */
/* What a keep gives back. The first byte chooses: the head of one object, which comes out the same when it is written
 * again; or records, each a name, a length of two bytes and a content, whose check sums are made right. */
#include "fuzz.h"
#include "keep/load.h"

static void check_same(struct wire_writer *out, const uint8_t *data, size_t len) {
  CHECK(!out->failed && out->buf.len == len && memcmp(out->buf.data, data, len) == 0);
  buf_free(&out->buf);
}

static void read_object(unsigned kind, const uint8_t *data, size_t len) {
  const rdzv_bytes bytes = {data, len};
  struct record_head head;
  struct record_key key;
  struct record_session session;
  struct native_node_snapshot node;
  struct wire_writer out = {0};
  if (kind == RECORD_HEAD && record_read_head(bytes, &head, NULL) == 0)
    record_put_head(&out, &head);
  else if (kind == RECORD_KEY && record_read_key(bytes, &key, NULL) == 0)
    record_put_key(&out, &key);
  else if (kind == RECORD_SESSION && record_read_session(bytes, &session, NULL) == 0)
    record_put_session(&out, &session);
  else if (kind == RECORD_NODE && record_read_node(bytes, &node, NULL) == 0)
    record_put_node(&out, &node);
  else
    return;
  check_same(&out, data, len);
}

static void read_run(const uint8_t *data, size_t len) {
  static uint32_t gone[STATE_MAX_NODES];
  static uint8_t how[STATE_MAX_NODES];
  struct native_run_snapshot run;
  struct wire_writer head = {0}, body = {0};
  const size_t cut = len > 0 ? data[0] % len : 0;
  const rdzv_bytes first = {data, cut}, rest = {data + cut, len - cut};
  if (record_read_run(first, rest, gone, how, &run, NULL) < 0) return;
  record_put_run(&head, &body, &run);
  check_same(&head, data, cut);
  buf_free(&body.buf);
}

static int take(void *user, struct record_id id, rdzv_bytes head, rdzv_bytes body, struct record_slot slot,
                rdzv_error *error) {
  size_t *bytes = user;
  (void)error;
  CHECK(id.kind > RECORD_HEAD && id.kind < RECORD_KINDS && slot.parts > 0);
  for (size_t i = 0; i < head.len; i++) *bytes += ((const uint8_t *)head.data)[i];
  for (size_t i = 0; i < body.len; i++) *bytes += ((const uint8_t *)body.data)[i];
  return 0;
}

static void read_records(const uint8_t *data, size_t len) {
  enum { MOST = 1 << 16 };
  static uint8_t value[MOST + BATCH_SUM_BYTES];
  size_t bytes = 0;
  struct loader loader = {.take = take, .user = &bytes, .max_body = 1 << 20};
  int result = 0;
  while (len >= KEEP_MAX_NAME + 2 && result == 0) {
    const rdzv_bytes name = {data, KEEP_MAX_NAME};
    size_t size = data[KEEP_MAX_NAME] | (size_t)data[KEEP_MAX_NAME + 1] << 8;
    data += KEEP_MAX_NAME + 2, len -= KEEP_MAX_NAME + 2;
    if (size > len) size = len;
    memcpy(value + BATCH_SUM_BYTES, data, size);
    const uint64_t sum = htole64(record_sum(name, (rdzv_bytes){data, size}));
    memcpy(value, &sum, sizeof sum);
    result = loader_take(&loader, name, (rdzv_bytes){value, size + BATCH_SUM_BYTES}, NULL);
    data += size, len -= size;
  }
  if (result == 0) loader_end(&loader, NULL);
  loader_free(&loader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  if (len == 0) return 0;
  uint8_t *copy = fuzz_copy(data + 1, len - 1);
  if (data[0] == 0)
    read_records(copy, len - 1);
  else if (data[0] == RECORD_RUN)
    read_run(copy, len - 1);
  else
    read_object(data[0], copy, len - 1);
  free(copy);
  return 0;
}
