/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text/signal_name.h"
#include "cli/rendezvous/event_log.h"
#include "cli/run/run.h"

#include <rdzv/bytes.h>
#include <stdio.h>
#include <string.h>

enum { MOST_LINES = 20, MOST_OTHERS = 16 };

static void print_end(const rdzv_worker_failure *failure) {
  if (failure->signal)
    fprintf(stderr, "signal %d (%s)", failure->signal, signal_name(failure->signal).text);
  else
    fprintf(stderr, "exit code %d", failure->exit_code);
}

/* What others have told, or workers written, must not play with the terminal. A long line is cut. */
static void print_text(const char *text, size_t len) {
  char line[4096];
  rdzv_printable((rdzv_bytes){text, len}, line, sizeof line);
  fputs(line, stderr);
}

/* Each line of a text behind a margin; only the last ones of a long one. */
static void print_lines(const char *text, const char *margin) {
  const char *from = text + strlen(text);
  int lines = 0;
  while (from > text && (lines < MOST_LINES || from[-1] != '\n')) {
    from--;
    if (*from == '\n' && from[1] != '\0') lines++;
  }
  if (*from == '\n') from++;
  while (*from) {
    const size_t len = strcspn(from, "\n");
    fprintf(stderr, "%s", margin);
    print_text(from, len);
    fputc('\n', stderr);
    from += len + (from[len] == '\n');
  }
}

/* What a worker writes to a terminal is not known here. */
static void print_hint(const rdzv_worker_failure *failure) {
  const char *python = program_python_used();
  if (!python) return;
  if (strstr(failure->log, "No module named ") || strstr(failure->message, "No module named "))
    fprintf(stderr, "  hint: is it installed for '%s'? PYTHON_EXEC names another interpreter\n", python);
  else if (failure->exit_code == 1 && !*failure->log)
    fprintf(stderr, "  hint: if a module is missing: PYTHON_EXEC names another interpreter than '%s'\n", python);
}

static void print_first(const rdzv_worker_failure *failure) {
  fprintf(stderr, "  first failure: rank %lld (local rank %lld) on %s, pid %lld: ", (long long)failure->rank,
          (long long)failure->local_rank, shown(failure->host).text, (long long)failure->pid);
  print_end(failure);
  char time_text[40];
  format_time(failure->time_us, time_text);
  fprintf(stderr, ", at %s\n", time_text);
  if (*failure->error_file || strncmp(failure->message, "exit code", 9) != 0) {
    fprintf(stderr, "  message:\n");
    print_lines(failure->message, "    ");
  }
  if (*failure->error_file) fprintf(stderr, "  error file: %s\n", shown(failure->error_file).text);
  if (*failure->log) {
    fprintf(stderr, "  its last lines on stderr:\n");
    print_lines(failure->log, "    | ");
  }
  print_hint(failure);
}

static void print_other(const rdzv_worker_failure *failure) {
  fprintf(stderr, "  then: rank %lld (local rank %lld) on %s, pid %lld: ", (long long)failure->rank,
          (long long)failure->local_rank, shown(failure->host).text, (long long)failure->pid);
  print_end(failure);
  fprintf(stderr, "\n");
}

void print_report(const rdzv_agent_result *result) {
  if (result->state != RDZV_AGENT_FAILED) return;
  fprintf(stderr, "rdzv run: FAILED: %s; restarts used: %lld\n", shown(result->reason).text,
          (long long)result->restarts);
  const size_t count = rdzv_agent_result_failure_count(result);
  for (size_t i = 0; i < count && i <= MOST_OTHERS; i++)
    (i == 0 ? print_first : print_other)(rdzv_agent_result_failure(result, i));
  if (count > MOST_OTHERS + 1) fprintf(stderr, "  and %zu more\n", count - MOST_OTHERS - 1);
  if (*result->log_dir) fprintf(stderr, "  files of this run: %s\n", shown(result->log_dir).text);
}

static json_t *failure_object(const rdzv_worker_failure *failure) {
  return json_pack("{s:I, s:I, s:s, s:I, s:i, s:i, s:I, s:s, s:s}", "rank", (json_int_t)failure->rank, "local_rank",
                   (json_int_t)failure->local_rank, "host", failure->host, "pid", (json_int_t)failure->pid, "exit_code",
                   failure->exit_code, "signal", failure->signal, "time_us", (json_int_t)failure->time_us, "message",
                   failure->message, "error_file", failure->error_file);
}

/* What a worker wrote may be anything: a text that is not UTF-8 is left out. */
void print_report_json(const rdzv_agent_result *result) {
  char time_text[40];
  if (result->state != RDZV_AGENT_FAILED) return;
  format_time(now_us(), time_text);
  json_t *failures = json_array();
  const rdzv_worker_failure *failure;
  for (size_t i = 0; (failure = rdzv_agent_result_failure(result, i)); i++) {
    json_t *object = failure_object(failure);
    if (object) json_object_set_new(object, "stderr", json_string(failure->log));
    json_array_append_new(failures, object);
  }
  json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:I, s:o, s:s}", "time", time_text, "level", "error", "state",
                             "FAILED", "message", result->reason, "restarts", (json_int_t)result->restarts, "failures",
                             failures, "log_dir", result->log_dir);
  if (object) json_dumpf(object, stderr, JSON_COMPACT);
  fputc('\n', stderr);
  json_decref(object);
}
