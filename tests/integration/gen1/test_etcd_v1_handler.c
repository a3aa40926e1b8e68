/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first-generation rendezvous by its public API, with an etcd that is a sidecar of this process: extra data, what
 * has changed and when it is told, calls from several threads at once; and the sidecar's own calls.
 *
 * test_etcd_v1_handler extra ENDPOINT RUN_ID KEY VALUE OTHER   for tests/interop/test_etcd_v1.py: joins a round of two,
 *                                                              sets KEY, and prints OTHER
 */
#include "etcd_v1_scene.h"

#include <fcntl.h>
#include <sys/wait.h>

/* ---- extra data ----------------------------------------------------------------------------------------------- */

static void test_extra_data(void **state) {
  (void)state;
  rdzv_handler *a = open_node("extra", 2, 2), *b = open_node("extra", 2, 2);
  rdzv_result *results[2];
  rdzv_error error;
  rdzv_value value;
  assert_error(rdzv_handler_set_extra(a, "k", "v", &error), RDZV_E_INVALID, &error, "not in a round");
  assert_error(rdzv_handler_get_extra(a, "k", 0, &value, &error), RDZV_E_INVALID, &error, "not in a round");
  join_both(a, b, results);
  const int64_t start = live_now_ms();
  assert_error(rdzv_handler_get_extra(a, "k", 2000, &value, &error), RDZV_E_TIMEOUT, &error,
               "'k': timed out after 2000 ms");
  assert_true(live_now_ms() - start >= 2000);
  assert_within(start, 10000);
  assert_code(rdzv_handler_set_extra(a, "k", "\xC3\xBC \"quoted\"", &error), 0);
  assert_code(rdzv_handler_set_extra(b, "other", "", &error), 0);
  assert_code(rdzv_handler_get_extra(b, "k", 0, &value, &error), 0);
  assert_bytes(rdzv_value_bytes(&value), "\xC3\xBC \"quoted\"");
  rdzv_value_free(&value);
  assert_code(rdzv_handler_set_extra(b, "k", "another", &error), 0);
  assert_code(rdzv_handler_get_extra(a, "k", 0, &value, &error), 0);
  assert_bytes(rdzv_value_bytes(&value), "another");
  rdzv_value_free(&value);
  assert_code(rdzv_handler_get_extra(a, "other", 0, &value, &error), 0);
  assert_bytes(rdzv_value_bytes(&value), "");
  rdzv_value_free(&value);
  assert_true(rdzv_handler_set_extra(a, "k", "\xFF", &error) < 0); /* no UTF-8, so no JSON */
  for (int i = 0; i < 2; i++) rdzv_result_free(results[i]);
  rdzv_handler_free(a);
  rdzv_handler_free(b);
}

/* Several are waited for, and all are set at once: none is lost. */
static void test_extra_data_that_is_waited_for(void **state) {
  (void)state;
  static const char *const keys[] = {"a", "b", "c", "d"};
  rdzv_handler *node = open_node("extra-wait", 1, 1);
  rdzv_result *result = must_join(node);
  struct call calls[COUNT_OF(keys)] = {0};
  for (size_t i = 0; i < COUNT_OF(keys); i++) {
    calls[i].key = keys[i];
    begin(&calls[i], do_extra_get, node);
  }
  for (size_t i = 0; i < COUNT_OF(keys); i++) await_blocked(&calls[i]);
  for (size_t i = 0; i < COUNT_OF(keys); i++) assert_code(rdzv_handler_set_extra(node, keys[i], keys[i], NULL), 0);
  for (size_t i = 0; i < COUNT_OF(keys); i++) {
    assert_code(finish(&calls[i]), 0);
    assert_string_equal(calls[i].value.data, keys[i]);
    rdzv_value_free(&calls[i].value);
  }
  struct call canceled = {.key = "never"};
  begin(&canceled, do_extra_get, node);
  await_blocked(&canceled);
  rdzv_handler_cancel(node);
  assert_code(finish(&canceled), RDZV_E_CANCELED);
  rdzv_result_free(result);
  rdzv_handler_free(node);
}

/* ---- changes -------------------------------------------------------------------------------------------------- */

/* Also to one who never waits, but polls a descriptor. */
static void test_polling_hears_of_changes(void **state) {
  (void)state;
  rdzv_handler *member = open_node("poll", 1, 2), *comes = open_node("poll", 1, 2);
  rdzv_result *result = must_join(member);
  struct heard change;
  rdzv_error error;
  assert_error(hear(comes, 0, &change, &error), RDZV_E_INVALID, &error, "not in a round");
  assert_false(has_news(member, 0) || has_news(comes, 0));
  assert_code(hear(member, 0, &change, &error), RDZV_E_TIMEOUT);
  assert_code(hear(member, 300, &change, &error), RDZV_E_TIMEOUT);
  struct call next = {0};
  begin(&next, do_next, comes);
  await_waiting(member, 1);
  assert_true(has_news(member, SOON_MS));
  assert_code(hear(member, 0, &change, &error), 0);
  assert_int_equal(change.what, RDZV_CHANGE_WAITING);
  assert_string_equal(change.who, "");
  assert_false(has_news(member, 0)); /* it is told once */
  assert_code(hear(member, 0, &change, &error), RDZV_E_TIMEOUT);
  rdzv_result_free(result);
  result = must_join(member);
  assert_int_equal(result->round, 2);
  assert_int_equal(result->world_size, 2);
  assert_code(finish(&next), 0);
  assert_int_equal(next.result->rank + result->rank, 1);
  assert_false(has_news(member, 0) || has_news(comes, 0)); /* of the round before, nothing is left */
  assert_code(rdzv_handler_leave(comes, &error), 0);
  assert_code(hear(member, SOON_MS, &change, &error), 0);
  assert_int_equal(change.what, RDZV_CHANGE_DIED);
  assert_string_equal(change.who, next.result->rank == 0 ? "rank_0" : "rank_1");
  rdzv_result_free(result);
  rdzv_result_free(next.result);
  rdzv_handler_free(member);
  rdzv_handler_free(comes);
}

/* Somebody waits for changes for good; the others' calls go first, and need not wait for one. */
static void test_calls_while_one_waits(void **state) {
  (void)state;
  rdzv_handler *node = open_node("threads", 1, 1);
  rdzv_result *result = must_join(node);
  struct call waits = {0};
  rdzv_value value;
  rdzv_error error;
  bool closed;
  begin(&waits, do_wait_event, node);
  await_blocked(&waits);
  const int64_t start = live_now_ms();
  assert_code(rdzv_handler_set_extra(node, "k", "v", &error), 0);
  assert_code(rdzv_handler_get_extra(node, "k", 0, &value, &error), 0);
  rdzv_value_free(&value);
  assert_code(rdzv_handler_is_closed(node, &closed, &error), 0);
  assert_false(closed);
  assert_code(rdzv_handler_set_closed(node, "enough", &error), 0);
  assert_within(start, 20000);
  assert_code(rdzv_handler_is_closed(node, &closed, &error), 0);
  assert_true(closed);
  assert_code(finish(&waits), 0);
  assert_int_equal(waits.change.what, RDZV_CHANGE_CLOSED);
  rdzv_result_free(result);
  assert_error(rdzv_handler_next(node, &result, &error), RDZV_E_CLOSED, &error, "closed");
  rdzv_handler_free(node);
}

static void test_leaving_while_one_waits(void **state) {
  (void)state;
  rdzv_handler *node = open_node("leave", 1, 1);
  rdzv_result *result = must_join(node);
  struct call waits = {0};
  rdzv_error error;
  begin(&waits, do_wait_event, node);
  await_blocked(&waits);
  assert_code(rdzv_handler_leave(node, &error), 0);
  assert_error(finish(&waits), RDZV_E_INVALID, &waits.error, "not in a round");
  rdzv_result_free(result);
  result = must_join(node); /* leaving is not for good */
  assert_int_equal(result->round, 2);
  rdzv_result_free(result);
  rdzv_handler_free(node);
}

static void test_canceling(void **state) {
  (void)state;
  rdzv_handler *joins = open_node("cancel", 2, 2), *member = open_node("cancel-2", 1, 1);
  rdzv_result *result = must_join(member);
  struct call next = {0}, waits = {0};
  begin(&next, do_next, joins);
  begin(&waits, do_wait_event, member);
  await_blocked(&next);
  await_blocked(&waits);
  rdzv_handler_cancel(joins);
  rdzv_handler_cancel(member);
  assert_error(finish(&next), RDZV_E_CANCELED, &next.error, "cannot join the rendezvous: canceled");
  assert_code(finish(&waits), RDZV_E_CANCELED);
  assert_code(rdzv_handler_leave(member, NULL), 0); /* which says farewell, so it works on */
  rdzv_result_free(result);
  rdzv_handler_free(joins);
  rdzv_handler_free(member);
}

/* The closer hears of it as the others do; shutdown leaves, too. */
static void test_closing(void **state) {
  (void)state;
  rdzv_handler *a = open_node("close", 2, 2), *b = open_node("close", 2, 2);
  rdzv_result *results[2];
  struct heard change;
  rdzv_error error;
  join_both(a, b, results);
  assert_code(rdzv_handler_set_closed(a, NULL, &error), 0);
  assert_true(has_news(a, 0) && has_news(b, SOON_MS));
  assert_code(hear(a, 0, &change, &error), 0);
  assert_int_equal(change.what, RDZV_CHANGE_CLOSED);
  assert_false(has_news(a, 0));
  assert_error(hear(a, 0, &change, &error), RDZV_E_INVALID, &error, "not in a round");
  assert_code(hear(b, SOON_MS, &change, &error), 0);
  assert_int_equal(change.what, RDZV_CHANGE_CLOSED);
  assert_code(rdzv_handler_shutdown(b, &error), 0);
  rdzv_status *status;
  assert_code(rdzv_handler_status(b, 0, &status, &error), 0);
  assert_true(status->exists && status->closed);
  rdzv_status_free(status);
  for (int i = 0; i < 2; i++) rdzv_result_free(results[i]);
  rdzv_handler_free(a);
  rdzv_handler_free(b);
}

/* What a round gave is used on when the handler is gone. */
static void test_the_store_outlives_the_handler(void **state) {
  (void)state;
  rdzv_handler *a = open_node("outlive", 2, 2), *b = open_node("outlive", 2, 2);
  rdzv_result *results[2];
  join_both(a, b, results);
  rdzv_handler_free(a);
  rdzv_handler_free(b);
  assert_string_equal(results[0]->backend, "etcd");
  assert_int_equal(results[0]->master_port, results[1]->master_port);
  assert_string_equal(results[0]->master_addr, "127.0.0.1");
  assert_non_null(rdzv_result_participant(results[0], 1));
  assert_null(rdzv_result_participant(results[0], 2));
  must_set(results[0]->store, "k", "v");
  assert_get(results[1]->store, "k", "v");
  for (int i = 0; i < 2; i++) rdzv_result_free(results[i]);
}

static void test_other_backends_have_no_extra_data(void **state) {
  (void)state;
  const rdzv_params params = {
      .size = sizeof params, .backend = "etcd-v2", .endpoint = rdzv_etcd_process_endpoint(etcd), .run_id = "no-extra"};
  rdzv_handler *handler;
  rdzv_error error;
  rdzv_value value;
  if (rdzv_handler_open(&params, &handler, &error) < 0) fail_msg("%s", error.message);
  assert_error(rdzv_handler_set_extra(handler, "k", "v", &error), RDZV_E_UNSUPPORTED, &error, "no extra data");
  assert_code(rdzv_handler_get_extra(handler, "k", 0, &value, &error), RDZV_E_UNSUPPORTED);
  rdzv_handler_free(handler);
}

/* ---- the sidecar ---------------------------------------------------------------------------------------------- */

static void test_the_sidecar_tells_where_it_is(void **state) {
  (void)state;
  char expected[64];
  snprintf(expected, sizeof expected, "127.0.0.1:%d", rdzv_etcd_process_port(etcd));
  assert_string_equal(rdzv_etcd_process_endpoint(etcd), expected);
  assert_true(rdzv_etcd_process_pid(etcd) > 1);
  rdzv_etcd_process_free(NULL);
}

static void test_the_sidecar_ends_by_itself(void **state) {
  (void)state;
  int ends[2], status = 0;
  char line[256] = "";
  rdzv_etcd_process *process;
  rdzv_error error;
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  const int log = open("/dev/null", O_WRONLY | O_CLOEXEC);
  const rdzv_etcd_process_options options = {.size = sizeof options, .log_fd = log};
  if (rdzv_etcd_process_start(&options, &process, &error) < 0) fail_msg("%s", error.message);
  assert_int_equal(write(ends[1], "x", 1), 1);
  assert_code(rdzv_etcd_process_wait(process, ends[0], &status, &error), RDZV_E_CANCELED);
  snprintf(line, sizeof line, "/proc/%lld/task/%lld/children", (long long)rdzv_etcd_process_pid(process),
           (long long)rdzv_etcd_process_pid(process));
  FILE *children = fopen(line, "r");
  int child = 0;
  assert_non_null(children);
  assert_int_equal(fscanf(children, "%d", &child), 1);
  fclose(children);
  assert_int_equal(kill(child, SIGKILL), 0);
  assert_code(rdzv_etcd_process_wait(process, 0, &status, &error), 0);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  assert_code(rdzv_etcd_process_wait(process, 0, &status, &error), 0); /* and again */
  rdzv_etcd_process_free(process);
  close(log);
  close(ends[0]);
  close(ends[1]);
}

static void test_the_sidecar_cannot_start(void **state) {
  (void)state;
  rdzv_etcd_process_options options = {.size = sizeof options, .binary = "/none"};
  rdzv_etcd_process *process;
  rdzv_error error;
  assert_error(rdzv_etcd_process_start(&options, &process, &error), RDZV_E_IO, &error,
               "'/none' is not an executable program");
  options.binary = "/bin/false";
  options.tries = 1;
  assert_error(rdzv_etcd_process_start(&options, &process, &error), RDZV_E_CONNECTION, &error, "ended with status 1");
  options.binary = "/bin/sleep"; /* which does not like the options */
  assert_error(rdzv_etcd_process_start(&options, &process, &error), RDZV_E_CONNECTION, &error, "sleep");
  options.binary = NULL;
  options.port = rdzv_etcd_process_port(etcd);
  assert_error(rdzv_etcd_process_start(&options, &process, &error), RDZV_E_IO, &error, "in use");
  assert_code(rdzv_etcd_process_start(&options, &process, NULL), RDZV_E_IO);
}

/* ---- for the other side --------------------------------------------------------------------------------------- */

static int exchange_extra(char **argv) {
  rdzv_handler *handler = open_at(argv[2], argv[3], 2, 2);
  rdzv_result *result = must_join(handler);
  rdzv_value value;
  rdzv_error error;
  int code = rdzv_handler_set_extra(handler, argv[4], argv[5], &error);
  if (code == 0) code = rdzv_handler_get_extra(handler, argv[6], SOON_MS, &value, &error);
  if (code == 0) {
    printf("%s\n", value.data);
    rdzv_value_free(&value);
  } else {
    fprintf(stderr, "%s\n", error.message);
  }
  rdzv_result_free(result);
  rdzv_handler_free(handler);
  return code == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
  if (argc == 7) return exchange_extra(argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_extra_data),
      cmocka_unit_test(test_extra_data_that_is_waited_for),
      cmocka_unit_test(test_polling_hears_of_changes),
      cmocka_unit_test(test_calls_while_one_waits),
      cmocka_unit_test(test_leaving_while_one_waits),
      cmocka_unit_test(test_canceling),
      cmocka_unit_test(test_closing),
      cmocka_unit_test(test_the_store_outlives_the_handler),
      cmocka_unit_test(test_other_backends_have_no_extra_data),
      cmocka_unit_test(test_the_sidecar_tells_where_it_is),
      cmocka_unit_test(test_the_sidecar_ends_by_itself),
      cmocka_unit_test(test_the_sidecar_cannot_start),
  };
  if (!have_etcd()) return 77;
  return cmocka_run_group_tests(tests, start_etcd, stop_etcd);
}
