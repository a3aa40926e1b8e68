/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The starter is forked from a process with threads, so it and its children call only what is safe then. All of them
 * tell through one pipe what happened: the starter the ids of the processes, a child that cannot run its program why.
 * Exec closes the pipe in a child, so at its end all programs run.
 */
#include "agent/worker/spawn.h"

#include "base/error.h"
#include "base/os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum spawn_step { SPAWN_STEP_DONE, SPAWN_STEP_FORK, SPAWN_STEP_SESSION, SPAWN_STEP_STREAMS, SPAWN_STEP_EXEC };

/* What became of one process, or has until now. */
struct spawn_report {
  uint32_t index;
  pid_t pid;
  int step; /* that failed */
  int errnum;
};

/* A piece of so many is written to a pipe as a whole. */
enum { PIECE = PIPE_BUF / sizeof(struct spawn_report) };

struct job {
  const struct guard *guard;
  const struct spawn *list;
  size_t count;
  pid_t agent;
  int report_fd;
};

static const char *step_name(int step) {
  static const char *const names[] = {"the process that starts it", "fork", "a session of its own", "its streams",
                                      "exec"};
  return step >= SPAWN_STEP_DONE && step <= SPAWN_STEP_EXEC ? names[step] : "an unknown step";
}

/* ---- in a child ----------------------------------------------------------------------------------------------- */

static void report(const struct job *job, const struct spawn_report *reports, size_t count) {
  if (count > 0 && write(job->report_fd, reports, count * sizeof *reports) < 0) { /* the agent is gone: so are we */
  }
}

static void fail(const struct job *job, size_t index, enum spawn_step step) {
  report(job, &(struct spawn_report){(uint32_t)index, getpid(), step, errno}, 1);
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

static void run_child(const struct job *job, size_t index) {
  const struct spawn *spawn = &job->list[index];
  die_with(job->agent);
  if (setsid() < 0) fail(job, index, SPAWN_STEP_SESSION);
  guard_set_group(job->guard, index, getpid());
  signal(SIGPIPE, SIG_DFL); /* which we may ignore for our own sake */
  process_take_signals();
  if (spawn->out >= 0 && dup2(spawn->out, STDOUT_FILENO) < 0) fail(job, index, SPAWN_STEP_STREAMS);
  if (spawn->err >= 0 && dup2(spawn->err, STDERR_FILENO) < 0) fail(job, index, SPAWN_STEP_STREAMS);
  process_close_from_at_exec(STDERR_FILENO + 1);
  if (spawn->descriptors) limit_descriptors((rlim_t)spawn->descriptors);
  if (spawn->bound) sched_setaffinity(0, sizeof spawn->cpus, &spawn->cpus);
  execvpe(spawn->argv[0], spawn->argv, spawn->environment);
  fail(job, index, SPAWN_STEP_EXEC);
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

static void start_all(const struct job *job, unsigned flags) {
  struct spawn_report reports[PIECE];
  size_t held = 0;
  bool done = true;
  for (size_t i = 0; i < job->count && done; i++) {
    const pid_t pid = fork_child(job->guard, flags);
    if (pid == 0) run_child(job, i);
    done = pid > 0;
    reports[held++] = (struct spawn_report){(uint32_t)i, pid, done ? SPAWN_STEP_DONE : SPAWN_STEP_FORK, errno};
    if (held < PIECE) continue;
    report(job, reports, held);
    held = 0;
  }
  report(job, reports, held);
}

static void run_starter(const struct job *job) {
  die_with(job->agent);
  setsid();
  start_all(job, PROCESS_SIBLING);
  _exit(0);
}

/* ---- in the agent --------------------------------------------------------------------------------------------- */

static bool next_report(int fd, struct spawn_report *out) {
  ssize_t got;
  do got = read(fd, out, sizeof *out);
  while (got < 0 && errno == EINTR);
  return got == (ssize_t)sizeof *out;
}

enum { FAILED = -1 };

/* A failure may be heard of before the starter tells the process' id. */
static void take_report(const struct job *job, const struct spawn_report *report, pid_t *pids) {
  if (report->step == SPAWN_STEP_DONE) {
    if (pids[report->index] != FAILED) pids[report->index] = report->pid;
    return;
  }
  pids[report->index] = FAILED;
  guard_set_group(job->guard, report->index, 0);
  process_reap(report->pid);
}

/* Until all programs run. `first` is the failure of the first process in the list that has one; its pid 0: none. */
static void take_reports(const struct job *job, int fd, pid_t *pids, struct spawn_report *first) {
  struct spawn_report report;
  while (next_report(fd, &report)) {
    take_report(job, &report, pids);
    if (report.step != SPAWN_STEP_DONE && report.index < first->index) *first = report;
  }
  for (size_t i = 0; i < job->count; i++) {
    if (pids[i] == 0 && i < first->index) first->index = (uint32_t)i; /* the starter was killed */
    if (pids[i] == FAILED) pids[i] = 0;
  }
}

/* Under a sanitizer the agent is its own starter. */
static pid_t fork_starter(const struct job *job) {
  if (process_has_siblings()) {
    const pid_t pid = process_fork(0, -1);
    if (pid == 0) run_starter(job);
    return pid;
  }
  start_all(job, 0);
  return 0;
}

int spawn(const struct guard *guard, const struct spawn *list, size_t count, pid_t *pids, rdzv_error *error) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0)
    return error_errno(error, RDZV_E_IO, errno, "cannot start '%s': no pipe", list[0].argv[0]);
  const struct job job = {guard, list, count, getpid(), ends[1]};
  struct spawn_report first = {.index = (uint32_t)count, .errnum = ECHILD};
  for (size_t i = 0; i < count; i++) pids[i] = 0;
  const pid_t starter = fork_starter(&job);
  if (starter < 0) first.errnum = errno;
  close(ends[1]);
  take_reports(&job, ends[0], pids, &first);
  close(ends[0]);
  process_reap(starter);
  if (first.index == count) return 0;
  return error_errno(error, RDZV_E_IO, first.errnum, "cannot start '%s': %s", list[first.index].argv[0],
                     step_name(first.step));
}
