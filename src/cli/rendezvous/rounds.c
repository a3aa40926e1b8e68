/* SPDX-License-Identifier: BSD-3-Clause */
/* Rounds and rendezvous as they are printed, and a command run in one. */
#include "cli/rendezvous/table.h"
#include "cli/signals.h"

#include <errno.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

/* Takes over the object. */
static int print_object(const char *command, json_t *object) {
  const bool printed = object && json_dumpf(object, stdout, JSON_COMPACT) == 0 && fputc('\n', stdout) != EOF;
  json_decref(object);
  return finish_output(command, printed);
}

/* A longer list of participants is not asked for, in each round by each node. */
enum { MOST_MEMBERS = 64 };

/* The round may be over, or the store lost, before the list is there. */
static json_t *members(const char *command, rdzv_result *result) {
  rdzv_error error;
  if (result->world_size > MOST_MEMBERS) return json_null();
  if (rdzv_result_load_participants(result, &error) < 0) {
    complain(command, "%s", error.message);
    return json_null();
  }
  json_t *list = json_array();
  const rdzv_participant *one;
  for (int64_t rank = 0; (one = rdzv_result_participant(result, rank)); rank++)
    json_array_append_new(
        list, json_pack("{s:s, s:s, s:I, s:I, s:I}", "node", one->node, "addr", one->addr, "pid", (json_int_t)one->pid,
                        "local_id", (json_int_t)one->local_id, "rank", (json_int_t)one->rank));
  return list;
}

static void tell_of_members(const char *command, const rdzv_result *result) {
  static bool told;
  if (told || result->world_size <= MOST_MEMBERS) return;
  told = true;
  remark(command, "the round has %lld participants, and lists of more than %d are not printed: see 'rdzv status'",
         (long long)result->world_size, MOST_MEMBERS);
}

int print_round(const char *command, rdzv_result *result) {
  tell_of_members(command, result);
  return print_object(
      command, json_pack("{s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:i, s:o}", "round", (json_int_t)result->round, "rank",
                         (json_int_t)result->rank, "world_size", (json_int_t)result->world_size, "run_id",
                         result->run_id, "backend", result->backend, "node", result->node, "master_addr",
                         result->master_addr, "master_port", result->master_port, "members", members(command, result)));
}

/* ---- status --------------------------------------------------------------------------------------------------- */

static json_t *node_object(const rdzv_node_status *node) {
  json_t *object = json_pack("{s:s, s:s, s:I}", "node", node->node, "kind", kind_name(node->kind), "heartbeat_age_ms",
                             (json_int_t)node->heartbeat_age_ms);
  json_object_set_new(object, "rank", node->rank >= 0 ? json_integer(node->rank) : json_null());
  json_object_set_new(object, "way", way_name(node->way) ? json_string(way_name(node->way)) : json_null());
  json_object_set_new(object, "trip_us", node->trip_us >= 0 ? json_integer(node->trip_us) : json_null());
  return object;
}

static json_t *number_or_null(int64_t number) { return number > 0 ? json_integer(number) : json_null(); }

static int print_status_json(const char *command, const rdzv_status *status, const char *run_id) {
  json_t *nodes = json_array();
  const size_t count = rdzv_status_node_count(status);
  for (size_t i = 0; i < count; i++) json_array_append_new(nodes, node_object(rdzv_status_node(status, i)));
  json_t *object = json_pack("{s:s, s:b, s:I, s:s, s:b, s:b, s:I, s:I, s:I, s:s, s:o}", "run_id", run_id, "exists",
                             status->exists, "round", (json_int_t)status->round, "phase", status->phase, "complete",
                             status->complete, "closed", status->closed, "participants",
                             (json_int_t)status->participants, "waiting", (json_int_t)status->waiting, "spares",
                             (json_int_t)status->spares, "torch_layout", status->layout, "nodes", nodes);
  json_object_set_new(object, "deadline_left_ms",
                      status->deadline_left_ms >= 0 ? json_integer(status->deadline_left_ms) : json_null());
  json_object_set_new(object, "min_nodes", number_or_null(status->min_nodes));
  json_object_set_new(object, "max_nodes", number_or_null(status->max_nodes));
  json_object_set_new(object, "ended_at",
                      status->ended_us > 0 ? json_string(time_text(status->ended_us).text) : json_null());
  json_object_set_new(object, "ended_by", *status->ended_by ? json_string(status->ended_by) : json_null());
  json_object_set_new(object, "died", json_boolean(status->died && strcmp(status->phase, "ended") == 0));
  if (status->closed) json_object_set_new(object, "reason", json_string(status->reason));
  return print_object(command, object);
}

int print_status(const char *command, const rdzv_status *status, const char *run_id, bool json) {
  if (json) return print_status_json(command, status, run_id);
  print_table(stdout, status, NULL, run_id);
  return finish_output(command, true);
}

/* ---- a command in a round ------------------------------------------------------------------------------------- */

enum { VARIABLES = 6, LONGEST = 1024 };

static void fill(char texts[VARIABLES][LONGEST], const rdzv_result *result) {
  snprintf(texts[0], LONGEST, "RANK=%lld", (long long)result->rank);
  snprintf(texts[1], LONGEST, "WORLD_SIZE=%lld", (long long)result->world_size);
  snprintf(texts[2], LONGEST, "MASTER_ADDR=%s", result->master_addr);
  snprintf(texts[3], LONGEST, "MASTER_PORT=%d", result->master_port);
  snprintf(texts[4], LONGEST, "RDZV_ROUND=%lld", (long long)result->round);
  snprintf(texts[5], LONGEST, "RDZV_RUN_ID=%s", result->run_id);
}

static bool is_ours(const char *variable, char texts[VARIABLES][LONGEST]) {
  for (int i = 0; i < VARIABLES; i++) {
    const size_t name = (size_t)(strchr(texts[i], '=') - texts[i]) + 1;
    if (strncmp(variable, texts[i], name) == 0) return true;
  }
  return false;
}

/* Our environment with these instead of what it has of their names. NULL: no memory. */
static char **environment_with(char texts[VARIABLES][LONGEST]) {
  size_t count = 0, at = 0;
  while (environ[count]) count++;
  char **environment = calloc(count + VARIABLES + 1, sizeof *environment);
  if (!environment) return NULL;
  for (size_t i = 0; i < count; i++)
    if (!is_ours(environ[i], texts)) environment[at++] = environ[i];
  for (int i = 0; i < VARIABLES; i++) environment[at++] = texts[i];
  return environment;
}

/* Signals are passed on to it until it has ended. It is reaped only then: its id is not reused before that. */
static int wait_for(const char *command, pid_t pid) {
  siginfo_t info;
  int result;
  rendezvous_forward_to(pid);
  do result = waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
  while (result < 0 && errno == EINTR);
  const int errnum = errno;
  rendezvous_forward_to(0);
  if (result < 0) {
    complain(command, "cannot wait for process %ld: %s", (long)pid, strerror(errnum));
    return EXIT_IO;
  }
  waitpid(pid, NULL, 0);
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

int run_command(const char *command, const rdzv_result *result, char **argv) {
  char texts[VARIABLES][LONGEST];
  pid_t pid;
  fill(texts, result);
  char **environment = environment_with(texts);
  if (!environment) return complain_no_memory(command);
  posix_spawnattr_t attributes; /* our signals are blocked, the child's are not */
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, signals_before());
  sigset_t usual; /* which we ignore */
  sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int errnum = posix_spawnp(&pid, argv[0], NULL, &attributes, argv, environment);
  posix_spawnattr_destroy(&attributes);
  free(environment);
  if (errnum) {
    complain(command, "cannot start '%s': %s", argv[0], strerror(errnum));
    return errnum == ENOENT ? 127 : 126;
  }
  return wait_for(command, pid);
}
