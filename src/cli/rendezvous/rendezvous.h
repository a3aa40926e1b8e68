/* SPDX-License-Identifier: BSD-3-Clause */
/* What the commands that use a rendezvous have in common: torchrun's flags, the event log, signals. */
#ifndef RDZV_CLI_RENDEZVOUS_RENDEZVOUS_H
#define RDZV_CLI_RENDEZVOUS_RENDEZVOUS_H

#include "cli/cli.h"
#include "cli/protection.h"

#include <rdzv/handler.h>

struct rendezvous_flags {
  const char *backend, *endpoint, *run_id, *conf, *local_addr, *nnodes, *event_log;
  int log_level;
  rdzv_launcher launcher;
  struct protection_flags protection;
};

#define RENDEZVOUS_FLAGS_DEFAULT ((struct rendezvous_flags){.nnodes = "1", .conf = "", .log_level = RDZV_LOG_WARNING})

/* Rows for a command's table of flags. */
#define RENDEZVOUS_STORE_FLAGS(to, backends)                                                                    \
  {"rdzv-backend", FLAG_TEXT, &(to)->backend, "NAME", "c10d (default), etcd-v2, etcd-v3, " backends},           \
      {"rdzv-endpoint", FLAG_TEXT, &(to)->endpoint, "HOST:PORT",                                                \
       "address of the store or of etcd (default $RDZV_ENDPOINT, else localhost:29400; etcd: localhost:2379)"}, \
      {"rdzv-conf", FLAG_TEXT, &(to)->conf, "K=V,...", "options of the rendezvous, see rdzv-join(1)"},          \
      PROTECTION_FLAGS(&(to)->protection), LOG_LEVEL_FLAG(&(to)->log_level, "warning")

#define RENDEZVOUS_FLAGS(to)                                                                        \
  {"rdzv-id", FLAG_TEXT, &(to)->run_id, "ID", "id of the job, the same on all nodes (required)"},   \
      RENDEZVOUS_STORE_FLAGS(to, "etcd (also etcd-v1), or static"), {                               \
    "event-log", FLAG_TEXT, &(to)->event_log, "PATH", "append each event to PATH as a line of JSON" \
  }

/* What to do about a rendezvous that is closed, and about a join that timed out. */
#define CLOSED_HINT " (choose another --rdzv-id, or free this one with 'rdzv reset')"
#define TIMEOUT_HINT " (are all nodes started, with the same --rdzv-endpoint and --rdzv-id?)"

/* The error of a command without --rdzv-id. */
#define MISSING_RUN_ID "flag '--rdzv-id' is missing (the id of the job, the same on all nodes)"

/* "2" or "1:4". */
bool parse_nnodes(const char *text, int64_t *min, int64_t *max);
extern const char *const NNODES_EXPECTED; /* for the error */

/* An open rendezvous, and what the command needs around it. */
struct rendezvous {
  const char *command; /* for messages */
  rdzv_handler *handler;
  int event_fd; /* -1: none */
};

/* From here on SIGTERM and SIGINT cancel what waits, instead of ending the process. */
int rendezvous_catch_signals(const char *command);

/* Readable once one came. */
int rendezvous_signal_fd(void);

/* The signal that came, or 0. */
int rendezvous_signal(void);

/* Signals are passed on to that process, too; 0: to no process, so that it may be reaped. */
void rendezvous_forward_to(int pid);

/* Opens it. `as_guest`: only looks in, so it never serves the store and does not wait long for it. Gives an exit code,
 * EXIT_YES for success, and has said what is wrong. */
int rendezvous_open(struct rendezvous *rendezvous, const char *command, const struct rendezvous_flags *flags,
                    bool as_guest);
void rendezvous_close(struct rendezvous *rendezvous);

/* complain_error for a store that could not be opened: a timeout means that it cannot be reached. */
int rendezvous_complain(const char *command, const rdzv_error *error);

/* For a call that only looks in. *conf is to be freed after it. */
rdzv_params rendezvous_guest_params(const char *command, const struct rendezvous_flags *flags, char **conf);

/* ---- progress.c ---- */

/* While a rendezvous is waited for, one line on the terminal that lists the nodes. Nothing without a terminal. */
struct progress;
struct progress *progress_begin(rdzv_handler *handler);

/* `round` is what came of it, where that is known; else NULL. Its participants are missed if they are not in the next.
 */
void progress_end(struct progress *progress, const rdzv_result *round);

/* ---- rounds.c: what is printed; both give an exit code ---- */
int print_round(const char *command, rdzv_result *result);
int print_status(const char *command, const rdzv_status *status, const char *run_id, bool json);

/* The exit code of CMD, run in the round; 128+n where signal n ended it. */
int run_command(const char *command, const rdzv_result *result, char **argv);

#endif
