/* SPDX-License-Identifier: BSD-3-Clause */
/* All calls of a handler from many threads at once. */
#ifndef RDZV_TESTS_HANDLER_THREADS_H
#define RDZV_TESTS_HANDLER_THREADS_H

#include "live.h"

#include <rdzv/handler.h>
#include <stdatomic.h>

struct handler_threads {
  rdzv_handler *handler;
  atomic_bool over, canceled;
};

/* A thread of a test has no other way to fail. */
static inline void expect_code(const struct handler_threads *shared, const char *what, int code, int other,
                               const rdzv_error *error) {
  const bool canceled = code == RDZV_E_CANCELED && atomic_load(&shared->canceled);
  if (code == 0 || code == other || canceled) return;
  fprintf(stderr, "%s: %s\n", what, error->message);
  _exit(1);
}

static inline void *thread_looks(void *argument) {
  struct handler_threads *shared = argument;
  while (!atomic_load(&shared->over)) {
    rdzv_error error = {0};
    rdzv_status *status;
    int64_t count;
    bool closed;
    expect_code(shared, "is_closed", rdzv_handler_is_closed(shared->handler, &closed, &error), 0, &error);
    expect_code(shared, "waiting", rdzv_handler_num_nodes_waiting(shared->handler, &count, &error), 0, &error);
    const int code = rdzv_handler_status(shared->handler, 1, &status, &error);
    expect_code(shared, "status", code, 0, &error);
    if (code == 0) rdzv_status_free(status);
    SCRIPT_CHECK(*rdzv_handler_node(shared->handler) && *rdzv_handler_describe(shared->handler));
    rdzv_handler_change_fd(shared->handler);
    rdzv_handler_ended_fd(shared->handler);
    rdzv_handler_set_close_timeout(shared->handler, SOON_MS, NULL);
    rdzv_handler_set_linger(shared->handler, 0, NULL);
  }
  return NULL;
}

/* Between rounds there is nothing to hear of, which is RDZV_E_INVALID. */
static inline void *thread_hears(void *argument) {
  struct handler_threads *shared = argument;
  while (!atomic_load(&shared->over)) {
    rdzv_error error = {0};
    rdzv_change *change;
    const int code = rdzv_handler_wait_change(shared->handler, 2, &change, &error);
    expect_code(shared, "wait_change", code == RDZV_E_TIMEOUT ? 0 : code, RDZV_E_INVALID, &error);
    if (code == 0) rdzv_change_free(change);
  }
  return NULL;
}

static inline void *thread_joins(void *argument) {
  struct handler_threads *shared = argument;
  for (int i = 0; i < 4; i++) {
    rdzv_error error = {0};
    rdzv_result *result;
    const int code = rdzv_handler_next(shared->handler, &result, &error);
    expect_code(shared, "next", code, 0, &error);
    if (code == 0) rdzv_result_free(result);
  }
  return NULL;
}

static inline void *thread_leaves(void *argument) {
  struct handler_threads *shared = argument;
  while (!atomic_load(&shared->over)) {
    rdzv_error error = {0};
    expect_code(shared, "leave", rdzv_handler_leave(shared->handler, &error), 0, &error);
  }
  return NULL;
}

static inline void *thread_closes(void *argument) {
  struct handler_threads *shared = argument;
  rdzv_error error = {0};
  expect_code(shared, "set_closed", rdzv_handler_set_closed(shared->handler, "the test is over", &error), 0, &error);
  expect_code(shared, "shutdown", rdzv_handler_shutdown(shared->handler, &error), 0, &error);
  return NULL;
}

/* Of a handler that can be in a round alone; it is canceled and closed then. */
static inline void check_handler_threads(rdzv_handler *handler) {
  void *(*const runs[])(void *) = {thread_looks, thread_looks, thread_hears, thread_hears, thread_leaves};
  struct handler_threads shared = {.handler = handler};
  pthread_t threads[COUNT_OF(runs)], joins[2], closes[2];
  for (size_t i = 0; i < COUNT_OF(runs); i++) assert_int_equal(pthread_create(&threads[i], NULL, runs[i], &shared), 0);
  for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&joins[i], NULL, thread_joins, &shared), 0);
  for (int i = 0; i < 2; i++) pthread_join(joins[i], NULL);
  assert_int_equal(pthread_create(&joins[0], NULL, thread_joins, &shared), 0);
  atomic_store(&shared.canceled, true);
  rdzv_handler_cancel(handler);
  pthread_join(joins[0], NULL);
  for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&closes[i], NULL, thread_closes, &shared), 0);
  for (int i = 0; i < 2; i++) pthread_join(closes[i], NULL);
  atomic_store(&shared.over, true);
  for (size_t i = 0; i < COUNT_OF(runs); i++) pthread_join(threads[i], NULL);
}

#endif
