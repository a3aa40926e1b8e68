/* SPDX-License-Identifier: BSD-3-Clause */
/* Servers of other protocols, by what they answer. */
#include "base/net/foreign.h"
#include "store/tcp/conn.h"
#include "unit.h"
#include "wire/probe.h"

static const struct {
  const char *name;
  rdzv_bytes answer;
  enum foreign who;
} answers[] = {
    {"etcd 3.4", BYTES("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"etcdserver\":\"3.4.23\"}"),
     FOREIGN_ETCD},
    {"etcd's v2 API", BYTES("HTTP/1.1 404 Not Found\r\nX-Etcd-Cluster-Id: cdf8\r\n\r\n"), FOREIGN_ETCD},
    {"Python's http.server", BYTES("HTTP/1.0 404 File not found\r\nServer: SimpleHTTP/0.6\r\n\r\n"), FOREIGN_HTTP},
    {"Go with TLS", BYTES("HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"),
     FOREIGN_TLS},
    {"nginx with TLS",
     BYTES("HTTP/1.1 400 Bad Request\r\n\r\n<title>400 The plain HTTP request was sent to HTTPS port"), FOREIGN_TLS},
    {"a TLS alert", BYTES("\x15\x03\x01\x00\x02\x02\x28"), FOREIGN_TLS},
    {"a ServerHello", BYTES("\x16\x03\x03\x00\x31\x02"), FOREIGN_TLS},
    {"OpenSSH", BYTES("SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n"), FOREIGN_SSH},
    {"nothing", BYTES(""), FOREIGN_UNKNOWN},
    {"our greeting", BYTES("\x52\x44\x5a\x56\0\0\0\0\0\0\0\0"), FOREIGN_UNKNOWN},
    {"PyTorch's echo of a number", BYTES("\xff\xff\xff\xff"), FOREIGN_UNKNOWN},
    {"half a word", BYTES("HTT"), FOREIGN_UNKNOWN},
    {"redis", BYTES("-ERR unknown command\r\n"), FOREIGN_UNKNOWN},
};

static void test_each_is_recognized_by_its_answer(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(answers); i++)
    if (foreign_recognize(answers[i].answer) != answers[i].who) fail_msg("%s", answers[i].name);
}

/* The sentence has a cure, and who is not known has none. */
static void test_each_has_a_sentence_with_a_cure(void **state) {
  (void)state;
  for (int who = FOREIGN_ETCD; who <= FOREIGN_SSH; who++)
    assert_non_null(strchr(tcp_foreign_text((enum foreign)who), '('));
  assert_non_null(strstr(tcp_foreign_text(FOREIGN_ETCD), "--rdzv-backend etcd-v2"));
  assert_null(tcp_foreign_text(FOREIGN_UNKNOWN));
}

/* The lengths inside a TLS record and its hello are those of what follows: else a server would wait for more. */
static void test_the_question_in_tls_is_whole(void **state) {
  (void)state;
  const rdzv_bytes hello = foreign_question(1);
  const unsigned char *at = hello.data;
  assert_int_equal(hello.len, 5 + at[3] * 256 + at[4]);
  assert_int_equal(hello.len, 9 + at[7] * 256 + at[8]);
}

static void test_a_store_is_recognized_by_its_answer(void **state) {
  (void)state;
  const rdzv_bytes ping = probe_question(0), count = probe_question(1);
  assert_int_equal(ping.len, 10);
  assert_int_equal(count.len, 1);
  assert_true(probe_is_store(0, (rdzv_bytes){(const char *)ping.data + 6, 4})); /* the number comes back */
  assert_true(probe_is_store(1, BYTES("\x07\0\0\0\0\0\0\0")));
  assert_false(probe_is_store(0, BYTES("")));
  assert_false(probe_is_store(0, BYTES("HTTP/1.1 400 Bad Request")));
  assert_false(probe_is_store(1, BYTES("\x07\0\0\0")));
  assert_false(probe_is_store(1, BYTES("-ERR no\n")));
  assert_false(probe_is_store(1, BYTES("\xff\xff\xff\xff\xff\xff\xff\xff")));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each_is_recognized_by_its_answer),
      cmocka_unit_test(test_each_has_a_sentence_with_a_cure),
      cmocka_unit_test(test_the_question_in_tls_is_whole),
      cmocka_unit_test(test_a_store_is_recognized_by_its_answer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
