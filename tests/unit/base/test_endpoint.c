/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/net/endpoint.h"
#include "base/text/printable.h"
#include "unit.h"

enum { DEFAULT_PORT = 29400 };

static void assert_endpoint(const char *text, const char *host, int port) {
  struct endpoint found;
  rdzv_error error = {0};
  if (endpoint_parse(text, DEFAULT_PORT, &found, &error) < 0) fail_msg("'%s': %s", text, error.message);
  assert_string_equal(found.host, host);
  assert_int_equal(found.port, port);
}

/* The sentence quotes the text and says what is wrong; nothing is written to the result. */
static void assert_refused(const char *text, const char *why) {
  struct endpoint found = {.host = "as before", .port = 7};
  rdzv_error error = {0};
  assert_error(endpoint_parse(text, DEFAULT_PORT, &found, &error), RDZV_E_INVALID, &error, why);
  char quoted[320];
  snprintf(quoted, sizeof quoted, "'%.300s'", text);
  printable_in_place(quoted, sizeof quoted);
  assert_non_null(strstr(error.message, quoted));
  assert_string_equal(found.host, "as before");
  assert_int_equal(found.port, 7);
  assert_code(endpoint_parse(text, DEFAULT_PORT, &found, NULL), RDZV_E_INVALID);
}

/* A host alone gets the port that the caller says. */
static void test_a_host_without_a_port_gets_the_default(void **state) {
  (void)state;
  assert_endpoint("localhost", "localhost", DEFAULT_PORT);
  assert_endpoint("10.1.2.3", "10.1.2.3", DEFAULT_PORT);
  assert_endpoint("h", "h", DEFAULT_PORT);
}

/* One colon parts host and port. */
static void test_one_colon_parts_host_and_port(void **state) {
  (void)state;
  assert_endpoint("localhost:1", "localhost", 1);
  assert_endpoint("node-1.a_b.c:29500", "node-1.a_b.c", 29500);
  assert_endpoint("10.1.2.3:80", "10.1.2.3", 80);
}

/* Several colons make an IPv6 address, which cannot be followed by a port. */
static void test_several_colons_make_a_bare_ipv6_address(void **state) {
  (void)state;
  assert_endpoint("::1", "::1", DEFAULT_PORT);
  assert_endpoint("::", "::", DEFAULT_PORT);
  assert_endpoint("fe80::1%eth0", "fe80::1%eth0", DEFAULT_PORT);
  assert_endpoint("2001:db8::5:80", "2001:db8::5:80", DEFAULT_PORT);
}

/* Brackets are not part of the host; a port may follow them. */
static void test_brackets_hold_a_host_before_its_port(void **state) {
  (void)state;
  assert_endpoint("[::1]", "::1", DEFAULT_PORT);
  assert_endpoint("[::1]:80", "::1", 80);
  assert_endpoint("[fe80::1%eth0]:80", "fe80::1%eth0", 80);
  assert_endpoint("[name]:80", "name", 80);
}

/* Ports are 1 to 65535, in digits; zeros in front mean nothing. */
static void test_a_port_is_from_1_to_65535(void **state) {
  (void)state;
  assert_endpoint("h:1", "h", 1);
  assert_endpoint("h:65535", "h", 65535);
  assert_endpoint("h:0000080", "h", 80);
  assert_refused("h:0", "the port is 0");
  struct endpoint any;
  assert_code(endpoint_parse_to_serve("h:0", 7, &any, NULL), 0);
  assert_int_equal(any.port, 0);
  assert_code(endpoint_parse_to_serve("h", 7, &any, NULL), 0);
  assert_int_equal(any.port, 7);
  assert_refused("h:65536", "above 65535");
  assert_refused("h:99999999999999999999", "above 65535");
  assert_refused("h:", "missing");
  assert_refused("h:-1", "not a number");
  assert_refused("h:+1", "not a number");
  assert_refused("h: 1", "not a number");
  assert_refused("h:1 ", "not a number");
  assert_refused("h:0x50", "not a number");
  assert_refused("[::1]:", "missing");
  assert_refused("[::1]:65536", "above 65535");
}

/* An empty host is none. */
static void test_an_empty_host_is_refused(void **state) {
  (void)state;
  assert_refused("", "the host is empty");
  assert_refused(":80", "the host is empty");
  assert_refused("[]", "the host is empty");
  assert_refused("[]:80", "the host is empty");
}

/* Brackets are closed, once, and nothing but a port stands behind them. */
static void test_a_bracket_that_is_out_of_place_is_refused(void **state) {
  (void)state;
  assert_refused("[::1", "not closed");
  assert_refused("[", "not closed");
  assert_refused("[::1]80", "only a colon and a port");
  assert_refused("[::1]]", "only a colon and a port");
  assert_refused("[[::1]]:80", "only a colon and a port");
  assert_refused("::1]", "character");
}

/* No byte that no host name has: every other one of the 255 is refused, alone and inside. */
static void test_every_byte_that_no_host_name_has_is_refused(void **state) {
  (void)state;
  const char *allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._%";
  for (int byte = 1; byte < 256; byte++) {
    const char text[] = {'a', (char)byte, 'b', '\0'};
    if (byte == ':') continue; /* parts host and port */
    if (strchr(allowed, byte))
      assert_endpoint(text, text, DEFAULT_PORT);
    else
      assert_refused(text, "character");
  }
}

/* A name that no resolver can ever make an address of is refused at once, not waited for. */
static void test_a_name_that_cannot_be_one_is_refused(void **state) {
  (void)state;
  assert_refused("10.0.0.256:80", "not an IPv4 address");
  assert_refused("10.0.0.1.2", "not an IPv4 address");
  assert_refused("node.1234567", "not an IPv4 address");
  assert_refused("a..b:80", "empty part");
  assert_refused(".b:80", "empty part");
  assert_refused("1:2:3", "not one");
  assert_refused("[::g]:80", "not one");
  assert_refused("hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh", "more than 63");
  assert_endpoint("10.1:80", "10.1", 80); /* as inet_aton reads it */
  assert_endpoint("node.1a:80", "node.1a", 80);
  assert_endpoint("node1.local.:80", "node1.local.", 80);
}

/* A host of 255 characters is taken whole; one more is refused, not cut. */
static void test_a_host_of_255_characters_is_taken_and_of_256_refused(void **state) {
  (void)state;
  char text[300], host[257];
  memset(host, 'h', sizeof host);
  for (size_t i = 50; i < sizeof host; i += 50) host[i] = '.';
  host[255] = '\0';
  snprintf(text, sizeof text, "%s:65535", host);
  assert_endpoint(text, host, 65535);
  snprintf(text, sizeof text, "[%s]:65535", host);
  assert_endpoint(text, host, 65535);
  host[255] = 'h';
  host[256] = '\0';
  assert_refused(host, "longer than 255");
}

/* A text far longer than a message is cut in it, and the reason is still there. */
static void test_an_endless_text_is_refused_with_the_reason(void **state) {
  (void)state;
  char text[5000];
  memset(text, 'h', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  struct endpoint found;
  rdzv_error error;
  assert_error(endpoint_parse(text, DEFAULT_PORT, &found, &error), RDZV_E_INVALID, &error, "longer than 255");
}

/* Brackets stand around a host with colons only, and the longest text has room. */
static void test_format_puts_brackets_where_the_host_has_colons(void **state) {
  (void)state;
  char out[ENDPOINT_TEXT_SIZE], host[256], expected[ENDPOINT_TEXT_SIZE];
  endpoint_format("name", 1, out);
  assert_string_equal(out, "name:1");
  endpoint_format("::1", 65535, out);
  assert_string_equal(out, "[::1]:65535");
  memset(host, ':', sizeof host - 1);
  host[255] = '\0';
  endpoint_format(host, 65535, out);
  snprintf(expected, sizeof expected, "[%.255s]:65535", host);
  assert_string_equal(out, expected);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_host_without_a_port_gets_the_default),
      cmocka_unit_test(test_one_colon_parts_host_and_port),
      cmocka_unit_test(test_several_colons_make_a_bare_ipv6_address),
      cmocka_unit_test(test_brackets_hold_a_host_before_its_port),
      cmocka_unit_test(test_a_port_is_from_1_to_65535),
      cmocka_unit_test(test_an_empty_host_is_refused),
      cmocka_unit_test(test_a_bracket_that_is_out_of_place_is_refused),
      cmocka_unit_test(test_every_byte_that_no_host_name_has_is_refused),
      cmocka_unit_test(test_a_name_that_cannot_be_one_is_refused),
      cmocka_unit_test(test_a_host_of_255_characters_is_taken_and_of_256_refused),
      cmocka_unit_test(test_an_endless_text_is_refused_with_the_reason),
      cmocka_unit_test(test_format_puts_brackets_where_the_host_has_colons),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
