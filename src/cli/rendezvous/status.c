/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/rendezvous/rendezvous.h"

static const char *const me = "rdzv status";

enum { WATCH_MS = 5000 }; /* heartbeats that grow old are news, too */

struct settings {
  struct rendezvous_flags flags;
  bool json, watch;
};

static int parse(int argc, char **argv, struct settings *to) {
  const struct cli_flag flags[] = {
      RENDEZVOUS_FLAGS(&to->flags),
      {"json", FLAG_SWITCH, &to->json, NULL, "print a JSON object on one line"},
      {"watch", FLAG_SWITCH, &to->watch, NULL, "keep running, and print again on each change"},
      {0}};
  const struct command command = {me, "", "Prints the nodes of a rendezvous without joining it.", flags,
                                  "The exit code is 1 if no node has ever joined.\n"};
  const int rest = flags_parse(&command, argc, argv);
  return no_arguments(&command, rest, argc, argv) ? rest : -1;
}

static int print_once(struct rendezvous *rendezvous, const struct settings *settings, int64_t wait_ms) {
  rdzv_status *status;
  rdzv_error error;
  const int result = rdzv_handler_status(rendezvous->handler, wait_ms, &status, &error);
  if (result == RDZV_E_CANCELED && rendezvous_signal()) return EXIT_YES;
  if (result < 0) return complain_error(me, &error);
  int code = print_status(me, status, settings->flags.run_id, settings->json);
  if (code == EXIT_YES && !status->exists) code = EXIT_NO;
  rdzv_status_free(status);
  return code;
}

int cmd_status(int argc, char **argv) {
  struct settings settings = {.flags = RENDEZVOUS_FLAGS_DEFAULT};
  struct rendezvous rendezvous;
  const int rest = parse(argc, argv, &settings);
  if (rest < 0) return rest == -2 ? EXIT_YES : EXIT_USAGE;
  int code = rendezvous_catch_signals(me);
  if (code == EXIT_YES) code = rendezvous_open(&rendezvous, me, &settings.flags, true);
  if (code != EXIT_YES || !rendezvous.handler) return code;
  code = print_once(&rendezvous, &settings, 0);
  while (settings.watch && (code == EXIT_YES || code == EXIT_NO) && !rendezvous_signal())
    code = print_once(&rendezvous, &settings, WATCH_MS);
  rendezvous_close(&rendezvous);
  return code;
}
