/* SPDX-License-Identifier: BSD-3-Clause */
/* Base64: RFC 4648's own vectors, every length, every text that is none, and what is random there and back. */
#include "base/text/base64.h"
#include "unit.h"

static void assert_encodes(rdzv_bytes bytes, const char *text) {
  struct buf out = {0};
  assert_true(base64_encode(bytes, &out));
  assert_int_equal(out.len, strlen(text));
  assert_string_equal((char *)out.data, text);
  buf_free(&out);
}

static void assert_decodes(const char *text, rdzv_bytes bytes) {
  struct buf out = {0};
  bool valid = false;
  assert_true(base64_decode(rdzv_str(text), &out, &valid));
  if (!valid) fail_msg("'%s' is taken for invalid", text);
  assert_int_equal(out.len, bytes.len);
  if (out.len > 0) assert_memory_equal(out.data, bytes.data, out.len);
  buf_free(&out);
}

/* `out` keeps what it had. */
static void assert_invalid(const void *text, size_t len) {
  struct buf out = {0};
  bool valid = true;
  assert_true(buf_append(&out, "before", 6));
  assert_true(base64_decode((rdzv_bytes){text, len}, &out, &valid));
  if (valid) fail_msg("'%.*s' is taken for base64", (int)len, (const char *)text);
  assert_bytes(((rdzv_bytes){out.data, out.len}), "before");
  buf_free(&out);
}

static void test_the_vectors_of_the_rfc(void **state) {
  (void)state;
  static const struct {
    const char *bytes, *text;
  } vectors[] = {{"", ""},
                 {"f", "Zg=="},
                 {"fo", "Zm8="},
                 {"foo", "Zm9v"},
                 {"foob", "Zm9vYg=="},
                 {"fooba", "Zm9vYmE="},
                 {"foobar", "Zm9vYmFy"},
                 {"canimadam", "Y2FuaW1hZGFt"}};
  for (size_t i = 0; i < COUNT_OF(vectors); i++) {
    assert_encodes(rdzv_str(vectors[i].bytes), vectors[i].text);
    assert_decodes(vectors[i].text, rdzv_str(vectors[i].bytes));
  }
}

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Each of the 64 digits at each of the four places stands for its own six bits. */
static void test_every_digit_at_every_place(void **state) {
  (void)state;
  for (unsigned value = 0; value < 64; value++)
    for (unsigned place = 0; place < 4; place++) {
      char text[] = "AAAA";
      text[place] = digits[value];
      const unsigned bits = value << (18 - 6 * place);
      const unsigned char three[3] = {(unsigned char)(bits >> 16), (unsigned char)(bits >> 8), (unsigned char)bits};
      assert_decodes(text, (rdzv_bytes){three, 3});
      assert_encodes((rdzv_bytes){three, 3}, text);
    }
}

/* Every byte that is no digit, at every place, makes it invalid; the padding does but where it belongs. */
static void test_every_byte_that_is_no_digit_is_refused(void **state) {
  (void)state;
  for (int byte = 0; byte < 256; byte++) {
    if (byte != 0 && strchr(digits, byte)) continue;
    for (size_t place = 0; place < 8; place++) {
      char text[] = "AAAAAAAA";
      text[place] = (char)byte;
      if (byte == '=' && place == 7) continue; /* that is padding */
      assert_invalid(text, 8);
    }
  }
}

/* Lengths that no padding makes whole, padding where none belongs, too much of it, bits that belong to no byte, and
 * what Python's b64decode passes over. */
static void test_every_invalid_form_is_refused(void **state) {
  (void)state;
  static const char *const invalid[] = {
      "A",        "AA",           "AAA",      "AAAAA",    "AAAAAA",    "AAAAAAA",  /* not whole */
      "=",        "==",           "===",      "====",     "A===",      "AAAA====", /* too much padding */
      "=AAA",     "A=AA",         "AA=A",     "=A==",     "A=A=",      "A==A",     /* padding inside */
      "Zg==Zg==", "Zm8=Zm8=",     "Zg==AAAA", "Zm8=AAAA",                          /* padding before the end */
      "Zh==",     "Zk==",         "Z/==",     "Zm9=",     "Zm+=",      "AB==",
      "AAB=",                                                          /* bits beyond the last byte */
      "Zm9v\n",   "Zm9v\r\nZm9v", " Zm9v",    "Zm9v ",    "Zm9vZm9\n", /* line ends and blanks */
      "Zm9-",     "Zm9_",                                              /* the alphabet for addresses */
  };
  for (size_t i = 0; i < COUNT_OF(invalid); i++) assert_invalid(invalid[i], strlen(invalid[i]));
}

/* The result comes behind what is there, in both directions, and an empty text is that of no bytes. */
static void test_the_result_comes_behind_what_is_there(void **state) {
  (void)state;
  struct buf out = {0};
  bool valid = false;
  assert_true(buf_append(&out, "<", 1));
  assert_true(base64_encode(BYTES("foob"), &out));
  assert_bytes(((rdzv_bytes){out.data, out.len}), "<Zm9vYg==");
  assert_true(base64_decode(BYTES("Zm8="), &out, &valid) && valid);
  assert_bytes(((rdzv_bytes){out.data, out.len}), "<Zm9vYg==fo");
  assert_true(base64_decode((rdzv_bytes){NULL, 0}, &out, &valid) && valid);
  assert_true(base64_encode((rdzv_bytes){NULL, 0}, &out));
  assert_int_equal(out.len, 11);
  buf_free(&out);
}

/* Of every length up to 300, and one that is large: it comes back as it was, and its text has the length it must. */
static void test_random_bytes_of_every_length_come_back(void **state) {
  (void)state;
  enum { LARGE = 1 << 20 };
  unsigned char *bytes = test_malloc(LARGE);
  uint64_t random = 88172645463325252U; /* xorshift: the same each time */
  for (size_t i = 0; i < LARGE; i++) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    bytes[i] = (unsigned char)random;
  }
  for (size_t len = 0; len <= LARGE; len = len < 300          ? len + 1
                                           : len == LARGE - 1 ? LARGE
                                           : len < LARGE      ? LARGE - 1
                                                              : len + 1) {
    struct buf text = {0}, back = {0};
    bool valid = false;
    assert_true(base64_encode((rdzv_bytes){bytes, len}, &text));
    assert_int_equal(text.len, (len + 2) / 3 * 4);
    assert_true(base64_decode((rdzv_bytes){text.data, text.len}, &back, &valid) && valid);
    assert_int_equal(back.len, len);
    if (len > 0) assert_memory_equal(back.data, bytes, len);
    buf_free(&text);
    buf_free(&back);
  }
  test_free(bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_vectors_of_the_rfc),
      cmocka_unit_test(test_every_digit_at_every_place),
      cmocka_unit_test(test_every_byte_that_is_no_digit_is_refused),
      cmocka_unit_test(test_every_invalid_form_is_refused),
      cmocka_unit_test(test_the_result_comes_behind_what_is_there),
      cmocka_unit_test(test_random_bytes_of_every_length_come_back),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
