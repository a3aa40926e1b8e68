/* SPDX-License-Identifier: BSD-3-Clause */
#include "keep/load.h"

#include "base/error.h"
#include "wire/cursor.h"

static int corrupt(rdzv_error *error, const char *why) {
  return error_set(error, RDZV_E_CORRUPT, "the kept state is damaged: %s", why);
}

static int check_sum(rdzv_bytes name, rdzv_bytes value, rdzv_bytes *content, uint64_t *sum, rdzv_error *error) {
  if (value.len < BATCH_SUM_BYTES) return corrupt(error, "a record is too short");
  *content = (rdzv_bytes){(const uint8_t *)value.data + BATCH_SUM_BYTES, value.len - BATCH_SUM_BYTES};
  *sum = record_sum(name, *content);
  return wire_load64(value.data) == *sum ? 0 : corrupt(error, "a record does not match its check sum");
}

/* Splits part 0. `*inlined`: the body is in it. */
static int split(rdzv_bytes content, rdzv_bytes *head, rdzv_bytes *body, size_t *body_len, rdzv_error *error) {
  struct wire_cursor cursor = wire_cursor(content);
  const uint64_t head_len = wire_take64(&cursor, "the head");
  const uint8_t *at = wire_take(&cursor, head_len > cursor.left ? SIZE_MAX : (size_t)head_len, "the head");
  const uint64_t len = wire_take64(&cursor, "the body");
  if (cursor.bad || len > SIZE_MAX / 2) return corrupt(error, "the length in a record is wrong");
  *head = (rdzv_bytes){at, (size_t)head_len};
  *body = (rdzv_bytes){cursor.at, cursor.left};
  *body_len = (size_t)len;
  const bool right = len <= BATCH_INLINE ? cursor.left == len : cursor.left == 0;
  return right ? 0 : corrupt(error, "the length in a record is wrong");
}

static int give(struct loader *loader, rdzv_bytes head, rdzv_bytes body, rdzv_error *error) {
  if (loader->id.kind != RECORD_HEAD) return loader->take(loader->user, loader->id, head, body, loader->slot, error);
  if (loader->id.id != 0 || loader->id.sub != 0 || body.len > 0) return corrupt(error, "the head has another name");
  loader->has_head = true;
  return record_read_head(head, &loader->head, error);
}

static int begin(struct loader *loader, struct record_id id, rdzv_bytes content, uint64_t sum, rdzv_error *error) {
  rdzv_bytes head = {0}, body = {0};
  if (loader->open) return corrupt(error, "a part is missing");
  int result = split(content, &head, &body, &loader->body_len, error);
  if (result < 0) return result;
  if (loader->max_body > 0 && loader->body_len > loader->max_body)
    return error_set(error, RDZV_E_LIMIT, "an object of the kept state has %zu bytes (limit %zu)", loader->body_len,
                     loader->max_body);
  loader->id = id;
  loader->slot = (struct record_slot){sum, 1};
  if (loader->body_len <= BATCH_INLINE) return give(loader, head, body, error);
  loader->first.len = loader->body.len = 0;
  if (!buf_append(&loader->first, head.data, head.len)) return error_no_memory(error);
  loader->open = true;
  return 0;
}

static int go_on(struct loader *loader, rdzv_bytes content, uint64_t sum, rdzv_error *error) {
  const size_t left = loader->body_len - loader->body.len;
  if (content.len != (left < BATCH_PART ? left : BATCH_PART)) return corrupt(error, "a part has another length");
  if (!buf_append(&loader->body, content.data, content.len)) return error_no_memory(error);
  loader->slot.sum += sum;
  loader->slot.parts++;
  if (loader->body.len < loader->body_len) return 0;
  loader->open = false;
  return give(loader, (rdzv_bytes){loader->first.data, loader->first.len},
              (rdzv_bytes){loader->body.data, loader->body.len}, error);
}

static bool is_next(const struct loader *loader, struct record_id id, uint32_t part) {
  return loader->open && id.kind == loader->id.kind && id.id == loader->id.id && id.sub == loader->id.sub &&
         part == loader->slot.parts;
}

int loader_take(void *user, rdzv_bytes name, rdzv_bytes value, rdzv_error *error) {
  struct loader *loader = user;
  struct record_id id = {0};
  uint32_t part = 0;
  rdzv_bytes content = {0};
  uint64_t sum = 0;
  if (!record_read_name(name, &id, &part)) return corrupt(error, "a record has a name that is not known");
  const int result = check_sum(name, value, &content, &sum, error);
  if (result < 0) return result;
  if (id.kind != RECORD_HEAD) {
    loader->tally.count++;
    loader->tally.sum += sum;
  }
  if (part == 0) return begin(loader, id, content, sum, error);
  return is_next(loader, id, part) ? go_on(loader, content, sum, error) : corrupt(error, "a part is missing");
}

int loader_end(struct loader *loader, rdzv_error *error) {
  const struct record_tally *tally = &loader->tally;
  if (!loader->has_head) return tally->count > 0 ? corrupt(error, "the head is missing") : 0;
  if (loader->open) return corrupt(error, "a part is missing");
  if (tally->count == loader->head.tally.count && tally->sum == loader->head.tally.sum) return 0;
  return error_set(error, RDZV_E_CORRUPT, "the kept state is damaged: of %llu records %llu are there",
                   (unsigned long long)loader->head.tally.count, (unsigned long long)tally->count);
}

void loader_free(struct loader *loader) {
  buf_free(&loader->first);
  buf_free(&loader->body);
}

int load_all(struct keep *keep, load_take *take, void *user, struct record_head *head, bool *is_new,
             rdzv_error *error) {
  struct loader loader = {.take = take, .user = user};
  int result = keep_load(keep, loader_take, &loader, error);
  if (result == 0) result = loader_end(&loader, error);
  if (result == 0) {
    *is_new = !loader.has_head;
    if (loader.has_head) *head = loader.head;
  }
  loader_free(&loader);
  return result;
}
