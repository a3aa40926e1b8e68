/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The child is forked from a process with threads, so between fork and exec it calls only what is safe then. It tells
 * the step that failed, and why, through a pipe that exec closes: when the parent reads its end, the program runs.
 */
#include "agent/worker/spawn.h"

#include "base/error.h"
#include "base/wait/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum step { STEP_PARENT, STEP_SESSION, STEP_STREAMS, STEP_EXEC };
enum { MOST_DESCRIPTORS = 65536 };

struct report {
  int step, errnum;
};

static const char *step_name(int step) {
  static const char *const names[] = {"tying it to its parent", "a session of its own", "its streams", "exec"};
  return step >= STEP_PARENT && step <= STEP_EXEC ? names[step] : "an unknown step";
}

static void fail(int pipe_fd, int step) {
  const struct report report = {step, errno};
  if (write(pipe_fd, &report, sizeof report) < 0) { /* the parent is gone: so are we */
  }
  _exit(127);
}

/* Where the kernel does not know close_range, or is not let to, one by one. */
static void close_others_at_exec(void) {
  if (syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  for (int fd = STDERR_FILENO + 1; fd < MOST_DESCRIPTORS; fd++) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static void limit_descriptors(rlim_t most) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
  limit.rlim_cur = most < limit.rlim_max ? most : limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/* All signals are blocked when we are forked. A handler of the parent's must not run here: it would act on descriptors
 * that we share with the parent. What came meanwhile does what it does to the program. */
static void take_signals(void) {
  struct sigaction action;
  sigset_t none;
  for (int number = 1; number < NSIG; number++)
    if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN && action.sa_handler != SIG_DFL)
      signal(number, SIG_DFL);
  signal(SIGPIPE, SIG_DFL); /* which we may ignore for our own sake */
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

static void run_child(const struct spawn *spawn, pid_t parent, int pipe_fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127); /* which has ended before we asked for the signal */
  if (setsid() < 0) fail(pipe_fd, STEP_SESSION);
  guard_add(spawn->guard, getpid());
  take_signals();
  if (spawn->out >= 0 && dup2(spawn->out, STDOUT_FILENO) < 0) fail(pipe_fd, STEP_STREAMS);
  if (spawn->err >= 0 && dup2(spawn->err, STDERR_FILENO) < 0) fail(pipe_fd, STEP_STREAMS);
  close_others_at_exec();
  if (spawn->descriptors) limit_descriptors((rlim_t)spawn->descriptors);
  if (spawn->cpus) sched_setaffinity(0, sizeof *spawn->cpus, spawn->cpus);
  execvpe(spawn->argv[0], spawn->argv, spawn->environment);
  fail(pipe_fd, STEP_EXEC);
}

/* Waits until the program runs, or did not come to it. */
static int await_exec(const struct spawn *spawn, pid_t pid, int pipe_fd, rdzv_error *error) {
  struct report report;
  ssize_t got;
  do got = read(pipe_fd, &report, sizeof report);
  while (got < 0 && errno == EINTR);
  if (got != (ssize_t)sizeof report) return 0;
  guard_remove(spawn->guard, pid);
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
  }
  return error_errno(error, RDZV_E_IO, report.errnum, "cannot start '%s': %s", spawn->argv[0], step_name(report.step));
}

/* Into the guard's cgroup: moving there afterwards is slow, and for kernels that know no better way. */
static pid_t fork_worker(const struct guard *guard) {
  const pid_t pid = guard->cgroup.fd >= 0 ? thread_fork_into(guard->cgroup.fd) : -1;
  if (pid >= 0) return pid;
  const pid_t forked = thread_fork();
  if (forked == 0) cgroup_join(&guard->cgroup);
  return forked;
}

int spawn(const struct spawn *spawn, pid_t *out, rdzv_error *error) {
  int ends[2];
  const pid_t parent = getpid();
  if (pipe2(ends, O_CLOEXEC) < 0)
    return error_errno(error, RDZV_E_IO, errno, "cannot start '%s': no pipe", spawn->argv[0]);
  const pid_t pid = fork_worker(spawn->guard);
  if (pid == 0) run_child(spawn, parent, ends[1]);
  const int errnum = errno;
  close(ends[1]);
  int result = pid < 0 ? error_errno(error, RDZV_E_IO, errnum, "cannot start '%s': fork", spawn->argv[0]) : 0;
  if (result == 0) result = await_exec(spawn, pid, ends[0], error);
  close(ends[0]);
  if (result == 0) *out = pid;
  return result;
}
