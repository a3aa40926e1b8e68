/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/rendezvous/rendezvous.h"
#include "cli/rendezvous/event_log.h"
#include "cli/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- signals -------------------------------------------------------------------------------------------------- */

static atomic_int caught;
static int signal_pipe[2] = {-1, -1};
static pthread_mutex_t told_lock = PTHREAD_MUTEX_INITIALIZER; /* held while child and leaver are used */
static pid_t child;                                           /* 0: none; not reaped before it is 0 again */
static rdzv_handler *leaver;                                  /* the handler that has to leave; guarded, too */

enum { LEAVE_MS = 3000 }; /* after a signal, also where the store is gone */

/* A second one ends the process in the usual way, unless there is a child to decide. What a terminal sends, it sends to
 * the child by itself; but that it is gone, it tells the first process of its session only. */
static void on_signal(void *unused, int number, bool by_terminal) {
  (void)unused;
  pthread_mutex_lock(&told_lock);
  const bool has_child = child > 0, again = atomic_exchange(&caught, number);
  if (has_child && (!by_terminal || number == SIGHUP)) kill(child, number);
  if (leaver) rdzv_handler_set_close_timeout(leaver, LEAVE_MS, NULL);
  pthread_mutex_unlock(&told_lock);
  if (again && !has_child) signals_default(number);
  if (write(signal_pipe[1], "x", 1) < 0) { /* it is full, which is as good */
  }
}

/* Where stdin is closed, a descriptor can be 0, which means none to the library. */
static bool move_up(int *fd) {
  const int moved = fcntl(*fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (moved < 0) return false;
  close(*fd);
  *fd = moved;
  return true;
}

int rendezvous_catch_signals(const char *command) {
  if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) < 0 || !move_up(&signal_pipe[0]) || !move_up(&signal_pipe[1])) {
    complain(command, "cannot make a pipe: %s", cause_of(errno).text);
    return EXIT_IO;
  }
  return signals_begin(command, on_signal, NULL) ? EXIT_YES : EXIT_IO;
}

int rendezvous_signal_fd(void) { return signal_pipe[0]; }
int rendezvous_signal(void) { return atomic_load(&caught); }

void rendezvous_forward_to(int pid) {
  pthread_mutex_lock(&told_lock);
  child = pid;
  const int number = atomic_load(&caught);
  if (pid > 0 && number) kill(pid, number); /* it came between */
  pthread_mutex_unlock(&told_lock);
}

/* From here on a signal makes leaving and closing short; one that came before, too. NULL: there is no handler. */
static void hurry(rdzv_handler *handler) {
  pthread_mutex_lock(&told_lock);
  leaver = handler;
  if (leaver && atomic_load(&caught)) rdzv_handler_set_close_timeout(leaver, LEAVE_MS, NULL);
  pthread_mutex_unlock(&told_lock);
}

/* ---- the event log -------------------------------------------------------------------------------------------- */

static void write_event(void *user, const rdzv_event *event) {
  const struct rendezvous *rendezvous = user;
  event_log_write(rendezvous->command, rendezvous->event_fd, event_object(event));
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

const char *const NNODES_EXPECTED = "expected MIN or MIN:MAX, with 1 <= MIN <= MAX";

bool parse_nnodes(const char *text, int64_t *min, int64_t *max) {
  char *end;
  errno = 0;
  *min = *max = strtoll(text, &end, 10);
  if (end == text || errno) return false;
  if (*end == ':') {
    const char *rest = end + 1;
    *max = strtoll(rest, &end, 10);
    if (end == rest || errno) return false;
  }
  return *end == '\0' && *min >= 1 && *max >= *min;
}

/* A guest waits for the store for seconds only, and is never its host, whatever is said for the nodes. */
static char *guest_conf(const struct rendezvous_flags *flags, char *full) {
  char *conf;
  const bool c10d = !flags->backend || strcmp(flags->backend, "c10d") == 0;
  const bool etcd = flags->backend && strncmp(flags->backend, "etcd", 4) == 0;
  if (!full || (!c10d && !etcd)) return full; /* nothing is read */
  const int printed = asprintf(&conf, "read_timeout=5%s%s%s", *full ? "," : "", full, c10d ? ",is_host=false" : "");
  free(full);
  return printed < 0 ? NULL : conf;
}

/* The options, with those of the flags; to be freed. NULL: it has said why. */
static char *conf_of(const char *command, const struct rendezvous_flags *flags, bool as_guest) {
  protection_hide(&flags->protection, flags->conf);
  char *full = protection_conf(command, &flags->protection, flags->conf);
  return as_guest ? guest_conf(flags, full) : full;
}

/* No other process knows which port was chosen. */
static void say_free_port(const struct rendezvous *rendezvous, const char *endpoint) {
  const size_t len = endpoint ? strlen(endpoint) : 0;
  if (len > 2 && strcmp(endpoint + len - 2, ":0") == 0)
    remark(rendezvous->command, "the rendezvous is at %s", rdzv_handler_describe(rendezvous->handler));
}

int rendezvous_complain(const char *command, const rdzv_error *error) {
  const int code = complain_error(command, error);
  return code == EXIT_TIMEOUT ? EXIT_CONNECT : code;
}

static rdzv_params params_of(const char *command, const struct rendezvous_flags *flags) {
  return (rdzv_params){.size = sizeof(rdzv_params),
                       .backend = flags->backend,
                       .endpoint = flags->endpoint,
                       .run_id = flags->run_id,
                       .conf = flags->conf,
                       .local_addr = flags->local_addr,
                       .launcher = flags->launcher,
                       .cancel_fd = signal_pipe[0] > 0 ? signal_pipe[0] : 0,
                       .log = stderr_log(command, flags->log_level)};
}

rdzv_params rendezvous_guest_params(const char *command, const struct rendezvous_flags *flags, char **conf) {
  rdzv_params params = params_of(command, flags);
  *conf = conf_of(command, flags, true);
  if (*conf) params.conf = *conf;
  return params;
}

static int open_handler(struct rendezvous *rendezvous, const rdzv_params *params) {
  rdzv_error error;
  const int result = rdzv_handler_open(params, &rendezvous->handler, &error);
  if (result == 0) {
    hurry(rendezvous->handler);
    say_free_port(rendezvous, params->endpoint);
    return EXIT_YES;
  }
  if (result == RDZV_E_CANCELED && rendezvous_signal()) return EXIT_YES; /* told to end before anything began */
  return rendezvous_complain(rendezvous->command, &error);
}

int rendezvous_open(struct rendezvous *rendezvous, const char *command, const struct rendezvous_flags *flags,
                    bool as_guest) {
  *rendezvous = (struct rendezvous){.command = command, .event_fd = -1};
  rdzv_params params = params_of(command, flags);
  if (!flags->run_id || !*flags->run_id) {
    complain(command, MISSING_RUN_ID);
    return EXIT_USAGE;
  }
  if (!parse_nnodes(flags->nnodes, &params.min_nodes, &params.max_nodes)) {
    complain(command, "invalid value '%s' for --nnodes: %s", flags->nnodes, NNODES_EXPECTED);
    return EXIT_USAGE;
  }
  if (as_guest && flags->backend && strcmp(flags->backend, "static") == 0) {
    complain(command, "a static rendezvous has no shared state (choose another --rdzv-backend)");
    return EXIT_REFUSED;
  }
  char *conf = conf_of(command, flags, as_guest);
  if (!conf) return EXIT_USAGE;
  int code = flags->event_log ? event_log_open(command, flags->event_log, &rendezvous->event_fd) : EXIT_YES;
  if (code != EXIT_YES) {
    free(conf);
    return code;
  }
  if (flags->event_log) {
    params.on_event = write_event;
    params.event_user = rendezvous;
  }
  params.conf = conf;
  code = open_handler(rendezvous, &params);
  free(conf);
  return code;
}

void rendezvous_close(struct rendezvous *rendezvous) {
  hurry(NULL);
  rdzv_handler_free(rendezvous->handler);
  if (rendezvous->event_fd >= 0) close(rendezvous->event_fd);
}
