/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The starter is forked from a process with threads, so it and its children call only what is safe then. What happens
 * is written to memory that all of them share. A pipe tells when: exec, and any end, closes it in a child, so when it
 * is closed all programs run.
 */
#include "agent/worker/spawn.h"

#include "base/error.h"
#include "base/os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { EXEC_MS = 30000, CANCELED_MS = 1000 }; /* for all programs to be loaded; after a cancel */

enum spawn_step { SPAWN_STEP_START, SPAWN_STEP_FORK, SPAWN_STEP_SESSION, SPAWN_STEP_STREAMS, SPAWN_STEP_EXEC };

/* What became of a process. */
struct spawned {
  _Atomic pid_t pid; /* 0: it was not forked. Set by the starter and by the process, whichever is first */
  int errnum;        /* 0: no step has failed */
  enum spawn_step step;
};

/* What all share. */
struct shared {
  atomic_bool over; /* the search for processes is over: a late one ends by itself */
  struct spawned spawned[];
};

struct spawning {
  const struct guard *guard;
  const struct spawn *list;
  size_t count;
  pid_t agent;
  struct shared *shared;
  struct spawned *spawned; /* of `shared`, one for each of the list */
};

/* ---- in a child ----------------------------------------------------------------------------------------------- */

static void note_failure(const struct spawning *all, size_t index, enum spawn_step step) {
  all->spawned[index].step = step;
  all->spawned[index].errnum = errno;
}

static void give_up(const struct spawning *all, size_t index, enum spawn_step step) {
  note_failure(all, index, step);
  _exit(127);
}

static void limit_descriptors(rlim_t most) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
  limit.rlim_cur = most < limit.rlim_max ? most : limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static void die_with(pid_t agent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != agent) _exit(127); /* which has ended before we asked for the signal */
}

static void run_child(const struct spawning *all, size_t index) {
  const struct spawn *spawn = &all->list[index];
  all->spawned[index].pid = getpid();
  if (all->shared->over) _exit(127);
  die_with(all->agent);
  if (setsid() < 0) give_up(all, index, SPAWN_STEP_SESSION);
  guard_set_group(all->guard, index, getpid());
  signal(SIGPIPE, SIG_DFL); /* which we may ignore for our own sake */
  process_take_signals();
  if (spawn->out >= 0 && dup2(spawn->out, STDOUT_FILENO) < 0) give_up(all, index, SPAWN_STEP_STREAMS);
  if (spawn->err >= 0 && dup2(spawn->err, STDERR_FILENO) < 0) give_up(all, index, SPAWN_STEP_STREAMS);
  process_close_from_at_exec(STDERR_FILENO + 1);
  if (spawn->descriptors) limit_descriptors((rlim_t)spawn->descriptors);
  if (spawn->bound) sched_setaffinity(0, sizeof spawn->cpus, &spawn->cpus);
  execvpe(spawn->argv[0], spawn->argv, spawn->environment);
  give_up(all, index, SPAWN_STEP_EXEC);
}

/* ---- in the starter ------------------------------------------------------------------------------------------- */

/* Into the guard's cgroup: moving there afterwards is slow, and for kernels that know no better way. */
static pid_t fork_child(const struct guard *guard, unsigned flags) {
  const pid_t pid = guard->cgroup.fd >= 0 ? process_fork(flags, guard->cgroup.fd) : -1;
  if (pid >= 0) return pid;
  const pid_t forked = process_fork(flags, -1);
  if (forked == 0) cgroup_join(&guard->cgroup);
  return forked;
}

static void start_all(const struct spawning *all, unsigned flags) {
  for (size_t i = 0; i < all->count; i++) {
    const pid_t pid = fork_child(all->guard, flags);
    if (pid == 0) run_child(all, i);
    if (pid < 0) {
      note_failure(all, i, SPAWN_STEP_FORK);
      return;
    }
    all->spawned[i].pid = pid;
  }
}

static void run_starter(const struct spawning *all) {
  die_with(all->agent);
  setsid();
  start_all(all, PROCESS_SIBLING);
  _exit(0);
}

/* ---- in the agent --------------------------------------------------------------------------------------------- */

/* Until the pipe is closed. Where it is not in time, a program hangs in its exec, or a child that another thread forked
 * meanwhile has the pipe, too: then what has not failed counts as running. */
static void await_programs(int fd, const struct flag *cancel, pid_t starter) {
  struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}};
  int result = flag_poll(cancel, fds, 1, deadline_after(EXEC_MS));
  if (result == RDZV_E_CANCELED) result = flag_poll(NULL, fds, 1, deadline_after(CANCELED_MS));
  if (result < 0 && starter > 0) kill(starter, SIGKILL);
}

/* Under a sanitizer the agent is its own starter. */
static pid_t fork_starter(const struct spawning *all) {
  if (process_has_siblings()) {
    const pid_t pid = process_fork(0, -1);
    if (pid == 0) run_starter(all);
    return pid;
  }
  start_all(all, 0);
  return 0;
}

/* Takes away a process that does not run its program. */
static void forget(const struct spawning *all, size_t index) {
  guard_set_group(all->guard, index, 0);
  process_reap(all->spawned[index].pid);
  all->spawned[index].pid = 0;
}

static int fail_spawn(const struct spawning *all, size_t index, rdzv_error *error) {
  static const char *const names[] = {"the process that starts it", "fork", "a session of its own", "its streams",
                                      "exec"};
  const char *program = all->list[index].argv[0];
  const struct spawned *spawned = &all->spawned[index];
  if (spawned->errnum == 0)
    return error_set(error, RDZV_E_IO, "cannot start '%s': the process that starts it was killed", program);
  return error_errno(error, RDZV_E_IO, spawned->errnum, "cannot start '%s': %s", program, names[spawned->step]);
}

static int spawn_all(const struct spawning *all, const struct flag *cancel, pid_t *pids, rdzv_error *error) {
  int ends[2], result = 0;
  if (pipe2(ends, O_CLOEXEC) < 0)
    return error_errno(error, RDZV_E_IO, errno, "cannot start '%s': no pipe", all->list[0].argv[0]);
  const pid_t starter = fork_starter(all);
  if (starter < 0) note_failure(all, 0, SPAWN_STEP_START);
  close(ends[1]);
  await_programs(ends[0], cancel, starter);
  close(ends[0]);
  process_reap(starter);
  all->shared->over = true;
  for (size_t i = 0; i < all->count; i++) {
    if (all->spawned[i].errnum) forget(all, i);
    pids[i] = all->spawned[i].pid;
    if (pids[i] == 0 && result == 0) result = fail_spawn(all, i, error);
  }
  return result;
}

int spawn(const struct guard *guard, const struct spawn *list, size_t count, const struct flag *cancel, pid_t *pids,
          rdzv_error *error) {
  const size_t size = sizeof(struct shared) + count * sizeof(struct spawned);
  struct shared *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return error_no_memory(error);
  const int result =
      spawn_all(&(struct spawning){guard, list, count, getpid(), shared, shared->spawned}, cancel, pids, error);
  munmap(shared, size);
  return result;
}
