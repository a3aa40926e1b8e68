/* SPDX-License-Identifier: BSD-3-Clause */
/* Which of several servers a client goes to. */
#include "store/tcp/choice.h"
#include "unit.h"

static rdzv_error error;

static struct tcp_choice choice_of(const char *text) {
  struct tcp_servers *servers;
  struct tcp_choice choice;
  if (tcp_servers_parse(text, &servers, &error) < 0) fail_msg("%s", error.message);
  tcp_choice_init(&choice, servers);
  return choice;
}

static void assert_at(const struct tcp_choice *choice, const char *text) {
  char found[ENDPOINT_TEXT_SIZE];
  endpoint_format(choice->endpoint.host, choice->endpoint.port, found);
  assert_string_equal(found, text);
}

static void test_the_next_one_after_the_last_is_the_first(void **state) {
  (void)state;
  struct tcp_choice choice = choice_of("a,b:2,[::1]:3");
  assert_at(&choice, "a:29400");
  tcp_choice_next(&choice);
  assert_at(&choice, "b:2");
  tcp_choice_next(&choice);
  assert_at(&choice, "[::1]:3");
  tcp_choice_next(&choice);
  assert_at(&choice, "a:29400");
  assert_true(tcp_choice_has_others(&choice));
  tcp_servers_drop(choice.servers);
}

static void test_one_alone_stays(void **state) {
  (void)state;
  struct tcp_choice choice = choice_of("a:1");
  assert_false(tcp_choice_has_others(&choice));
  tcp_choice_next(&choice);
  assert_at(&choice, "a:1");
  tcp_servers_drop(choice.servers);
}

/* One that is not in the list is left again when it does not answer. */
static void test_a_standby_is_followed(void **state) {
  (void)state;
  struct tcp_choice choice = choice_of("a:1,b:1");
  tcp_choice_follow(&choice, BYTES("b:1"));
  assert_at(&choice, "b:1");
  assert_false(choice.follows);
  tcp_choice_follow(&choice, BYTES("c:1"));
  assert_at(&choice, "c:1");
  assert_true(choice.follows);
  tcp_choice_next(&choice);
  assert_at(&choice, "a:1");
  assert_false(choice.follows);
  tcp_servers_drop(choice.servers);
  choice = choice_of("a:1");
  tcp_choice_follow(&choice, BYTES("c:1"));
  assert_true(tcp_choice_has_others(&choice));
  tcp_choice_next(&choice);
  assert_at(&choice, "a:1");
  tcp_servers_drop(choice.servers);
}

/* What a standby says comes from the network. */
static void test_what_is_no_address_is_not_followed(void **state) {
  (void)state;
  static const char long_name[400] = "";
  const rdzv_bytes bad[] = {BYTES(""),        BYTES("b:1\0"),      BYTES("b c:1"), BYTES("b:0"), BYTES("b:99999"),
                            {long_name, 400}, BYTES("http://b:1"), BYTES("a:1"),   BYTES(",")};
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    struct tcp_choice choice = choice_of("a:1,d:1");
    tcp_choice_follow(&choice, bad[i]);
    assert_at(&choice, "d:1");
    tcp_servers_drop(choice.servers);
  }
}

static void test_lists_that_cannot_be(void **state) {
  (void)state;
  static const char *const bad[] = {"", ",", "a,", "a,,b", "a b,c", "a:1,b:0", "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"};
  for (size_t i = 0; i < COUNT_OF(bad); i++) {
    struct tcp_servers *servers;
    assert_code(tcp_servers_parse(bad[i], &servers, &error), RDZV_E_INVALID);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_next_one_after_the_last_is_the_first),
      cmocka_unit_test(test_one_alone_stays),
      cmocka_unit_test(test_a_standby_is_followed),
      cmocka_unit_test(test_what_is_no_address_is_not_followed),
      cmocka_unit_test(test_lists_that_cannot_be),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
