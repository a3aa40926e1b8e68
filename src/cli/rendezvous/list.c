/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/rendezvous/table.h"

#include <rdzv/runs.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const me = "rdzv list";

struct settings {
  struct rendezvous_flags flags;
  bool json;
};

static int parse(int argc, char **argv, struct settings *to) {
  const struct cli_flag flags[] = {
      RENDEZVOUS_STORE_FLAGS(&to->flags, "or etcd (also etcd-v1)"),
      {"json", FLAG_SWITCH, &to->json, NULL, "print a JSON object for each run, one a line"},
      {0}};
  const struct command command = {me, "", "Lists the runs of a store: id, phase, round, nodes, end.", flags,
                                  "The exit code is 1 if the store has no runs.\n"};
  const int rest = flags_parse(&command, argc, argv);
  return no_arguments(&command, rest, argc, argv) ? rest : -1;
}

/* When, by which node and why it was ended, if that is known. */
static int print_row(const rdzv_status *status, const char *run_id) {
  printf("%-24s %-10s %6lld %6zu %8zu  ", shown(run_id).text, status->phase, (long long)status->round,
         status->participants, status->waiting + status->spares);
  if (status->ended_us > 0) printf("%s", time_text(status->ended_us).text);
  if (status->ended_us > 0 && *status->ended_by) printf(" by %s", shown(status->ended_by).text);
  if (status->ended_us > 0 && *status->reason) printf(": ");
  return printf("%s\n", shown(status->reason).text) < 0 ? EXIT_IO : EXIT_YES;
}

/* *count: so many were printed before. */
static int print_run(const struct settings *settings, const char *run_id, size_t *count) {
  struct rendezvous rendezvous;
  struct rendezvous_flags flags = settings->flags;
  rdzv_status *status;
  rdzv_error error;
  flags.run_id = run_id;
  int code = rendezvous_open(&rendezvous, me, &flags, true);
  if (code != EXIT_YES || !rendezvous.handler) return code;
  const int result = rdzv_handler_status(rendezvous.handler, 0, &status, &error);
  if (result < 0) {
    complain(me, "cannot read run '%s': %s", run_id, error.message);
    code = exit_code_of(result);
  } else {
    if (status->exists && !settings->json && (*count)++ == 0)
      printf("%-24s %-10s %6s %6s %8s  %s\n", "ID", "PHASE", "ROUND", "NODES", "WAITING", "END");
    if (status->exists) code = settings->json ? print_status(me, status, run_id, true) : print_row(status, run_id);
    if (status->exists && settings->json) (*count)++;
    rdzv_status_free(status);
  }
  rendezvous_close(&rendezvous);
  return code;
}

/* A run that cannot be read does not hide the others. */
static int print_all(const struct settings *settings, const rdzv_value *ids, size_t count) {
  size_t printed = 0;
  int worst = EXIT_YES;
  for (size_t i = 0; i < count && !rendezvous_signal(); i++) {
    const int code = print_run(settings, ids[i].data, &printed);
    if (code == EXIT_IO || code == EXIT_CONNECT) return code;
    if (code != EXIT_YES) worst = code;
  }
  if (finish_output(me, true) != EXIT_YES) return EXIT_IO;
  if (worst != EXIT_YES || printed > 0 || rendezvous_signal()) return worst;
  complain(me, "no runs in this store");
  return EXIT_NO;
}

int cmd_list(int argc, char **argv) {
  struct settings settings = {.flags = RENDEZVOUS_FLAGS_DEFAULT};
  rdzv_value *ids;
  size_t count;
  rdzv_error error;
  const int rest = parse(argc, argv, &settings);
  if (rest < 0) return rest == -2 ? EXIT_YES : EXIT_USAGE;
  int code = rendezvous_catch_signals(me);
  if (code != EXIT_YES) return code;
  char *conf;
  const rdzv_params params = rendezvous_guest_params(me, &settings.flags, &conf);
  const int result = rdzv_runs_list(&params, &ids, &count, &error);
  free(conf);
  if (result < 0) return rendezvous_complain(me, &error);
  code = print_all(&settings, ids, count);
  rdzv_values_free(ids, count);
  return code;
}
