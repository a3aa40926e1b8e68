/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/guard/guard.h"

#include "agent/guard/orphans.h"
#include "base/error.h"
#include "base/wait/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_GROUPS = 4096, MOST_DESCRIPTORS = 65536, KILL_MS = 5000 };

/* Where the descriptors are in the guard, behind the three that everybody has. */
enum { CGROUP_PARENT_FD = 3, CGROUP_FD, FREE_FD };

enum message_kind { ADD, REMOVE, MARK, QUIT };

struct message {
  enum message_kind kind;
  pid_t group;
  char mark[PATH_MAX]; /* as long as the message is */
};

/* ---- the guard: forked from a process that may have threads, so only what is safe then ------------------------ */

struct known {
  pid_t groups[MOST_GROUPS];
  size_t count;
  char mark[PATH_MAX];
};

static void add_group(struct known *known, pid_t group) {
  if (known->count < MOST_GROUPS) known->groups[known->count++] = group;
}

static void remove_group(struct known *known, pid_t group) {
  size_t at = 0;
  while (at < known->count && known->groups[at] != group) at++;
  if (at < known->count) known->groups[at] = known->groups[--known->count];
}

/* Where the kernel does not know close_range, or is not let to. */
static void close_from(int first) {
  if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  for (int fd = first; fd < MOST_DESCRIPTORS; fd++) close(fd);
}

static void arrange(int fd, struct cgroup *cgroup) {
  const int raised[] = {fcntl(fd, F_DUPFD, FREE_FD), fcntl(cgroup->parent_fd, F_DUPFD, FREE_FD),
                        fcntl(cgroup->fd, F_DUPFD, FREE_FD)};
  const int null_fd = open("/dev/null", O_RDWR);
  dup2(raised[0], STDIN_FILENO);
  dup2(null_fd, STDOUT_FILENO);
  dup2(null_fd, STDERR_FILENO);
  if (raised[2] >= 0) {
    cgroup->parent_fd = dup2(raised[1], CGROUP_PARENT_FD);
    cgroup->fd = dup2(raised[2], CGROUP_FD);
  }
  close_from(cgroup->fd >= 0 ? FREE_FD : CGROUP_PARENT_FD);
}

/* Until nobody can tell us any more. */
static void listen_to(struct known *known) {
  static struct message message;
  for (;;) {
    const ssize_t got = recv(STDIN_FILENO, &message, sizeof message, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < (ssize_t)offsetof(struct message, mark)) return;
    if (message.kind == ADD) add_group(known, message.group);
    if (message.kind == REMOVE) remove_group(known, message.group);
    if (message.kind == MARK) memcpy(known->mark, message.mark, sizeof known->mark);
    if (message.kind == QUIT) _exit(0);
  }
}

/* Who was left to us by the agent's death has been left to others: who is our parent then is theirs. */
static pid_t await_reaper(pid_t agent, deadline until) {
  const struct timespec look = {.tv_nsec = 1000000};
  while (getppid() == agent && deadline_left(until) > 0) nanosleep(&look, NULL);
  return getppid();
}

static void run_guard(int fd, pid_t agent, struct cgroup cgroup) {
  static struct known known;
  setsid(); /* all signals are blocked: only SIGKILL ends it before its time */
  prctl(PR_SET_NAME, "rdzv-guard");
  arrange(fd, &cgroup);
  listen_to(&known);
  const deadline until = deadline_after(KILL_MS);
  for (size_t i = 0; i < known.count; i++) kill(-known.groups[i], SIGKILL);
  cgroup_kill(&cgroup, until);
  const pid_t reaper = await_reaper(agent, until);
  if (known.mark[0] && reaper != agent) orphans_kill_marked(known.mark, reaper, until);
  cgroup_remove(&cgroup);
  _exit(0);
}

/* ---- for the agent -------------------------------------------------------------------------------------------- */

static int start(const struct guard *guard, int *fd, pid_t *out, rdzv_error *error) {
  int ends[2];
  const pid_t agent = getpid();
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    return error_errno(error, RDZV_E_IO, errno, "cannot start the workers' guard: no socket pair");
  const pid_t pid = thread_fork();
  if (pid == 0) run_guard(ends[1], agent, guard->cgroup);
  const int errnum = errno;
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return error_errno(error, RDZV_E_IO, errnum, "cannot start the workers' guard: fork");
  }
  *fd = ends[0];
  *out = pid;
  return 0;
}

int guard_open(struct guard *guard, rdzv_error *error) {
  *guard = GUARD_NONE;
  cgroup_open(&guard->cgroup);
  return start(guard, &guard->fd, &guard->pid, error);
}

/* A guard that was killed is missed in the moment of our own death only, and replaced before. */
static void tell(const struct guard *guard, const struct message *message, size_t len) {
  struct pollfd room = {.fd = guard->fd, .events = POLLOUT};
  while (guard->fd >= 0 && send(guard->fd, message, len, MSG_NOSIGNAL) < 0 && (errno == EAGAIN || errno == EINTR))
    poll(&room, 1, -1);
}

static void tell_group(const struct guard *guard, enum message_kind kind, pid_t group) {
  const struct message message = {.kind = kind, .group = group};
  tell(guard, &message, offsetof(struct message, mark));
}

static void tell_mark(const struct guard *guard) {
  struct message message = {.kind = MARK};
  memcpy(message.mark, guard->mark, sizeof message.mark);
  tell(guard, &message, sizeof message);
}

void guard_add(const struct guard *guard, pid_t group) { tell_group(guard, ADD, group); }
void guard_remove(const struct guard *guard, pid_t group) { tell_group(guard, REMOVE, group); }

void guard_set_mark(struct guard *guard, const char *mark) {
  const size_t len = strlen(mark);
  if (len >= sizeof guard->mark || strcmp(guard->mark, mark) == 0) return;
  memcpy(guard->mark, mark, len + 1);
  tell_mark(guard);
}

static void reap(const struct guard *guard) {
  while (guard->pid > 0 && waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR) {
  }
}

int guard_renew(struct guard *guard, rdzv_error *error) {
  int fd = -1;
  pid_t pid = -1;
  reap(guard);
  guard->pid = -1;
  const int result = start(guard, &fd, &pid, error);
  if (result < 0) return result;
  dup3(fd, guard->fd, O_CLOEXEC);
  close(fd);
  guard->pid = pid;
  tell_mark(guard);
  return 0;
}

void guard_close(struct guard *guard) {
  if (guard->fd >= 0) {
    tell_group(guard, QUIT, 0);
    close(guard->fd);
    reap(guard);
  }
  cgroup_remove(&guard->cgroup);
  cgroup_close(&guard->cgroup);
  *guard = GUARD_NONE;
}
