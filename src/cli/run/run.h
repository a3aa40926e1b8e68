/* SPDX-License-Identifier: BSD-3-Clause */
/* What `rdzv run` is made of. */
#ifndef RDZV_CLI_RUN_RUN_H
#define RDZV_CLI_RUN_RUN_H

#include "cli/rendezvous/rendezvous.h"

#include <rdzv/agent.h>

/* ---- program.c: what to execute ---- */

struct program_flags {
  bool module, no_python, run_path;
};

/* The words that the workers are started with: `words` behind an interpreter where it takes one. *out is to be freed,
 * but not the words. Returns an exit code, and has printed the error: a program that cannot be started is detected
 * here. */
int program_words(const char *command, const struct program_flags *flags, char **words, const char ***out);

/* The path of the interpreter that the workers are run by; NULL: none. */
const char *program_python_used(void);

/* ---- run_log.c: what is written while it runs ---- */

struct run_log {
  const char *command;
  int event_fd; /* -1: none */
  bool json;
  rdzv_agent *agent; /* once it is open */
  struct progress *progress;
  bool ran; /* this node has had workers */
  rdzv_log lines;
};

/* Log lines to stderr, as JSON if it is so. */
rdzv_log run_log_lines(struct run_log *log, int level);

/* Gives an exit code. */
int run_log_open_events(struct run_log *log, const char *path);
void run_log_agent_event(void *user, const rdzv_agent_event *event);
void run_log_worker_event(void *user, const rdzv_worker_event *event);
void run_log_event(void *user, const rdzv_event *event);
void run_log_close(struct run_log *log);

/* ---- report.c ---- */

/* How it went, to stderr, if there is something to tell. */
void print_report(const rdzv_agent *agent, const rdzv_agent_result *result);
void print_report_json(const rdzv_agent *agent, const rdzv_agent_result *result);

/* The attempts that failed, as log lines: where there is no report. */
void log_attempts(const rdzv_agent *agent, const rdzv_log *log, rdzv_log_level level);

/* ---- what.c ---- */

/* Does the value of --tee or --redirects, "3" or "0:1,1:2", name the stream, 1 stdout or 2 stderr, of any worker? */
bool what_names_stream(const char *what, int stream);

/* A local rank in the list that no worker has, or -1; is_map: of "RANK:WHAT,...". 0 workers: their number is not known.
 */
int64_t what_rank_beyond(const char *list, bool is_map, int64_t workers);

/* ---- names.c ---- */

/* An error of the agent, with the flag in the place of the option: "--max-restarts" for "max_restarts". `node_rank`:
 * the option 'rank' comes from --node-rank. */
struct shown with_flags(const char *message, bool node_rank);

/* ---- error_file.c: TORCHELASTIC_ERROR_FILE of our own; nothing happens where it is not set ---- */

void error_file_failure(const char *command, const rdzv_worker_failure *failure);
void error_file_error(const char *command, const rdzv_error *error);

#endif
