/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/rendezvous/rendezvous.h"

#include <rdzv/runs.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const me = "rdzv reset";

struct settings {
  struct rendezvous_flags flags;
  bool force;
};

static int parse(int argc, char **argv, struct settings *to) {
  const struct cli_flag flags[] = {
      RENDEZVOUS_STORE_FLAGS(&to->flags, "or etcd (also etcd-v1)"),
      {"rdzv-id", FLAG_TEXT, &to->flags.run_id, "ID", "id of the job (required)"},
      {"force", FLAG_SWITCH, &to->force, NULL, "also remove a run that is not closed; its nodes lose their places"},
      {0}};
  const struct command command = {
      me, "", "Removes a closed run from its store, so that its id can be used again.", flags,
      "The exit code is 1 if no node has ever joined the run, and 6 if it is not closed.\n"};
  const int rest = flags_parse(&command, argc, argv);
  return no_arguments(&command, rest, argc, argv) ? rest : -1;
}

/* May the run be removed? *exists: a node has joined it. */
static int check(const struct settings *settings, bool *exists) {
  struct rendezvous rendezvous;
  rdzv_status *status;
  rdzv_error error;
  int code = rendezvous_open(&rendezvous, me, &settings->flags, true);
  if (code != EXIT_YES) return code;
  const int result = rdzv_handler_status(rendezvous.handler, 0, &status, &error);
  if (result < 0) {
    code = complain_error(me, &error);
  } else {
    if (status->exists && !status->closed) {
      complain(me,
               "cannot remove rendezvous '%s': it is not closed: round %lld, %s, %zu participant%s (close it with "
               "'rdzv close', "
               "or remove it with --force)",
               settings->flags.run_id, (long long)status->round, status->phase, status->participants,
               status->participants == 1 ? "" : "s");
      code = EXIT_REFUSED;
    }
    *exists = status->exists;
    rdzv_status_free(status);
  }
  rendezvous_close(&rendezvous);
  return code;
}

int cmd_reset(int argc, char **argv) {
  struct settings settings = {.flags = RENDEZVOUS_FLAGS_DEFAULT};
  size_t removed;
  rdzv_error error;
  const int rest = parse(argc, argv, &settings);
  if (rest < 0) return rest == -2 ? EXIT_YES : EXIT_USAGE;
  if (!settings.flags.run_id || !*settings.flags.run_id) {
    complain(me, MISSING_RUN_ID);
    return EXIT_USAGE;
  }
  bool exists = true;
  const int code = settings.force ? EXIT_YES : check(&settings, &exists);
  if (code != EXIT_YES) return code;
  char *conf;
  const rdzv_params params = rendezvous_guest_params(me, &settings.flags, &conf);
  const int result = rdzv_runs_remove(&params, &removed, &error);
  free(conf);
  if (result < 0) return rendezvous_complain(me, &error);
  if (exists && removed > 0) return EXIT_YES; /* what was only asked for leaves a key, too */
  complain(me, "nothing to remove: no node ever joined rendezvous '%s'", settings.flags.run_id);
  return EXIT_NO;
}
