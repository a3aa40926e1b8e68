/* SPDX-License-Identifier: BSD-3-Clause */
/* The first-generation rendezvous as its header describes every kind: the words for its phases, a status that waits for
 * a change, the reason for closing, and a farewell that fails. */
#include "etcd_v1_scene.h"

static rdzv_handler *open_with(const char *run_id, int64_t min, int64_t max, const char *conf) {
  const rdzv_params params = {.size = sizeof params,
                              .backend = "etcd",
                              .endpoint = rdzv_etcd_process_endpoint(etcd),
                              .run_id = run_id,
                              .min_nodes = min,
                              .max_nodes = max,
                              .local_addr = "127.0.0.1",
                              .conf = conf};
  rdzv_handler *handler;
  rdzv_error error;
  if (rdzv_handler_open(&params, &handler, &error) < 0) fail_msg("%s", error.message);
  return handler;
}

/* ---- the status ----------------------------------------------------------------------------------------------- */

struct look {
  pthread_t thread;
  rdzv_handler *handler;
  atomic_int id; /* of the thread */
  int64_t wait_ms, took_ms;
  int code;
  char phase[16];
  size_t participants;
  rdzv_error error;
};

static void look_now(struct look *look) {
  rdzv_status *status;
  const int64_t began = live_now_ms();
  look->code = rdzv_handler_status(look->handler, look->wait_ms, &status, &look->error);
  look->took_ms = live_now_ms() - began;
  if (look->code < 0) return;
  snprintf(look->phase, sizeof look->phase, "%s", status->phase);
  look->participants = status->participants;
  rdzv_status_free(status);
}

static void *look_in_thread(void *argument) {
  struct look *look = argument;
  atomic_store(&look->id, gettid());
  look_now(look);
  return NULL;
}

/* It waits when this returns. */
static void begin_look(struct look *look, rdzv_handler *handler, int64_t wait_ms) {
  *look = (struct look){.handler = handler, .wait_ms = wait_ms};
  assert_int_equal(pthread_create(&look->thread, NULL, look_in_thread, look), 0);
  assert_true(await_asleep(&look->id));
}

static void end_look(struct look *look) { pthread_join(look->thread, NULL); }

/* Looks until there are so many participants, in that phase, each time waiting for a change. */
static void await_phase(rdzv_handler *handler, const char *phase, size_t participants) {
  const int64_t until = live_now_ms() + SOON_MS;
  struct look look = {.handler = handler};
  do {
    look_now(&look);
    if (look.code < 0) fail_msg("%s", look.error.message);
    look.wait_ms = 5000;
  } while ((strcmp(look.phase, phase) != 0 || look.participants != participants) && live_now_ms() < until);
  assert_string_equal(look.phase, phase);
  assert_int_equal(look.participants, participants);
}

static void test_the_phases_have_the_words_of_the_header(void **state) {
  (void)state;
  rdzv_handler *looks = open_with("phases", 2, 3, NULL);
  rdzv_handler *nodes[3];
  struct call calls[3] = {{0}};
  for (int i = 0; i < 3; i++) nodes[i] = open_with("phases", 2, 3, "last_call_timeout=60");
  await_phase(looks, "gathering", 0);
  begin(&calls[0], do_next, nodes[0]);
  await_phase(looks, "gathering", 1);
  begin(&calls[1], do_next, nodes[1]);
  await_phase(looks, "last call", 2);
  begin(&calls[2], do_next, nodes[2]);
  for (int i = 0; i < 3; i++) assert_code(finish(&calls[i]), 0);
  await_phase(looks, "complete", 3);
  assert_code(rdzv_handler_set_closed(nodes[0], NULL, NULL), 0);
  await_phase(looks, "closed", 3);
  for (int i = 0; i < 3; i++) {
    rdzv_result_free(calls[i].result);
    rdzv_handler_free(nodes[i]);
  }
  rdzv_handler_free(looks);
}

static void test_a_status_waits_for_a_change(void **state) {
  (void)state;
  enum { UNCHANGED_MS = 2500 };
  rdzv_handler *looks = open_with("change", 1, 1, NULL), *node = open_with("change", 1, 1, NULL);
  struct look look = {.handler = looks, .wait_ms = SOON_MS};
  look_now(&look); /* it has seen nothing before, so anything is news */
  assert_int_equal(look.code, 0);
  assert_brief(look.took_ms, SOON_MS / 2);
  look.wait_ms = UNCHANGED_MS;
  look_now(&look);
  assert_int_equal(look.code, 0);
  assert_true(look.took_ms >= UNCHANGED_MS);
  assert_brief(look.took_ms, SOON_MS / 2);
  begin_look(&look, looks, SOON_MS);
  rdzv_result *result = must_join(node);
  end_look(&look);
  assert_int_equal(look.code, 0);
  assert_brief(look.took_ms, SOON_MS / 2);
  await_phase(looks, "complete", 1);
  rdzv_result_free(result);
  rdzv_handler_free(node);
  rdzv_handler_free(looks);
}

static void test_a_status_that_waits_is_canceled(void **state) {
  (void)state;
  rdzv_handler *looks = open_with("cancel", 1, 1, NULL);
  struct look look = {.handler = looks};
  look_now(&look);
  begin_look(&look, looks, SOON_MS);
  rdzv_handler_cancel(looks);
  end_look(&look);
  assert_int_equal(look.code, RDZV_E_CANCELED);
  assert_brief(look.took_ms, SOON_MS / 2);
  look = (struct look){.handler = looks};
  look_now(&look);
  assert_int_equal(look.code, RDZV_E_CANCELED);
  rdzv_handler_free(looks);
}

/* ---- closing and leaving -------------------------------------------------------------------------------------- */

static void test_the_reason_for_closing_is_told_to_others(void **state) {
  (void)state;
  rdzv_handler *closes = open_with("reason", 1, 1, NULL), *comes = open_with("reason", 1, 1, NULL);
  rdzv_result *result;
  rdzv_error error;
  assert_code(rdzv_handler_set_closed(closes, "the disk is full", NULL), 0);
  assert_error(rdzv_handler_next(comes, &result, &error), RDZV_E_CLOSED, &error, "closed: the disk is full");
  assert_code(rdzv_handler_set_closed(comes, "for another reason", NULL), 0); /* the first one stays */
  assert_error(rdzv_handler_next(comes, &result, &error), RDZV_E_CLOSED, &error, "the disk is full");
  rdzv_handler_free(closes);
  rdzv_handler_free(comes);
  rdzv_handler *member = open_with("reason-2", 1, 1, NULL);
  result = must_join(member);
  assert_code(rdzv_handler_set_closed(member, "no \xFF more", NULL), 0); /* no UTF-8: closed all the same */
  rdzv_result_free(result);
  assert_error(rdzv_handler_next(member, &result, &error), RDZV_E_CLOSED, &error, "closed");
  rdzv_handler_free(member);
}

/* The last test: it ends the etcd. */
static void test_leaving_without_an_answer_fails(void **state) {
  (void)state;
  rdzv_handler *stays = open_with("leave", 1, 1, "close_timeout=1"), *node = open_with("left", 1, 1, "close_timeout=1");
  rdzv_result *result = must_join(node), *other = must_join(stays);
  rdzv_error error;
  assert_code(rdzv_handler_leave(node, &error), 0);
  assert_code(rdzv_handler_leave(node, &error), 0); /* it is in no round, so there is nothing to leave */
  stop_etcd(NULL);
  const int64_t began = live_now_ms();
  assert_error(rdzv_handler_leave(stays, &error), RDZV_E_CONNECTION, &error, "cannot leave the rendezvous");
  assert_true(live_now_ms() - began >= 900);
  assert_within(began, SOON_MS / 2);
  rdzv_result_free(result);
  rdzv_result_free(other);
  rdzv_handler_free(node);
  rdzv_handler_free(stays);
}

int main(void) {
  if (!have_etcd()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_phases_have_the_words_of_the_header),
      cmocka_unit_test(test_a_status_waits_for_a_change),
      cmocka_unit_test(test_a_status_that_waits_is_canceled),
      cmocka_unit_test(test_the_reason_for_closing_is_told_to_others),
      cmocka_unit_test(test_leaving_without_an_answer_fails),
  };
  return cmocka_run_group_tests(tests, start_etcd, stop_etcd);
}
