/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The guard is forked from a process that may have threads, so it calls only what is safe then, runs no signal
 * handler of the library, and keeps none of our descriptors. It
 * - starts etcd, in a process group of its own, so that a script around etcd ends with it;
 * - waits until etcd ends, SIGTERM or SIGINT asks to end it, or the parent is gone;
 * - ends etcd, and says how it ended;
 * - waits until we have closed the line, and removes the folder.
 *
 * That we are gone it hears by the line, and where a process that we have forked still holds our end, by a descriptor
 * of our process. If the guard is killed, the kernel kills etcd: the death of its parent is a signal to it.
 */
#include "etcd/process/guard.h"

#include "base/error.h"
#include "base/os/process.h"
#include "base/wait/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STOP_MS = 5000 /* from SIGTERM to SIGKILL */ };

/* Where the descriptors are in the guard, after stdin, stdout and stderr. */
enum { LINE_FD = 3, PARENT_FD, FREE_FD };

/* Where they are before; all from FREE_FD on, so that none is in the way of another. -1: none. */
struct descriptors {
  int in, out, err, line, parent;
};

struct guarded {
  pid_t etcd;
  int signals; /* a descriptor: SIGCHLD, SIGTERM, SIGINT */
  int parent;  /* readable when our parent has ended; -1: cannot be had */
};

/* ---- etcd, before it is one ----------------------------------------------------------------------------------- */

static void say(int errnum, int status) {
  const struct etcd_guard_note note = {errnum, status};
  send(LINE_FD, &note, sizeof note, MSG_NOSIGNAL);
}

static void run_etcd(const struct etcd_guard_job *job, pid_t guard) {
  sigset_t none;
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != guard) _exit(127); /* it ended before we asked for the signal */
  for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  execve(job->argv[0], job->argv, job->env);
  say(errno, 0);
  _exit(127);
}

/* ---- the guard ---------------------------------------------------------------------------------------------- */

/* Waits for the line to be closed or the parent to end, so long. */
static bool is_orphan(const struct guarded *guarded, int timeout_ms) {
  struct pollfd fds[] = {{.fd = LINE_FD, .events = POLLIN}, {.fd = guarded->parent, .events = POLLIN}};
  return poll(fds, 2, timeout_ms) > 0;
}

/* It stays a zombie, so that its process group keeps its name. */
static bool has_exited(pid_t etcd) {
  siginfo_t info = {0};
  return waitid(P_PID, (id_t)etcd, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == etcd;
}

/* Was one of them another than that of a child's end? */
static bool take_signals(const struct guarded *guarded) {
  struct signalfd_siginfo info;
  bool told = false;
  while (read(guarded->signals, &info, sizeof info) == (ssize_t)sizeof info) told = told || info.ssi_signo != SIGCHLD;
  return told;
}

static void await_end(const struct guarded *guarded) {
  struct pollfd fds[] = {{.fd = guarded->signals, .events = POLLIN},
                         {.fd = LINE_FD, .events = POLLIN},
                         {.fd = guarded->parent, .events = POLLIN}};
  while (!has_exited(guarded->etcd) && !take_signals(guarded) && !is_orphan(guarded, 0)) poll(fds, 3, -1);
}

/* By SIGTERM, and if that does not help by SIGKILL, which is also for what it has left behind. */
static int end_etcd(const struct guarded *guarded) {
  struct pollfd fds[] = {{.fd = guarded->signals, .events = POLLIN}};
  const deadline until = deadline_after(STOP_MS);
  int status = 0;
  if (!has_exited(guarded->etcd)) kill(-guarded->etcd, SIGTERM);
  while (!has_exited(guarded->etcd) && deadline_left(until) > 0) {
    poll(fds, 1, deadline_poll(until));
    take_signals(guarded);
  }
  kill(-guarded->etcd, SIGKILL);
  waitpid(guarded->etcd, &status, 0);
  return status;
}

static void arrange(const struct descriptors *from) {
  dup2(from->in, STDIN_FILENO);
  dup2(from->out, STDOUT_FILENO);
  dup2(from->err, STDERR_FILENO);
  dup3(from->line, LINE_FD, O_CLOEXEC);
  if (from->parent >= 0) dup3(from->parent, PARENT_FD, O_CLOEXEC);
  process_close_from(from->parent >= 0 ? FREE_FD : PARENT_FD);
}

static int open_signals(void) {
  sigset_t awaited;
  sigemptyset(&awaited);
  sigaddset(&awaited, SIGCHLD);
  sigaddset(&awaited, SIGTERM);
  sigaddset(&awaited, SIGINT);
  return signalfd(-1, &awaited, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* All signals are blocked. */
static void run_guard(const struct etcd_guard_job *job, const struct descriptors *from) {
  const pid_t guard = getpid();
  signal(SIGCHLD, SIG_DFL); /* waitpid fails where it is ignored */
  setpgid(0, 0);            /* what a terminal sends is for us to hand on */
  arrange(from);
  struct guarded guarded = {.signals = open_signals(), .parent = from->parent >= 0 ? PARENT_FD : -1};
  guarded.etcd = guarded.signals >= 0 ? fork() : -1;
  if (guarded.etcd == 0) run_etcd(job, guard);
  if (guarded.etcd < 0) {
    say(errno, 0);
  } else {
    setpgid(guarded.etcd, guarded.etcd); /* parent and child both do it: either may be first */
    dup2(STDIN_FILENO, STDOUT_FILENO);
    dup2(STDIN_FILENO, STDERR_FILENO);
    await_end(&guarded);
    say(0, end_etcd(&guarded));
  }
  while (!is_orphan(&guarded, -1)) {
  }
  if (job->own_dir) execl("/bin/rm", "rm", "-rf", "--", job->own_dir, (char *)NULL);
  _exit(0);
}

/* ---- we ------------------------------------------------------------------------------------------------------- */

/* A copy of it out of the way of those that the guard has. */
static int raise_fd(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, FREE_FD); }

static int raise_and_close(int fd) {
  const int raised = fd >= 0 ? raise_fd(fd) : -1, errnum = errno;
  if (fd >= 0) close(fd);
  errno = errnum;
  return raised;
}

static void close_one(int fd) {
  if (fd >= 0) close(fd);
}

static void close_all(const struct descriptors *all) {
  close_one(all->in);
  close_one(all->out);
  close_one(all->err);
  close_one(all->line);
  close_one(all->parent);
}

static int open_log(const struct etcd_guard_job *job, struct descriptors *to, rdzv_error *error) {
  const char *path = job->log_path ? job->log_path : "/dev/null";
  to->out = raise_and_close(open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (to->out < 0) return error_errno(error, RDZV_E_IO, errno, "cannot start etcd: cannot write '%.300s'", path);
  to->err = raise_fd(job->log_fd >= 0 ? job->log_fd : to->out);
  if (to->err >= 0) return 0;
  return error_errno(error, RDZV_E_IO, errno, "cannot start etcd: cannot use descriptor %d for its log", job->log_fd);
}

static int open_all(const struct etcd_guard_job *job, struct descriptors *to, int *ours, rdzv_error *error) {
  int ends[2] = {-1, -1};
  int result = open_log(job, to, error);
  if (result < 0) return result;
  to->in = raise_and_close(open("/dev/null", O_RDWR | O_CLOEXEC));
  to->parent = raise_and_close((int)syscall(SYS_pidfd_open, getpid(), 0)); /* since Linux 5.3 */
  if (to->in >= 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0) {
    *ours = raise_and_close(ends[0]);
    to->line = raise_and_close(ends[1]);
  }
  return to->line >= 0 && *ours >= 0
             ? 0
             : error_errno(error, RDZV_E_IO, errno, "cannot start etcd: cannot open descriptors");
}

int etcd_guard_start(const struct etcd_guard_job *job, struct etcd_guard *out, rdzv_error *error) {
  struct descriptors all = {-1, -1, -1, -1, -1};
  *out = (struct etcd_guard){.line = -1};
  int result = open_all(job, &all, &out->line, error);
  if (result == 0) {
    out->pid = process_fork(0, -1);
    if (out->pid == 0) run_guard(job, &all);
    if (out->pid < 0) result = error_errno(error, RDZV_E_IO, errno, "cannot start etcd: cannot fork");
  }
  close_all(&all);
  if (result == 0) return 0;
  close_one(out->line);
  *out = (struct etcd_guard){.line = -1};
  return result;
}

bool etcd_guard_has_ended(struct etcd_guard *guard) {
  if (guard->ended || guard->line < 0) return guard->ended;
  const ssize_t got = recv(guard->line, &guard->note, sizeof guard->note, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  /* A guard that is gone without a word was killed, and etcd with it. */
  if (got != (ssize_t)sizeof guard->note) guard->note = (struct etcd_guard_note){0, SIGKILL};
  return guard->ended = true;
}

/* Where another thread has waited for it, or SIGCHLD is ignored, the guard still has ended when waitpid returns. */
void etcd_guard_stop(struct etcd_guard *guard) {
  if (guard->line >= 0) shutdown(guard->line, SHUT_RDWR); /* a forked child may have a copy */
  close_one(guard->line);
  guard->line = -1;
  while (guard->pid > 0 && waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR) {
  }
  guard->pid = 0;
}
