/* SPDX-License-Identifier: BSD-3-Clause */
/* What the etcd store and the cell in etcd promise where a call fails: out-parameters stay as they are, nothing is
 * leaked, and no request is sent without what secures it. */
#include "etcd_v1_scene.h"

#include <malloc.h>

enum { VALUE = 60000, TIMES = 200, MOST_KEPT = 1 << 20 };

static rdzv_store *open_store(const char *endpoint, int64_t timeout_ms) {
  const rdzv_etcd_store_options options = {
      .size = sizeof options,
      .timeout_ms = timeout_ms,
      .etcd = &(rdzv_etcd_options){
          .size = sizeof(rdzv_etcd_options), .endpoints = endpoint, .read_timeout_ms = timeout_ms}};
  rdzv_store *store;
  rdzv_error error;
  if (rdzv_store_open_etcd("/contract", &options, &store, &error) < 0) fail_msg("%s", error.message);
  return store;
}

/* As another program writes it: a long value that is not base64. */
static void put_no_base64(const char *path) {
  static char request[VALUE + 512];
  char value[VALUE + 1];
  memset(value, '!', VALUE);
  value[VALUE] = '\0';
  const int len = snprintf(request, sizeof request,
                           "PUT /v2/keys%s HTTP/1.1\r\nHost: e\r\nConnection: close\r\nContent-Length: %d\r\n"
                           "Content-Type: application/x-www-form-urlencoded\r\n\r\nvalue=%s",
                           path, VALUE + 6, value);
  const struct sockaddr_in to = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)rdzv_etcd_process_port(etcd)),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
  assert_int_equal(send(fd, request, (size_t)len, MSG_NOSIGNAL), len);
  char status[16] = "";
  assert_int_equal(recv(fd, status, 12, MSG_WAITALL), 12);
  assert_true(strncmp(status, "HTTP/1.1 20", 11) == 0);
  close(fd);
}

/* ---- out-parameters ------------------------------------------------------------------------------------------- */

struct outs {
  rdzv_value value;
  uint64_t version;
  int64_t number;
  bool flag;
  rdzv_value *values;
  size_t count;
};

static const struct outs untouched = {{(char *)"x", 1}, 77, 78, true, NULL, 79};

static void assert_untouched(const char *what, int code, const struct outs *outs) {
  if (code >= 0) fail_msg("%s succeeds", what);
  const bool same = outs->value.data == untouched.value.data && outs->version == 77 && outs->number == 78 &&
                    outs->flag && outs->count == 79 && !outs->values;
  if (!same) fail_msg("%s fails with %d and writes an out-parameter", what, code);
}

#define ASSERT_UNTOUCHED(call)             \
  do {                                     \
    struct outs outs = untouched;          \
    const int code_ = (call);              \
    assert_untouched(#call, code_, &outs); \
  } while (0)

static void assert_all_untouched(rdzv_store *store, const char *name) {
  const rdzv_bytes key = rdzv_str(name), keys[2] = {key, rdzv_str("other")};
  ASSERT_UNTOUCHED(rdzv_store_get(store, key, &outs.value, NULL));
  ASSERT_UNTOUCHED(rdzv_store_add(store, key, 1, &outs.number, NULL));
  ASSERT_UNTOUCHED(rdzv_store_compare_set(store, key, key, key, &outs.value, NULL));
  ASSERT_UNTOUCHED(rdzv_store_multi_get(store, keys, 2, &outs.values, NULL));
  ASSERT_UNTOUCHED(rdzv_store_get_version(store, key, &outs.value, &outs.version, NULL));
  ASSERT_UNTOUCHED(rdzv_store_wait_changed(store, key, 1, 100, &outs.value, &outs.version, NULL));
  ASSERT_UNTOUCHED(rdzv_store_compare_set_version(store, key, 1, key, &outs.flag, &outs.value, &outs.version, NULL));
}

static void test_out_parameters_where_nobody_answers(void **state) {
  (void)state;
  char endpoint[32];
  int port;
  const int fd = peer_listen(1, &port);
  close(fd);
  snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
  rdzv_store *store = open_store(endpoint, 50);
  const rdzv_bytes keys[2] = {rdzv_str("a"), rdzv_str("b")};
  assert_all_untouched(store, "a");
  for (size_t count = 1; count <= 2; count++) { /* a flag that is down stays down, too */
    bool all = false;
    assert_code(rdzv_store_check(store, keys, count, &all, NULL), RDZV_E_CONNECTION);
    assert_false(all);
    ASSERT_UNTOUCHED(rdzv_store_check(store, keys, count, &outs.flag, NULL));
  }
  ASSERT_UNTOUCHED(rdzv_store_delete_key(store, keys[0], &outs.flag, NULL));
  ASSERT_UNTOUCHED(rdzv_store_num_keys(store, &outs.number, NULL));
  ASSERT_UNTOUCHED(rdzv_store_list_keys(store, &outs.values, &outs.count, NULL));
  rdzv_store_free(store);
}

/* The key is there, whatever is in it. */
static void test_out_parameters_where_the_value_is_not_base64(void **state) {
  (void)state;
  rdzv_store *store = open_store(rdzv_etcd_process_endpoint(etcd), 5000);
  const rdzv_bytes key = rdzv_str("k");
  bool there = false;
  put_no_base64("/contract/aw==");
  assert_all_untouched(store, "k");
  assert_code(rdzv_store_check(store, &key, 1, &there, NULL), 0);
  assert_true(there);
  rdzv_store_free(store);
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

/* With a sanitizer it counts nothing, but then the sanitizer does. */
static size_t allocated(void) { return mallinfo2().uordblks; }

static void test_a_value_that_is_not_base64_leaks_nothing(void **state) {
  (void)state;
  rdzv_store *store = open_store(rdzv_etcd_process_endpoint(etcd), 5000);
  rdzv_value value;
  rdzv_error error;
  put_no_base64("/contract/bGVhaw==");
  assert_error(rdzv_store_get(store, rdzv_str("leak"), &value, &error), RDZV_E_CORRUPT, &error, "not base64");
  const size_t before = allocated();
  for (int i = 0; i < TIMES; i++) assert_code(rdzv_store_get(store, rdzv_str("leak"), &value, NULL), RDZV_E_CORRUPT);
  assert_true(allocated() < before + MOST_KEPT);
  rdzv_store_free(store);
}

static void test_a_state_that_is_not_base64_leaks_nothing(void **state) {
  (void)state;
  const rdzv_params params = {.size = sizeof params,
                              .backend = "etcd-v2",
                              .endpoint = rdzv_etcd_process_endpoint(etcd),
                              .run_id = "leak",
                              .min_nodes = 1,
                              .max_nodes = 1};
  rdzv_handler *handler;
  rdzv_status *status;
  rdzv_error error;
  put_no_base64("/torch/elastic/rendezvous/leak");
  assert_code(rdzv_handler_open(&params, &handler, &error), 0);
  assert_error(rdzv_handler_status(handler, 0, &status, &error), RDZV_E_CORRUPT, &error, "not base64");
  const size_t before = allocated();
  for (int i = 0; i < TIMES; i++) assert_code(rdzv_handler_status(handler, 0, &status, NULL), RDZV_E_CORRUPT);
  assert_true(allocated() < before + MOST_KEPT);
  rdzv_handler_free(handler);
}

/* ---- options of libcurl --------------------------------------------------------------------------------------- */

/* A name that libcurl does not take, since it is of more than 8 MB: it would go on with the system's authorities. */
static void test_an_authority_that_cannot_be_set(void **state) {
  (void)state;
  enum { TOO_LONG = 9 << 20 };
  char *name = malloc(TOO_LONG + 1);
  assert_non_null(name);
  memset(name, 'a', TOO_LONG);
  name[TOO_LONG] = '\0';
  const rdzv_etcd_store_options options = {.size = sizeof options,
                                           .timeout_ms = 5000,
                                           .etcd = &(rdzv_etcd_options){.size = sizeof(rdzv_etcd_options),
                                                                        .endpoints = rdzv_etcd_process_endpoint(etcd),
                                                                        .ca_cert = name,
                                                                        .read_timeout_ms = 5000}};
  rdzv_store *store;
  rdzv_error error;
  assert_code(rdzv_store_open_etcd("/contract", &options, &store, &error), 0);
  free(name);
  assert_error(rdzv_store_set(store, rdzv_str("k"), rdzv_str("v"), &error), RDZV_E_INVALID, &error, "CAINFO");
  rdzv_store_free(store);
}

int main(void) {
  if (!have_etcd()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_out_parameters_where_nobody_answers),
      cmocka_unit_test(test_out_parameters_where_the_value_is_not_base64),
      cmocka_unit_test(test_a_value_that_is_not_base64_leaks_nothing),
      cmocka_unit_test(test_a_state_that_is_not_base64_leaks_nothing),
      cmocka_unit_test(test_an_authority_that_cannot_be_set),
  };
  return cmocka_run_group_tests(tests, start_etcd, stop_etcd);
}
