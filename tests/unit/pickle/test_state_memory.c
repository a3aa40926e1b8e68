/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every allocation of a scenario fails once, alone and with all that follow: no leak, no crash, no error but "out of
 * memory", nothing left half done.
 */
#include "failing_heap.h"
#include "state_json.h"
#include "test_state.h"

/* ---- scenarios ------------------------------------------------------------------------------------------------ */

static struct rendezvous_state sample;
static struct buf pickle, json; /* of the sample */

static int make_sample(void **context) {
  (void)context;
  const struct attribute other[] = {
      {"list", BYTES("](K\1" STR("\1", "a") "}(K\1K\2" STR("\1", "k") "(NNNNtue")},
      {"bytes", BYTES("C\2ab")},
      {"long", BYTES("\x8a\x09\1\2\3\4\5\6\7\x08\x09")},
      {"set", BYTES("c__builtin__\nset\n](K\1K\2e\x85R")},
      {"dict", BYTES("}" STR("\1", "k") "]s")},
  };
  struct torch_layouts layouts;
  struct rendezvous_state extra = read_attributes(other, COUNT_OF(other), &layouts);
  sample = sample_state();
  sample.extra = extra.extra;
  for (int64_t pid = 0; pid < 40; pid++) put_member(&sample, "h", pid, 0, NODE_PARTICIPANT)->last_heartbeat = pid;
  pickle = write_state(&sample, TORCH_2_6);
  assert_code(state_json_write(&sample, &json, NULL), 0);
  return 0;
}

static int free_sample(void **context) {
  (void)context;
  state_free(&sample);
  buf_free(&pickle);
  buf_free(&json);
  return 0;
}

static int check(struct rendezvous_state *state, int result) {
  const bool on = heap.on;
  heap.on = false;
  if (result == 0) assert_true(state_equal(state, &sample));
  heap.on = on;
  if (result == 0) state_free(state);
  return result;
}

static int read_pickle(void) {
  struct rendezvous_state state;
  struct torch_layouts layouts;
  return check(&state, pickle_read((rdzv_bytes){pickle.data, pickle.len}, &state, &layouts, NULL));
}

static int read_json(void) {
  struct rendezvous_state state;
  /* jansson takes some lacks of memory for a broken text */
  int result = state_json_read((rdzv_bytes){json.data, json.len}, &state, NULL);
  if (result == RDZV_E_CORRUPT && heap.from > 0) result = RDZV_E_NO_MEMORY;
  return check(&state, result);
}

static int copy(void) {
  struct rendezvous_state state;
  const bool copied = state_copy(&state, &sample);
  if (!copied) assert_true(state.count == 0 && state.extra.count == 0 && !state.nodes);
  return check(&state, copied ? 0 : RDZV_E_NO_MEMORY);
}

static int insert(void) {
  struct rendezvous_state state = STATE_EMPTY;
  int result = 0;
  for (int64_t pid = 0; result == 0 && pid < 20; pid++) {
    struct state_node *member;
    const size_t before = state.count;
    result = state_insert(&state, &(struct node_desc){"a", pid, 0}, &member, NULL);
    assert_int_equal(state.count, before + (result == 0));
  }
  state_free(&state);
  return result;
}

static int check_written(struct buf *out, const struct buf *expected, int result) {
  if (result == 0) {
    assert_int_equal(out->len, expected->len + 2);
    assert_memory_equal(out->data + 2, expected->data, expected->len);
  } else {
    assert_true(out->len == 2);
  }
  buf_free(out);
  return result;
}

static int write_pickle(void) {
  struct buf out = {0};
  if (!buf_append(&out, "ab", 2)) return RDZV_E_NO_MEMORY;
  const int result = pickle_write(&sample, TORCH_2_6, &out, NULL);
  return check_written(&out, &pickle, result);
}

static int write_json(void) {
  struct buf out = {0};
  if (!buf_append(&out, "ab", 2)) return RDZV_E_NO_MEMORY;
  const int result = state_json_write(&sample, &out, NULL);
  return check_written(&out, &json, result);
}

static void run_all(int (*scenario)(void)) {
  assert_code(run(scenario, 0, 0), 0);
  const long count = heap.calls;
  assert_true(count > 0);
  for (long n = 1; n <= count; n++) {
    assert_code(run(scenario, n, __LONG_MAX__), RDZV_E_NO_MEMORY);
    const int result = run(scenario, n, n); /* qsort goes on without */
    if (result != 0) assert_code(result, RDZV_E_NO_MEMORY);
  }
  assert_code(run(scenario, 0, 0), 0);
}

static void test_reading_a_pickle(void **context) {
  (void)context;
  run_all(read_pickle);
}

static void test_reading_json(void **context) {
  (void)context;
  run_all(read_json);
}

static void test_writing_a_pickle(void **context) {
  (void)context;
  run_all(write_pickle);
}

static void test_writing_json(void **context) {
  (void)context;
  run_all(write_json);
}

static void test_copying(void **context) {
  (void)context;
  run_all(copy);
}

static void test_inserting(void **context) {
  (void)context;
  run_all(insert);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_reading_a_pickle), cmocka_unit_test(test_reading_json),
      cmocka_unit_test(test_writing_a_pickle), cmocka_unit_test(test_writing_json),
      cmocka_unit_test(test_copying),          cmocka_unit_test(test_inserting),
  };
  return cmocka_run_group_tests(tests, make_sample, free_sample);
}
