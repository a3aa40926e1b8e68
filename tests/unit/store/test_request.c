/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's decoder: which dialect, which operation, which fields; every operation of every dialect, cut at every
 * byte. */
#include "unit.h"
#include "wire/request.h"
#include "wire/writer.h"

static const struct wire_limits limits = {.max_key = 100, .max_value = 1000, .max_count = 10, .max_message = 2000};

enum { NUMBER = 0x12345678 };

/* A request of the operation with fields that can be told apart. */
static void put_request(struct wire_writer *out, enum wire_dialect dialect, enum wire_op op) {
  wire_put_op(out, dialect, op);
  bool value_seen = false;
  for (const char *field = wire_ops[op].fields; *field; field++) switch (*field) {
      case 'k': wire_put_bytes(out, BYTES("the key")); break;
      case 'v': wire_put_bytes(out, value_seen ? BYTES("desired") : BYTES("value")), value_seen = true; break;
      case 'n': wire_put64(out, NUMBER); break;
      case 'w': wire_put32(out, op == WIRE_OP_VALIDATE ? WIRE_MAGIC : NUMBER); break;
      default:
        wire_put64(out, 2);
        for (int i = 0; i < (*field == 'P' ? 4 : 2); i++) wire_put_bytes(out, BYTES("item"));
    }
}

static void assert_request(const struct wire_request *request, enum wire_op op, size_t size) {
  const char *fields = wire_ops[op].fields;
  assert_int_equal(request->op, op);
  assert_int_equal(request->size, size);
  if (strchr(fields, 'k')) assert_bytes(request->key, "the key");
  if (strchr(fields, 'v')) assert_bytes(request->value, "value");
  if (strcmp(fields, "kvv") == 0) assert_bytes(request->desired, "desired");
  if (strchr(fields, 'n')) assert_int_equal(request->number, NUMBER);
  if (*fields != 'K' && *fields != 'P') return;
  assert_int_equal(request->count, 2);
  rdzv_bytes list = request->list;
  for (int i = 0; i < (*fields == 'P' ? 4 : 2); i++) assert_bytes(wire_list_next(&list), "item");
  assert_int_equal(list.len, 0);
}

/* A decoder that is past the greeting of its dialect. */
static struct wire_decoder decoder_of(enum wire_dialect dialect) {
  return (struct wire_decoder){.dialect = dialect, .requests = dialect == WIRE_DIALECT_V1 ? 0 : 2};
}

static enum wire_result decode_copy(struct wire_decoder *decoder, const uint8_t *data, size_t len,
                                    struct wire_request *out, uint8_t **memory) {
  *memory = malloc(len ? len : 1);
  assert_non_null(*memory);
  if (len > 0) memcpy(*memory, data, len);
  return wire_decode(decoder, &limits, *memory, len, out);
}

/* Feeds the first `cut` bytes, then all. */
static void assert_cut(enum wire_dialect dialect, enum wire_op op, const struct buf *stream, size_t cut) {
  struct wire_decoder decoder = decoder_of(dialect);
  if (op == WIRE_OP_VALIDATE) decoder.requests = 0;
  struct wire_request request;
  uint8_t *memory;
  assert_int_equal(decode_copy(&decoder, stream->data, cut, &request, &memory), WIRE_RESULT_MORE);
  free(memory);
  assert_int_equal(decode_copy(&decoder, stream->data, stream->len, &request, &memory), WIRE_RESULT_DONE);
  assert_request(&request, op, stream->len);
  free(memory);
}

static void assert_byte_by_byte(enum wire_dialect dialect, enum wire_op op, const struct buf *stream) {
  struct wire_decoder decoder = decoder_of(dialect);
  if (op == WIRE_OP_VALIDATE) decoder.requests = 0;
  struct wire_request request;
  for (size_t len = 0; len <= stream->len; len++) {
    uint8_t *memory;
    const enum wire_result result = decode_copy(&decoder, stream->data, len, &request, &memory);
    assert_int_equal(result, len == stream->len ? WIRE_RESULT_DONE : WIRE_RESULT_MORE);
    if (result == WIRE_RESULT_MORE && len > 0) assert_true(decoder.scan.want > len && decoder.scan.want <= stream->len);
    if (result == WIRE_RESULT_DONE) assert_request(&request, op, stream->len);
    free(memory);
  }
}

/* Every operation of every dialect, cut in two at every byte, and byte by byte. */
static void test_every_operation_of_every_dialect_is_read_from_any_split(void **state) {
  (void)state;
  int seen = 0;
  for (int dialect = WIRE_DIALECT_V1; dialect <= WIRE_DIALECT_RDZV; dialect++)
    for (int op = 0; op < WIRE_OP_COUNT; op++) {
      if (wire_ops[op].number[dialect] < 0) continue;
      struct wire_writer stream = {0};
      put_request(&stream, (enum wire_dialect)dialect, (enum wire_op)op);
      for (size_t cut = 0; cut < stream.buf.len; cut++)
        assert_cut((enum wire_dialect)dialect, (enum wire_op)op, &stream.buf, cut);
      assert_byte_by_byte((enum wire_dialect)dialect, (enum wire_op)op, &stream.buf);
      buf_free(&stream.buf);
      seen++;
    }
  assert_int_equal(seen, 12 + 19 + 30);
}

/* PyTorch's numbers, as they stand in its header files; they cannot change any more. */
static void test_the_numbers_are_those_of_pytorch(void **state) {
  (void)state;
  const enum wire_op v2[] = {WIRE_OP_VALIDATE,    WIRE_OP_SET,       WIRE_OP_COMPARE_SET, WIRE_OP_GET,
                             WIRE_OP_ADD,         WIRE_OP_CHECK,     WIRE_OP_WAIT,        WIRE_OP_NUM_KEYS,
                             WIRE_OP_DELETE_KEY,  WIRE_OP_APPEND,    WIRE_OP_MULTI_GET,   WIRE_OP_MULTI_SET,
                             WIRE_OP_CANCEL_WAIT, WIRE_OP_PING,      WIRE_OP_QUEUE_PUSH,  WIRE_OP_QUEUE_POP,
                             WIRE_OP_QUEUE_LEN,   WIRE_OP_LIST_KEYS, WIRE_OP_BARRIER};
  for (size_t i = 0; i < COUNT_OF(v2); i++) {
    assert_int_equal(wire_op_of(WIRE_DIALECT_V2, (uint8_t)i), v2[i]);
    assert_int_equal(wire_op_of(WIRE_DIALECT_RDZV, (uint8_t)i), i == 0 ? -1 : (int)v2[i]);
  }
  const enum wire_op v1[] = {WIRE_OP_SET,  WIRE_OP_COMPARE_SET, WIRE_OP_GET,       WIRE_OP_ADD,       WIRE_OP_CHECK,
                             WIRE_OP_WAIT, WIRE_OP_NUM_KEYS,    WIRE_OP_WATCH_KEY, WIRE_OP_DELETE_KEY};
  for (size_t i = 0; i < COUNT_OF(v1); i++) assert_int_equal(wire_op_of(WIRE_DIALECT_V1, (uint8_t)i), v1[i]);
}

/* A number that is no operation of the dialect ends the stream, each of the 256. */
static void test_an_unknown_operation_is_refused_in_every_dialect(void **state) {
  (void)state;
  for (int dialect = WIRE_DIALECT_V1; dialect <= WIRE_DIALECT_RDZV; dialect++)
    for (int number = 0; number < 256; number++) {
      struct wire_decoder decoder = decoder_of((enum wire_dialect)dialect);
      const uint8_t byte = (uint8_t)number;
      struct wire_request request;
      const enum wire_result result = wire_decode(&decoder, &limits, &byte, 1, &request);
      if (wire_op_of((enum wire_dialect)dialect, byte) >= 0 && !(dialect == WIRE_DIALECT_V2 && number == 0)) {
        assert_int_not_equal(result, WIRE_RESULT_BAD);
      } else {
        assert_int_equal(result, WIRE_RESULT_BAD);
        assert_non_null(decoder.scan.why);
      }
    }
}

/* Five bytes of VALIDATE make it V2, in any number of pieces. */
static void test_validate_makes_it_v2_in_any_pieces(void **state) {
  (void)state;
  const uint8_t hello[] = {0, 0xce, 0xf7, 0x85, 0x3c};
  struct wire_decoder decoder = {0};
  struct wire_request request;
  for (size_t len = 0; len < sizeof hello; len++) {
    assert_int_equal(wire_decode(&decoder, &limits, hello, len, &request), WIRE_RESULT_MORE);
    assert_int_equal(decoder.dialect, WIRE_DIALECT_UNKNOWN);
    if (len > 0) assert_true(decoder.scan.want > len);
  }
  assert_int_equal(wire_decode(&decoder, &limits, hello, sizeof hello, &request), WIRE_RESULT_DONE);
  assert_int_equal(decoder.dialect, WIRE_DIALECT_V2);
  assert_int_equal(request.op, WIRE_OP_VALIDATE);
  assert_int_equal(request.size, sizeof hello);
}

/* A second VALIDATE is refused, as PyTorch's servers do; after the greeting of our dialect it is no operation. */
static void test_a_second_validate_is_refused(void **state) {
  (void)state;
  const uint8_t hello[] = {0, 0xce, 0xf7, 0x85, 0x3c};
  struct wire_decoder decoder = {0};
  struct wire_request request;
  assert_int_equal(wire_decode(&decoder, &limits, hello, sizeof hello, &request), WIRE_RESULT_DONE);
  assert_int_equal(wire_decode(&decoder, &limits, hello, sizeof hello, &request), WIRE_RESULT_BAD);
  struct wire_decoder ours = decoder_of(WIRE_DIALECT_RDZV);
  assert_int_equal(wire_decode(&ours, &limits, hello, sizeof hello, &request), WIRE_RESULT_BAD);
}

/* A first byte other than 0 is V1 by itself; with 0 the next four decide, and any but the magic are V1's SET. */
static void test_anything_but_the_magic_is_v1(void **state) {
  (void)state;
  for (int byte = 1; byte < 256; byte++) {
    const uint8_t first = (uint8_t)byte;
    struct wire_decoder decoder = {0};
    struct wire_request request;
    wire_decode(&decoder, &limits, &first, 1, &request);
    assert_int_equal(decoder.dialect, WIRE_DIALECT_V1);
  }
  struct wire_writer stream = {0};
  put_request(&stream, WIRE_DIALECT_V1, WIRE_OP_SET);
  for (size_t cut = 0; cut < stream.buf.len; cut++) {
    struct wire_decoder decoder = {0};
    struct wire_request request;
    assert_int_equal(wire_decode(&decoder, &limits, stream.buf.data, cut, &request), WIRE_RESULT_MORE);
    assert_int_equal(wire_decode(&decoder, &limits, stream.buf.data, stream.buf.len, &request), WIRE_RESULT_DONE);
    assert_int_equal(decoder.dialect, WIRE_DIALECT_V1);
    assert_request(&request, WIRE_OP_SET, stream.buf.len);
  }
  buf_free(&stream.buf);
}

/* Each of the four bytes of the magic counts: one bit off is a V1 key that is over the limit. */
static void test_a_magic_with_one_bit_off_is_a_v1_key_that_is_too_long(void **state) {
  (void)state;
  for (int bit = 0; bit < 32; bit++) {
    uint8_t stream[9] = {0, 0xce, 0xf7, 0x85, 0x3c};
    stream[1 + bit / 8] ^= (uint8_t)(1 << (bit % 8));
    struct wire_decoder decoder = {0};
    struct wire_request request;
    assert_int_equal(wire_decode(&decoder, &limits, stream, sizeof stream, &request), WIRE_RESULT_BAD);
    assert_int_equal(decoder.dialect, WIRE_DIALECT_V1);
    assert_string_equal(decoder.scan.why, "a key is too long");
  }
}

/* Requests follow each other without a gap, and each is counted. */
static void test_requests_in_one_segment_come_one_by_one(void **state) {
  (void)state;
  struct wire_writer stream = {0};
  size_t ends[WIRE_OP_COUNT];
  int count = 0;
  for (int op = 0; op < WIRE_OP_COUNT; op++)
    if (wire_ops[op].number[WIRE_DIALECT_RDZV] >= 0) {
      put_request(&stream, WIRE_DIALECT_RDZV, (enum wire_op)op);
      ends[count++] = stream.buf.len;
    }
  struct wire_decoder decoder = decoder_of(WIRE_DIALECT_RDZV);
  size_t at = 0;
  for (int i = 0; i < count; i++) {
    struct wire_request request;
    assert_int_equal(wire_decode(&decoder, &limits, stream.buf.data + at, stream.buf.len - at, &request),
                     WIRE_RESULT_DONE);
    at += request.size;
    assert_int_equal(at, ends[i]);
    assert_int_equal(decoder.requests, 2 + i + 1);
  }
  buf_free(&stream.buf);
}

/* The same limit at its edge, through each operation that has such a field. */
static void assert_edge(enum wire_op op, const char *before, size_t before_len, size_t limit, const char *why) {
  const uint64_t lengths[] = {limit, limit + 1, UINT64_MAX};
  for (size_t i = 0; i < COUNT_OF(lengths); i++) {
    struct wire_writer stream = {0};
    wire_put_op(&stream, WIRE_DIALECT_RDZV, op);
    wire_put(&stream, before, before_len);
    wire_put64(&stream, lengths[i]);
    struct wire_decoder decoder = decoder_of(WIRE_DIALECT_RDZV);
    struct wire_request request;
    const enum wire_result result = wire_decode(&decoder, &limits, stream.buf.data, stream.buf.len, &request);
    assert_int_equal(result, i == 0 ? WIRE_RESULT_MORE : WIRE_RESULT_BAD);
    if (i > 0) assert_string_equal(decoder.scan.why, why);
    buf_free(&stream.buf);
  }
}

/* A key longer than the limit is refused when its length has come, before its bytes, in every operation with a key. */
static void test_a_key_longer_than_the_limit_is_refused_before_its_bytes_come(void **state) {
  (void)state;
  for (int op = 0; op < WIRE_OP_COUNT; op++) {
    if (wire_ops[op].number[WIRE_DIALECT_RDZV] < 0) continue;
    const char first = wire_ops[op].fields[0];
    if (first == 'k') assert_edge((enum wire_op)op, "", 0, limits.max_key + 1, "a key is too long");
    const char one[8] = {1};
    if (first == 'K' || first == 'P') {
      assert_edge((enum wire_op)op, one, sizeof one, limits.max_key + 1, "a key is too long");
      assert_edge((enum wire_op)op, "", 0, limits.max_count, "too many keys");
    }
  }
}

/* A value longer than the limit likewise. */
static void test_a_value_longer_than_the_limit_is_refused_before_its_bytes_come(void **state) {
  (void)state;
  const char no_key[16] = {0}; /* an empty key; or one, and a number or an empty expected value */
  const char pair[16] = {1};   /* one pair, an empty key */
  assert_edge(WIRE_OP_SET, no_key, 8, limits.max_value, "a value is too long");
  assert_edge(WIRE_OP_APPEND, no_key, 8, limits.max_value, "a value is too long");
  assert_edge(WIRE_OP_QUEUE_PUSH, no_key, 8, limits.max_value, "a value is too long");
  assert_edge(WIRE_OP_COMPARE_SET, no_key, 8, limits.max_value, "a value is too long");
  assert_edge(WIRE_OP_COMPARE_SET, no_key, 16, limits.max_value, "a value is too long");
  assert_edge(WIRE_OP_COMPARE_SET_VERSION, no_key, 16, limits.max_value, "a value is too long");
  assert_edge(WIRE_OP_MULTI_SET, pair, 16, limits.max_value, "a value is too long");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_operation_of_every_dialect_is_read_from_any_split),
      cmocka_unit_test(test_the_numbers_are_those_of_pytorch),
      cmocka_unit_test(test_an_unknown_operation_is_refused_in_every_dialect),
      cmocka_unit_test(test_validate_makes_it_v2_in_any_pieces),
      cmocka_unit_test(test_a_second_validate_is_refused),
      cmocka_unit_test(test_anything_but_the_magic_is_v1),
      cmocka_unit_test(test_a_magic_with_one_bit_off_is_a_v1_key_that_is_too_long),
      cmocka_unit_test(test_requests_in_one_segment_come_one_by_one),
      cmocka_unit_test(test_a_key_longer_than_the_limit_is_refused_before_its_bytes_come),
      cmocka_unit_test(test_a_value_longer_than_the_limit_is_refused_before_its_bytes_come),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
