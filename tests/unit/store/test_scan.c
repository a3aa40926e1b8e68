/* SPDX-License-Identifier: BSD-3-Clause */
/* The scanner: messages from any split of the stream, and lengths that lie. */
#include "unit.h"
#include "wire/scan.h"
#include "wire/writer.h"

/* A key of 9 bytes and its slash. */
static const struct wire_limits limits = {.max_key = 9, .max_value = 20, .max_count = 4, .max_message = 120};

/* Scans a copy that has not one byte more than it should. */
static enum wire_result scan_copy(struct wire_scan *scan, const struct wire_limits *within, const void *data,
                                  size_t len) {
  uint8_t *copy = malloc(len ? len : 1);
  assert_non_null(copy);
  if (len > 0) memcpy(copy, data, len);
  const enum wire_result result = wire_scan(scan, within, copy, len);
  free(copy);
  return result;
}

static enum wire_result scan_all(const char *fields, uint64_t items, const struct wire_writer *message,
                                 struct wire_scan *scan) {
  wire_scan_start(scan, fields, 0);
  scan->items = items;
  return scan_copy(scan, &limits, message->buf.data, message->buf.len);
}

/* One message with everything in it: a byte, both numbers, a key, a value, and the three kinds of list. */
static const char *const layouts[] = {"",   "b",   "w", "n", "k", "v",   "kv", "kvv",
                                      "kn", "knv", "K", "P", "V", "bnv", "nv"};

static void put_fields(struct wire_writer *out, const char *fields, uint64_t items) {
  for (; *fields; fields++) switch (*fields) {
      case 'b': wire_put8(out, 0xb1); break;
      case 'w': wire_put32(out, 0xb1b2b3b4u); break;
      case 'n': wire_put64(out, 0xb1b2b3b4b5b6b7b8u); break;
      case 'k': wire_put_bytes(out, BYTES("key")); break;
      case 'v': wire_put_bytes(out, BYTES("value")); break;
      default:
        if (*fields != 'V') wire_put64(out, items);
        for (uint64_t i = 0; i < items * (*fields == 'P' ? 2 : 1); i++) wire_put_bytes(out, BYTES("it\0em"));
    }
}

static void assert_same_scan(const struct wire_scan *a, const struct wire_scan *b) {
  assert_int_equal(a->pos, b->pos);
  assert_int_equal(a->count, b->count);
  assert_memory_equal(a->field, b->field, (size_t)a->count * sizeof a->field[0]);
}

/* Whatever two places a message is cut at, and with each piece in new memory, the fields are the same, and each piece
 * but the last asks for more than has come. */
static void test_a_message_cut_at_any_two_bytes_is_read_alike(void **state) {
  (void)state;
  for (size_t layout = 0; layout < COUNT_OF(layouts); layout++)
    for (uint64_t items = 0; items <= 3; items++) {
      struct wire_writer message = {0};
      put_fields(&message, layouts[layout], items);
      const size_t len = message.buf.len;
      struct wire_scan whole;
      assert_int_equal(scan_all(layouts[layout], items, &message, &whole), WIRE_RESULT_DONE);
      assert_int_equal(whole.pos, len);
      for (size_t first = 0; first <= len; first++)
        for (size_t second = first; second <= len; second++) {
          struct wire_scan scan;
          const size_t cuts[] = {first, second, len};
          wire_scan_start(&scan, layouts[layout], 0);
          scan.items = items;
          for (size_t i = 0; i < COUNT_OF(cuts); i++) {
            const enum wire_result result = scan_copy(&scan, &limits, message.buf.data, cuts[i]);
            assert_int_equal(result, cuts[i] == len ? WIRE_RESULT_DONE : WIRE_RESULT_MORE);
            if (result == WIRE_RESULT_MORE) assert_true(scan.want > cuts[i] && scan.want <= len);
          }
          assert_same_scan(&scan, &whole);
        }
      buf_free(&message.buf);
    }
}

/* Numbers are little-endian whatever the machine, and bytes are those of the stream. */
static void test_fields_are_what_was_sent(void **state) {
  (void)state;
  const uint8_t stream[] = {0xb1, 4, 3, 2, 1, 8, 7, 6, 5, 4, 3, 2, 1, 2, 0, 0, 0, 0, 0, 0, 0, 'a', 0};
  struct wire_scan scan;
  wire_scan_start(&scan, "bwnk", 0);
  assert_int_equal(wire_scan(&scan, &limits, stream, sizeof stream), WIRE_RESULT_DONE);
  assert_int_equal(scan.field[0].number, 0xb1);
  assert_int_equal(scan.field[1].number, 0x01020304);
  assert_true(scan.field[2].number == 0x0102030405060708u);
  assert_bytes(wire_field_bytes(&scan, 3, stream), "a\0");
}

/* What stands behind a message is left alone. */
static void test_bytes_behind_the_message_are_left_alone(void **state) {
  (void)state;
  struct wire_writer message = {0};
  put_fields(&message, "v", 0);
  const size_t len = message.buf.len;
  put_fields(&message, "v", 0);
  struct wire_scan scan;
  assert_int_equal(scan_all("v", 0, &message, &scan), WIRE_RESULT_DONE);
  assert_int_equal(scan.pos, len);
  buf_free(&message.buf);
}

/* A list is taken apart item by item, to its end and no further. */
static void test_a_list_is_taken_apart_item_by_item(void **state) {
  (void)state;
  struct wire_writer message = {0};
  wire_put64(&message, 3);
  wire_put_bytes(&message, BYTES("a"));
  wire_put_bytes(&message, BYTES(""));
  wire_put_bytes(&message, BYTES("c\0c"));
  struct wire_scan scan;
  assert_int_equal(scan_all("K", 0, &message, &scan), WIRE_RESULT_DONE);
  assert_int_equal(scan.field[0].number, 3);
  rdzv_bytes list = wire_field_bytes(&scan, 0, message.buf.data);
  assert_bytes(wire_list_next(&list), "a");
  assert_bytes(wire_list_next(&list), "");
  assert_bytes(wire_list_next(&list), "c\0c");
  assert_int_equal(list.len, 0);
  buf_free(&message.buf);
}

struct lie {
  const char *fields;
  size_t limit; /* of the length or count that is put */
  const char *why;
};

/* Each limit holds at the limit, fails one above it, and fails at the largest number: before one byte of what the
 * length announces has come. */
static void test_a_length_over_its_limit_is_refused_before_its_bytes_come(void **state) {
  (void)state;
  const struct lie lies[] = {
      {"k", 10, "key"}, {"v", 20, "value"}, {"K", 4, "too many keys"}, {"P", 4, "too many keys"}};
  for (size_t i = 0; i < COUNT_OF(lies); i++) {
    const uint64_t bad[] = {lies[i].limit + 1, 1u << 31,       (uint64_t)1 << 32,
                            (uint64_t)1 << 63, UINT64_MAX - 8, UINT64_MAX};
    struct wire_scan scan;
    for (size_t n = 0; n < COUNT_OF(bad); n++) {
      struct wire_writer message = {0};
      wire_put64(&message, bad[n]);
      assert_int_equal(scan_all(lies[i].fields, 0, &message, &scan), WIRE_RESULT_BAD);
      assert_non_null(strstr(scan.why, lies[i].why));
      buf_free(&message.buf);
    }
    struct wire_writer message = {0};
    wire_put64(&message, lies[i].limit);
    assert_int_equal(scan_all(lies[i].fields, 0, &message, &scan), WIRE_RESULT_MORE);
    buf_free(&message.buf);
  }
}

/* The items of a list obey the same limits: keys those of keys, the values of pairs and of answers those of values. */
static void test_the_items_of_a_list_have_their_own_limits(void **state) {
  (void)state;
  const struct {
    const char *fields;
    int good_before; /* items before the bad one */
    size_t limit;
    const char *why;
  } cases[] = {{"K", 0, 10, "key"}, {"K", 1, 10, "key"},   {"P", 0, 10, "key"},   {"P", 1, 20, "value"},
               {"P", 2, 10, "key"}, {"P", 3, 20, "value"}, {"V", 0, 20, "value"}, {"V", 1, 20, "value"}};
  for (size_t i = 0; i < COUNT_OF(cases); i++)
    for (int over = 0; over <= 1; over++) {
      struct wire_writer message = {0};
      if (*cases[i].fields != 'V') wire_put64(&message, 2);
      for (int n = 0; n < cases[i].good_before; n++) wire_put_bytes(&message, BYTES("ok"));
      wire_put64(&message, cases[i].limit + (size_t)over);
      struct wire_scan scan;
      assert_int_equal(scan_all(cases[i].fields, 2, &message, &scan), over ? WIRE_RESULT_BAD : WIRE_RESULT_MORE);
      if (over) assert_non_null(strstr(scan.why, cases[i].why));
      buf_free(&message.buf);
    }
}

/* A whole message has a limit too: exactly at it is fine, one byte more is not, however it is made up. */
static void test_a_message_has_a_limit_of_its_own(void **state) {
  (void)state;
  for (size_t last = 0; last <= 20; last++) {
    struct wire_writer message = {0};
    wire_put64(&message, 4); /* 8 + 3 * (8 + 20) = 92 bytes, then 8 + last */
    for (int i = 0; i < 3; i++) wire_put_bytes(&message, BYTES("twenty bytes of text"));
    wire_put64(&message, last);
    struct wire_scan scan;
    wire_scan_start(&scan, "K", 0);
    const struct wire_limits wide_keys = {.max_key = 20, .max_value = 20, .max_count = 4, .max_message = 110};
    const enum wire_result result = scan_copy(&scan, &wide_keys, message.buf.data, message.buf.len);
    assert_int_equal(result, last == 0 ? WIRE_RESULT_DONE : last <= 10 ? WIRE_RESULT_MORE : WIRE_RESULT_BAD);
    if (result == WIRE_RESULT_BAD) assert_non_null(strstr(scan.why, "message"));
    buf_free(&message.buf);
  }
}

/* Limits as large as they get: no sum of lengths wraps, the message limit still holds. */
static void test_limits_without_end_do_not_make_sums_wrap(void **state) {
  (void)state;
  const struct wire_limits endless = {SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX};
  const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 1, UINT64_MAX - 7, UINT64_MAX - 8, UINT64_MAX - 9};
  const char *const fields[] = {"k", "v", "nk", "kv"};
  for (size_t i = 0; i < COUNT_OF(lengths); i++)
    for (size_t f = 0; f < COUNT_OF(fields); f++) {
      struct wire_writer message = {0};
      if (fields[f][1]) wire_put64(&message, 0); /* a number, or the length of an empty key */
      wire_put64(&message, lengths[i]);
      struct wire_scan scan;
      wire_scan_start(&scan, fields[f], 1);
      uint8_t stream[32] = {0};
      memcpy(stream + 1, message.buf.data, message.buf.len);
      const enum wire_result result = scan_copy(&scan, &endless, stream, 1 + message.buf.len);
      assert_true(result == WIRE_RESULT_BAD || (result == WIRE_RESULT_MORE && scan.want > 1 + message.buf.len));
      buf_free(&message.buf);
    }
}

/* A count of pairs is doubled to walk them: one whose double wraps to nothing is no list of nothing. */
static void test_a_count_of_pairs_that_doubles_to_zero_is_no_empty_list(void **state) {
  (void)state;
  const struct wire_limits endless = {SIZE_MAX, SIZE_MAX, SIZE_MAX, SIZE_MAX};
  struct wire_writer message = {0};
  wire_put64(&message, (uint64_t)1 << 63);
  struct wire_scan scan;
  wire_scan_start(&scan, "P", 0);
  assert_int_not_equal(scan_copy(&scan, &endless, message.buf.data, message.buf.len), WIRE_RESULT_DONE);
  buf_free(&message.buf);
}

/* The length of a list of values is what a server claimed: over the limit it is refused before its first item. */
static void test_a_list_of_values_that_is_too_long_is_refused_at_once(void **state) {
  (void)state;
  const struct wire_writer nothing = {0};
  struct wire_scan scan;
  assert_int_equal(scan_all("V", 4, &nothing, &scan), WIRE_RESULT_MORE);
  assert_int_equal(scan_all("V", 5, &nothing, &scan), WIRE_RESULT_BAD);
  assert_int_equal(scan_all("V", UINT64_MAX, &nothing, &scan), WIRE_RESULT_BAD);
  assert_string_equal(scan.why, "too many keys");
}

/* A list without end, of items without bytes, is over where the limit of the message is. */
static void test_a_list_without_end_meets_the_limit_of_the_message(void **state) {
  (void)state;
  const struct wire_limits any_count = {.max_key = 9, .max_value = 20, .max_count = SIZE_MAX, .max_message = 120};
  uint8_t stream[128] = {0};
  struct wire_scan scan;
  wire_scan_start(&scan, "V", 0);
  scan.items = UINT64_MAX;
  assert_int_equal(scan_copy(&scan, &any_count, stream, 120), WIRE_RESULT_MORE);
  assert_int_equal(scan_copy(&scan, &any_count, stream, 128), WIRE_RESULT_BAD);
  assert_string_equal(scan.why, "a message is too long");
}

/* Each number takes its size, and a value its length before it, in little-endian. */
static void test_the_writer_writes_what_the_scanner_reads(void **state) {
  (void)state;
  struct wire_writer out = {0};
  wire_put8(&out, 0xfe);
  wire_put32(&out, 0x01020304);
  wire_put64(&out, 0x0102030405060708u);
  wire_put_bytes(&out, BYTES("ab"));
  wire_put_op(&out, WIRE_DIALECT_V1, WIRE_OP_SET);
  wire_put_op(&out, WIRE_DIALECT_V2, WIRE_OP_SET);
  wire_put_op(&out, WIRE_DIALECT_RDZV, WIRE_OP_WAIT_CHANGED);
  const uint8_t expected[] = {0xfe, 4, 3, 2, 1, 8, 7, 6, 5, 4, 3, 2, 1, 2, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 0, 1, 132};
  assert_int_equal(out.buf.len, sizeof expected);
  assert_memory_equal(out.buf.data, expected, sizeof expected);
  assert_false(out.failed);
  buf_free(&out.buf);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_message_cut_at_any_two_bytes_is_read_alike),
      cmocka_unit_test(test_fields_are_what_was_sent),
      cmocka_unit_test(test_bytes_behind_the_message_are_left_alone),
      cmocka_unit_test(test_a_list_is_taken_apart_item_by_item),
      cmocka_unit_test(test_a_length_over_its_limit_is_refused_before_its_bytes_come),
      cmocka_unit_test(test_the_items_of_a_list_have_their_own_limits),
      cmocka_unit_test(test_a_message_has_a_limit_of_its_own),
      cmocka_unit_test(test_limits_without_end_do_not_make_sums_wrap),
      cmocka_unit_test(test_a_count_of_pairs_that_doubles_to_zero_is_no_empty_list),
      cmocka_unit_test(test_a_list_of_values_that_is_too_long_is_refused_at_once),
      cmocka_unit_test(test_a_list_without_end_meets_the_limit_of_the_message),
      cmocka_unit_test(test_the_writer_writes_what_the_scanner_reads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
