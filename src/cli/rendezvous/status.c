/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/rendezvous/table.h"
#include "cli/rendezvous/view.h"

#include <poll.h>
#include <string.h>
#include <time.h>

static const char *const me = "rdzv status";

enum { VIEW_MS = 1000, WATCH_MS = 5000 }; /* heartbeats that grow old are news, too */
enum { SILENT_MS = 15000 };               /* a node is dead then by default */

struct settings {
  struct rendezvous_flags flags;
  bool json, watch;
};

static int parse(int argc, char **argv, struct settings *to) {
  const struct cli_flag flags[] = {RENDEZVOUS_FLAGS(&to->flags),
                                   {"json", FLAG_SWITCH, &to->json, NULL, "print a JSON object on one line"},
                                   {"watch", FLAG_SWITCH, &to->watch, NULL, "keep running, and show each change"},
                                   {0}};
  const struct command command = {me, "", "Prints the nodes of a rendezvous without joining it.", flags,
                                  "The exit code is 1 if no node has ever joined.\n"};
  const int rest = flags_parse(&command, argc, argv);
  return no_arguments(&command, rest, argc, argv) ? rest : -1;
}

/* A server that is restarted answers again; what is wrong for good does not become right. */
static bool may_answer_later(int result) {
  return result != RDZV_E_NO_MEMORY && rdzv_error_class_of(result) != RDZV_ERROR_CLASS_DEFINITE;
}

/* What was asked for is known; a line of a terminal has little room. */
static const char *cause_in(const char *message) {
  const char *cause = strstr(message, "cannot connect");
  return cause ? cause : message;
}

/* Between two tries. */
static void await_signal(void) {
  struct pollfd signals = {.fd = rendezvous_signal_fd(), .events = POLLIN};
  poll(&signals, 1, VIEW_MS);
}

/* A view until a signal comes. */
static int watch(struct rendezvous *rendezvous, const struct settings *settings) {
  struct view view;
  int code = EXIT_YES;
  view_begin(&view, me, settings->flags.run_id);
  for (int64_t wait_ms = 0; code == EXIT_YES && !rendezvous_signal(); wait_ms = VIEW_MS) {
    rdzv_status *status;
    rdzv_error error;
    const int result = rdzv_handler_status(rendezvous->handler, wait_ms, &status, &error);
    if (result == RDZV_E_CANCELED && rendezvous_signal()) break;
    if (result == 0) {
      code = view_show(&view, status);
    } else if (view.now && may_answer_later(result)) {
      code = view_lost(&view, cause_in(error.message));
      await_signal();
    } else {
      code = complain_error(me, &error);
    }
  }
  view_end(&view);
  return code;
}

static bool is_silent(const rdzv_status *status) {
  for (size_t i = 0; !status->closed && i < rdzv_status_node_count(status); i++)
    if (rdzv_status_node(status, i)->heartbeat_age_ms > SILENT_MS) return true;
  return false;
}

static int64_t now_ms(void) { /* of the monotonic clock */
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A heartbeat has the time of its node's clock, which may have been set: one that is old by it is waited for. What is
 * old then has not come for so long. */
static int look(struct rendezvous *rendezvous, int64_t wait_ms, rdzv_status **out, rdzv_error *error) {
  const int64_t until = now_ms() + wait_ms + STATUS_NEXT_MS;
  int result = rdzv_handler_status(rendezvous->handler, wait_ms, out, error);
  for (int64_t left; result == 0 && (is_silent(*out) || status_is_doubtful(*out)) && (left = until - now_ms()) > 0;) {
    rdzv_status_free(*out);
    result = rdzv_handler_status(rendezvous->handler, left, out, error);
  }
  return result;
}

/* Gives an exit code. */
static int print_and_free(const struct settings *settings, rdzv_status *status) {
  int code = print_status(me, status, settings->flags.run_id, settings->json);
  if (code == EXIT_YES && !status->exists) code = EXIT_NO;
  rdzv_status_free(status);
  return code;
}

static int print_once(struct rendezvous *rendezvous, const struct settings *settings) {
  rdzv_status *status;
  rdzv_error error;
  const int result = look(rendezvous, 0, &status, &error);
  if (result == RDZV_E_CANCELED && rendezvous_signal()) return EXIT_YES;
  if (result < 0) return complain_error(me, &error);
  return print_and_free(settings, status);
}

/* An object for each look until a signal comes. */
static int watch_json(struct rendezvous *rendezvous, const struct settings *settings) {
  bool seen = false, lost = false;
  for (int64_t wait_ms = 0; !rendezvous_signal(); wait_ms = WATCH_MS) {
    rdzv_status *status;
    rdzv_error error;
    const int result = look(rendezvous, wait_ms, &status, &error);
    if (result == RDZV_E_CANCELED && rendezvous_signal()) break;
    if (result < 0 && !(seen && may_answer_later(result))) return complain_error(me, &error);
    if (result < 0 && !lost) complain(me, "no answer: %s", cause_in(error.message));
    if (result == 0 && lost) remark(me, "the store answers again");
    lost = result < 0;
    seen |= !lost;
    const int code = lost ? EXIT_YES : print_and_free(settings, status);
    if (code == EXIT_IO) return code;
    if (lost) await_signal();
  }
  return EXIT_YES;
}

int cmd_status(int argc, char **argv) {
  struct settings settings = {.flags = RENDEZVOUS_FLAGS_DEFAULT};
  struct rendezvous rendezvous;
  const int rest = parse(argc, argv, &settings);
  if (rest < 0) return rest == -2 ? EXIT_YES : EXIT_USAGE;
  int code = rendezvous_catch_signals(me);
  if (code == EXIT_YES) code = rendezvous_open(&rendezvous, me, &settings.flags, true);
  if (code != EXIT_YES || !rendezvous.handler) return code;
  if (settings.watch && settings.flags.log_level <= RDZV_LOG_WARNING) limit_log(RDZV_LOG_ERROR); /* the view says it */
  code = (!settings.watch ? print_once : settings.json ? watch_json : watch)(&rendezvous, &settings);
  rendezvous_close(&rendezvous);
  return code;
}
