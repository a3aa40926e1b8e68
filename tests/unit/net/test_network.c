/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/net/network.h"
#include "unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>

static bool has(const char *list, const char *address) {
  struct network networks[NETWORKS_MOST];
  struct sockaddr_in v4 = {.sin_family = AF_INET};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
  size_t count;
  rdzv_error error;
  if (networks_parse(list, networks, &count, &error) < 0) fail_msg("%s", error.message);
  if (inet_pton(AF_INET, address, &v4.sin_addr) == 1) return networks_have(networks, count, (struct sockaddr *)&v4);
  assert_int_equal(inet_pton(AF_INET6, address, &v6.sin6_addr), 1);
  return networks_have(networks, count, (struct sockaddr *)&v6);
}

static void test_an_address_is_in_its_network(void **state) {
  (void)state;
  assert_true(has("10.1.0.0/16", "10.1.255.255"));
  assert_true(has("10.1.2.3", "10.1.2.3"));
  assert_true(has("10.1.2.3,192.168.0.0/17", "192.168.127.1"));
  assert_true(has("0.0.0.0/0", "255.255.255.255"));
  assert_true(has("fd00::/8", "fdff::1"));
  assert_true(has("::1", "::1"));
  assert_true(has("loopback", "127.4.5.6"));
  assert_true(has("loopback", "::1"));
  assert_true(has("::/0", "10.0.0.1"));
}

/* A server that listens on :: sees IPv4 clients by such addresses. */
static void test_a_mapped_address_is_the_ipv4_one(void **state) {
  (void)state;
  assert_true(has("10.1.0.0/16", "::ffff:10.1.0.1"));
  assert_false(has("10.1.0.0/16", "::ffff:10.2.0.1"));
  assert_true(has("loopback", "::ffff:127.0.0.1"));
}

static void test_any_other_is_not(void **state) {
  (void)state;
  assert_false(has("10.1.0.0/16", "10.2.0.0"));
  assert_false(has("192.168.0.0/17", "192.168.128.0"));
  assert_false(has("10.1.2.3", "10.1.2.2"));
  assert_false(has("loopback", "128.0.0.1"));
  assert_false(has("loopback", "::2"));
  assert_false(has("0.0.0.0/0", "::1"));
  assert_false(has("10.0.0.0/8", "::"));
}

static void test_what_is_no_network_is_refused(void **state) {
  (void)state;
  static const char *const lists[] = {"",          "x",           "10.1.0.0/33", "fd00::/129",
                                      "10.1.0.0/", "10.1.0.0/-1", "10.1.0.0/a",  "10.1",
                                      "10.1.0.0,", ",10.1.0.0",   "localhost",   "10.1.0.0 ",
                                      "/8",        "10.1.0.0//8", "loopback/8",  "10.1.0.0/8;10.2.0.0"};
  struct network networks[NETWORKS_MOST];
  size_t count;
  rdzv_error error;
  for (size_t i = 0; i < COUNT_OF(lists); i++)
    assert_error(networks_parse(lists[i], networks, &count, &error), RDZV_E_INVALID, &error, "invalid network");
}

static void test_a_long_list_is_refused(void **state) {
  (void)state;
  char text[16 * NETWORKS_MOST + 64] = "10.0.0.1";
  struct network networks[NETWORKS_MOST];
  size_t count;
  rdzv_error error;
  for (int i = 1; i < NETWORKS_MOST; i++) strcat(text, ",10.0.0.1");
  assert_code(networks_parse(text, networks, &count, &error), 0);
  assert_int_equal(count, NETWORKS_MOST);
  strcat(text, ",10.0.0.1");
  assert_error(networks_parse(text, networks, &count, &error), RDZV_E_INVALID, &error, "more than 64");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_an_address_is_in_its_network),
      cmocka_unit_test(test_a_mapped_address_is_the_ipv4_one),
      cmocka_unit_test(test_any_other_is_not),
      cmocka_unit_test(test_what_is_no_network_is_refused),
      cmocka_unit_test(test_a_long_list_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
