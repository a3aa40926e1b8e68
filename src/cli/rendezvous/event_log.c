/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/rendezvous/event_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void format_time(int64_t time_us, char out[40]) {
  const time_t seconds = (time_t)(time_us / 1000000);
  struct tm utc;
  char text[24];
  gmtime_r(&seconds, &utc);
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  snprintf(out, 40, "%s.%06dZ", text, (int)(time_us % 1000000));
}

bool write_object(int fd, json_t *object) {
  char *line = object ? json_dumps(object, JSON_COMPACT) : NULL;
  json_decref(object);
  if (!line) return true;
  const size_t len = strlen(line);
  line[len] = '\n'; /* instead of the end, which is not written */
  const bool wrote = write(fd, line, len + 1) >= 0;
  const int errnum = errno;
  free(line);
  errno = errnum;
  return wrote;
}

static const char *log_path;     /* a command has one event log */
static atomic_bool cannot_write; /* told already */

int event_log_open(const char *command, const char *path, int *fd) {
  log_path = path;
  *fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (*fd >= 0) return EXIT_YES;
  complain(command, "cannot open the event log '%s': %s", path, cause_of(errno).text);
  return EXIT_IO;
}

void event_log_write(const char *command, int fd, json_t *object) {
  const bool wrote = write_object(fd, object);
  const int errnum = errno;
  if (!atomic_exchange(&cannot_write, !wrote) && !wrote)
    complain(command, "events are lost: cannot write to the event log '%s': %s", log_path, strerror(errnum));
}

json_t *event_object(const rdzv_event *event) {
  char time_text[40];
  format_time(event->time_us, time_text);
  return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:s}", "time", time_text, "run_id", event->run_id,
                   "node", event->node, "host", event->host, "pid", (json_int_t)event->pid, "local_id",
                   (json_int_t)event->local_id, "round", (json_int_t)event->round, "rank", (json_int_t)event->rank,
                   "state", rdzv_node_state_name(event->state), "message", event->message);
}
