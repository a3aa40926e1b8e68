/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/failure.h"

#include "base/net/host.h"
#include "base/text/signal_name.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST_ERROR_FILE = 4 << 20, LONGEST_MESSAGE = 4096, LONGEST_LOG = 4096 };

/* ---- names ---------------------------------------------------------------------------------------------------- */

void end_text(int exit_code, int signal, char out[64]) {
  if (signal)
    snprintf(out, 64, "killed by signal %d (%s)", signal, signal_name(signal).text);
  else
    snprintf(out, 64, "exit code %d", exit_code);
}

/* ---- a worker's error file ------------------------------------------------------------------------------------ */

static json_t *load(const char *path) {
  struct stat status;
  const int fd = *path ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
  const bool fine =
      fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= LONGEST_ERROR_FILE;
  json_t *file = fine ? json_loadfd(fd, 0, NULL) : NULL;
  if (fd >= 0) close(fd);
  return file;
}

/* The beginning of a text, without a torn character at its end. */
static char *cut(const char *text, size_t most) {
  size_t len = strnlen(text, most);
  while (len > 0 && ((unsigned char)text[len] & 0xC0) == 0x80) len--;
  return strndup(text, len);
}

/* {"message": {"message": text, "extraInfo": {"timestamp": seconds}}}, or {"message": text}. */
static char *read_message(const json_t *file, int64_t *time_us) {
  const json_t *message = json_object_get(file, "message"), *inner = json_object_get(message, "message");
  const json_t *stamp = json_object_get(json_object_get(message, "extraInfo"), "timestamp");
  const char *text = json_string_value(inner ? inner : message);
  const char *digits = json_string_value(stamp);
  const long long seconds = digits ? strtoll(digits, NULL, 10) : json_integer_value(stamp);
  if (seconds > 0 && seconds < *time_us / 1000000) *time_us = seconds * 1000000; /* it knew before we did */
  return text ? cut(text, LONGEST_MESSAGE) : NULL;
}

/* ---- collecting ----------------------------------------------------------------------------------------------- */

static void free_one(rdzv_worker_failure *failure) {
  free((char *)failure->host);
  free((char *)failure->message);
  free((char *)failure->log);
  free((char *)failure->error_file);
}

void failures_free(struct failures *failures) {
  for (size_t i = 0; i < failures->count; i++) free_one(&failures->list[i]);
  free(failures->list);
  *failures = (struct failures){0};
}

static bool fill(rdzv_worker_failure *to, const struct worker *worker) {
  char host[HOST_NAME_SIZE], end[64];
  json_t *file = load(worker->error_file);
  host_name(host);
  end_text(worker->exit_code, worker->signal, end);
  *to = (rdzv_worker_failure){.rank = worker->rank,
                              .local_rank = worker->local_rank,
                              .host = strdup(host),
                              .pid = worker->pid,
                              .exit_code = worker->exit_code,
                              .signal = worker->signal,
                              .time_us = worker->ended_us,
                              .log = strdup(worker->last_lines ? worker->last_lines : ""),
                              .error_file = strdup(file ? worker->error_file : "")};
  char *message = read_message(file, &to->time_us);
  to->message = message ? message : strdup(worker->start_error ? worker->start_error : end);
  json_decref(file);
  return to->host && to->message && to->log && to->error_file;
}

static int by_time(const void *a, const void *b) {
  const rdzv_worker_failure *left = a, *right = b;
  return (left->time_us > right->time_us) - (left->time_us < right->time_us);
}

bool failures_collect(struct failures *failures, const struct worker_group *group, int64_t attempt) {
  failures_free(failures);
  failures->list = calloc(group->count + 2, sizeof *failures->list); /* and one that another agent tells */
  if (!failures->list) return false;
  bool done = true;
  for (size_t i = 0; i < group->count; i++)
    if (group->workers[i].end == WORKER_FAILED) done &= fill(&failures->list[failures->count++], &group->workers[i]);
  for (size_t i = 0; i < failures->count; i++) failures->list[i].attempt = attempt;
  qsort(failures->list, failures->count, sizeof *failures->list, by_time);
  return done;
}

/* ---- as text -------------------------------------------------------------------------------------------------- */

/* The last lines that fit. Bytes of a log that is not UTF-8 are replaced. */
static json_t *log_string(const char *log) {
  const size_t len = strlen(log);
  const char *from = len > LONGEST_LOG ? log + len - LONGEST_LOG : log;
  const char *line = from > log ? strchr(from, '\n') : NULL;
  json_t *string = json_string(line ? line + 1 : from);
  if (string) return string;
  char *copy = strdup(line ? line + 1 : from);
  for (char *at = copy; at && *at; at++)
    if ((unsigned char)*at >= 0x80) *at = '?';
  string = copy ? json_string(copy) : NULL;
  free(copy);
  return string;
}

char *failure_write(const rdzv_worker_failure *failure, const char *node) {
  json_t *object =
      json_pack("{s:I, s:I, s:s, s:I, s:i, s:i, s:I, s:s, s:s, s:o}", "rank", (json_int_t)failure->rank, "local_rank",
                (json_int_t)failure->local_rank, "host", failure->host, "pid", (json_int_t)failure->pid, "exit_code",
                failure->exit_code, "signal", failure->signal, "time_us", (json_int_t)failure->time_us, "message",
                failure->message, "node", node, "log", log_string(failure->log));
  char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
  json_decref(object);
  return text;
}

bool failure_sentence(const char *text, char *out, size_t size) {
  json_t *object = json_loads(text, 0, NULL);
  json_int_t rank;
  const char *host, *node = NULL;
  int exit_code, number;
  char end[64];
  const bool read = object && json_unpack(object, "{s:I, s:s, s:i, s:i, s?s}", "rank", &rank, "host", &host,
                                          "exit_code", &exit_code, "signal", &number, "node", &node) == 0;
  if (read) {
    end_text(exit_code, number, end);
    snprintf(out, size, "rank %lld on %.128s failed (%s)", (long long)rank, node ? node : host, end);
  }
  json_decref(object);
  return read;
}

static bool read_told(const char *text, rdzv_worker_failure *out) {
  json_t *object = json_loads(text, 0, NULL);
  json_int_t rank, local_rank, pid, time_us;
  const char *host, *message, *log = ""; /* an older agent tells no log */
  int exit_code, signal;
  const bool read =
      object && json_unpack(object, "{s:I, s:I, s:s, s:I, s:i, s:i, s:I, s:s, s?s}", "rank", &rank, "local_rank",
                            &local_rank, "host", &host, "pid", &pid, "exit_code", &exit_code, "signal", &signal,
                            "time_us", &time_us, "message", &message, "log", &log) == 0;
  if (read)
    *out = (rdzv_worker_failure){.rank = rank,
                                 .local_rank = local_rank,
                                 .host = strdup(host),
                                 .pid = pid,
                                 .exit_code = exit_code,
                                 .signal = signal,
                                 .time_us = time_us,
                                 .message = strdup(message),
                                 .log = strdup(log),
                                 .error_file = strdup("")};
  json_decref(object);
  return read;
}

static bool is_known(const struct failures *failures, const rdzv_worker_failure *one) {
  for (size_t i = 0; i < failures->count; i++)
    if (failures->list[i].rank == one->rank) return true;
  return false;
}

void failures_add_told(struct failures *failures, const char *text, int64_t attempt) {
  rdzv_worker_failure told;
  if (!text || !read_told(text, &told)) return;
  rdzv_worker_failure *list = reallocarray(failures->list, failures->count + 1, sizeof *list);
  if (list) failures->list = list;
  if (!list || is_known(failures, &told) || !told.host || !told.message || !told.log || !told.error_file) {
    free_one(&told);
    return;
  }
  memmove(list + 1, list, failures->count * sizeof *list);
  list[0] = told;
  list[0].attempt = attempt;
  failures->count++;
}

/* ---- of all attempts ------------------------------------------------------------------------------------------ */

static char *last_line(const char *text) {
  size_t len = strlen(text), from;
  while (len > 0 && text[len - 1] == '\n') len--;
  for (from = len; from > 0 && text[from - 1] != '\n';) from--;
  return strndup(text + from, len - from);
}

void history_add(struct failure_history *history, const rdzv_worker_failure *failure) {
  rdzv_worker_failure copy = *failure;
  copy.host = strdup(failure->host);
  copy.message = strdup(failure->message);
  copy.log = last_line(failure->log);
  copy.error_file = strdup(failure->error_file);
  if (!copy.host || !copy.message || !copy.log || !copy.error_file) {
    free_one(&copy);
    return;
  }
  if (history->count == HISTORY_MOST) {
    rdzv_worker_failure *oldest = &history->list[HISTORY_FIRST];
    free_one(oldest);
    memmove(oldest, oldest + 1, (HISTORY_MOST - HISTORY_FIRST - 1) * sizeof *oldest);
    history->count--;
  }
  history->list[history->count++] = copy;
}

void history_free(struct failure_history *history) {
  for (size_t i = 0; i < history->count; i++) free_one(&history->list[i]);
  history->count = 0;
}
