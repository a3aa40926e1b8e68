/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A small agent on the public headers alone: it joins rounds, meets the other agents in the round's store, runs one
 * worker, starts it again in the next round when nodes come, leave or die, and leaves when all workers are done.
 *
 *   agent ENDPOINT RUN_ID MIN_NODES MAX_NODES PROGRAM [ARG]...     options of the rendezvous are in RDZV_CONF
 */
#include <errno.h>
#include <poll.h>
#include <rdzv/rdzv.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENDS_MS = 5000, LOOK_MS = 3000 };

static rdzv_error error;

static int fail(const char *what) {
  fprintf(stderr, "agent: %s: %s\n", what, error.message);
  return -1;
}

/* ---- meeting the others --------------------------------------------------------------------------------------- */

/* Says that this agent has come so far, and waits for the agents of all other ranks. RDZV_E_CANCELED: the round is over
 * before. */
static int meet(rdzv_handler *handler, const rdzv_result *round, const char *where) {
  char name[64];
  struct pollfd ended = {.fd = rdzv_handler_ended_fd(handler), .events = POLLIN};
  snprintf(name, sizeof name, "%s/%lld", where, (long long)round->rank);
  const rdzv_bytes own = rdzv_str(name), value = rdzv_str(round->node);
  int result = rdzv_store_publish(round->store, &own, &value, 1, &error);
  for (long long rank = 0; result == 0 && rank < round->world_size;) {
    snprintf(name, sizeof name, "%s/%lld", where, rank);
    const rdzv_bytes key = rdzv_str(name);
    result = rdzv_store_wait(round->store, &key, 1, 200, &error);
    if (result == RDZV_E_TIMEOUT)
      result = poll(&ended, 1, 0) > 0 ? RDZV_E_CANCELED : 0;
    else
      rank++;
  }
  return result;
}

/* ---- the worker ----------------------------------------------------------------------------------------------- */

struct worker {
  pid_t pid;
  int ended_fd; /* readable when it has ended */
};

static void set_number(const char *name, long long number) {
  char text[32];
  snprintf(text, sizeof text, "%lld", number);
  setenv(name, text, 1);
}

static int start(const rdzv_result *round, char **argv, struct worker *worker) {
  int fds[2];
  if (pipe(fds) < 0) return -1;
  worker->pid = fork();
  if (worker->pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(fds[0]);
    set_number("RANK", round->rank);
    set_number("WORLD_SIZE", round->world_size);
    setenv("MASTER_ADDR", round->master_addr, 1);
    set_number("MASTER_PORT", round->master_port);
    execvp(argv[0], argv);
    _exit(127);
  }
  close(fds[1]);
  worker->ended_fd = fds[0];
  return worker->pid < 0 ? -1 : 0;
}

/* Returns its exit code. */
static int reap(struct worker *worker, int signal) {
  int status = 0;
  if (signal) kill(worker->pid, signal);
  while (waitpid(worker->pid, &status, 0) < 0 && errno == EINTR) {
  }
  close(worker->ended_fd);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- one round ------------------------------------------------------------------------------------------------ */

/* Is there a reason for another round? A rendezvous that was closed is none. */
static int has_changed(rdzv_handler *handler) {
  rdzv_change *change;
  const int result = rdzv_handler_wait_change(handler, 0, &change, &error);
  if (result == RDZV_E_TIMEOUT) return 0;
  if (result < 0) return fail("cannot stay in the round");
  const unsigned what = rdzv_change_what(change);
  for (size_t i = 0; i < rdzv_change_node_count(change); i++) printf("gone: %s\n", rdzv_change_node(change, i));
  rdzv_change_free(change);
  return (what & ~(unsigned)RDZV_CHANGE_CLOSED) != 0;
}

enum outcome { DONE, AGAIN, FAILED };

static enum outcome watch(rdzv_handler *handler, const rdzv_result *round, struct worker *worker) {
  for (;;) {
    struct pollfd fds[] = {{.fd = worker->ended_fd, .events = POLLIN},
                           {.fd = rdzv_handler_change_fd(handler), .events = POLLIN}};
    poll(fds, 2, LOOK_MS);
    if (fds[0].revents) {
      if (reap(worker, 0) != 0) return FAILED;
      return meet(handler, round, "done") == 0 ? DONE : AGAIN;
    }
    const int changed = has_changed(handler);
    if (changed == 0) continue;
    reap(worker, SIGKILL);
    return changed > 0 ? AGAIN : FAILED;
  }
}

static enum outcome run_round(rdzv_handler *handler, char **argv) {
  struct worker worker;
  rdzv_result *round;
  if (rdzv_handler_next(handler, &round, &error) < 0) return fail("cannot join"), FAILED;
  enum outcome outcome = AGAIN;
  int result = meet(handler, round, "agent");
  if (result == 0) result = rdzv_handler_find_master(handler, round, &error);
  if (result == 0) {
    printf("round %lld: rank %lld of %lld\n", (long long)round->round, (long long)round->rank,
           (long long)round->world_size);
    fflush(stdout);
    outcome = start(round, argv, &worker) == 0 ? watch(handler, round, &worker) : FAILED;
  }
  rdzv_result_free(round);
  return outcome;
}

int main(int argc, char **argv) {
  if (argc < 6) {
    fprintf(stderr, "usage: agent ENDPOINT RUN_ID MIN_NODES MAX_NODES PROGRAM [ARG]...\n");
    return 2;
  }
  const rdzv_params params = {.size = sizeof params,
                              .endpoint = argv[1],
                              .run_id = argv[2],
                              .min_nodes = atoi(argv[3]),
                              .max_nodes = atoi(argv[4]),
                              .conf = getenv("RDZV_CONF"),
                              .find_master_later = true};
  rdzv_handler *handler;
  if (rdzv_handler_open(&params, &handler, &error) < 0) return fail("cannot open the rendezvous"), 1;
  enum outcome outcome;
  do outcome = run_round(handler, argv + 5);
  while (outcome == AGAIN);
  rdzv_handler_set_close_timeout(handler, ENDS_MS, NULL);
  if (outcome == FAILED)
    rdzv_handler_set_closed(handler, "a worker failed", NULL);
  else
    rdzv_handler_leave(handler, NULL);
  rdzv_handler_set_linger(handler, ENDS_MS, NULL); /* a node that serves the store goes last */
  rdzv_handler_free(handler);
  return outcome == DONE ? 0 : 1;
}
