/* SPDX-License-Identifier: BSD-3-Clause */
/* Which names are this machine's, by which address others reach it, and a port that stays free. */
#include "backend/c10d/host.h"
#include "base/net/host.h"
#include "live.h"

#include <ifaddrs.h>
#include <net/if.h>

#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51
#endif

static struct host_match match(const char *host) {
  struct endpoint endpoint;
  rdzv_error error;
  if (endpoint_parse(host, 29400, &endpoint, &error) < 0) fail_msg("%s", error.message);
  return host_match(&endpoint, deadline_after(5000), NULL);
}

/* An address of ours that is not loopback, the first of that family; false: there is none. */
static bool own_ip(int family, char out[INET6_ADDRSTRLEN]) {
  struct ifaddrs *list;
  bool found = false;
  assert_int_equal(getifaddrs(&list), 0);
  for (const struct ifaddrs *at = list; at && !found; at = at->ifa_next) {
    if (!at->ifa_addr || at->ifa_addr->sa_family != family || (at->ifa_flags & IFF_LOOPBACK)) continue;
    const void *ip = family == AF_INET ? (const void *)&((struct sockaddr_in *)(void *)at->ifa_addr)->sin_addr
                                       : (const void *)&((struct sockaddr_in6 *)(void *)at->ifa_addr)->sin6_addr;
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)ip)) continue;
    found = inet_ntop(family, ip, out, INET6_ADDRSTRLEN) != NULL;
  }
  freeifaddrs(list);
  return found;
}

static void test_the_own_name_is_that_of_the_machine(void **state) {
  (void)state;
  char name[HOST_NAME_SIZE], expected[HOST_NAME_SIZE];
  host_name(name);
  assert_int_equal(gethostname(expected, sizeof expected), 0);
  assert_string_equal(name, expected);
  struct host_match own = match(name);
  assert_true(own.ours && !host_is_loopback(name));
  assert_non_null(strstr(own.why, "is this machine's host name"));
  assert_non_null(strstr(own.why, name));
  for (char *at = name; *at; at++)
    if (*at >= 'a' && *at <= 'z') *at = (char)(*at - 'a' + 'A');
  assert_true(match(name).ours); /* names have no case */
}

/* Nobody else can mean us by these. */
static void test_loopback_is_ours_and_nobody_elses(void **state) {
  (void)state;
  static const char *const hosts[] = {"localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3", "[::1]", "::1"};
  for (size_t i = 0; i < COUNT_OF(hosts); i++) {
    const struct host_match found = match(hosts[i]);
    if (!found.ours) fail_msg("%s: %s", hosts[i], found.why);
    assert_non_null(strstr(found.why, "is a loopback address"));
  }
}

static void test_an_address_of_an_interface_is_ours(void **state) {
  (void)state;
  char ip[INET6_ADDRSTRLEN];
  static const int families[] = {AF_INET, AF_INET6};
  int found = 0;
  for (int i = 0; i < 2; i++) {
    if (!own_ip(families[i], ip)) continue;
    const struct host_match own = match(ip);
    if (!own.ours || host_is_loopback(ip)) fail_msg("%s: %s", ip, own.why);
    assert_non_null(strstr(own.why, "an address of this machine's"));
    found++;
  }
  if (found == 0) skip(); /* this machine has none but loopback */
}

/* 192.0.2.0/24 and 2001:db8::/32 belong to nobody (RFC 5737, RFC 3849). */
static void test_a_foreign_address_is_not_ours(void **state) {
  (void)state;
  static const char *const hosts[] = {"192.0.2.1", "[2001:db8::1]"};
  for (size_t i = 0; i < COUNT_OF(hosts); i++) {
    const struct host_match found = match(hosts[i]);
    assert_false(found.ours);
    assert_non_null(strstr(found.why, "is not an address of this machine"));
  }
}

/* The option decides without a look at the name; without the option, the machine that the endpoint names serves. */
static void test_the_option_or_the_machine_decides_who_serves(void **state) {
  (void)state;
  static const struct {
    const char *host;
    enum c10d_is_host option;
    bool serves;
  } cases[] = {{"x.invalid", C10D_HOST_YES, true},   {"x.invalid", C10D_HOST_AUTO, false},
               {"127.0.0.1", C10D_HOST_NO, false},   {"127.0.0.1", C10D_HOST_AUTO, true},
               {"192.0.2.1", C10D_HOST_AUTO, false}, {"192.0.2.1", C10D_HOST_YES, true}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    struct endpoint endpoint = {.port = 1};
    snprintf(endpoint.host, sizeof endpoint.host, "%s", cases[i].host);
    const struct c10d_host host = c10d_host_decide(&endpoint, cases[i].option, NULL);
    assert_int_equal(host.is_host, cases[i].serves);
    assert_int_equal(host.is_told, cases[i].option != C10D_HOST_AUTO);
    assert_int_equal(strcmp(host.why, "option is_host says so") == 0, host.is_told);
  }
}

/* On all addresses only where it is said, or cannot be told: then there is a reason for the log. */
static void test_the_endpoint_decides_where_to_listen(void **state) {
  (void)state;
  static const char *const binds[][2] = {{"localhost", "127.0.0.1"}, {"LOCALHOST", "127.0.0.1"},
                                         {"127.0.0.5", "127.0.0.5"}, {"::1", "::1"},
                                         {"0.0.0.0", "0.0.0.0"},     {"::", "::"},
                                         {"192.0.2.1", "*"},         {"x.invalid", "*"}};
  for (size_t i = 0; i < COUNT_OF(binds); i++) {
    struct endpoint endpoint = {.port = 1};
    struct host_bind at;
    snprintf(endpoint.host, sizeof endpoint.host, "%s", binds[i][0]);
    host_bind(&endpoint, deadline_after(10000), NULL, &at);
    assert_string_equal(at.address, binds[i][1]);
    assert_int_equal(at.why != NULL, strcmp(binds[i][1], "*") == 0);
  }
}

/* An address of an interface is listened on alone. */
static void test_an_own_address_is_the_only_one_listened_on(void **state) {
  (void)state;
  struct endpoint endpoint = {.port = 1};
  struct host_bind at;
  host_own_address(NULL, deadline_after(10000), NULL, endpoint.host);
  if (host_is_loopback(endpoint.host)) skip(); /* a machine without a network */
  host_bind(&endpoint, deadline_after(10000), NULL, &at);
  assert_string_equal(at.address, endpoint.host);
  assert_null(at.why);
}

/* .invalid resolves nowhere (RFC 2606): not ours, and `why` says that it cannot be resolved. */
static void test_a_name_that_cannot_be_resolved_is_not_ours(void **state) {
  (void)state;
  const struct host_match found = match("x.invalid");
  assert_false(found.ours);
  assert_non_null(strstr(found.why, "x.invalid"));
}

/* However slow names are: the deadline and the flag end it. */
static void test_a_match_ends_by_its_deadline_and_by_its_flag(void **state) {
  (void)state;
  struct endpoint endpoint = {"x.invalid", 1};
  struct flag cancel;
  const int64_t began = live_now_ms();
  assert_false(host_match(&endpoint, deadline_after(0), NULL).ours);
  assert_code(flag_open(&cancel, NULL), 0);
  flag_raise(&cancel);
  assert_false(host_match(&endpoint, deadline_after(SOON_MS), &cancel).ours);
  flag_close(&cancel);
  assert_within(began, 5000);
}

/* ---- the own address ------------------------------------------------------------------------------------------ */

static void own_address(const char *host, char out[HOST_NAME_SIZE]) {
  struct endpoint endpoint;
  assert_code(endpoint_parse(host, 29400, &endpoint, NULL), 0);
  host_own_address(&endpoint, deadline_after(5000), NULL, out);
}

/* Who is met on loopback is reached there; who is met elsewhere, by an address that is not loopback, if there is one.
 */
static void test_the_own_address_is_one_that_the_endpoint_can_reach(void **state) {
  (void)state;
  char out[HOST_NAME_SIZE], ip[INET6_ADDRSTRLEN], name[HOST_NAME_SIZE];
  own_address("127.0.0.1", out);
  assert_string_equal(out, "127.0.0.1");
  own_address("[::1]", out);
  assert_string_equal(out, "::1");
  own_address("localhost", out);
  assert_true(strcmp(out, "127.0.0.1") == 0 || strcmp(out, "::1") == 0);
  const bool any = own_ip(AF_INET, ip) || own_ip(AF_INET6, ip);
  host_name(name);
  const char *const others[] = {name, "192.0.2.1", "x.invalid"};
  for (size_t i = 0; i < COUNT_OF(others); i++) {
    own_address(others[i], out);
    if (any) assert_false(host_is_loopback(out));
    assert_true(match(out).ours);
  }
  host_own_address(NULL, deadline_after(0), NULL, out);
  assert_true(match(out).ours);
  if (own_ip(AF_INET, ip)) {
    own_address(ip, out);
    assert_string_equal(out, ip);
  }
}

/* ---- a port that stays free ----------------------------------------------------------------------------------- */

static int bind_to(int port, bool reuse, int low, int high) {
  const struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  const uint32_t range = (uint32_t)high << 16 | (uint32_t)low;
  assert_true(fd >= 0);
  if (reuse) assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  if (low > 0 && setsockopt(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &range, sizeof range) < 0) {
    close(fd);
    return -2;
  }
  if (bind(fd, (const struct sockaddr *)&any, sizeof any) == 0) return fd;
  close(fd);
  return -1;
}

/* A server with SO_REUSEADDR can have it, listen on it and be reached, while it is reserved. */
static void test_a_server_can_have_the_reserved_port(void **state) {
  (void)state;
  int fd, port;
  rdzv_error error;
  assert_code(host_reserve_port(&fd, &port, &error), 0);
  assert_in_range(port, 1, 65535);
  const int listener = bind_to(port, true, 0, 0);
  assert_true(listener >= 0);
  assert_int_equal(listen(listener, 1), 0);
  const struct sockaddr_in at = {
      .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)port)};
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(client, (const struct sockaddr *)&at, sizeof at), 0);
  close(client);
  close(listener);
  rdzv_server *server = serve_with((rdzv_server_options){.bind = "*"}, port); /* ours does so, too */
  rdzv_server_free(server);
  close(fd);
}

/* Nobody gets it by chance: neither who wants any port, of a range of that one port, nor who does not reuse. */
static void test_nobody_gets_the_reserved_port_by_chance(void **state) {
  (void)state;
  int fd, port;
  assert_code(host_reserve_port(&fd, &port, NULL), 0);
  assert_int_equal(bind_to(port, false, 0, 0), -1);
  const int plain = bind_to(0, false, port, port);
  if (plain != -2) { /* an old kernel has no such range */
    assert_int_equal(plain, -1);
    assert_int_equal(bind_to(0, true, port, port), -1);
  }
  close(fd);
  if (plain != -2) {
    const int freed = bind_to(0, false, port, port); /* what the test itself stands on */
    assert_true(freed >= 0);
    close(freed);
  }
}

static void test_two_reserved_ports_are_two(void **state) {
  (void)state;
  int fds[50], ports[50];
  for (int i = 0; i < 50; i++) {
    assert_code(host_reserve_port(&fds[i], &ports[i], NULL), 0);
    for (int k = 0; k < i; k++) assert_int_not_equal(ports[i], ports[k]);
  }
  for (int i = 0; i < 50; i++) close(fds[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_own_name_is_that_of_the_machine),
      cmocka_unit_test(test_loopback_is_ours_and_nobody_elses),
      cmocka_unit_test(test_an_address_of_an_interface_is_ours),
      cmocka_unit_test(test_a_foreign_address_is_not_ours),
      cmocka_unit_test(test_the_option_or_the_machine_decides_who_serves),
      cmocka_unit_test(test_the_endpoint_decides_where_to_listen),
      cmocka_unit_test(test_an_own_address_is_the_only_one_listened_on),
      cmocka_unit_test(test_a_name_that_cannot_be_resolved_is_not_ours),
      cmocka_unit_test(test_a_match_ends_by_its_deadline_and_by_its_flag),
      cmocka_unit_test(test_the_own_address_is_one_that_the_endpoint_can_reach),
      cmocka_unit_test(test_a_server_can_have_the_reserved_port),
      cmocka_unit_test(test_nobody_gets_the_reserved_port_by_chance),
      cmocka_unit_test(test_two_reserved_ports_are_two),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
