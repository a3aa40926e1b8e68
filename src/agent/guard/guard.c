/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/guard/guard.h"

#include "agent/guard/orphans.h"
#include "base/error.h"
#include "base/os/folder.h"
#include "base/os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_GROUPS = 4096, KILL_MS = 5000 };

/* Where the descriptors are in the guard, after stdin, stdout and stderr. */
enum { CGROUP_PARENT_FD = 3, CGROUP_FD, FREE_FD };

struct guard_table {
  atomic_bool quit;
  _Atomic pid_t groups[MOST_GROUPS]; /* 0: none */
  char mark[PATH_MAX];               /* "": none */
  atomic_bool has_folder;
  char folder[PATH_MAX];
};

/* ---- the guard: forked from a process that may have threads, so it calls only what is safe then --------------- */

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
  process_close_from(cgroup->fd >= 0 ? FREE_FD : CGROUP_PARENT_FD);
}

/* When the agent dies, its orphans get the same new parent as this process, so our new parent identifies them. */
static pid_t await_reaper(pid_t agent, deadline until) {
  const struct timespec look = {.tv_nsec = 1000000};
  while (getppid() == agent && deadline_left(until) > 0) nanosleep(&look, NULL);
  return getppid();
}

/* Waits for the agent's end. */
static void await_end(void) {
  char byte;
  while (recv(STDIN_FILENO, &byte, sizeof byte, 0) < 0 && errno == EINTR) {
  }
}

static void run_guard(int fd, pid_t agent, struct cgroup cgroup, struct guard_table *table) {
  setsid(); /* all signals are blocked: only SIGKILL ends it before its time */
  prctl(PR_SET_NAME, "rdzv-guard");
  arrange(fd, &cgroup);
  await_end();
  if (atomic_load(&table->quit)) _exit(0);
  const deadline until = deadline_after(KILL_MS);
  for (size_t i = 0; i < MOST_GROUPS; i++) {
    const pid_t group = atomic_load(&table->groups[i]);
    if (group > 0) kill(-group, SIGKILL);
  }
  cgroup_kill(&cgroup, until);
  const pid_t reaper = await_reaper(agent, until);
  if (table->mark[0] && reaper != agent) orphans_kill_marked(table->mark, reaper, until);
  cgroup_remove(&cgroup);
  if (atomic_load(&table->has_folder)) folder_remove(AT_FDCWD, table->folder);
  _exit(0);
}

/* ---- for the agent -------------------------------------------------------------------------------------------- */

/* Hidden, since an agent without other children has no orphans (see orphans_kill). */
static int start(const struct guard *guard, int *fd, pid_t *out, rdzv_error *error) {
  int ends[2];
  const pid_t agent = getpid();
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    return error_errno(error, RDZV_E_IO, errno, "cannot start the workers' guard: no socket pair");
  const pid_t pid = process_fork(PROCESS_HIDDEN, -1);
  if (pid == 0) run_guard(ends[1], agent, guard->cgroup, guard->table);
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
  void *table = mmap(NULL, sizeof *guard->table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (table == MAP_FAILED) return error_no_memory(error);
  guard->table = table;
  cgroup_open(&guard->cgroup);
  return start(guard, &guard->fd, &guard->pid, error);
}

void guard_set_group(const struct guard *guard, size_t slot, pid_t group) {
  if (guard->table && slot < MOST_GROUPS) atomic_store(&guard->table->groups[slot], group);
}

void guard_set_mark(const struct guard *guard, const char *mark) {
  const size_t len = strlen(mark);
  if (len < sizeof guard->table->mark) memcpy(guard->table->mark, mark, len + 1);
}

void guard_set_folder(const struct guard *guard, const char *path) {
  const size_t len = strlen(path);
  atomic_store(&guard->table->has_folder, false);
  if (len == 0 || len >= sizeof guard->table->folder) return;
  memcpy(guard->table->folder, path, len + 1);
  atomic_store(&guard->table->has_folder, true);
}

int guard_renew(struct guard *guard, rdzv_error *error) {
  int fd = -1;
  pid_t pid = -1;
  process_reap(guard->pid);
  guard->pid = -1;
  const int result = start(guard, &fd, &pid, error);
  if (result < 0) return result;
  dup3(fd, guard->fd, O_CLOEXEC);
  close(fd);
  guard->pid = pid;
  return 0;
}

void guard_quit(const struct guard *guard) {
  if (guard->fd < 0) return;
  atomic_store(&guard->table->quit, true);
  shutdown(guard->fd, SHUT_RDWR);
}

void guard_close(struct guard *guard) {
  guard_quit(guard);
  if (guard->fd >= 0) close(guard->fd);
  process_reap(guard->pid);
  cgroup_remove(&guard->cgroup);
  cgroup_close(&guard->cgroup);
  if (guard->table) munmap(guard->table, sizeof *guard->table);
  *guard = GUARD_NONE;
}
