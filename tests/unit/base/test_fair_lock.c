/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/wait/fair_lock.h"
#include "unit.h"

enum { CALLERS = 8, ROUNDS = 500 };

struct scene {
  struct fair_lock lock;
  int who[CALLERS + 2]; /* had the lock, in that order; guarded by it, as the rest */
  int count, sleeps;
  struct flag begun;
};

struct caller {
  struct scene *scene;
  int name;
  pthread_t thread;
};

static void note(struct scene *scene, int name) { scene->who[scene->count++] = name; }

/* Waits until that many callers have asked for the lock so far. */
static void await_asked(struct fair_lock *lock, uint64_t count) {
  const deadline until = deadline_after(60000);
  for (bool asked = false; !asked;) {
    assert_true(deadline_left(until) > 0);
    pthread_mutex_lock(&lock->mutex);
    asked = lock->asked == count;
    pthread_mutex_unlock(&lock->mutex);
  }
}

static void *call(void *argument) {
  struct caller *caller = argument;
  fair_lock_take(&caller->scene->lock);
  note(caller->scene, caller->name);
  fair_lock_give(&caller->scene->lock);
  return NULL;
}

static void start(struct caller *caller, struct scene *scene, int name) {
  *caller = (struct caller){.scene = scene, .name = name};
  assert_int_equal(pthread_create(&caller->thread, NULL, call, caller), 0);
}

/* Callers that wait get the lock in the order in which they asked for it. */
static void test_callers_get_it_in_order(void **state) {
  (void)state;
  struct scene scene = {0};
  struct caller callers[CALLERS];
  assert_int_equal(fair_lock_open(&scene.lock, NULL), 0);
  fair_lock_take(&scene.lock);
  for (int i = 0; i < CALLERS; i++) {
    start(&callers[i], &scene, i);
    await_asked(&scene.lock, (uint64_t)i + 2);
  }
  assert_int_equal(scene.count, 0);
  fair_lock_give(&scene.lock);
  for (int i = 0; i < CALLERS; i++) pthread_join(callers[i].thread, NULL);
  for (int i = 0; i < CALLERS; i++) assert_int_equal(scene.who[i], i);
  assert_false(flag_raised(&scene.lock.wanted));
  fair_lock_close(&scene.lock);
}

/* A caller raises the flag while the thread has the lock; the thread gets it
 * back after all callers that wait. */
static void test_callers_go_before_the_thread(void **state) {
  (void)state;
  struct scene scene = {0};
  struct caller callers[2];
  assert_int_equal(fair_lock_open(&scene.lock, NULL), 0);
  fair_lock_borrow(&scene.lock);
  assert_false(flag_raised(&scene.lock.wanted));
  for (int i = 0; i < 2; i++) {
    start(&callers[i], &scene, i);
    await_asked(&scene.lock, (uint64_t)i + 1);
  }
  assert_true(flag_raised(&scene.lock.wanted));
  assert_int_equal(scene.count, 0);
  fair_lock_return(&scene.lock);
  fair_lock_borrow(&scene.lock);
  assert_int_equal(scene.count, 2);
  assert_false(flag_raised(&scene.lock.wanted));
  fair_lock_return(&scene.lock);
  for (int i = 0; i < 2; i++) pthread_join(callers[i].thread, NULL);
  fair_lock_close(&scene.lock);
}

static void *borrow(void *argument) {
  struct scene *scene = argument;
  flag_raise(&scene->begun);
  fair_lock_borrow(&scene->lock);
  note(scene, -1);
  fair_lock_return(&scene->lock);
  return NULL;
}

/* The same where the thread asked before the callers, while another caller had
 * the lock. */
static void test_callers_overtake_the_thread(void **state) {
  (void)state;
  struct scene scene = {0};
  struct caller callers[2];
  pthread_t thread;
  assert_int_equal(fair_lock_open(&scene.lock, NULL), 0);
  assert_int_equal(flag_open(&scene.begun, NULL), 0);
  fair_lock_take(&scene.lock);
  assert_int_equal(pthread_create(&thread, NULL, borrow, &scene), 0);
  assert_int_equal(flag_pause(&scene.begun, deadline_after(60000)), RDZV_E_CANCELED);
  for (int i = 0; i < 2; i++) {
    start(&callers[i], &scene, i);
    await_asked(&scene.lock, (uint64_t)i + 2);
  }
  fair_lock_give(&scene.lock);
  for (int i = 0; i < 2; i++) pthread_join(callers[i].thread, NULL);
  pthread_join(thread, NULL);
  for (int i = 0; i < 3; i++) assert_int_equal(scene.who[i], i < 2 ? i : -1);
  flag_close(&scene.begun);
  fair_lock_close(&scene.lock);
}

static void *listen(void *argument) {
  struct scene *scene = argument;
  fair_lock_borrow(&scene->lock);
  for (; scene->count == 0; scene->sleeps++) fair_lock_await_caller(&scene->lock);
  note(scene, -1);
  fair_lock_return(&scene->lock);
  return NULL;
}

/* The thread that has nothing to do sleeps until a caller has had the lock. */
static void test_the_thread_waits_for_a_caller(void **state) {
  (void)state;
  struct scene scene = {0};
  pthread_t thread;
  assert_int_equal(fair_lock_open(&scene.lock, NULL), 0);
  assert_int_equal(pthread_create(&thread, NULL, listen, &scene), 0);
  int calls = 0;
  for (bool sleeps = false; !sleeps || calls < CALLERS; calls++) {
    fair_lock_take(&scene.lock);
    sleeps = scene.sleeps > 0;
    fair_lock_give(&scene.lock);
  }
  fair_lock_take(&scene.lock);
  note(&scene, 7);
  fair_lock_give(&scene.lock);
  pthread_join(thread, NULL);
  assert_int_equal(scene.count, 2);
  assert_int_equal(scene.who[0], 7);
  assert_int_equal(scene.who[1], -1);
  assert_true(scene.sleeps <= calls + 1); /* each ends by a caller */
  fair_lock_close(&scene.lock);
}

static void *count_as_caller(void *argument) {
  struct scene *scene = argument;
  for (int i = 0; i < ROUNDS; i++) {
    fair_lock_take(&scene->lock);
    scene->count++;
    fair_lock_give(&scene->lock);
  }
  return NULL;
}

static void *count_as_thread(void *argument) {
  struct scene *scene = argument;
  for (int i = 0; i < ROUNDS; i++) {
    fair_lock_borrow(&scene->lock);
    scene->count++;
    fair_lock_return(&scene->lock);
  }
  return NULL;
}

/* One at a time, whoever it is. */
static void test_one_has_it_at_a_time(void **state) {
  (void)state;
  struct scene scene = {0};
  pthread_t threads[4];
  assert_int_equal(fair_lock_open(&scene.lock, NULL), 0);
  for (int i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, i == 0 ? count_as_thread : count_as_caller, &scene), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  assert_int_equal(scene.count, 4 * ROUNDS);
  fair_lock_close(&scene.lock);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_callers_get_it_in_order),     cmocka_unit_test(test_callers_go_before_the_thread),
      cmocka_unit_test(test_callers_overtake_the_thread), cmocka_unit_test(test_the_thread_waits_for_a_caller),
      cmocka_unit_test(test_one_has_it_at_a_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
