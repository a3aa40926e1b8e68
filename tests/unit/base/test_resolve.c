/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Looking up names. The resolver of these tests stands in for the C library's: it knows some names under "test", and
 * one that it does not answer until it is told to. Literals go to the real one.
 */
#include "base/net/resolve.h"

#include "unit.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

typedef int resolver(const char *, const char *, const struct addrinfo *, struct addrinfo **);

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  resolver *real;
  int lookups;  /* of names */
  int stalled;  /* look-ups of the silent name that are under way */
  bool release; /* lets them go */
  bool signals_blocked;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void stall(void) {
  fake.stalled++;
  pthread_cond_broadcast(&fake.changed);
  while (!fake.release) pthread_cond_wait(&fake.changed, &fake.lock);
  fake.stalled--;
  pthread_cond_broadcast(&fake.changed);
}

static bool takes_no_signals(void) {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, NULL, &blocked);
  return sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGINT) == 1;
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **result) {
  if (hints->ai_flags & AI_NUMERICHOST) return fake.real(name, service, hints, result);
  pthread_mutex_lock(&fake.lock);
  fake.lookups++;
  fake.signals_blocked = takes_no_signals();
  if (strcmp(name, "silent.test") == 0) stall();
  pthread_mutex_unlock(&fake.lock);
  if (strcmp(name, "there.test") == 0 || strcmp(name, "silent.test") == 0)
    return fake.real("127.0.0.1", service, hints, result);
  if (strcmp(name, "broken.test") == 0) {
    errno = EPROTO;
    return EAI_SYSTEM;
  }
  return strcmp(name, "later.test") == 0 ? EAI_AGAIN : EAI_NONAME;
}

static int setup(void **state) {
  (void)state;
  pthread_mutex_lock(&fake.lock);
  fake.lookups = 0;
  fake.release = false;
  pthread_mutex_unlock(&fake.lock);
  return 0;
}

/* Lets the stalled look-ups go and waits until none is left. */
static int teardown(void **state) {
  (void)state;
  pthread_mutex_lock(&fake.lock);
  fake.release = true;
  pthread_cond_broadcast(&fake.changed);
  while (fake.stalled > 0) pthread_cond_wait(&fake.changed, &fake.lock);
  pthread_mutex_unlock(&fake.lock);
  return 0;
}

static struct endpoint endpoint_of(const char *host, int port) {
  struct endpoint endpoint = {.port = port};
  snprintf(endpoint.host, sizeof endpoint.host, "%s", host);
  return endpoint;
}

static int look_up(const char *host, int64_t timeout_ms, const struct flag *cancel, struct addrinfo **out,
                   rdzv_error *error) {
  const struct endpoint endpoint = endpoint_of(host, 29400);
  return resolve(&endpoint, deadline_after(timeout_ms), cancel, out, error);
}

/* A literal is an address already: no look-up, so neither the deadline nor the flag matters. */
static void test_a_literal_is_never_looked_up(void **state) {
  (void)state;
  struct flag raised;
  assert_code(flag_open(&raised, NULL), 0);
  flag_raise(&raised);
  const struct {
    const char *text;
    int family;
  } literals[] = {{"127.0.0.1", AF_INET}, {"10.255.0.1", AF_INET}, {"::1", AF_INET6}, {"2001:db8::1", AF_INET6}};
  for (size_t i = 0; i < COUNT_OF(literals); i++) {
    struct addrinfo *list;
    assert_code(look_up(literals[i].text, -1, &raised, &list, NULL), 0);
    assert_int_equal(list->ai_family, literals[i].family);
    assert_int_equal(list->ai_socktype, SOCK_STREAM);
    assert_null(list->ai_next);
    const in_port_t port = literals[i].family == AF_INET ? ((struct sockaddr_in *)(void *)list->ai_addr)->sin_port
                                                         : ((struct sockaddr_in6 *)(void *)list->ai_addr)->sin6_port;
    assert_int_equal(ntohs(port), 29400);
    freeaddrinfo(list);
  }
  assert_int_equal(fake.lookups, 0);
  flag_close(&raised);
}

/* A name is looked up in a thread that takes no signals. */
static void test_a_name_is_looked_up(void **state) {
  (void)state;
  struct addrinfo *list;
  assert_code(look_up("there.test", 60000, NULL, &list, NULL), 0);
  assert_int_equal(((struct sockaddr_in *)(void *)list->ai_addr)->sin_addr.s_addr, htonl(INADDR_LOOPBACK));
  freeaddrinfo(list);
  assert_int_equal(fake.lookups, 1);
  assert_true(fake.signals_blocked);
}

/* What the resolver says against a name is in the message, with the name. */
static void test_a_name_that_does_not_exist_is_an_address_error(void **state) {
  (void)state;
  const struct {
    const char *name, *cause;
  } names[] = {{"absent.test", "Name or service not known"},
               {"later.test", "Temporary failure"},
               {"broken.test", "Protocol error"}};
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    struct addrinfo *list = NULL;
    rdzv_error error;
    assert_error(look_up(names[i].name, 60000, NULL, &list, &error), RDZV_E_ADDRESS, &error, names[i].cause);
    assert_non_null(strstr(error.message, names[i].name));
    assert_null(list);
    assert_code(look_up(names[i].name, 60000, NULL, &list, NULL), RDZV_E_ADDRESS);
  }
}

/* A resolver that does not answer costs no more than the deadline; its late answer is freed by itself. */
static void test_a_silent_resolver_costs_no_more_than_the_deadline(void **state) {
  (void)state;
  struct addrinfo *list = NULL;
  rdzv_error error;
  const deadline until = deadline_after(50);
  assert_error(look_up("silent.test", 50, NULL, &list, &error), RDZV_E_TIMEOUT, &error, "'silent.test'");
  assert_int_equal(deadline_left(until), 0);
  assert_null(list);
}

static void *raise_when_stalled(void *arg) {
  pthread_mutex_lock(&fake.lock);
  while (fake.stalled == 0) pthread_cond_wait(&fake.changed, &fake.lock);
  pthread_mutex_unlock(&fake.lock);
  flag_raise(arg);
  return NULL;
}

/* It can be canceled while the resolver is silent. */
static void test_a_look_up_can_be_canceled(void **state) {
  (void)state;
  struct flag cancel;
  struct addrinfo *list = NULL;
  rdzv_error error;
  pthread_t thread;
  assert_code(flag_open(&cancel, NULL), 0);
  assert_int_equal(pthread_create(&thread, NULL, raise_when_stalled, &cancel), 0);
  assert_error(look_up("silent.test", INT64_MAX, &cancel, &list, &error), RDZV_E_CANCELED, &error, "'silent.test'");
  pthread_join(thread, NULL);
  flag_close(&cancel);
}

/* Many at once, some answered and some left behind, do not get in each other's way. */
static void *look_up_some(void *arg) {
  (void)arg;
  for (int i = 0; i < 5; i++) {
    struct addrinfo *list;
    assert_code(look_up("silent.test", 5, NULL, &list, NULL), RDZV_E_TIMEOUT);
    assert_code(look_up("there.test", 60000, NULL, &list, NULL), 0);
    freeaddrinfo(list);
  }
  return NULL;
}

static void test_many_look_ups_at_once(void **state) {
  (void)state;
  pthread_t threads[4];
  for (size_t i = 0; i < COUNT_OF(threads); i++)
    assert_int_equal(pthread_create(&threads[i], NULL, look_up_some, NULL), 0);
  for (size_t i = 0; i < COUNT_OF(threads); i++) pthread_join(threads[i], NULL);
}

/* Without a descriptor left it says so, and the code that is returned is the one in the error. */
static void test_without_descriptors_the_code_and_the_error_agree(void **state) {
  (void)state;
  struct rlimit before, none;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  none = before;
  none.rlim_cur = 0;
  struct addrinfo *list;
  rdzv_error error = {0};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  const int result = look_up("there.test", 60000, NULL, &list, &error);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  assert_true(result < 0);
  assert_code(result, error.code);
  assert_non_null(strstr(error.message, "Too many open files"));
}

#define WITH_RESOLVER(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_RESOLVER(test_a_literal_is_never_looked_up),
      WITH_RESOLVER(test_a_name_is_looked_up),
      WITH_RESOLVER(test_a_name_that_does_not_exist_is_an_address_error),
      WITH_RESOLVER(test_a_silent_resolver_costs_no_more_than_the_deadline),
      WITH_RESOLVER(test_a_look_up_can_be_canceled),
      WITH_RESOLVER(test_many_look_ups_at_once),
      WITH_RESOLVER(test_without_descriptors_the_code_and_the_error_agree),
  };
  fake.real = (resolver *)(intptr_t)dlsym(RTLD_NEXT, "getaddrinfo");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
