/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/rendezvous/rendezvous.h"

static const char *const me = "rdzv close";

struct settings {
  struct rendezvous_flags flags;
  const char *reason;
};

static int parse(int argc, char **argv, struct settings *to) {
  const struct cli_flag flags[] = {
      RENDEZVOUS_FLAGS(&to->flags), {"reason", FLAG_TEXT, &to->reason, "TEXT", "reason that the nodes report"}, {0}};
  const struct command command = {
      me, "", "Closes a rendezvous for all nodes: it has no further rounds. This cannot be undone.", flags,
      "Nodes of rdzv join, and nodes that wait for a round, exit with 8. Workers that rdzv run has started continue, "
      "but are not restarted after a failure.\n"};
  const int rest = flags_parse(&command, argc, argv);
  return no_arguments(&command, rest, argc, argv) ? rest : -1;
}

int cmd_close(int argc, char **argv) {
  struct settings settings = {.flags = RENDEZVOUS_FLAGS_DEFAULT};
  struct rendezvous rendezvous;
  rdzv_error error;
  const int rest = parse(argc, argv, &settings);
  if (rest < 0) return rest == -2 ? EXIT_YES : EXIT_USAGE;
  const int code = rendezvous_open(&rendezvous, me, &settings.flags, true);
  if (code != EXIT_YES) return code;
  const int result = rdzv_handler_set_closed(rendezvous.handler, settings.reason, &error);
  rendezvous_close(&rendezvous);
  return result < 0 ? complain_error(me, &error) : EXIT_YES;
}
