/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/rendezvous/rendezvous.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>

static const char *const me = "rdzv join";

struct settings {
  struct rendezvous_flags flags;
  bool once;
};

static int parse(int argc, char **argv, struct settings *to) {
  const struct cli_flag flags[] = {
      RENDEZVOUS_FLAGS(&to->flags),
      {"nnodes", FLAG_TEXT, &to->flags.nnodes, "MIN[:MAX]", "number of nodes in a round (default 1)"},
      {"local-addr", FLAG_TEXT, &to->flags.local_addr, "ADDR", "name or address of this node for the other nodes"},
      {"once", FLAG_SWITCH, &to->once, NULL, "print the first round and exit without leaving"},
      {0}};
  const struct command command = {
      me, "[-- CMD...]", "Joins a rendezvous, and prints each round of this node as a line of JSON.", flags,
      "The node stays in the rendezvous and joins the next round when nodes join, leave or die. SIGTERM, SIGINT and "
      "SIGHUP make it leave and exit with 0.\n"
      "\n"
      "CMD runs in the first round, with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, RDZV_ROUND and RDZV_RUN_ID in "
      "its "
      "environment. The exit code is then that of CMD.\n"};
  return flags_parse(&command, argc, argv);
}

static int failed(int result, const rdzv_error *error) {
  if (result == RDZV_E_CANCELED && rendezvous_signal()) return EXIT_YES;
  const char *hint = result == RDZV_E_CLOSED ? CLOSED_HINT : result == RDZV_E_TIMEOUT ? TIMEOUT_HINT : "";
  const bool fine = result == RDZV_E_GRACEFUL_EXIT;
  (fine ? remark : complain)(me, "%s%s", error->message, hint);
  return fine ? EXIT_YES : exit_code_of(result);
}

static int next(struct rendezvous *rendezvous, rdzv_result **out) {
  rdzv_error error;
  struct progress *progress = progress_begin(rendezvous->handler);
  const int result = rdzv_handler_next(rendezvous->handler, out, &error);
  progress_end(progress, result < 0 ? NULL : *out);
  return result < 0 ? failed(result, &error) : print_round(me, *out);
}

/* Waits until there is a reason for another round. *again: there is. */
static int stay(struct rendezvous *rendezvous, bool *again) {
  rdzv_change *change;
  rdzv_error error;
  const int result = rdzv_handler_wait_change(rendezvous->handler, INT64_MAX, &change, &error);
  if (result < 0) return failed(result, &error);
  rdzv_change_free(change);
  *again = true; /* a rendezvous that was closed says so when it is joined */
  return EXIT_YES;
}

static int rounds(struct rendezvous *rendezvous) {
  for (bool again = true; again;) {
    rdzv_result *result = NULL;
    again = false;
    int code = next(rendezvous, &result);
    if (result && code == EXIT_YES) code = stay(rendezvous, &again);
    rdzv_result_free(result);
    if (code != EXIT_YES) return code;
  }
  return EXIT_YES;
}

static void leave(struct rendezvous *rendezvous) {
  rdzv_error error;
  if (rdzv_handler_leave(rendezvous->handler, &error) < 0) complain(me, "%s", error.message);
}

/* A node whose join timed out is still listed. After other failures there is nothing to leave, or no way to. */
static bool has_to_leave(int code) { return code == EXIT_YES || code == EXIT_IO || code == EXIT_TIMEOUT; }

static int one_round(struct rendezvous *rendezvous, const struct settings *settings, char **argv) {
  rdzv_result *result = NULL;
  int code = next(rendezvous, &result);
  const bool listed = result ? !settings->once : code == EXIT_TIMEOUT;
  if (result && code == EXIT_YES && *argv) code = run_command(me, result, argv);
  if (listed) leave(rendezvous);
  rdzv_result_free(result);
  return code;
}

int cmd_join(int argc, char **argv) {
  struct settings settings = {.flags = RENDEZVOUS_FLAGS_DEFAULT};
  struct rendezvous rendezvous;
  signal(SIGPIPE, SIG_IGN); /* the reader of the rounds may go; the node still leaves */
  const int rest = parse(argc, argv, &settings);
  if (rest < 0) return rest == -2 ? EXIT_YES : EXIT_USAGE;
  int code = rest < argc ? check_executable(me, argv[rest], "") : EXIT_YES; /* before others wait for us */
  if (code == EXIT_YES) code = rendezvous_catch_signals(me);
  settings.flags.launcher = RDZV_LAUNCHER_NONE;
  if (code == EXIT_YES) code = rendezvous_open(&rendezvous, me, &settings.flags, false);
  if (code != EXIT_YES) return code;
  if (!rendezvous.handler) return EXIT_YES; /* a signal came */
  if (settings.once || rest < argc) {
    code = one_round(&rendezvous, &settings, argv + rest);
  } else {
    code = rounds(&rendezvous);
    if (has_to_leave(code)) leave(&rendezvous);
  }
  rendezvous_close(&rendezvous);
  return code;
}
