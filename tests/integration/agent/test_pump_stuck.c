/* SPDX-License-Identifier: BSD-3-Clause */
/* Readers that do not read, writers that do not end. */
#include "pump_pipes.h"

#include <semaphore.h>
#include <stdatomic.h>

/* Fills the pipe and keeps the pump waiting for room. */
static void *write_much(void *argument) {
  const int *fd = argument;
  char line[100];
  memset(line, 'x', sizeof line);
  line[sizeof line - 1] = '\n';
  signal(SIGPIPE, SIG_IGN);
  for (int i = 0; i < 5000; i++)
    if (write(*fd, line, sizeof line) < 0) break;
  return NULL;
}

/* Until no more fits into what nobody reads. */
static void wait_full(const struct reader *reader) {
  struct pollfd room = {.fd = reader->ends[1], .events = POLLOUT};
  while (poll(&room, 1, 0) > 0) usleep(1000);
}

static void test_a_reader_that_stops_holds_nobody(void **unused) {
  (void)unused;
  const size_t before = count_fds();
  struct reader reader;
  struct pump *pump = open_pump();
  pthread_t thread;
  char *last = NULL, *other = NULL;
  int fd, other_fd;
  reader_open(&reader); /* and it does not read */
  struct pump_stream *two = add(pump, -1, -1, "", &other_fd);
  struct pump_stream *one = add(pump, -1, reader.ends[1], "[x0]:", &fd);
  assert_int_equal(pthread_create(&thread, NULL, write_much, &fd), 0);
  wait_full(&reader);
  pump_end(pump, one, deadline_after(300), &last);
  assert_null(last); /* what nobody could read by then is lost */
  pthread_join(thread, NULL);
  close(fd);
  say(other_fd, "of another"); /* the thread is free again */
  close(other_fd);
  pump_end(pump, two, deadline_after(SOON_MS), &other);
  assert_string_equal(other, "of another");
  free(other);
  pump_close(pump);
  close(reader.ends[0]);
  close(reader.ends[1]);
  assert_int_equal(count_fds(), before);
}

static void test_closing_waits_for_no_reader(void **unused) {
  (void)unused;
  const size_t before = count_fds();
  struct reader reader;
  struct pump *pump = open_pump();
  pthread_t thread;
  int fd;
  reader_open(&reader);
  add(pump, -1, reader.ends[1], "[x0]:", &fd);
  assert_int_equal(pthread_create(&thread, NULL, write_much, &fd), 0);
  wait_full(&reader);
  pump_close(pump);
  pthread_join(thread, NULL); /* its pipe has no other end any more */
  close(fd);
  close(reader.ends[0]);
  close(reader.ends[1]);
  assert_int_equal(count_fds(), before);
}

static void test_a_reader_that_is_slow_loses_nothing(void **unused) {
  (void)unused;
  struct reader reader;
  struct pump *pump = open_pump();
  pthread_t thread;
  int fd;
  reader_open(&reader);
  struct pump_stream *stream = add(pump, -1, reader.ends[1], "", &fd);
  assert_int_equal(pthread_create(&thread, NULL, write_much, &fd), 0);
  wait_full(&reader);
  reader_start(&reader);
  pthread_join(thread, NULL);
  close(fd);
  pump_end(pump, stream, deadline_after(SOON_MS), NULL);
  pump_close(pump);
  reader_finish(&reader);
  assert_int_equal(reader.len, 5000 * 100);
  free(reader.text);
}

/* SIGPIPE is the caller's to ignore. */
static void test_a_reader_that_is_gone_is_no_reason_to_stop_reading(void **unused) {
  (void)unused;
  struct reader reader;
  struct pump *pump = open_pump();
  char *last;
  int fd;
  signal(SIGPIPE, SIG_IGN);
  reader_open(&reader);
  close(reader.ends[0]);
  struct pump_stream *stream = add(pump, -1, reader.ends[1], "[x0]:", &fd);
  for (int i = 0; i < 2000; i++) say(fd, "a line of fifty bytes or so, which fills any pipe\n");
  say(fd, "the last\n");
  close(fd);
  pump_end(pump, stream, deadline_after(SOON_MS), &last);
  assert_non_null(strstr(last, "the last\n"));
  free(last);
  pump_close(pump);
  close(reader.ends[1]);
}

/* What the worker has started holds its output, and is not waited for; what was written before comes out. */
static void test_who_else_holds_the_pipe_is_not_waited_for(void **unused) {
  (void)unused;
  const size_t before = count_fds();
  struct reader reader;
  struct pump *pump = open_pump();
  char *last;
  int fd;
  reader_open(&reader);
  reader_start(&reader);
  struct pump_stream *stream = add(pump, -1, reader.ends[1], "[x0]:", &fd);
  say(fd, "from the worker\nno end");
  pump_end(pump, stream, deadline_after(SOON_MS), &last);
  assert_string_equal(last, "from the worker\nno end");
  signal(SIGPIPE, SIG_IGN);
  assert_int_equal(write(fd, "late", 4), -1); /* nobody reads it any more */
  assert_int_equal(errno, EPIPE);
  close(fd);
  free(last);
  pump_close(pump);
  reader_finish(&reader);
  assert_string_equal(reader.text, "[x0]:from the worker\n[x0]:no end\n");
  free(reader.text);
  assert_int_equal(count_fds(), before);
}

/* It writes on and on, so the pipe is never empty: an end comes all the same. */
struct endless {
  int fd;
  sem_t flows; /* once more was written than pipes hold */
};

static void *write_for_ever(void *argument) {
  struct endless *endless = argument;
  char line[4096];
  memset(line, 'x', sizeof line);
  line[sizeof line - 1] = '\n';
  signal(SIGPIPE, SIG_IGN);
  for (int i = 0; write(endless->fd, line, sizeof line) > 0; i++)
    if (i == 100) sem_post(&endless->flows);
  return NULL;
}

struct slow_reader {
  struct reader base;
  atomic_size_t bytes;
};

/* Slower than who writes: the pump hardly ever finds its pipe empty. */
static void *read_slowly(void *argument) {
  struct slow_reader *reader = argument;
  char some[16384];
  for (ssize_t got; (got = read(reader->base.ends[0], some, sizeof some)) > 0; usleep(200))
    atomic_fetch_add(&reader->bytes, (size_t)got);
  return NULL;
}

/* What is in the pipe comes out, and a few megabytes of what follows, if it follows fast; no more. */
static void test_who_writes_for_ever_is_not_waited_for(void **unused) {
  (void)unused;
  enum { MOST = 8 << 20 };
  struct slow_reader reader = {.bytes = 0};
  struct pump *pump = open_pump();
  struct endless endless;
  pthread_t thread;
  reader_open(&reader.base);
  assert_int_equal(pthread_create(&reader.base.thread, NULL, read_slowly, &reader), 0);
  struct pump_stream *stream = add(pump, -1, reader.base.ends[1], "", &endless.fd);
  sem_init(&endless.flows, 0, 0);
  assert_int_equal(pthread_create(&thread, NULL, write_for_ever, &endless), 0);
  sem_wait(&endless.flows);
  const size_t before = atomic_load(&reader.bytes);
  pump_end(pump, stream, deadline_after(SOON_MS), NULL);
  pthread_join(thread, NULL);
  close(endless.fd);
  sem_destroy(&endless.flows);
  pump_close(pump);
  reader_finish(&reader.base);
  assert_in_range(atomic_load(&reader.bytes) - before, 0, MOST);
}

static void test_what_is_left_ends_with_the_pump(void **unused) {
  (void)unused;
  const size_t before = count_fds();
  struct reader reader;
  struct pump *pump = open_pump();
  int fds[3];
  reader_open(&reader);
  reader_start(&reader);
  for (int i = 0; i < 3; i++) {
    add(pump, -1, reader.ends[1], "", &fds[i]);
    say(fds[i], "left\n");
  }
  pump_close(pump);
  reader_finish(&reader);
  assert_string_equal(reader.text, "left\nleft\nleft\n");
  free(reader.text);
  for (int i = 0; i < 3; i++) close(fds[i]);
  assert_int_equal(count_fds(), before);
  pump_close(NULL);
}

/* A disk that does not answer, here a pipe that is full: closing leaves the thread that writes behind. */
static void test_a_disk_that_does_not_answer_is_not_waited_for(void **unused) {
  (void)unused;
  const size_t threads = count_in("/proc/self/task");
  struct pump *pump = open_pump();
  int fd, ends[2];
  char *bytes = calloc(1, LONG);
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  fcntl(ends[1], F_SETPIPE_SZ, LONG);
  put(ends[1], bytes, LONG); /* no more fits */
  add(pump, dup(ends[1]), -1, "", &fd);
  say(fd, "x");
  struct pollfd taken = {.fd = fd, .events = POLLIN};
  pump_close(pump);
  assert_true(has_noted("the disk does not answer"));
  for (int i = 0; i < 2; i++) assert_true(read(ends[0], bytes, LONG) > 0); /* now it does, and the thread ends */
  assert_int_equal(poll(&taken, 1, SOON_MS), 1);                           /* for its end of the pipe is closed */
  close(fd);
  close(ends[0]);
  close(ends[1]);
  free(bytes);
  while (count_in("/proc/self/task") != threads) usleep(1000); /* it has freed all */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_reader_that_stops_holds_nobody),
      cmocka_unit_test(test_closing_waits_for_no_reader),
      cmocka_unit_test(test_a_reader_that_is_slow_loses_nothing),
      cmocka_unit_test(test_a_reader_that_is_gone_is_no_reason_to_stop_reading),
      cmocka_unit_test(test_who_else_holds_the_pipe_is_not_waited_for),
      cmocka_unit_test(test_who_writes_for_ever_is_not_waited_for),
      cmocka_unit_test(test_what_is_left_ends_with_the_pump),
      cmocka_unit_test(test_a_disk_that_does_not_answer_is_not_waited_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
