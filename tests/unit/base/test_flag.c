/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/wait/flag.h"
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

struct fixture {
  struct flag cancel;
  int pipe[2];
};

static int setup(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  if (!f || flag_open(&f->cancel, NULL) < 0 || pipe(f->pipe) < 0) return -1;
  *state = f;
  return 0;
}

static int teardown(void **state) {
  struct fixture *f = *state;
  flag_close(&f->cancel);
  close(f->pipe[0]);
  close(f->pipe[1]);
  free(f);
  return 0;
}

/* It is down at first; raised once, it stays up, however often it is looked at or raised. */
static void test_a_raised_flag_stays_up(void **state) {
  struct fixture *f = *state;
  assert_false(flag_raised(&f->cancel));
  for (int i = 0; i < 3; i++) {
    flag_raise(&f->cancel);
    assert_true(flag_raised(&f->cancel));
    assert_true(flag_raised(&f->cancel));
  }
}

/* errno is the caller's: a signal handler must leave it alone. */
static void test_raising_leaves_errno_alone(void **state) {
  struct fixture *f = *state;
  struct flag closed = FLAG_NONE;
  errno = ENOENT;
  flag_raise(&closed);
  assert_int_equal(errno, ENOENT);
  flag_raise(&f->cancel);
  assert_int_equal(errno, ENOENT);
}

/* Two names of one flag: raising either raises both, and closing one leaves the other. */
static void test_a_shared_flag_has_two_names(void **state) {
  struct fixture *f = *state;
  struct flag other;
  assert_code(flag_share(&other, &f->cancel, NULL), 0);
  flag_raise(&other);
  assert_true(flag_raised(&f->cancel));
  flag_close(&other);
  assert_true(flag_raised(&f->cancel));
}

/* A descriptor of the caller's raises it as long as it is readable, and does not keep it from being raised. */
static void test_a_descriptor_of_the_callers_is_part_of_the_flag(void **state) {
  struct fixture *f = *state;
  struct flag with, other;
  char byte;
  assert_code(flag_open_with(&with, f->pipe[0], NULL), 0);
  assert_code(flag_share(&other, &with, NULL), 0);
  assert_false(flag_raised(&with));
  assert_int_equal(write(f->pipe[1], "x", 1), 1);
  assert_true(flag_raised(&with) && flag_raised(&other));
  assert_code(flag_pause(&with, deadline_after(60000)), RDZV_E_CANCELED);
  assert_int_equal(read(f->pipe[0], &byte, 1), 1);
  assert_false(flag_raised(&with) || flag_raised(&other));
  flag_raise(&other);
  assert_true(flag_raised(&with) && flag_raised(&other));
  flag_close(&with);
  assert_true(flag_raised(&other));
  flag_close(&other);
  assert_int_equal(write(f->pipe[1], "x", 1), 1); /* it was borrowed, and is still open */
  assert_int_equal(read(f->pipe[0], &byte, 1), 1);
}

/* A number that is no descriptor to wait for is refused with it. */
static void test_a_descriptor_that_cannot_be_watched_is_refused(void **state) {
  (void)state;
  struct flag cancel;
  rdzv_error error;
  assert_error(flag_open_with(&cancel, 9999, &error), RDZV_E_INVALID, &error, "9999");
  assert_code(flag_open_with(&cancel, 0, NULL), 0); /* none */
  assert_false(flag_raised(&cancel));
  flag_close(&cancel);
}

static int count_fds(void) {
  int count = 0;
  for (int fd = 0; fd < 256; fd++) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

/* Flags of a group need no descriptor: neither to be raised nor to be waited for. One that is asked for shows what has
 * happened before. */
static void test_a_group_needs_no_descriptors(void **state) {
  (void)state;
  struct flag_group group = {0};
  struct flag awaited, cancel;
  const int before = count_fds();
  assert_code(flag_open_in(&awaited, &group, 0, NULL), 0);
  assert_code(flag_open_in(&cancel, &group, 0, NULL), 0);
  assert_code(flag_await(&awaited, &cancel, deadline_after(10)), RDZV_E_TIMEOUT);
  flag_raise(&awaited);
  assert_code(flag_await(&awaited, &cancel, deadline_after(60000)), 0);
  flag_lower(&awaited);
  assert_false(flag_raised(&awaited));
  flag_raise(&cancel);
  assert_code(flag_await(&awaited, &cancel, deadline_after(60000)), RDZV_E_CANCELED);
  assert_int_equal(count_fds(), before);
  struct pollfd fd = {.fd = flag_fd(&cancel), .events = POLLIN};
  assert_int_equal(poll(&fd, 1, 0), 1);
  assert_int_equal(count_fds(), before + 1);
  flag_close(&awaited);
  flag_close(&cancel);
  assert_int_equal(count_fds(), before);
}

static void *raise_later(void *flag) {
  const struct timespec moment = {0, 20000000};
  nanosleep(&moment, NULL);
  flag_raise(flag);
  return NULL;
}

/* A wait in a group is woken by each flag of it, from another thread. */
static void test_a_group_is_woken(void **state) {
  (void)state;
  struct flag_group group = {0};
  struct flag awaited, cancel;
  pthread_t thread;
  assert_code(flag_open_in(&awaited, &group, 0, NULL), 0);
  assert_code(flag_open_in(&cancel, &group, 0, NULL), 0);
  assert_int_equal(pthread_create(&thread, NULL, raise_later, &awaited), 0);
  assert_code(flag_await(&awaited, &cancel, deadline_after(60000)), 0);
  pthread_join(thread, NULL);
  flag_lower(&awaited);
  assert_int_equal(pthread_create(&thread, NULL, raise_later, &cancel), 0);
  assert_code(flag_await(&awaited, &cancel, deadline_after(60000)), RDZV_E_CANCELED);
  pthread_join(thread, NULL);
  flag_close(&awaited);
  flag_close(&cancel);
}

/* Closing twice is fine. */
static void test_closing_twice_is_fine(void **state) {
  (void)state;
  struct flag cancel;
  assert_code(flag_open(&cancel, NULL), 0);
  flag_close(&cancel);
  assert_int_equal(flag_fd(&cancel), -1);
  flag_close(&cancel);
}

/* A flag that cannot be made says why. */
static void test_a_flag_that_cannot_be_shared_says_why(void **state) {
  (void)state;
  const struct flag closed = FLAG_NONE;
  struct flag cancel;
  rdzv_error error;
  assert_error(flag_share(&cancel, &closed, &error), RDZV_E_INVALID, &error, "no flag");
}

/* Ready before the deadline is 0, and says which descriptor. */
static void test_poll_finds_what_is_ready(void **state) {
  struct fixture *f = *state;
  assert_int_equal(write(f->pipe[1], "x", 1), 1);
  struct pollfd fds[2] = {{.fd = f->pipe[0], .events = POLLIN}};
  assert_code(flag_poll(&f->cancel, fds, 1, deadline_after(60000)), 0);
  assert_true(fds[0].revents & POLLIN);
}

/* A deadline of now still looks once: what is ready is found, what is not is a timeout. */
static void test_a_deadline_that_has_passed_still_looks_once(void **state) {
  struct fixture *f = *state;
  struct pollfd fds[2] = {{.fd = f->pipe[0], .events = POLLIN}};
  assert_code(flag_poll(&f->cancel, fds, 1, deadline_after(0)), RDZV_E_TIMEOUT);
  assert_int_equal(write(f->pipe[1], "x", 1), 1);
  assert_code(flag_poll(&f->cancel, fds, 1, deadline_after(-1000)), 0);
}

/* The flag counts before what is ready. */
static void test_the_flag_counts_before_what_is_ready(void **state) {
  struct fixture *f = *state;
  assert_int_equal(write(f->pipe[1], "x", 1), 1);
  flag_raise(&f->cancel);
  struct pollfd fds[2] = {{.fd = f->pipe[0], .events = POLLIN}};
  assert_code(flag_poll(&f->cancel, fds, 1, deadline_after(60000)), RDZV_E_CANCELED);
  assert_code(flag_pause(&f->cancel, deadline_after(60000)), RDZV_E_CANCELED);
}

/* Without a flag only descriptor and deadline count. */
static void test_the_flag_may_be_null(void **state) {
  struct fixture *f = *state;
  struct pollfd fds[2] = {{.fd = f->pipe[0], .events = POLLIN}};
  assert_code(flag_poll(NULL, fds, 1, deadline_after(1)), RDZV_E_TIMEOUT);
  assert_code(flag_pause(NULL, deadline_after(1)), 0);
}

/* A pause lasts until its deadline. */
static void test_a_pause_lasts_until_its_deadline(void **state) {
  struct fixture *f = *state;
  const deadline until = deadline_after(30);
  assert_code(flag_pause(&f->cancel, until), 0);
  assert_int_equal(deadline_left(until), 0);
}

static void *raise_it(void *arg) {
  flag_raise(arg);
  return NULL;
}

/* From another thread it ends a wait without an end. */
static void test_another_thread_ends_a_wait_without_an_end(void **state) {
  struct fixture *f = *state;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, raise_it, &f->cancel), 0);
  struct pollfd fds[2] = {{.fd = f->pipe[0], .events = POLLIN}};
  assert_code(flag_poll(&f->cancel, fds, 1, INT64_MAX), RDZV_E_CANCELED);
  pthread_join(thread, NULL);
}

static struct flag *for_handler;
static int signals;

static void on_signal(int number) {
  (void)number;
  if (++signals == 3) flag_raise(for_handler);
}

/* Signals interrupt poll; the wait goes on until one of their handlers raises the flag. */
static void test_a_signal_handler_ends_a_wait(void **state) {
  struct fixture *f = *state;
  for_handler = &f->cancel;
  signals = 0;
  const struct sigaction action = {.sa_handler = on_signal};
  struct sigaction before;
  sigaction(SIGALRM, &action, &before);
  const struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
  timer_t timer;
  assert_int_equal(timer_create(CLOCK_MONOTONIC, (struct sigevent *)&event, &timer), 0);
  const struct itimerspec every = {{0, 5000000}, {0, 5000000}};
  timer_settime(timer, 0, &every, NULL);
  struct pollfd fds[2] = {{.fd = f->pipe[0], .events = POLLIN}};
  assert_code(flag_poll(&f->cancel, fds, 1, INT64_MAX), RDZV_E_CANCELED);
  timer_delete(timer);
  sigaction(SIGALRM, &before, NULL);
  assert_true(signals >= 3);
}

/* The descriptor of a thread ends its waits for any flag, and leaves the flag down. */
static void test_a_descriptor_of_the_thread_cancels_its_waits(void **state) {
  struct fixture *f = *state;
  struct flag_group group = {0};
  struct flag one, other;
  struct pollfd fds[2] = {{.fd = -1}};
  assert_int_equal(flag_open_in(&one, &group, 0, NULL), 0);
  assert_int_equal(flag_open_in(&other, &group, 0, NULL), 0);
  flag_set_thread_fd(f->pipe[0]);
  assert_false(flag_canceled(&f->cancel));
  assert_code(flag_poll(&f->cancel, fds, 1, deadline_after(0)), RDZV_E_TIMEOUT);
  assert_int_equal(write(f->pipe[1], "x", 1), 1);
  assert_code(flag_poll(&f->cancel, fds, 1, INT64_MAX), RDZV_E_CANCELED);
  assert_code(flag_await(&one, &other, INT64_MAX), RDZV_E_CANCELED);
  assert_true(flag_canceled(&f->cancel));
  assert_false(flag_raised(&f->cancel));
  assert_code(flag_poll(NULL, fds, 1, deadline_after(0)), RDZV_E_TIMEOUT); /* nothing cancels this wait */
  flag_set_thread_fd(0);
  assert_code(flag_poll(&f->cancel, fds, 1, deadline_after(0)), RDZV_E_TIMEOUT);
  flag_close(&one);
  flag_close(&other);
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      WITH_FIXTURE(test_a_raised_flag_stays_up),
      WITH_FIXTURE(test_raising_leaves_errno_alone),
      WITH_FIXTURE(test_a_shared_flag_has_two_names),
      WITH_FIXTURE(test_a_descriptor_of_the_callers_is_part_of_the_flag),
      cmocka_unit_test(test_a_descriptor_that_cannot_be_watched_is_refused),
      cmocka_unit_test(test_closing_twice_is_fine),
      cmocka_unit_test(test_a_group_needs_no_descriptors),
      cmocka_unit_test(test_a_group_is_woken),
      cmocka_unit_test(test_a_flag_that_cannot_be_shared_says_why),
      WITH_FIXTURE(test_poll_finds_what_is_ready),
      WITH_FIXTURE(test_a_deadline_that_has_passed_still_looks_once),
      WITH_FIXTURE(test_the_flag_counts_before_what_is_ready),
      WITH_FIXTURE(test_the_flag_may_be_null),
      WITH_FIXTURE(test_a_pause_lasts_until_its_deadline),
      WITH_FIXTURE(test_another_thread_ends_a_wait_without_an_end),
      WITH_FIXTURE(test_a_signal_handler_ends_a_wait),
      WITH_FIXTURE(test_a_descriptor_of_the_thread_cancels_its_waits),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
