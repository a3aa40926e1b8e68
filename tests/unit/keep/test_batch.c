/* SPDX-License-Identifier: BSD-3-Clause */
/* Batches of objects, and loading them: what goes in comes out, and what is damaged is found. */
#include "keep/load.h"
#include "unit.h"

/* A keep in memory: the records by name. */
struct record {
  uint8_t name[KEEP_MAX_NAME];
  struct buf value;
};
struct memory {
  struct record records[64];
  size_t count;
};

static int by_name(const void *a, const void *b) { return memcmp(a, b, KEEP_MAX_NAME); }

static void apply(struct memory *memory, const struct batch *batch) {
  for (size_t i = 0; i < batch->count; i++) {
    const struct keep_change *change = &batch->changes[i];
    assert_true(change->gone || change->head.len + change->body.len <= KEEP_MAX_VALUE);
    struct record *record = memory->records;
    while (record < memory->records + memory->count && memcmp(record->name, change->name.data, KEEP_MAX_NAME) != 0)
      record++;
    if (record == memory->records + memory->count) {
      assert_false(change->gone); /* nothing is removed that was not there */
      assert_true(memory->count++ < 64);
    }
    memcpy(record->name, change->name.data, KEEP_MAX_NAME);
    record->value.len = 0;
    if (change->gone) {
      buf_free(&record->value);
      *record = memory->records[--memory->count];
      memory->records[memory->count] = (struct record){0};
      continue;
    }
    assert_true(buf_append(&record->value, change->head.data, change->head.len));
    assert_true(buf_append(&record->value, change->body.data, change->body.len));
  }
  qsort(memory->records, memory->count, sizeof *memory->records, by_name);
}

static void memory_free(struct memory *memory) {
  for (size_t i = 0; i < memory->count; i++) buf_free(&memory->records[i].value);
}

/* The objects that a load has given. */
struct found {
  size_t count;
  struct record_id ids[16];
  size_t lens[16];
  uint64_t sums[16];
  uint32_t parts[16];
};

static int take(void *user, struct record_id id, rdzv_bytes head, rdzv_bytes body, struct record_slot slot,
                rdzv_error *error) {
  struct found *found = user;
  (void)error, (void)head;
  found->ids[found->count] = id;
  found->lens[found->count] = body.len;
  found->parts[found->count] = slot.parts;
  for (size_t i = 0; i < body.len; i++) assert_int_equal(((const uint8_t *)body.data)[i], (uint8_t)(i * 7));
  found->sums[found->count++] = slot.sum;
  return 0;
}

static int load(const struct memory *memory, struct found *found, rdzv_error *error) {
  struct loader loader = {.take = take, .user = found};
  int result = 0;
  found->count = 0;
  for (size_t i = 0; i < memory->count && result == 0; i++) {
    const struct record *record = &memory->records[i];
    result = loader_take(&loader, (rdzv_bytes){record->name, KEEP_MAX_NAME},
                         (rdzv_bytes){record->value.data, record->value.len}, error);
  }
  if (result == 0) result = loader_end(&loader, error);
  loader_free(&loader);
  return result;
}

static uint8_t bytes[3 * BATCH_PART];
static rdzv_bytes body_of(size_t len) {
  for (size_t i = 0; i < len; i++) bytes[i] = (uint8_t)(i * 7);
  return (rdzv_bytes){bytes, len};
}

static void put_head(struct batch *batch) {
  struct wire_writer out = {0};
  record_put_head(&out, &(struct record_head){.instance = 1, .tally = batch->tally});
  batch_put(batch, RECORD_HEAD_ID, (rdzv_bytes){out.buf.data, out.buf.len}, (rdzv_bytes){0}, NULL);
  buf_free(&out.buf);
}

/* One object that becomes each of these lengths in turn, beside another one that stays. */
static void test_object_of_any_length_comes_back(void **state) {
  (void)state;
  const size_t lens[] = {0, 1, BATCH_INLINE, BATCH_INLINE + 1, 2 * BATCH_PART + 1, BATCH_PART, 5, 3 * BATCH_PART};
  const struct record_id id = {RECORD_KEY, 7, 0}, other = {RECORD_ITEM, 7, 3};
  struct memory memory = {0};
  struct batch batch = {0};
  struct record_tally tally = {0};
  struct record_slot slot = {0}, other_slot = {0};
  struct found found;
  for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
    batch_begin(&batch, &tally);
    if (i == 0) batch_put(&batch, other, rdzv_str("h"), body_of(3), &other_slot);
    batch_put(&batch, id, rdzv_str("head"), body_of(lens[i]), &slot);
    put_head(&batch);
    assert_true(batch_seal(&batch, &tally));
    apply(&memory, &batch);
    batch_clear(&batch);
    assert_int_equal(load(&memory, &found, NULL), 0);
    assert_int_equal(found.count, 2);
    assert_int_equal(found.lens[0], lens[i]);
    assert_true(found.sums[0] == slot.sum && found.parts[0] == slot.parts);
  }
  batch_begin(&batch, &tally);
  batch_remove(&batch, id, &slot);
  put_head(&batch);
  assert_true(batch_seal(&batch, &tally));
  apply(&memory, &batch);
  assert_int_equal(load(&memory, &found, NULL), 0);
  assert_int_equal(found.count, 1);
  assert_int_equal(tally.count, 1);
  batch_free(&batch);
  memory_free(&memory);
}

/* Every record missing, every one doubled from before, every byte of a short one changed: all are found. */
static void test_damage_is_found(void **state) {
  (void)state;
  struct memory memory = {0};
  struct batch batch = {0};
  struct record_tally tally = {0};
  struct record_slot slots[3] = {0};
  struct found found;
  rdzv_error error;
  batch_begin(&batch, &tally);
  for (uint64_t i = 0; i < 3; i++)
    batch_put(&batch, (struct record_id){RECORD_KEY, i, 0}, rdzv_str("k"), body_of(i == 1 ? BATCH_PART + 9 : 40),
              &slots[i]);
  put_head(&batch);
  assert_true(batch_seal(&batch, &tally));
  apply(&memory, &batch);
  assert_int_equal(load(&memory, &found, NULL), 0);
  for (size_t i = 0; i < memory.count; i++) {
    struct memory less = memory;
    memmove(&less.records[i], &less.records[i + 1], (memory.count - i - 1) * sizeof *less.records);
    less.count--;
    assert_int_equal(load(&less, &found, &error), RDZV_E_CORRUPT);
    struct record *record = &memory.records[i];
    for (size_t at = 0; at < record->value.len && at < 200; at++) {
      record->value.data[at] ^= 4;
      assert_int_equal(load(&memory, &found, &error), RDZV_E_CORRUPT);
      record->value.data[at] ^= 4;
    }
    record->name[8] ^= 1;
    assert_int_equal(load(&memory, &found, &error), RDZV_E_CORRUPT);
    record->name[8] ^= 1;
    record->value.len--;
    assert_int_equal(load(&memory, &found, &error), RDZV_E_CORRUPT);
    record->value.len++;
  }
  assert_int_equal(load(&memory, &found, NULL), 0);
  batch_free(&batch);
  memory_free(&memory);
}

/* A batch that has no memory changes neither slots nor tally. */
static void test_failed_batch_changes_nothing(void **state) {
  (void)state;
  struct batch batch = {0};
  struct record_tally tally = {5, 6};
  struct record_slot slot = {1, 1};
  batch_begin(&batch, &tally);
  batch_put(&batch, (struct record_id){RECORD_KEY, 1, 0}, rdzv_str("k"), body_of(4), &slot);
  batch.failed = true;
  assert_false(batch_seal(&batch, &tally));
  assert_true(slot.sum == 1 && slot.parts == 1 && tally.count == 5 && tally.sum == 6);
  batch_free(&batch);
}

/* ---- the codec ---- */

static void test_head_of_a_newer_format_is_refused(void **state) {
  (void)state;
  struct wire_writer out = {0};
  struct record_head head;
  rdzv_error error;
  record_put_head(&out, &(struct record_head){.instance = 9, .issued = 3, .tally = {1, 2}});
  assert_int_equal(record_read_head((rdzv_bytes){out.buf.data, out.buf.len}, &head, &error), 0);
  assert_true(head.instance == 9 && head.issued == 3 && head.tally.sum == 2);
  out.buf.data[8]++;
  assert_int_equal(record_read_head((rdzv_bytes){out.buf.data, out.buf.len}, &head, &error), RDZV_E_UNSUPPORTED);
  assert_non_null(strstr(error.message, "format 2"));
  out.buf.data[0]++;
  assert_int_equal(record_read_head((rdzv_bytes){out.buf.data, out.buf.len}, &head, &error), RDZV_E_CORRUPT);
  buf_free(&out.buf);
}

static struct native_node_snapshot a_node(void) {
  return (struct native_node_snapshot){.join = {.run_id = "run",
                                                .session = {.node = {"host", 12, 3}, .token = {1, 2, 3}, .epoch = 4},
                                                .number = 5,
                                                .times = NATIVE_TIMES_DEFAULT,
                                                .settings = RENDEZVOUS_SETTINGS_DEFAULT,
                                                .layout = TORCH_NEWEST,
                                                .first_round = 6,
                                                .master_addr = "10.0.0.7",
                                                .master_port = 77,
                                                .workers = {"trainer", 8, 1}},
                                       .order = 99,
                                       .wish = 2,
                                       .over_us = 1000,
                                       .joined = 5,
                                       .in_round = true,
                                       .missed = true,
                                       .ranks = {1, 2, 3, 4, 5}};
}

static void test_node_comes_back(void **state) {
  (void)state;
  struct wire_writer out = {0};
  struct native_node_snapshot node = a_node(), back;
  rdzv_error error;
  record_put_node(&out, &node);
  const rdzv_bytes all = {out.buf.data, out.buf.len};
  assert_int_equal(record_read_node(all, &back, &error), 0);
  assert_true(back.order == 99 && back.wish == 2 && back.over_us == 1000 && back.joined == 5 && back.in_round &&
              !back.unanswered && back.missed && back.ranks.restart_count == 5);
  assert_string_equal(back.join.run_id, "run");
  assert_string_equal(back.join.session.node.addr, "host");
  assert_true(back.join.session.epoch == 4 && back.join.number == 5 && back.join.master_port == 77);
  for (size_t len = 0; len < all.len; len++)
    assert_int_equal(record_read_node((rdzv_bytes){all.data, len}, &back, &error), RDZV_E_CORRUPT);
  buf_free(&out.buf);
}

static void test_run_comes_back(void **state) {
  (void)state;
  static uint32_t gone[STATE_MAX_NODES];
  static uint8_t how[STATE_MAX_NODES];
  const uint32_t went[] = {3, 1};
  const uint8_t ways[] = {1, 2};
  struct wire_writer head = {0}, body = {0};
  rdzv_error error;
  struct native_run_snapshot run = {.id = "run",
                                    .layout = TORCH_2_3,
                                    .first_round = 4,
                                    .waits = 2,
                                    .state = rdzv_str("a pickle"),
                                    .world_round = 3,
                                    .world = rdzv_str("another"),
                                    .gone = went,
                                    .how = ways,
                                    .gone_count = 2,
                                    .answer = {.round = 3,
                                               .world_size = 5,
                                               .all_native = true,
                                               .master_node = "host_1_0",
                                               .master_addr = "10.0.0.7",
                                               .master_port = 5}},
                             back;
  record_put_run(&head, &body, &run);
  const rdzv_bytes first = {head.buf.data, head.buf.len}, rest = {body.buf.data, body.buf.len};
  assert_int_equal(record_read_run(first, rest, gone, how, &back, &error), 0);
  assert_string_equal(back.id, "run");
  assert_true(back.gone_count == 2 && gone[0] == 3 && how[1] == 2 && back.world_round == 3 && back.waits == 2);
  assert_true(bytes_equal(back.state, run.state) && bytes_equal(back.world, run.world));
  assert_true(back.answer.world_size == 5 && back.answer.all_native && !back.answer.all_ours);
  for (size_t len = 0; len < rest.len; len++)
    assert_int_equal(record_read_run(first, (rdzv_bytes){rest.data, len}, gone, how, &back, &error), RDZV_E_CORRUPT);
  buf_free(&head.buf);
  buf_free(&body.buf);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_object_of_any_length_comes_back),
      cmocka_unit_test(test_damage_is_found),
      cmocka_unit_test(test_failed_batch_changes_nothing),
      cmocka_unit_test(test_head_of_a_newer_format_is_refused),
      cmocka_unit_test(test_node_comes_back),
      cmocka_unit_test(test_run_comes_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
