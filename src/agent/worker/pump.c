/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/worker/pump.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait/clock.h"
#include "base/wait/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
  CHUNK = 64 * 1024,
  MOST_EVENTS = 64,
  LONGEST_LINE = 1 << 20, /* what is longer is broken */
  IDLE_MS = 100,          /* after which a part of a line is shown */
  LAST_BYTES = 8 * 1024,
  CLOSE_MS = 5000, /* for the thread to end */
};

#define BREAK "…"

/* Somewhere that a stream is written to, and what of it could not be. */
struct target {
  int fd;     /* -1: none */
  char *name; /* for people; NULL: none */
  uint64_t lost;
  int errnum; /* why */
};

struct pump_stream {
  struct pump *pump;
  struct pump_stream *next;
  int read_fd;
  struct target file, match, shown;
  char *prefix, *needles;
  struct buf line;    /* not yet shown */
  bool goes_on;       /* the line there is the rest of one that was broken */
  struct buf last;    /* what was read last */
  bool is_cut;        /* and something before it */
  bool ending, ended; /* asked for; done */
  bool awaited;       /* a caller waits for its end */
  bool abandoned;     /* no caller waits for its end */
};

struct pump {
  pthread_t thread;
  int wake_fd, epoll_fd;
  rdzv_log log;
  pthread_mutex_t lock; /* guards what follows, and what streams say of their end */
  pthread_cond_t ended;
  struct pump_stream *streams;
  bool over;     /* asked for */
  bool done;     /* the thread no longer uses it */
  bool left;     /* the thread frees it: no caller waits */
  uint64_t lost; /* bytes of streams that have ended */
  char lost_to[PATH_MAX + 128];
  uint8_t chunk[CHUNK]; /* the thread's */
};

/* ---- what is lost --------------------------------------------------------------------------------------------- */

/* Not when we were left: whose log it is may be gone. */
static void tell(const struct pump_stream *stream, const char *format, ...) RDZV_PRINTF(2, 3);

static void tell(const struct pump_stream *stream, const char *format, ...) {
  char text[PATH_MAX + 128];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  pthread_mutex_lock(&stream->pump->lock);
  if (!stream->pump->left) log_line(&stream->pump->log, RDZV_LOG_ERROR, "%s", text);
  pthread_mutex_unlock(&stream->pump->lock);
}

/* Logs the first loss at once. A reader that has exited loses nothing. */
static void lose(const struct pump_stream *stream, struct target *target, size_t len, int errnum) {
  if (errnum == EPIPE) return;
  if (target->lost == 0) {
    target->errnum = errnum;
    tell(stream, "cannot write to '%s': %s: output of a worker is lost", target->name, strerror(errnum));
  }
  target->lost += len;
}

static void tell_lost(const struct pump_stream *stream, const struct target *target) {
  struct pump *pump = stream->pump;
  char to[sizeof pump->lost_to];
  if (target->lost == 0) return;
  snprintf(to, sizeof to, "'%s': %s", target->name, strerror(target->errnum));
  tell(stream, "%" PRIu64 " bytes of a worker's output are lost: %s", target->lost, to);
  pthread_mutex_lock(&pump->lock);
  if (pump->lost == 0) memcpy(pump->lost_to, to, sizeof to);
  pump->lost += target->lost;
  pthread_mutex_unlock(&pump->lock);
}

uint64_t pump_lost(struct pump *pump, char *to, size_t size) {
  pthread_mutex_lock(&pump->lock);
  const uint64_t lost = pump->lost;
  snprintf(to, size, "%s", pump->lost_to);
  pthread_mutex_unlock(&pump->lock);
  return lost;
}

/* ---- passing on ----------------------------------------------------------------------------------------------- */

/* Has the last caller stopped waiting for the stream's output? */
static bool is_given_up(struct pump_stream *stream) {
  struct pump *pump = stream->pump;
  pthread_mutex_lock(&pump->lock);
  const bool given_up = pump->over || stream->abandoned;
  pthread_mutex_unlock(&pump->lock);
  return given_up;
}

/* Waits until some bytes can be written without blocking. False: no caller waits for the output. */
static bool await_room(struct pump_stream *stream, int fd) {
  struct pollfd fds[] = {{.fd = fd, .events = POLLOUT}, {.fd = stream->pump->wake_fd, .events = POLLIN}};
  while (poll(fds, 2, is_given_up(stream) ? 0 : -1) < 0 && errno == EINTR) {
  }
  uint64_t wakes;
  if (fds[1].revents && read(stream->pump->wake_fd, &wakes, sizeof wakes) < 0) { /* as good */
  }
  return fds[0].revents != 0 || !is_given_up(stream);
}

/* As many whole lines as surely fit into a pipe, or else a part of one. */
static size_t portion(const uint8_t *data, size_t len) {
  if (len <= PIPE_BUF) return len;
  const uint8_t *end = memrchr(data, '\n', PIPE_BUF);
  return end ? (size_t)(end - data) + 1 : PIPE_BUF;
}

/* All of it, whatever the descriptor's owner has made of it. A reader that does not read must not hold us for ever. */
static void write_shown(struct pump_stream *stream, const uint8_t *data, size_t len) {
  const int fd = stream->shown.fd;
  while (fd >= 0 && len > 0) {
    if (!await_room(stream, fd)) return;
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    if (poll(&room, 1, 0) <= 0) continue; /* it was a wake */
    const ssize_t wrote = write(fd, data, portion(data, len));
    if (wrote < 0 && errno != EINTR && errno != EAGAIN) {
      lose(stream, &stream->shown, len, errno);
      return;
    }
    if (wrote > 0) data += wrote, len -= (size_t)wrote;
  }
}

static void write_file(const struct pump_stream *stream, struct target *file, const uint8_t *data, size_t len) {
  while (file->fd >= 0 && len > 0) {
    const ssize_t wrote = write(file->fd, data, len);
    if (wrote < 0 && errno != EINTR) {
      lose(stream, file, len, errno);
      return;
    }
    if (wrote > 0) data += wrote, len -= (size_t)wrote;
  }
}

static void remember(struct pump_stream *stream, const uint8_t *data, size_t len) {
  if (len > LAST_BYTES) {
    data += len - LAST_BYTES;
    len = LAST_BYTES;
    buf_consume(&stream->last, stream->last.len);
    stream->is_cut = true;
  }
  if (stream->last.len + len > 2 * (size_t)LAST_BYTES) {
    buf_consume(&stream->last, stream->last.len - LAST_BYTES);
    stream->is_cut = true;
  }
  buf_append(&stream->last, data, len);
}

/* Has the line one of the needles? */
static bool matches(const struct pump_stream *stream, const uint8_t *line, size_t len) {
  for (const char *at = stream->needles; at;) {
    const size_t needle = strcspn(at, "\n");
    if (memmem(line, len, at, needle)) return true;
    at = at[needle] ? at + needle + 1 : NULL;
  }
  return false;
}

/* The first `len` bytes of the line buffer, each line with its prefix, and what ends the last one, in one write. */
static void show(struct pump_stream *stream, size_t len, const char *end) {
  struct buf out = {0}, match = {0};
  const size_t prefix = strlen(stream->prefix);
  for (size_t at = 0; at < len;) {
    const uint8_t *from = stream->line.data + at, *line_end = memchr(from, '\n', len - at);
    const size_t line = line_end ? (size_t)(line_end - from) + 1 : len - at, begin = out.len;
    buf_append(&out, stream->prefix, prefix);
    if (at == 0 && stream->goes_on) buf_append(&out, BREAK, strlen(BREAK));
    buf_append(&out, from, line);
    at += line;
    if (at == len && out.len > 0 && out.data[out.len - 1] != '\n') buf_append(&out, end, strlen(end));
    if (matches(stream, from, line)) buf_append(&match, out.data + begin, out.len - begin);
  }
  write_file(stream, &stream->match, match.data, match.len);
  write_shown(stream, out.data, out.len);
  buf_free(&match);
  buf_free(&out);
  buf_consume(&stream->line, len);
  stream->goes_on = false;
}

/* In the middle of a line, but not of a character. */
static void break_line(struct pump_stream *stream) {
  size_t len = stream->line.len;
  for (int i = 0; i < 3 && (stream->line.data[len - 1] & 0xC0) == 0x80; i++) len--;
  if ((stream->line.data[len - 1] & 0xC0) == 0xC0) len--;
  show(stream, len, BREAK "\n");
  stream->goes_on = true;
}

static void take(struct pump_stream *stream, const uint8_t *data, size_t len) {
  remember(stream, data, len);
  write_file(stream, &stream->file, data, len);
  if (stream->shown.fd < 0 || !buf_append(&stream->line, data, len)) return;
  const uint8_t *end = memrchr(stream->line.data, '\n', stream->line.len);
  if (end) show(stream, (size_t)(end - stream->line.data) + 1, "");
  if (!*stream->prefix && stream->line.len >= CHUNK) show(stream, stream->line.len, "");
  if (stream->line.len >= LONGEST_LINE) break_line(stream);
}

/* A child that has not come to its exec holds the pipe, too, so closing it is not enough to take it out of the epoll.
 */
static void stop_reading(struct pump_stream *stream) {
  if (stream->read_fd < 0) return;
  epoll_ctl(stream->pump->epoll_fd, EPOLL_CTL_DEL, stream->read_fd, NULL);
  close(stream->read_fd);
  stream->read_fd = -1;
}

/* Reads once. False: nothing is there. */
static bool read_some(struct pump_stream *stream) {
  uint8_t *chunk = stream->pump->chunk;
  const ssize_t got = stream->read_fd < 0 ? 0 : read(stream->read_fd, chunk, CHUNK);
  if (got > 0) take(stream, chunk, (size_t)got);
  if (got == 0) stop_reading(stream); /* every writer has closed it */
  return got > 0 || (got < 0 && errno == EINTR);
}

static void free_stream(struct pump_stream *stream) {
  if (stream->file.fd >= 0) close(stream->file.fd);
  if (stream->match.fd >= 0) close(stream->match.fd);
  free(stream->file.name);
  free(stream->match.name);
  free(stream->shown.name);
  buf_free(&stream->line);
  buf_free(&stream->last);
  free(stream->prefix);
  free(stream->needles);
  free(stream);
}

/* ---- the thread ----------------------------------------------------------------------------------------------- */

/* Reads what is in the pipe now, not until its end: others may hold the other end for long. */
static void drain(struct pump_stream *stream) {
  for (int i = 0; i < 64 && read_some(stream); i++) {
  }
  stop_reading(stream);
  if (stream->line.len > 0) show(stream, stream->line.len, "\n");
  tell_lost(stream, &stream->file);
  tell_lost(stream, &stream->match);
  tell_lost(stream, &stream->shown);
}

/* With the lock held: takes out those whose end was asked for. */
static void end_streams(struct pump *pump) {
  for (struct pump_stream **at = &pump->streams; *at;) {
    struct pump_stream *stream = *at;
    if (!stream->ending && !pump->over) {
      at = &stream->next;
      continue;
    }
    pthread_mutex_unlock(&pump->lock);
    drain(stream);
    pthread_mutex_lock(&pump->lock);
    for (at = &pump->streams; *at != stream;) at = &(*at)->next; /* others may have come in front */
    *at = stream->next;
    at = &pump->streams; /* a wake for one before this may have been taken meanwhile */
    stream->ended = true;
    if (stream->awaited) pthread_cond_broadcast(&pump->ended);
    if (stream->abandoned || pump->over) free_stream(stream);
  }
}

static bool has_parts(const struct pump_stream *first) {
  for (const struct pump_stream *stream = first; stream; stream = stream->next)
    if (stream->line.len > 0 && !*stream->prefix) return true;
  return false;
}

static void show_parts(struct pump_stream *first) {
  for (struct pump_stream *stream = first; stream; stream = stream->next)
    if (stream->line.len > 0 && !*stream->prefix) show(stream, stream->line.len, "");
}

static void free_pump(struct pump *pump) {
  if (pump->wake_fd >= 0) close(pump->wake_fd);
  if (pump->epoll_fd >= 0) close(pump->epoll_fd);
  pthread_cond_destroy(&pump->ended);
  pthread_mutex_destroy(&pump->lock);
  free(pump);
}

/* Waits, and reads what has come; false: nothing has. A stream stays until this thread takes it out. */
static bool read_ready(struct pump *pump, int timeout_ms) {
  struct epoll_event events[MOST_EVENTS];
  uint64_t wakes;
  const int ready = epoll_wait(pump->epoll_fd, events, MOST_EVENTS, timeout_ms);
  for (int i = 0; i < ready; i++) {
    if (events[i].data.ptr)
      read_some(events[i].data.ptr);
    else if (read(pump->wake_fd, &wakes, sizeof wakes) < 0) { /* as good */
    }
  }
  return ready != 0;
}

static void *run(void *argument) {
  struct pump *pump = argument;
  pthread_mutex_lock(&pump->lock);
  while (!pump->over) {
    struct pump_stream *first = pump->streams; /* later ones are put in front of it */
    pthread_mutex_unlock(&pump->lock);
    if (!read_ready(pump, has_parts(first) ? IDLE_MS : -1)) show_parts(first);
    pthread_mutex_lock(&pump->lock);
    end_streams(pump);
  }
  end_streams(pump);
  pump->done = true;
  pthread_cond_broadcast(&pump->ended);
  const bool left = pump->left;
  pthread_mutex_unlock(&pump->lock);
  if (left) free_pump(pump);
  return NULL;
}

/* ---- for the agent -------------------------------------------------------------------------------------------- */

static void wake(struct pump *pump) {
  const uint64_t one = 1;
  if (write(pump->wake_fd, &one, sizeof one) < 0) { /* it is up already */
  }
}

static int listen_to(const struct pump *pump, int fd, struct pump_stream *stream) {
  return epoll_ctl(pump->epoll_fd, EPOLL_CTL_ADD, fd, &(struct epoll_event){.events = EPOLLIN, .data.ptr = stream});
}

int pump_open(struct pump **out, const rdzv_log *log, rdzv_error *error) {
  struct pump *pump = calloc(1, sizeof *pump);
  if (!pump) return error_no_memory(error);
  pump->log = *log;
  pthread_mutex_init(&pump->lock, NULL);
  thread_cond_init(&pump->ended);
  pump->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  pump->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  int result = pump->wake_fd < 0 || pump->epoll_fd < 0 || listen_to(pump, pump->wake_fd, NULL) < 0
                   ? error_errno(error, RDZV_E_IO, errno, "cannot create an event descriptor")
                   : 0;
  const int errnum = result < 0 ? 0 : thread_start(&pump->thread, run, pump);
  if (errnum) result = error_errno(error, RDZV_E_IO, errnum, "cannot start the thread for the workers' output");
  if (result == 0) {
    *out = pump;
    return 0;
  }
  free_pump(pump);
  return result;
}

void pump_quit(struct pump *pump) {
  if (!pump) return;
  pthread_mutex_lock(&pump->lock);
  pump->over = true;
  pthread_mutex_unlock(&pump->lock);
  wake(pump);
}

void pump_close(struct pump *pump) {
  if (!pump) return;
  pump_quit(pump);
  pthread_mutex_lock(&pump->lock);
  const deadline until = deadline_after(CLOSE_MS);
  while (!pump->done && thread_cond_wait(&pump->ended, &pump->lock, until)) {
  }
  const bool done = pump->done;
  pump->left = !done;
  if (!done) { /* it is stuck in the kernel */
    log_line(&pump->log, RDZV_LOG_ERROR, "the workers' output cannot be written: the disk does not answer");
    pthread_detach(pump->thread);
  }
  pthread_mutex_unlock(&pump->lock);
  if (!done) return;
  pthread_join(pump->thread, NULL);
  free_pump(pump);
}

static const char *name_of(int fd) { return fd == STDERR_FILENO ? "standard error" : "standard output"; }

static int make_pipe(struct pump_stream *stream, int *write_fd) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) return -1;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  stream->read_fd = ends[0];
  *write_fd = ends[1];
  if (listen_to(stream->pump, ends[0], stream) == 0) return 0;
  close(ends[0]);
  close(ends[1]);
  return -1;
}

int pump_add(struct pump *pump, const struct pump_to *to, int *write_fd, struct pump_stream **out, rdzv_error *error) {
  struct pump_stream *stream = calloc(1, sizeof *stream);
  if (!stream) return error_no_memory(error);
  *stream = (struct pump_stream){.pump = pump,
                                 .file = {.fd = to->file_fd, .name = strdup(to->file ? to->file : "")},
                                 .match = {.fd = to->match_fd, .name = strdup(to->match ? to->match : "")},
                                 .shown = {.fd = to->show_fd, .name = strdup(name_of(to->show_fd))},
                                 .prefix = strdup(to->prefix),
                                 .needles = to->needles ? strdup(to->needles) : NULL};
  const bool made = stream->file.name && stream->match.name && stream->shown.name && stream->prefix &&
                    (!to->needles || stream->needles);
  if (!made || make_pipe(stream, write_fd) < 0) {
    const int errnum = errno;
    stream->file.fd = stream->match.fd = -1; /* the caller's */
    free_stream(stream);
    return error_errno(error, RDZV_E_IO, errnum, "cannot make a pipe for a worker's output");
  }
  pthread_mutex_lock(&pump->lock);
  stream->next = pump->streams;
  pump->streams = stream;
  pthread_mutex_unlock(&pump->lock);
  *out = stream;
  return 0;
}

/* The last bytes, from the beginning of a line on, as a text. */
static char *last_lines(const struct pump_stream *stream) {
  const char *from = (const char *)stream->last.data, *end = from + stream->last.len;
  const char *line = stream->is_cut ? memchr(from, '\n', stream->last.len) : NULL;
  if (line) from = line + 1;
  const size_t len = (size_t)(end - from);
  char *text = stream->last.len ? malloc(len + 1) : NULL;
  if (!text) return NULL;
  for (size_t i = 0; i < len; i++) text[i] = from[i] ? from[i] : '?';
  text[len] = '\0';
  return text;
}

void pump_finish(struct pump *pump, struct pump_stream *stream) {
  pthread_mutex_lock(&pump->lock);
  stream->ending = true;
  pthread_mutex_unlock(&pump->lock);
}

void pump_end(struct pump *pump, struct pump_stream *stream, deadline until, char **last) {
  pthread_mutex_lock(&pump->lock);
  stream->ending = stream->awaited = true;
  const bool ended_before = stream->ended;
  pthread_mutex_unlock(&pump->lock); /* the thread wants it as soon as it is awake */
  if (!ended_before) wake(pump);
  pthread_mutex_lock(&pump->lock);
  while (!stream->ended && thread_cond_wait(&pump->ended, &pump->lock, until)) {
  }
  const bool ended = stream->ended;
  stream->abandoned = !ended;
  pthread_mutex_unlock(&pump->lock);
  if (last) *last = ended ? last_lines(stream) : NULL;
  if (ended)
    free_stream(stream);
  else
    wake(pump);
}
