/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/rendezvous/table.h"

#include <poll.h>
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
  if (status->ended_us > 0 && *status->ended_by)
    printf(status->died ? ": %s died" : " by %s", shown(status->ended_by).text);
  if (status->ended_us > 0 && *status->reason) printf(": ");
  return printf("%s\n", shown(status->reason).text) < 0 ? EXIT_IO : EXIT_YES;
}

/* ---- looking -------------------------------------------------------------------------------------------------- */

enum { BATCH = 32 }; /* runs that are looked at together: those whose nodes seem to be dead are looked at twice */

struct looked {
  const char *run_id;
  struct rendezvous rendezvous;
  rdzv_status *status; /* NULL: it cannot be read */
  int code;
};

static void read_run(struct looked *run) {
  rdzv_error error;
  const int result = rdzv_handler_status(run->rendezvous.handler, 0, &run->status, &error);
  if (result == 0) return;
  run->status = NULL;
  complain(me, "cannot read run '%s': %s", run->run_id, error.message);
  run->code = exit_code_of(result);
}

static bool is_doubtful(const struct looked *run) { return run->status && status_is_doubtful(run->status); }

static void look(struct looked *run, const struct settings *settings, const char *run_id) {
  struct rendezvous_flags flags = settings->flags;
  *run = (struct looked){.run_id = run_id};
  flags.run_id = run_id;
  run->code = rendezvous_open(&run->rendezvous, me, &flags, true);
  if (run->code != EXIT_YES || !run->rendezvous.handler) return;
  read_run(run);
  if (is_doubtful(run)) return;
  rendezvous_close(&run->rendezvous);
  run->rendezvous.handler = NULL;
}

static void look_again(struct looked *run) {
  if (!is_doubtful(run)) return;
  rdzv_status_free(run->status);
  read_run(run);
  rendezvous_close(&run->rendezvous);
}

static void look_at_batch(struct looked *runs, size_t count, const struct settings *settings, const rdzv_value *ids) {
  size_t doubtful = 0;
  bool is_lost = false; /* the store */
  for (size_t i = 0; i < count && !is_lost && !rendezvous_signal(); i++) {
    look(&runs[i], settings, ids[i].data);
    doubtful += is_doubtful(&runs[i]);
    is_lost = runs[i].code == EXIT_CONNECT;
  }
  struct pollfd signals = {.fd = rendezvous_signal_fd(), .events = POLLIN};
  if (doubtful > 0) poll(&signals, 1, STATUS_NEXT_MS);
  for (size_t i = 0; i < count; i++) look_again(&runs[i]);
}

/* ---- printing ------------------------------------------------------------------------------------------------- */

/* *count: so many were printed before. */
static int print_run(const struct settings *settings, const struct looked *run, size_t *count) {
  if (!run->status || !run->status->exists) return run->code;
  if ((*count)++ == 0 && !settings->json)
    printf("%-24s %-10s %6s %6s %8s  %s\n", "ID", "PHASE", "ROUND", "NODES", "WAITING", "END");
  return settings->json ? print_status(me, run->status, run->run_id, true) : print_row(run->status, run->run_id);
}

/* A run that cannot be read does not hide the others, unless the store cannot be reached. */
static int print_batch(const struct settings *settings, const rdzv_value *ids, size_t count, size_t *printed) {
  struct looked runs[BATCH] = {0};
  int worst = EXIT_YES;
  bool is_over = false;
  look_at_batch(runs, count, settings, ids);
  for (size_t i = 0; i < count; i++) {
    const int code = is_over ? EXIT_YES : print_run(settings, &runs[i], printed);
    is_over |= code == EXIT_IO || code == EXIT_CONNECT;
    if (code != EXIT_YES) worst = code;
    rdzv_status_free(runs[i].status);
  }
  return worst;
}

static int print_all(const struct settings *settings, const rdzv_value *ids, size_t count) {
  size_t printed = 0;
  int worst = EXIT_YES;
  for (size_t i = 0; i < count && !rendezvous_signal(); i += BATCH) {
    const int code = print_batch(settings, ids + i, count - i < BATCH ? count - i : BATCH, &printed);
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
  if (result == RDZV_E_CANCELED && rendezvous_signal()) return EXIT_YES;
  if (result < 0) return rendezvous_complain(me, &error);
  code = print_all(&settings, ids, count);
  rdzv_values_free(ids, count);
  return code;
}
