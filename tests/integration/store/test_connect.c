/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connecting to a name with several addresses. The resolver and socket(2) of these tests stand in for the C library's:
 * the first gives the addresses that a test wants, the second refuses a family where a test wants it to, as a kernel
 * without IPv6 does.
 */
#include "base/net/net.h"

#include "backlog.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdatomic.h>
#include <sys/syscall.h>

static struct {
  const char *addresses[20]; /* of the name "many.test", literals; NULL ends them */
  int refused_family;        /* 0: none */
} fake;

int socket(int family, int type, int protocol) {
  if (family == fake.refused_family) {
    errno = EAFNOSUPPORT;
    return -1;
  }
  return (int)syscall(SYS_socket, family, type, protocol);
}

typedef int resolver(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **result) {
  static resolver *_Atomic real;
  if (!real) real = (resolver *)(intptr_t)dlsym(RTLD_NEXT, "getaddrinfo");
  if (strcmp(name, "many.test") != 0) return real(name, service, hints, result);
  if (hints->ai_flags & AI_NUMERICHOST) return EAI_NONAME;
  struct addrinfo **end = result, numeric = *hints;
  numeric.ai_flags |= AI_NUMERICHOST;
  for (int i = 0; fake.addresses[i]; i++, end = &(*end)->ai_next)
    if (real(fake.addresses[i], service, &numeric, end) != 0) return EAI_FAIL;
  return 0;
}

static int setup(void **state) {
  (void)state;
  memset(&fake, 0, sizeof fake);
  return 0;
}

static int connect_many(int port, int64_t timeout_ms, const struct flag *cancel, int *fd, rdzv_error *error) {
  const struct endpoint endpoint = {.host = "many.test", .port = port};
  return net_connect(&endpoint, deadline_after(timeout_ms), cancel, fd, error);
}

static void assert_connected_to(int fd, const char *host) {
  struct sockaddr_storage address;
  socklen_t len = sizeof address;
  char text[ENDPOINT_TEXT_SIZE];
  assert_int_equal(getpeername(fd, (struct sockaddr *)&address, &len), 0);
  net_format((struct sockaddr *)&address, text);
  assert_non_null(strstr(text, host));
  assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
  assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

static int open_sockets(void) {
  int count = 0, type;
  for (int fd = 0; fd < 256; fd++) {
    socklen_t len = sizeof type;
    count += getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
  }
  return count;
}

/* An address that refuses is followed by the next at once. */
static void test_an_address_that_refuses_is_followed_by_the_next(void **state) {
  (void)state;
  int port, fd;
  const int listener = peer_listen(16, &port);
  const char *const addresses[] = {"127.0.0.9", "::1", "127.0.0.8", "127.0.0.1"};
  memcpy(fake.addresses, addresses, sizeof addresses);
  assert_code(connect_many(port, SOON_MS, NULL, &fd, NULL), 0);
  assert_connected_to(fd, "127.0.0.1:");
  close(fd);
  close(listener);
}

/* When all refuse, each is named with its cause, and no socket is left. */
static void test_when_all_refuse_each_is_named(void **state) {
  (void)state;
  int port, fd = -7;
  close(peer_listen(16, &port));
  const char *const addresses[] = {"127.0.0.9", "127.0.0.8", "::1"};
  memcpy(fake.addresses, addresses, sizeof addresses);
  const int before = open_sockets();
  rdzv_error error;
  assert_error(connect_many(port, SOON_MS, NULL, &fd, &error), RDZV_E_CONNECTION, &error, "127.0.0.9:");
  assert_non_null(strstr(error.message, "127.0.0.8:"));
  assert_non_null(strstr(error.message, "[::1]:"));
  assert_non_null(strstr(error.message, "refused"));
  assert_int_equal(fd, -7);
  assert_int_equal(open_sockets(), before);
}

/* More addresses than are tried at once are no matter. */
static void test_a_name_with_very_many_addresses(void **state) {
  (void)state;
  int port, fd;
  const int listener = peer_listen(16, &port);
  for (int i = 0; i < 19; i++) fake.addresses[i] = i == 10 ? "127.0.0.1" : "127.0.0.9";
  assert_code(connect_many(port, SOON_MS, NULL, &fd, NULL), 0);
  close(fd);
  close(listener);
}

/* A kernel without IPv6 refuses the socket itself: the other address is used, and no descriptor of the program's own,
 * such as its stdin, is touched. */
static void test_a_family_that_the_kernel_lacks_is_passed_over(void **state) {
  (void)state;
  int port, fd;
  const int listener = peer_listen(16, &port);
  const int stdin_was_open = fcntl(0, F_GETFD) >= 0;
  if (!stdin_was_open) assert_int_equal(open("/dev/null", O_RDONLY), 0);
  const char *const addresses[] = {"::1", "127.0.0.1"};
  memcpy(fake.addresses, addresses, sizeof addresses);
  fake.refused_family = AF_INET6;
  const int before = open_sockets();
  assert_code(connect_many(port, SOON_MS, NULL, &fd, NULL), 0);
  assert_connected_to(fd, "127.0.0.1:");
  close(fd);
  const bool closed = fcntl(0, F_GETFD) < 0;
  if (closed) open("/dev/null", O_RDONLY);
  assert_false(closed);
  assert_int_equal(open_sockets(), before);
  close(listener);
}

/* With no family at all the error says so, and again nothing else is closed. */
static void test_no_family_at_all_is_an_error(void **state) {
  (void)state;
  int fd;
  const char *const addresses[] = {"::1", "::1"};
  memcpy(fake.addresses, addresses, sizeof addresses);
  fake.refused_family = AF_INET6;
  rdzv_error error;
  assert_error(connect_many(1, SOON_MS, NULL, &fd, &error), RDZV_E_CONNECTION, &error, "not supported");
  const bool closed = fcntl(0, F_GETFD) < 0;
  if (closed) open("/dev/null", O_RDONLY);
  assert_false(closed);
}

/* An address that does not answer delays the next by a quarter of a second, not by its own timeout. */
static void test_an_address_that_is_silent_does_not_hold_back_the_next(void **state) {
  (void)state;
  int port, fd;
  struct backlog backlog;
  const int silent = peer_listen(0, &port);
  backlog_fill(&backlog, silent);
  const struct sockaddr_in6 v6 = {
      .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT, .sin6_port = htons((uint16_t)port)};
  const int listener = socket(AF_INET6, SOCK_STREAM, 0), on = 1;
  setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  assert_int_equal(bind(listener, (const struct sockaddr *)&v6, sizeof v6), 0);
  assert_int_equal(listen(listener, 4), 0);
  const char *const addresses[] = {"127.0.0.1", "::1"};
  memcpy(fake.addresses, addresses, sizeof addresses);
  const int before = open_sockets();
  const int64_t began = live_now_ms();
  assert_code(connect_many(port, 10 * SOON_MS, NULL, &fd, NULL), 0);
  assert_true(live_now_ms() - began >= 200);
  assert_within(began, 20000);
  assert_connected_to(fd, "[::1]");
  close(fd);
  assert_int_equal(open_sockets(), before); /* the slow one was closed */
  backlog_free(&backlog);
  close(silent);
  close(listener);
}

/* When none answers it is over at the deadline, and no socket is left. */
static void test_silent_addresses_cost_no_more_than_the_deadline(void **state) {
  (void)state;
  int port, fd;
  struct backlog backlog;
  const int silent = peer_listen(0, &port);
  backlog_fill(&backlog, silent);
  const char *const addresses[] = {"127.0.0.1", "127.0.0.1"};
  memcpy(fake.addresses, addresses, sizeof addresses);
  const int before = open_sockets();
  rdzv_error error;
  const int64_t began = live_now_ms();
  assert_error(connect_many(port, 400, NULL, &fd, &error), RDZV_E_TIMEOUT, &error, "2 addresses");
  assert_true(live_now_ms() - began >= 390);
  assert_within(began, 20000);
  assert_int_equal(open_sockets(), before);
  backlog_free(&backlog);
  close(silent);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_an_address_that_refuses_is_followed_by_the_next, setup),
      cmocka_unit_test_setup(test_when_all_refuse_each_is_named, setup),
      cmocka_unit_test_setup(test_a_name_with_very_many_addresses, setup),
      cmocka_unit_test_setup(test_a_family_that_the_kernel_lacks_is_passed_over, setup),
      cmocka_unit_test_setup(test_no_family_at_all_is_an_error, setup),
      cmocka_unit_test_setup(test_an_address_that_is_silent_does_not_hold_back_the_next, setup),
      cmocka_unit_test_setup(test_silent_addresses_cost_no_more_than_the_deadline, setup),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
