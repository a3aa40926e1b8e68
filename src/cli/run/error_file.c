/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The TORCHELASTIC_ERROR_FILE of this process, set by its parent: what torchrun's `main` leaves there by @record
 * (torch/distributed/elastic/multiprocessing/errors). After a worker's failure that is the worker's error file with the
 * exit code added, which is negative for a signal; otherwise a message of rdzv run.
 */
#include "cli/rendezvous/event_log.h"
#include "cli/run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *message_object(const char *text, int64_t time_us) {
  char seconds[24];
  snprintf(seconds, sizeof seconds, "%lld", (long long)(time_us / 1000000));
  return json_pack("{s:{s:s, s:{s:s}}}", "message", "message", text, "extraInfo", "timestamp", seconds);
}

/* Takes over the object. */
static void write_file(const char *command, const char *path, json_t *object) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool written = fd >= 0 && object && write_object(fd, object);
  const int errnum = errno;
  if (fd >= 0) close(fd);
  if (fd < 0) json_decref(object);
  if (!written) complain(command, "cannot write the error file '%s': %s", path, cause_of(errnum).text);
}

/* NULL: no file is wanted. */
static const char *wanted(void) {
  const char *path = getenv("TORCHELASTIC_ERROR_FILE");
  return path && *path ? path : NULL;
}

void error_file_failure(const char *command, const rdzv_worker_failure *failure) {
  const char *path = wanted();
  if (!path) return;
  json_t *object = *failure->error_file ? json_load_file(failure->error_file, 0, NULL) : NULL;
  if (!object) object = message_object(failure->message, failure->time_us);
  json_t *message = json_object_get(object, "message"); /* a text in a format that PyTorch leaves alone, too */
  const int code = failure->signal ? -failure->signal : failure->exit_code;
  if (json_is_object(message)) json_object_set_new(message, "errorCode", json_integer(code));
  write_file(command, path, object);
}

void error_file_error(const char *command, const rdzv_error *error) {
  const char *path = wanted();
  if (path) write_file(command, path, message_object(error->message, now_us()));
}
