/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fixtures: states that CPython pickled, in every layout and protocol, with what they hold as JSON beside them.
 * They are read as what they are, survive being written in their own layout, and broken ones are refused or read, but
 * never crash.
 */
#include "test_state.h"

#include <dirent.h>
#include <jansson.h>
#include <time.h>

#define FOLDER "tests/fixtures/torch-state"

struct fixture {
  char name[64];     /* torch-2.6.one.p4 */
  char expected[64]; /* torch-2.6.one.json */
  char version[8];   /* 2.6 */
  char state[16];    /* one */
  uint8_t *data;
  size_t len;
};

static struct fixture fixtures[128];
static size_t count;

/* ---- the fixtures --------------------------------------------------------------------------------------------- */

static void load(struct fixture *fixture, const char *file_name) {
  char path[400];
  snprintf(path, sizeof path, FOLDER "/%s", file_name);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  fixture->data = malloc(1 << 18);
  assert_non_null(fixture->data);
  fixture->len = fread(fixture->data, 1, 1 << 18, file);
  assert_in_range(fixture->len, 1, (1 << 18) - 1);
  fclose(file);
}

static void add(const char *version, const char *state, unsigned protocol, const char *file_name) {
  struct fixture *fixture = &fixtures[count];
  snprintf(fixture->version, sizeof fixture->version, "%s", version);
  snprintf(fixture->state, sizeof fixture->state, "%s", state);
  snprintf(fixture->name, sizeof fixture->name, "torch-%s.%s.p%u", version, state, protocol);
  snprintf(fixture->expected, sizeof fixture->expected, "torch-%s.%s.json", version, state);
  load(fixture, file_name);
  assert_true(++count < COUNT_OF(fixtures));
}

static int load_all(void **context) {
  (void)context;
  DIR *folder = opendir(FOLDER);
  if (!folder) fail_msg("there is no " FOLDER ": run in the source folder");
  for (const struct dirent *entry; (entry = readdir(folder));) {
    char version[8], name[16];
    unsigned protocol;
    if (sscanf(entry->d_name, "torch-%7[0-9.]%15[a-z].p%u.pickle", version, name, &protocol) != 3) continue;
    version[strlen(version) - 1] = '\0'; /* the dot that ends it */
    add(version, name, protocol, entry->d_name);
  }
  closedir(folder);
  assert_in_range(count, 60, COUNT_OF(fixtures));
  return 0;
}

static int free_all(void **context) {
  (void)context;
  for (size_t i = 0; i < count; i++) free(fixtures[i].data);
  return 0;
}

static struct rendezvous_state read_fixture(const struct fixture *fixture, struct torch_layouts *layouts) {
  return read_state((rdzv_bytes){fixture->data, fixture->len}, layouts);
}

static enum torch_layout layout_of(const struct fixture *fixture) {
  enum torch_layout layout;
  assert_code(torch_layout_parse(fixture->version, &layout, NULL), 0);
  return layout;
}

/* ---- what they hold ------------------------------------------------------------------------------------------- */

/* Python's isoformat, by the C library. */
static int64_t time_of(const json_t *json) {
  if (json_is_null(json)) return DATETIME_NONE;
  struct tm tm = {0};
  const char *rest = strptime(json_string_value(json), "%Y-%m-%dT%H:%M:%S", &tm);
  assert_non_null(rest);
  const int64_t micros = *rest == '.' ? strtoll(rest + 1, NULL, 10) : 0;
  return (int64_t)timegm(&tm) * 1000000 + micros;
}

static const struct state_node *member_of(const struct rendezvous_state *state, const json_t *row) {
  const struct node_desc node = {json_string_value(json_array_get(row, 0)), json_integer_value(json_array_get(row, 1)),
                                 json_integer_value(json_array_get(row, 2))};
  const struct state_node *member = state_find(state, &node);
  assert_non_null(member);
  return member;
}

static void check_list(const struct rendezvous_state *state, const json_t *rows, unsigned kind, size_t size) {
  size_t i;
  const json_t *row;
  assert_int_equal(json_array_size(rows), size);
  json_array_foreach(rows, i, row) assert_true(member_of(state, row)->kinds & kind);
}

static void check_values(const struct rendezvous_state *state, const json_t *json) {
  size_t i, heartbeats = 0;
  const json_t *row;
  json_array_foreach(json_object_get(json, "participants"), i, row)
      assert_int_equal(member_of(state, row)->rank, json_integer_value(json_array_get(row, 3)));
  json_array_foreach(json_object_get(json, "last_heartbeats"), i, row)
      assert_true(member_of(state, row)->last_heartbeat == time_of(json_array_get(row, 3)));
  for (size_t n = 0; n < state->count; n++) heartbeats += state->nodes[n].last_heartbeat != DATETIME_NONE;
  assert_int_equal(json_array_size(json_object_get(json, "last_heartbeats")), heartbeats);
  assert_int_equal(state->round, json_integer_value(json_object_get(json, "round")));
  assert_int_equal(state->complete, json_is_true(json_object_get(json, "complete")));
  assert_int_equal(state->closed, json_is_true(json_object_get(json, "closed")));
  assert_true(state->deadline == time_of(json_object_get(json, "deadline")));
}

static void test_every_fixture_is_read_as_what_it_holds(void **context) {
  (void)context;
  for (size_t n = 0; n < count; n++) {
    char path[128];
    snprintf(path, sizeof path, FOLDER "/%s", fixtures[n].expected);
    json_t *json = json_load_file(path, 0, NULL);
    assert_non_null(json);
    struct torch_layouts layouts;
    struct rendezvous_state state = read_fixture(&fixtures[n], &layouts);
    check_list(&state, json_object_get(json, "participants"), NODE_PARTICIPANT, state.num_participants);
    check_list(&state, json_object_get(json, "wait_list"), NODE_WAITING, state.num_waiting);
    check_list(&state, json_object_get(json, "redundancy_list"), NODE_SPARE, state.num_spares);
    check_values(&state, json);
    assert_int_equal(state.extra.count, 0);
    state_free(&state);
    json_decref(json);
  }
}

/* Rule: a state with nodes and times shows its layout; one without is one of two. */
static void test_every_fixture_shows_its_layout(void **context) {
  (void)context;
  for (size_t n = 0; n < count; n++) {
    const enum torch_layout layout = layout_of(&fixtures[n]);
    struct torch_layouts layouts;
    struct rendezvous_state state = read_fixture(&fixtures[n], &layouts);
    if (state.count > 0) {
      assert_int_equal(layouts.oldest, layout);
      assert_int_equal(layouts.newest, layout);
    } else {
      assert_int_equal(layouts.oldest, layout < TORCH_2_3 ? TORCH_1_13 : TORCH_2_3);
      assert_int_equal(layouts.newest, layout < TORCH_2_3 ? TORCH_2_0 : TORCH_2_6);
    }
    state_free(&state);
  }
}

static void test_every_fixture_survives_being_written_in_its_layout(void **context) {
  (void)context;
  for (size_t n = 0; n < count; n++) {
    struct torch_layouts layouts;
    struct rendezvous_state state = read_fixture(&fixtures[n], &layouts);
    assert_survives(&state, layout_of(&fixtures[n]));
    state_free(&state);
  }
}

/* Rule: what we write is never longer than what CPython 3.11 writes in its protocol 4. */
static void test_what_is_written_is_compact(void **context) {
  (void)context;
  for (size_t n = 0; n < count; n++) {
    struct torch_layouts layouts;
    struct rendezvous_state state = read_fixture(&fixtures[n], &layouts);
    struct buf written = write_state(&state, layout_of(&fixtures[n]));
    if (written.len > fixtures[n].len)
      fail_msg("%s: %zu bytes, not %zu", fixtures[n].name, written.len, fixtures[n].len);
    buf_free(&written);
    state_free(&state);
  }
}

/* Rule: the state is what it is; protocol, order and shared objects of a pickle do not show in what we write. */
static void test_equal_states_are_written_as_the_same_bytes(void **context) {
  (void)context;
  for (size_t n = 0; n < count; n++) {
    if (strcmp(fixtures[n].state, "complete") != 0) continue;
    struct torch_layouts layouts;
    struct rendezvous_state state = read_fixture(&fixtures[n], &layouts), other = STATE_EMPTY;
    other.round = state.round;
    other.complete = state.complete;
    for (size_t i = state.count; i > 0; i--) {
      const struct state_node *from = &state.nodes[i - 1];
      struct state_node *to = put_member(&other, from->desc.addr, from->desc.pid, from->desc.local_id, from->kinds);
      to->rank = from->rank;
      to->last_heartbeat = from->last_heartbeat;
    }
    struct buf one = write_state(&state, layout_of(&fixtures[n])), two = write_state(&other, layout_of(&fixtures[n]));
    assert_int_equal(one.len, two.len);
    assert_memory_equal(one.data, two.data, one.len);
    buf_free(&one);
    buf_free(&two);
    state_free(&state);
    state_free(&other);
  }
}

/* ---- broken ones ---------------------------------------------------------------------------------------------- */

static void test_a_fixture_that_is_cut_at_any_byte_is_refused(void **context) {
  (void)context;
  for (size_t n = 0; n < count; n++) {
    const size_t step = fixtures[n].len > 2000 ? 997 : 1;
    for (size_t len = 0; len < fixtures[n].len; len += step) {
      struct rendezvous_state state;
      struct torch_layouts layouts;
      rdzv_error error = {0};
      assert_error(read_exactly(fixtures[n].data, len, &state, &layouts, &error), RDZV_E_CORRUPT, &error,
                   len > 1 ? "at byte " : "cut short");
    }
  }
}

/* Reads what may be anything: an error has a sentence, and a state can be written and read again. */
static bool read_anything(const uint8_t *data, size_t len) {
  struct rendezvous_state state;
  struct torch_layouts layouts;
  rdzv_error error = {0};
  const int result = read_exactly(data, len, &state, &layouts, &error);
  if (result < 0) {
    assert_code(result, RDZV_E_CORRUPT);
    assert_true(strlen(error.message) > strlen("cannot read the rendezvous state: "));
    return false;
  }
  assert_survives(&state, layouts.newest);
  state_free(&state);
  return true;
}

static void test_a_fixture_with_any_bit_flipped_is_refused_or_read(void **context) {
  (void)context;
  size_t read = 0, refused = 0;
  for (size_t n = 0; n < count; n++) {
    struct fixture *fixture = &fixtures[n];
    const bool all = strcmp(fixture->state, "one") == 0 || strcmp(fixture->state, "unicode") == 0;
    for (size_t i = 0; fixture->len < 2000 && i < fixture->len; i++) {
      const uint8_t kept = fixture->data[i];
      for (unsigned bit = 0; bit < 8; bit++) {
        if (!all && bit != (i + n) % 8) continue;
        fixture->data[i] = (uint8_t)(kept ^ 1u << bit);
        if (read_anything(fixture->data, fixture->len))
          read++;
        else
          refused++;
      }
      fixture->data[i] = kept;
    }
  }
  assert_true(read > 1000 && refused > 10000); /* both ways have been gone */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_fixture_is_read_as_what_it_holds),
      cmocka_unit_test(test_every_fixture_shows_its_layout),
      cmocka_unit_test(test_every_fixture_survives_being_written_in_its_layout),
      cmocka_unit_test(test_what_is_written_is_compact),
      cmocka_unit_test(test_equal_states_are_written_as_the_same_bytes),
      cmocka_unit_test(test_a_fixture_that_is_cut_at_any_byte_is_refused),
      cmocka_unit_test(test_a_fixture_with_any_bit_flipped_is_refused_or_read),
  };
  return cmocka_run_group_tests(tests, load_all, free_all);
}
