/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text/signal_name.h"
#include "cli/rendezvous/event_log.h"
#include "cli/run/run.h"
#include "cli/terminal.h"

#include <rdzv/bytes.h>
#include <stdio.h>
#include <string.h>

enum { MOST_LINES = 20, MOST_OTHERS = 16 };

struct end {
  char text[64];
};

static struct end end_of(const rdzv_worker_failure *failure) {
  struct end end;
  if (failure->signal)
    snprintf(end.text, sizeof end.text, "signal %d (%s)", failure->signal, signal_name(failure->signal).text);
  else
    snprintf(end.text, sizeof end.text, "exit code %d", failure->exit_code);
  return end;
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

static bool has_either(const rdzv_worker_failure *failure, const char *text) {
  return strstr(failure->log, text) || strstr(failure->message, text);
}

/* Only of a missing module: for another failure the path of Python is no news. */
static void print_hint(const rdzv_worker_failure *failure) {
  const char *python = program_python_used();
  const bool missing = has_either(failure, "No module named ") || has_either(failure, "ModuleNotFoundError") ||
                       has_either(failure, "ImportError");
  if (python && missing)
    fprintf(stderr, "  hint: is the module installed for %s? (PYTHON_EXEC names another interpreter)\n", python);
}

/* The list of attempts follows: which one this failure is of. */
static void print_attempt(const rdzv_worker_failure *failure) {
  if (failure->attempt > 0)
    fprintf(stderr, "  last attempt (%lld): first failure: ", (long long)failure->attempt);
  else
    fprintf(stderr, "  first failure: ");
}

/* A worker that could not be started has no pid. */
static void print_worker(const rdzv_worker_failure *failure) {
  fprintf(stderr, "rank %lld (local rank %lld) on %s", (long long)failure->rank, (long long)failure->local_rank,
          shown(failure->host).text);
  if (failure->pid > 0) fprintf(stderr, ", pid %lld", (long long)failure->pid);
  fprintf(stderr, ": %s", end_of(failure).text);
}

static void print_first(const rdzv_worker_failure *failure) {
  print_attempt(failure);
  print_worker(failure);
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
  fprintf(stderr, "  then: ");
  print_worker(failure);
  fprintf(stderr, "\n");
}

/* ---- attempts ------------------------------------------------------------------------------------------------- */

/* What is known beyond the end itself: the message, or the last line on stderr. */
static const char *detail_of(const rdzv_worker_failure *failure) {
  const bool plain =
      strncmp(failure->message, "exit code", 9) == 0 || strncmp(failure->message, "killed by signal", 16) == 0;
  return *failure->error_file || !plain ? failure->message : failure->log;
}

/* When, which rank, why. */
static void attempt_text(const rdzv_worker_failure *failure, char *out, size_t size) {
  const char *detail = detail_of(failure);
  char time_text[40], shown_detail[160];
  format_time(failure->time_us, time_text);
  rdzv_printable((rdzv_bytes){detail, strcspn(detail, "\n")}, shown_detail, sizeof shown_detail);
  snprintf(out, size, "at %s: rank %lld on %.64s: %s%s%s", time_text, (long long)failure->rank,
           shown(failure->host).text, end_of(failure).text, *shown_detail ? ": " : "", shown_detail);
}

/* Attempts between this one and the one before that were dropped from the list. */
static long long left_out(const rdzv_agent *agent, size_t index) {
  const rdzv_worker_failure *one = rdzv_agent_failed_attempt(agent, index);
  return index == 0 ? 0 : (long long)(one->attempt - rdzv_agent_failed_attempt(agent, index - 1)->attempt - 1);
}

static void print_attempts(const rdzv_agent *agent) {
  char text[512];
  const rdzv_worker_failure *failure;
  if (rdzv_agent_failed_attempt_count(agent) < 2) return; /* the report has it */
  fprintf(stderr, "  failed attempts:\n");
  for (size_t i = 0; (failure = rdzv_agent_failed_attempt(agent, i)); i++) {
    attempt_text(failure, text, sizeof text);
    if (left_out(agent, i) > 0) fprintf(stderr, "    (%lld left out)\n", left_out(agent, i));
    fprintf(stderr, "    %lld %s\n", (long long)failure->attempt, text);
  }
}

void log_attempts(const rdzv_agent *agent, const rdzv_log *log, rdzv_log_level level) {
  char text[512], line[560];
  const rdzv_worker_failure *failure;
  for (size_t i = 0; log->level >= level && (failure = rdzv_agent_failed_attempt(agent, i)); i++) {
    attempt_text(failure, text, sizeof text);
    snprintf(line, sizeof line, "attempt %lld failed %s", (long long)failure->attempt, text);
    log->write(log->user, level, line);
  }
}

/* ---- the report ----------------------------------------------------------------------------------------------- */

static void print_failed(const rdzv_agent *agent, const rdzv_agent_result *result) {
  const struct paint color = paint(RDZV_LOG_ERROR);
  fprintf(stderr, "%srdzv run: FAILED: %s; restarts used: %lld%s\n", color.begin, shown(result->reason).text,
          (long long)result->restarts, color.end);
  const size_t count = rdzv_agent_result_failure_count(result);
  for (size_t i = 0; i < count && i <= MOST_OTHERS; i++)
    (i == 0 ? print_first : print_other)(rdzv_agent_result_failure(result, i));
  if (count > MOST_OTHERS + 1) fprintf(stderr, "  and %zu more\n", count - MOST_OTHERS - 1);
  print_attempts(agent);
  if (*result->log_dir) fprintf(stderr, "  files of this run: %s\n", shown(result->log_dir).text);
}

void print_report(const rdzv_agent *agent, const rdzv_agent_result *result) {
  const bool failed = result->state == RDZV_AGENT_FAILED;
  if (failed) print_failed(agent, result);
  if (result->lost_bytes > 0)
    fprintf(stderr, "%s%llu bytes of the workers' output are lost: %s\n",
            failed ? "  " : "rdzv run: ", (unsigned long long)result->lost_bytes, shown(result->lost_to).text);
}

/* What a worker wrote may be anything: a text that is not UTF-8 is left out. */
static json_t *failure_object(const rdzv_worker_failure *failure) {
  json_t *object =
      json_pack("{s:I, s:I, s:I, s:s, s:I, s:i, s:i, s:I, s:s, s:s}", "attempt", (json_int_t)failure->attempt, "rank",
                (json_int_t)failure->rank, "local_rank", (json_int_t)failure->local_rank, "host", failure->host, "pid",
                (json_int_t)failure->pid, "exit_code", failure->exit_code, "signal", failure->signal, "time_us",
                (json_int_t)failure->time_us, "message", failure->message, "error_file", failure->error_file);
  if (object) json_object_set_new(object, "stderr", json_string(failure->log));
  return object;
}

void print_report_json(const rdzv_agent *agent, const rdzv_agent_result *result) {
  char time_text[40];
  if (result->state != RDZV_AGENT_FAILED && result->lost_bytes == 0) return;
  format_time(now_us(), time_text);
  json_t *failures = json_array(), *attempts = json_array();
  const rdzv_worker_failure *failure;
  for (size_t i = 0; (failure = rdzv_agent_result_failure(result, i)); i++)
    json_array_append_new(failures, failure_object(failure));
  for (size_t i = 0; (failure = rdzv_agent_failed_attempt(agent, i)); i++)
    json_array_append_new(attempts, failure_object(failure));
  json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:I, s:o, s:o, s:s, s:I, s:s}", "time", time_text, "level", "error",
                             "state", rdzv_agent_state_name(result->state), "message", result->reason, "restarts",
                             (json_int_t)result->restarts, "failures", failures, "attempts", attempts, "log_dir",
                             result->log_dir, "lost_bytes", (json_int_t)result->lost_bytes, "lost_to", result->lost_to);
  if (object) json_dumpf(object, stderr, JSON_COMPACT);
  fputc('\n', stderr);
  json_decref(object);
}
