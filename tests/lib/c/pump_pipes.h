/* SPDX-License-Identifier: BSD-3-Clause */
/* What workers write on its way, through real pipes: a thread here is the worker, another one whoever reads. */
#ifndef RDZV_TESTS_PUMP_PIPES_H
#define RDZV_TESTS_PUMP_PIPES_H

#include "agent/worker/pump.h"
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

enum { SOON_MS = 60000, LONG = 1 << 16 };

/* ---- whoever reads what is shown ------------------------------------------------------------------------------ */

struct reader {
  int ends[2]; /* the second one is the one that is shown on */
  pthread_t thread;
  char *text; /* what was read; a zero byte follows */
  size_t len;
};

static inline void *read_all(void *argument) {
  struct reader *reader = argument;
  for (;;) {
    reader->text = realloc(reader->text, reader->len + LONG + 1);
    const ssize_t got = read(reader->ends[0], reader->text + reader->len, LONG);
    if (got <= 0) break;
    reader->len += (size_t)got;
  }
  reader->text[reader->len] = '\0';
  return NULL;
}

static inline void reader_open(struct reader *reader) {
  *reader = (struct reader){0};
  assert_int_equal(pipe2(reader->ends, O_CLOEXEC), 0);
}

static inline void reader_start(struct reader *reader) {
  assert_int_equal(pthread_create(&reader->thread, NULL, read_all, reader), 0);
}

/* All that was written is read then. */
static inline void reader_finish(struct reader *reader) {
  close(reader->ends[1]);
  pthread_join(reader->thread, NULL);
  close(reader->ends[0]);
}

/* ---- a pump with one stream ----------------------------------------------------------------------------------- */

static char noted[1024]; /* log lines, each with an end */
static pthread_mutex_t noted_lock = PTHREAD_MUTEX_INITIALIZER;

static inline void note_line(void *unused, rdzv_log_level level, const char *line) {
  (void)unused, (void)level;
  pthread_mutex_lock(&noted_lock);
  snprintf(noted + strlen(noted), sizeof noted - strlen(noted), "%s\n", line);
  pthread_mutex_unlock(&noted_lock);
}

static inline bool has_noted(const char *text) {
  pthread_mutex_lock(&noted_lock);
  const bool has = strstr(noted, text) != NULL;
  pthread_mutex_unlock(&noted_lock);
  return has;
}

static inline struct pump *open_pump(void) {
  noted[0] = '\0';
  struct pump *pump = NULL;
  rdzv_error error;
  assert_code(pump_open(&pump, &(rdzv_log){.write = note_line, .level = RDZV_LOG_DEBUG}, &error), 0);
  return pump;
}

static inline struct pump_stream *add(struct pump *pump, int file_fd, int show_fd, const char *prefix, int *write_fd) {
  const struct pump_to to = {
      .file_fd = file_fd, .file = "the file", .match_fd = -1, .show_fd = show_fd, .prefix = prefix};
  struct pump_stream *stream = NULL;
  assert_code(pump_add(pump, &to, write_fd, &stream, NULL), 0);
  return stream;
}

static inline void put(int fd, const char *data, size_t len) {
  while (len > 0) {
    const ssize_t wrote = write(fd, data, len);
    assert_true(wrote > 0 || errno == EINTR);
    if (wrote > 0) data += wrote, len -= (size_t)wrote;
  }
}

static inline void say(int fd, const char *text) { put(fd, text, strlen(text)); }

/* Shows `text` through a pump; what comes out is to be freed, and so is *last. */
static inline char *through(const char *prefix, const char *text, size_t len, char **last) {
  struct reader reader;
  struct pump *pump = open_pump();
  int fd;
  reader_open(&reader);
  reader_start(&reader);
  struct pump_stream *stream = add(pump, -1, reader.ends[1], prefix, &fd);
  put(fd, text, len);
  close(fd);
  pump_end(pump, stream, deadline_after(SOON_MS), last);
  pump_close(pump);
  reader_finish(&reader);
  return reader.text;
}

static inline size_t count_in(const char *folder) {
  DIR *dir = opendir(folder);
  size_t count = 0;
  while (readdir(dir)) count++;
  closedir(dir);
  return count;
}

static inline size_t count_fds(void) { return count_in("/proc/self/fd"); }

#endif
