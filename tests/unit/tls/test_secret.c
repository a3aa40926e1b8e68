/* SPDX-License-Identifier: BSD-3-Clause */
/* Secret files: what is one, and the sentence for what is not. No sentence has a part of the secret. */
#include "tls/secret.h"
#include "tls_pair.h"

static void assert_refused(const char *path, int code, const char *sentence) {
  struct secret *secret;
  rdzv_error error = {0};
  assert_code(secret_read(path, &secret, &error), code);
  if (!strstr(error.message, sentence)) fail_msg("'%s' is not in: %s", sentence, error.message);
  assert_null(strstr(error.message, "secret of the tests"));
}

static struct secret *read_secret(const char *path) {
  struct secret *secret = NULL;
  rdzv_error error;
  if (secret_read(path, &secret, &error) < 0) fail_msg("%s", error.message);
  return secret;
}

/* RFC 5869 with these labels, as Python's hmac computes it: other programs can derive the same. */
static void test_the_key_is_what_hkdf_says(void **state) {
  (void)state;
  static const uint8_t key[] = {0xeb, 0xf1, 0x6b, 0x7d, 0x89, 0x2c, 0x8e, 0x24, 0x8f, 0x80, 0xd8,
                                0xd8, 0x77, 0x99, 0xfa, 0x1d, 0x9f, 0x4c, 0xb7, 0x05, 0x87, 0x45,
                                0xbf, 0xfa, 0x18, 0x8e, 0x3e, 0x00, 0xba, 0xf1, 0x54, 0xac};
  const char *path = secret_file(0, SECRET_A "\n", 0600);
  struct secret *secret = read_secret(path);
  assert_int_equal(secret->count, 1);
  assert_memory_equal(secret->keys[0].key, key, sizeof key);
  assert_memory_equal(secret->keys[0].identity, "7638a76199746c73e03d235bfc9df5f1", SECRET_IDENTITY_BYTES);
  secret_free(secret);
  unlink(path);
}

static void test_the_end_of_a_line_does_not_count(void **state) {
  (void)state;
  static const char *const texts[] = {SECRET_A, SECRET_A "\n", SECRET_A "\r\n", "\n\n" SECRET_A "\n\n"};
  struct secret_key first = {0};
  for (size_t i = 0; i < COUNT_OF(texts); i++) {
    const char *path = secret_file(0, texts[i], 0600);
    struct secret *secret = read_secret(path);
    assert_int_equal(secret->count, 1);
    if (i == 0) first = secret->keys[0];
    assert_memory_equal(&secret->keys[0], &first, sizeof first);
    secret_free(secret);
    unlink(path);
  }
}

static void test_each_line_is_a_secret(void **state) {
  (void)state;
  const char *path = secret_file(0, SECRET_A "\n" SECRET_B "\n", 0400);
  struct secret *secret = read_secret(path);
  assert_int_equal(secret->count, 2);
  for (size_t i = 0; i < 2; i++) {
    const rdzv_bytes identity = {secret->keys[i].identity, SECRET_IDENTITY_BYTES};
    assert_ptr_equal(secret_find(secret, identity), &secret->keys[i]);
  }
  assert_null(secret_find(secret, rdzv_str("")));
  assert_null(secret_find(secret, rdzv_str("00000000000000000000000000000000")));
  assert_null(secret_find(secret, (rdzv_bytes){secret->keys[0].identity, SECRET_IDENTITY_BYTES - 1}));
  secret_free(secret);
  unlink(path);
}

static void test_a_file_that_others_can_read_is_refused(void **state) {
  (void)state;
  static const mode_t modes[] = {0640, 0604, 0620, 0602, 0610, 0601, 0777};
  for (size_t i = 0; i < COUNT_OF(modes); i++) {
    const char *path = secret_file(0, SECRET_A "\n", modes[i]);
    assert_refused(path, RDZV_E_INVALID, "chmod 600");
    unlink(path);
  }
}

static void test_a_file_of_another_user_is_refused(void **state) {
  (void)state;
  const char *path = secret_file(0, SECRET_A "\n", 0600);
  if (geteuid() != 0 || chown(path, 65534, 65534) < 0) {
    unlink(path);
    skip();
  }
  assert_refused(path, RDZV_E_INVALID, "belongs to another user");
  unlink(path);
}

static void test_what_is_no_secret_is_refused(void **state) {
  (void)state;
  static const char *const texts[][2] = {
      {"", "empty"},
      {"\n\n", "empty"},
      {"fifteen letters", "16 to 1024"},
      {"a secret of the tests\tand a tab", "printable"},
      {"a secret of the tests \xc3\xa9", "printable"},
      {SECRET_A "\n" SECRET_A "\n" SECRET_A "\n" SECRET_A "\n" SECRET_B, "more than 4"}};
  for (size_t i = 0; i < COUNT_OF(texts); i++) {
    const char *path = secret_file(0, texts[i][0], 0600);
    assert_refused(path, RDZV_E_INVALID, texts[i][1]);
    unlink(path);
  }
}

static void test_a_long_line_and_a_long_file_are_refused(void **state) {
  (void)state;
  char text[5000];
  memset(text, 'x', sizeof text);
  text[1025] = '\0';
  const char *path = secret_file(0, text, 0600);
  assert_refused(path, RDZV_E_INVALID, "16 to 1024");
  text[1025] = 'x', text[4999] = '\0';
  path = secret_file(0, text, 0600);
  assert_refused(path, RDZV_E_INVALID, "longer than");
  unlink(path);
}

static void test_what_is_not_a_file_is_refused(void **state) {
  (void)state;
  char fifo[64];
  snprintf(fifo, sizeof fifo, "/tmp/rdzv-test-fifo-%d", (int)getpid());
  assert_int_equal(mkfifo(fifo, 0600), 0);
  assert_refused(fifo, RDZV_E_INVALID, "regular file"); /* and is not waited for */
  unlink(fifo);
  assert_refused("/tmp", RDZV_E_INVALID, "regular file");
  assert_refused("/nonexistent/secret", RDZV_E_IO, "/nonexistent/secret");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_key_is_what_hkdf_says),
      cmocka_unit_test(test_the_end_of_a_line_does_not_count),
      cmocka_unit_test(test_each_line_is_a_secret),
      cmocka_unit_test(test_a_file_that_others_can_read_is_refused),
      cmocka_unit_test(test_a_file_of_another_user_is_refused),
      cmocka_unit_test(test_what_is_no_secret_is_refused),
      cmocka_unit_test(test_a_long_line_and_a_long_file_are_refused),
      cmocka_unit_test(test_what_is_not_a_file_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
