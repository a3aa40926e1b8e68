/* SPDX-License-Identifier: BSD-3-Clause */
/* A rendezvous by URL: what it is cut into, what is refused and in which words, and joining by it. */
#include "etcd_v1_scene.h"

/* ---- what rdzv_handler_open is given
 * ---------------------------------------------------------------------------------- */

/* A backend that tells what it was opened with, and opens nothing. */
static int tell_params(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error) {
  (void)out;
  char *text = user;
  snprintf(text, 512, "%s|%s|%s|%d:%d|%s|%s", params->backend, params->endpoint, params->run_id, (int)params->min_nodes,
           (int)params->max_nodes, params->conf, params->local_addr ? params->local_addr : "");
  if (error) *error = (rdzv_error){.code = RDZV_E_UNSUPPORTED, .message = "told"};
  return RDZV_E_UNSUPPORTED;
}

static void assert_cut(const char *url, const char *conf, const char *expected) {
  rdzv_registry *registry;
  rdzv_handler *handler;
  rdzv_error error;
  char told[512] = "";
  assert_code(rdzv_registry_open(&registry, &error), 0);
  assert_code(rdzv_registry_add(registry, "tell", tell_params, told, &error), 0);
  const rdzv_params params = {.size = sizeof params,
                              .backend = "c10d",
                              .endpoint = "not:1",
                              .run_id = "not",
                              .min_nodes = 2,
                              .max_nodes = 5,
                              .conf = conf,
                              .local_addr = "here",
                              .registry = registry};
  assert_error(rdzv_handler_open_url(url, &params, &handler, &error), RDZV_E_UNSUPPORTED, &error, "told");
  assert_string_equal(told, expected);
  rdzv_registry_free(registry);
}

static void test_what_it_is_cut_into(void **state) {
  (void)state;
  assert_cut("tell://h:1/job", NULL, "tell|h:1|job|2:5||here");
  assert_cut("tell://a:1,b:2,[::1]:3/job?min_nodes=3&max_nodes=4", NULL, "tell|a:1,b:2,[::1]:3|job|3:4||here");
  assert_cut("tell://h/1234/?min_workers=1&max_workers=3&x=a=b", NULL,
             "tell|h|1234|2:5|min_workers=1,max_workers=3,x=a=b|here");
  assert_cut("tell:///a/b%2F%3f%25%20%C3%BC?p=/x/%26%3d+&&", NULL, "tell||a/b/?% \xC3\xBC|2:5|p=/x/&=+|here");
  assert_cut("tell://h:1/job?b=2", "a=1,b=1", "tell|h:1|job|2:5|a=1,b=1,b=2|here");
  assert_cut("tell://u%40:p%2f%3a@h:1/job?a", NULL, "tell|h:1|job|2:5|user=u@,password=p/:,a=|here");
  assert_cut("tell://%2Ftmp%2Fstore/job?store_type=file", NULL, "tell|/tmp/store|job|2:5|store_type=file|here");
}

/* ---- what is refused ------------------------------------------------------------------------------------------ */

static void test_what_is_wrong_is_said(void **state) {
  (void)state;
  static const struct {
    const char *url, *sentence;
  } cases[] = {
      {NULL, "'url' is NULL"},
      {"", "no backend before '://'"},
      {"localhost:2379", "no backend before '://'"},
      {"://h/job", "no backend before '://'"},
      {"etcd://h:1", "the run id is missing; a rendezvous is BACKEND://HOST:PORT"},
      {"etcd://h:1/", "the run id is missing"},
      {"etcd://h:1?min_workers=1", "the run id is missing"},
      {"etcd://h:1//", "the run id is missing"},
      {"etcd://h:1/a#b", "'#', which is written '%23'"},
      {"etcd://h:1/a%", "the run id has a '%'"},
      {"etcd://h:1/a%4", "the run id has a '%'"},
      {"etcd://h:1/a%zz", "the run id has a '%'"},
      {"etcd://h:1/a%00", "the run id has a '%' that no two hexadecimal digits follow, or the byte 0"},
      {"etcd://h%g0:1/a", "the endpoint has a '%'"},
      {"etcd://u:p%@h:1/a", "the password has a '%'"},
      {"etcd://h:1/a?timeout=%4", "timeout has a '%'"},
      {"etcd://h:1/a?=1", "an option has no name"},
      {"etcd://h:1/a?a%2Cb=1", "an option's name has a ','"},
      {"etcd://h:1/a?cacert=a%2Cb", "option 'cacert' has a comma"},
      {"etcd://h:1/a?timeout=1&timeout=1", "option 'timeout' is given twice"},
      {"etcd://h:1/a?min_nodes=1&min%5Fnodes=1", "option 'min_nodes' is given twice"},
      {"etcd://h:1/a?min_nodes=many", "invalid value 'many' for min_nodes: expected a positive whole number"},
      {"etcd://h:1/a?max_nodes=0", "invalid value '0' for max_nodes"},
      {"etcd://h:1/a?max_nodes=99999999999999999999", "invalid value '99999999999999999999' for max_nodes"},
      {"etcd://h:1/a?min_nods=1", "unknown option 'min_nods' (did you mean 'min_nodes'?)"},
      {"etcd://h:1/a?min_worker=1", "unknown option 'min_worker' (did you mean 'min_workers'?)"},
      {"etcd://h:1/a?min_workers=x", "invalid value 'x' for option 'min_workers': expected a positive whole number"},
      {"etcd://h:1/a?min_workers=3&max_workers=2", "max_nodes is 2: it must be at least min_nodes, 3"},
      {"etcd://h:1/a?min_nodes=3&max_nodes=2", "max_nodes is 2: it must be at least min_nodes, 3"},
      {"etcd://h:1/a?max_workers=1000000", "at most 65536 nodes"},
      {"etcd://h:1/a?timeout", "option 'timeout' has no value"},
      {"etcd://h:1/a?protocol=ftp", "invalid value 'ftp' for option 'protocol': expected http|https"},
      {"etcd://h:x/a", "'h:x'"},
      {"etdc://h:1/a", "unknown backend 'etdc' (did you mean 'etcd'?)"},
      {"etcd-v2://h:1/a?etcd_prefix=x", "option 'etcd_prefix' does not apply to this backend"},
  };
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    rdzv_handler *handler;
    rdzv_error error;
    assert_error(rdzv_handler_open_url(cases[i].url, NULL, &handler, &error), RDZV_E_INVALID, &error,
                 cases[i].sentence);
    assert_code(rdzv_handler_open_url(cases[i].url, NULL, &handler, NULL), RDZV_E_INVALID);
  }
}

static void test_too_many_options(void **state) {
  (void)state;
  char url[2048] = "etcd://h:1/a?x";
  rdzv_handler *handler;
  rdzv_error error;
  for (int i = 0; i < 100; i++) snprintf(url + strlen(url), sizeof url - strlen(url), "&n%d=1", i);
  assert_error(rdzv_handler_open_url(url, NULL, &handler, &error), RDZV_E_LIMIT, &error, "too many options");
}

/* ---- joining -------------------------------------------------------------------------------------------------- */

static rdzv_handler *open_url(const char *scheme, const char *endpoint, const char *rest) {
  char url[512];
  rdzv_handler *handler;
  rdzv_error error;
  snprintf(url, sizeof url, "%s://%s/%s", scheme, endpoint, rest);
  if (rdzv_handler_open_url(url, NULL, &handler, &error) < 0) fail_msg("%s", error.message);
  return handler;
}

/* By the URL and by params they meet; the names of the options are PyTorch's. */
static void test_joining_by_url(void **state) {
  (void)state;
  const char *endpoint = rdzv_etcd_process_endpoint(etcd);
  rdzv_handler *a = open_url("etcd", endpoint,
                             "url%20%2fx?min_workers=2&max_workers=2&timeout=60&last_call_timeout=1"
                             "&etcd_prefix=/torchelastic/p2p&protocol=http");
  rdzv_handler *b = open_node("url /x", 2, 2);
  rdzv_result *results[2];
  join_both(a, b, results);
  assert_string_equal(results[0]->backend, "etcd");
  assert_string_equal(results[0]->run_id, "url /x");
  assert_int_equal(results[0]->rank + results[1]->rank, 1);
  for (int i = 0; i < 2; i++) rdzv_result_free(results[i]);
  rdzv_handler_free(a);
  rdzv_handler_free(b);
}

static void test_other_backends_by_url(void **state) {
  (void)state;
  static const char *const schemes[] = {"etcd-v1", "etcd-v2"};
  for (size_t i = 0; i < COUNT_OF(schemes); i++) {
    rdzv_handler *node = open_url(schemes[i], rdzv_etcd_process_endpoint(etcd), "other?min_nodes=1&max_nodes=1");
    rdzv_result *result = must_join(node);
    assert_int_equal(result->world_size, 1);
    assert_string_equal(result->backend, schemes[i]);
    rdzv_result_free(result);
    rdzv_handler_free(node);
  }
  rdzv_server *server = serve();
  rdzv_handler *node = open_url("c10d", rdzv_server_address(server), "other?is_host=false&min_nodes=1");
  rdzv_result *result = must_join(node);
  assert_string_equal(result->backend, "c10d");
  rdzv_result_free(result);
  rdzv_handler_free(node);
  rdzv_server_free(server);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_it_is_cut_into),   cmocka_unit_test(test_what_is_wrong_is_said),
      cmocka_unit_test(test_too_many_options),      cmocka_unit_test(test_joining_by_url),
      cmocka_unit_test(test_other_backends_by_url),
  };
  if (!have_etcd()) return 77;
  return cmocka_run_group_tests(tests, start_etcd, stop_etcd);
}
