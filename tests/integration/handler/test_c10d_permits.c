/* SPDX-License-Identifier: BSD-3-Clause */
/* Permits to write: one at a time, in the order in which they are waited for, and a permit that gets lost is replaced.
 */
#include "cells.h"

static int setup(void **state) {
  *state = cells_open(*(const enum store_kind *)*state);
  return 0;
}

static int teardown(void **state) {
  cells_close(*state);
  return 0;
}

static int take(rdzv_backend *cell, int64_t timeout_ms) {
  rdzv_error error = {0};
  const int result = cell->ops->take_permit(cell, timeout_ms, &error);
  if (result < 0) assert_code(error.code, result);
  return result;
}

/* Only stores with versions and queues have permits; text cells of an older server do not. */
static void test_permits_need_versions(void **state) {
  (void)state;
  for (enum store_kind kind = 0; kind < KINDS; kind++) {
    struct cells *cells = cells_open(kind);
    assert_int_equal(cells->cell->ops->take_permit != NULL, has_versions(kind));
    assert_int_equal(cells->cell->ops->give_permit != NULL, has_versions(kind));
    cells_close(cells);
  }
}

/* The permit is there from the beginning, and again after each that ends; two cells that were opened did not make two.
 */
static void test_a_free_permit_is_had_at_once(void **state) {
  struct cells *cells = *state;
  for (int i = 0; i < 5; i++) {
    rdzv_backend *cell = i % 2 ? cells->other : cells->cell;
    assert_code(take(cell, 0), 0);
    int64_t len = -1;
    assert_code(rdzv_store_queue_len(cells->raw, BYTES("rdzv.permit." RUN_ID), &len, NULL), 0);
    assert_int_equal(len, 0);
    cell->ops->give_permit(cell);
    assert_code(rdzv_store_queue_len(cells->raw, BYTES("rdzv.permit." RUN_ID), &len, NULL), 0);
    assert_int_equal(len, 1);
  }
  assert_int_equal(atomic_load(&cells->lost), 0);
}

/* While another has it there is none, and whoever does not wait long is told so. */
static void test_a_permit_that_is_taken_times_out(void **state) {
  struct cells *cells = *state;
  const int64_t began = live_now_ms();
  assert_code(take(cells->cell, SOON_MS), 0);
  assert_code(take(cells->other, 0), RDZV_E_TIMEOUT);
  assert_code(take(cells->other, 50), RDZV_E_TIMEOUT);
  assert_true(live_now_ms() - began >= 49);
  cells->cell->ops->give_permit(cells->cell);
  assert_code(take(cells->other, SOON_MS), 0);
  cells->other->ops->give_permit(cells->other);
}

/* Whoever waits gets it when it ends. */
static void test_the_end_of_a_permit_begins_the_next(void **state) {
  struct cells *cells = *state;
  for (int i = 0; i < 5; i++) {
    assert_code(take(cells->cell, SOON_MS), 0);
    struct cell_call call = {.cell = cells->other, .permit = true, .timeout_ms = SOON_MS};
    cell_call_start(&call);
    cells->cell->ops->give_permit(cells->cell);
    cell_call_end(&call);
    assert_code(call.result, 0);
    cells->other->ops->give_permit(cells->other);
  }
}

/* Who took it and died does not keep it from the others: one of them, and one only, has it after a while. */
static void test_a_lost_permit_is_replaced_once(void **state) {
  struct cells *cells = *state;
  assert_code(take(cells->cell, SOON_MS), 0);
  close_cell(&cells->cell);
  rdzv_store *third_store = another(cells->store);
  rdzv_backend *third = cell_in(cells, third_store);
  struct cell_call calls[] = {{.cell = cells->other, .permit = true, .timeout_ms = SOON_MS},
                              {.cell = third, .permit = true, .timeout_ms = SOON_MS}};
  atomic_store(&cells->lost, 0);
  for (int i = 0; i < 2; i++) cell_call_start(&calls[i]);
  for (int i = 0; i < 2; i++) {
    cell_call_end(&calls[i]);
    assert_code(calls[i].result, 0);
    assert_true(calls[i].took_ms >= 150);
    assert_brief(calls[i].took_ms, SOON_MS / 2);
  }
  close_cell(&third);
  rdzv_store_free(third_store);
}

/* A wake ends the wait for a permit; the permit is there afterwards as before. */
static void test_a_wake_ends_the_wait_for_a_permit(void **state) {
  struct cells *cells = *state;
  assert_code(take(cells->cell, SOON_MS), 0);
  struct cell_call call = {.cell = cells->other, .permit = true, .timeout_ms = 200};
  cells->other->ops->wake(cells->other);
  cell_call_run(&call);
  assert_code(call.result, RDZV_E_CANCELED);
  cell_call_start(&call);
  cells->other->ops->wake(cells->other);
  cell_call_end(&call);
  if (call.result != RDZV_E_TIMEOUT) assert_code(call.result, RDZV_E_CANCELED); /* or over before the wake */
  cells->cell->ops->give_permit(cells->cell);
  call.timeout_ms = SOON_MS;
  cell_call_run(&call);
  if (call.result == RDZV_E_CANCELED) cell_call_run(&call); /* the wake that came too late */
  assert_code(call.result, 0);
  cells->other->ops->give_permit(cells->other);
}

/* ---- many ----------------------------------------------------------------------------------------------------- */

enum { WRITERS = 4, PERMITS = 25 };

struct writer {
  struct cells *cells;
  atomic_int *inside, *overlaps, *done;
  pthread_barrier_t *begin;
  int failed;
  rdzv_store *store;
  rdzv_backend *cell;
  pthread_t thread;
};

static void *write_by_permits(void *arg) {
  struct writer *writer = arg;
  pthread_barrier_wait(writer->begin);
  for (int i = 0; i < PERMITS; i++) {
    const int result = writer->cell->ops->take_permit(writer->cell, SOON_MS, NULL);
    if (result < 0) writer->failed = result;
    if (atomic_fetch_add(writer->inside, 1) > 0) atomic_fetch_add(writer->overlaps, 1);
    atomic_fetch_add(writer->done, 1);
    atomic_fetch_sub(writer->inside, 1);
    writer->cell->ops->give_permit(writer->cell);
  }
  return NULL;
}

/* Many take permits: never two at once but where one was taken for lost, and everybody gets theirs. Who goes first is
 * the scheduler's choice: a thread that runs alone for a while takes many in a row. */
static void test_permits_are_one_at_a_time(void **state) {
  struct cells *cells = *state;
  struct writer writers[WRITERS];
  pthread_barrier_t begin;
  pthread_barrier_init(&begin, NULL, WRITERS + 1);
  atomic_int inside = 0, overlaps = 0, done = 0;
  for (int i = 0; i < WRITERS; i++) {
    writers[i] = (struct writer){cells, &inside, &overlaps, &done, &begin, .store = another(cells->store)};
    writers[i].cell = cell_in(cells, writers[i].store);
  }
  assert_code(take(cells->cell, SOON_MS), 0); /* so that all of them wait at first */
  for (int i = 0; i < WRITERS; i++)
    assert_int_equal(pthread_create(&writers[i].thread, NULL, write_by_permits, &writers[i]), 0);
  pthread_barrier_wait(&begin);
  cells->cell->ops->give_permit(cells->cell);
  for (int i = 0; i < WRITERS; i++) {
    pthread_join(writers[i].thread, NULL);
    close_cell(&writers[i].cell);
    rdzv_store_free(writers[i].store);
  }
  pthread_barrier_destroy(&begin);
  assert_int_equal(atomic_load(&done), WRITERS * PERMITS);
  for (int i = 0; i < WRITERS; i++) assert_code(writers[i].failed, 0);
  assert_true(atomic_load(&overlaps) <= atomic_load(&cells->lost));
}

int main(void) {
  static const enum store_kind kinds[] = {KIND_HASH, KIND_TCP};
#define BOTH(test)                                               \
  {#test " (hash)", test, setup, teardown, (void *)&kinds[0]}, { \
#test " (tcp)", test, setup, teardown, (void *)&kinds[1]     \
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_permits_need_versions), BOTH(test_a_free_permit_is_had_at_once),
      BOTH(test_a_permit_that_is_taken_times_out),  BOTH(test_the_end_of_a_permit_begins_the_next),
      BOTH(test_a_lost_permit_is_replaced_once),    BOTH(test_a_wake_ends_the_wait_for_a_permit),
      BOTH(test_permits_are_one_at_a_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
