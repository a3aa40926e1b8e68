/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The child is forked from a process with threads, so between fork and exec it calls only what is safe then. Nobody
 * waits for a child: on a busy machine each may have to wait for a processor before it comes to its exec.
 */
#include "agent/worker/spawn.h"

#include "base/error.h"
#include "base/os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum spawn_step { SPAWN_STEP_SESSION, SPAWN_STEP_STREAMS, SPAWN_STEP_EXEC };

static const char *step_name(int step) {
  static const char *const names[] = {"a session of its own", "its streams", "exec"};
  return step >= SPAWN_STEP_SESSION && step <= SPAWN_STEP_EXEC ? names[step] : "an unknown step";
}

/* ---- in the child --------------------------------------------------------------------------------------------- */

/* A record that fits into a pipe is written in one piece. */
static void fail(const struct spawner *spawner, const struct spawn *spawn, enum spawn_step step) {
  const struct spawn_failure failure = {spawn->slot, step, errno};
  if (write(spawner->failures[1], &failure, sizeof failure) < 0) { /* the parent is gone: so are we */
  }
  _exit(127);
}

static void limit_descriptors(rlim_t most) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
  limit.rlim_cur = most < limit.rlim_max ? most : limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static void run_child(const struct spawner *spawner, const struct spawn *spawn, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127); /* which has ended before we asked for the signal */
  if (setsid() < 0) fail(spawner, spawn, SPAWN_STEP_SESSION);
  guard_set_group(spawn->guard, spawn->slot, getpid());
  signal(SIGPIPE, SIG_DFL); /* which we may ignore for our own sake */
  process_take_signals();
  if (spawn->out >= 0 && dup2(spawn->out, STDOUT_FILENO) < 0) fail(spawner, spawn, SPAWN_STEP_STREAMS);
  if (spawn->err >= 0 && dup2(spawn->err, STDERR_FILENO) < 0) fail(spawner, spawn, SPAWN_STEP_STREAMS);
  process_close_from_at_exec(STDERR_FILENO + 1);
  if (spawn->descriptors) limit_descriptors((rlim_t)spawn->descriptors);
  if (spawn->cpus) sched_setaffinity(0, sizeof *spawn->cpus, spawn->cpus);
  execvpe(spawn->argv[0], spawn->argv, spawn->environment);
  fail(spawner, spawn, SPAWN_STEP_EXEC);
}

/* ---- in the parent -------------------------------------------------------------------------------------------- */

/* Into the guard's cgroup: moving there afterwards is slow, and for kernels that know no better way. */
static pid_t fork_worker(const struct guard *guard) {
  const pid_t pid = guard->cgroup.fd >= 0 ? process_fork_into(guard->cgroup.fd) : -1;
  if (pid >= 0) return pid;
  const pid_t forked = process_fork();
  if (forked == 0) cgroup_join(&guard->cgroup);
  return forked;
}

int spawner_open(struct spawner *spawner, rdzv_error *error) {
  if (pipe2(spawner->failures, O_CLOEXEC) == 0) return 0;
  return error_errno(error, RDZV_E_IO, errno, "cannot start workers: no pipe");
}

int spawn(const struct spawner *spawner, const struct spawn *spawn, pid_t *out, rdzv_error *error) {
  const pid_t parent = getpid(), pid = fork_worker(spawn->guard);
  if (pid == 0) run_child(spawner, spawn, parent);
  if (pid < 0) return error_errno(error, RDZV_E_IO, errno, "cannot start '%s': fork", spawn->argv[0]);
  *out = pid;
  return 0;
}

static void close_end(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

bool spawner_await_failure(struct spawner *spawner, struct spawn_failure *out) {
  ssize_t got;
  close_end(&spawner->failures[1]);
  do got = read(spawner->failures[0], out, sizeof *out);
  while (got < 0 && errno == EINTR);
  return got == (ssize_t)sizeof *out;
}

int fail_spawn(const struct spawn_failure *failure, const char *program, rdzv_error *error) {
  return error_errno(error, RDZV_E_IO, failure->errnum, "cannot start '%s': %s", program, step_name(failure->step));
}

void spawner_close(struct spawner *spawner) {
  close_end(&spawner->failures[0]);
  close_end(&spawner->failures[1]);
}
