/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/guard/orphans.h"

#include "base/os/folder.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_NS = 1000000, HIGHEST = 64 /* generations */, CHUNK = 32768 };

static void pause_shortly(void) {
  const struct timespec look = {.tv_nsec = LOOK_NS};
  nanosleep(&look, NULL);
}

/* ---- what the system tells of a process ----------------------------------------------------------------------- */

static int open_of(pid_t pid, const char *what) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%ld/%s", (long)pid, what);
  return open(path, O_RDONLY | O_CLOEXEC);
}

/* -1: there is no such process. "pid (name) state parent …", where the name may be anything. */
static pid_t parent_of(pid_t pid) {
  char text[512];
  const int fd = open_of(pid, "stat");
  const ssize_t got = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
  if (fd >= 0) close(fd);
  if (got <= 0) return -1;
  text[got] = '\0';
  const char *name_end = strrchr(text, ')');
  return name_end && strlen(name_end) > 4 ? (pid_t)strtol(name_end + 4, NULL, 10) : -1;
}

/* Has it that variable? Those of other users cannot be asked. */
static bool is_marked(pid_t pid, const char *mark) {
  static char text[CHUNK + PATH_MAX]; /* only a guard looks, which has one thread */
  const size_t len = strlen(mark);
  size_t kept = 1;
  bool found = false;
  const int fd = len > 0 && len < PATH_MAX - 1 ? open_of(pid, "environ") : -1;
  ssize_t got;
  text[0] = '\0'; /* what stands before the first one */
  while (fd >= 0 && !found && (got = read(fd, text + kept, CHUNK)) > 0) {
    const size_t all = kept + (size_t)got;
    for (const char *at = text; !found && (at = memmem(at, all - (size_t)(at - text), mark, len)); at++)
      found = at > text && at[-1] == '\0';
    kept = all < len + 1 ? all : len + 1;
    memmove(text, text + all - kept, kept);
  }
  if (fd >= 0) close(fd);
  return found;
}

/* ---- all of them ---------------------------------------------------------------------------------------------- */

struct search {
  const struct orphans_known *known;
  const char *mark;
  pid_t reaper;
  bool kills;
  size_t found;  /* that have not ended */
  size_t killed; /* our children */
};

static void each_process(bool (*visit)(void *user, int fd, const char *name), struct search *look) {
  const int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  folder_each(fd, visit, look);
  close(fd);
}

/* ---- our own children ----------------------------------------------------------------------------------------- */

bool orphans_adopt(bool adopt) {
  int before = 0;
  prctl(PR_GET_CHILD_SUBREAPER, &before);
  prctl(PR_SET_CHILD_SUBREAPER, adopt ? 1 : 0);
  return before;
}

/* A child's id is not reused until we reap it. */
static bool take_child(void *user, int fd, const char *name) {
  struct search *look = user;
  (void)fd;
  const pid_t pid = isdigit((unsigned char)*name) ? (pid_t)strtol(name, NULL, 10) : -1;
  if (pid <= 0 || parent_of(pid) != getpid() || look->known->is(look->known->user, pid)) return true;
  int status;
  if (look->kills) kill(pid, SIGKILL);
  const pid_t reaped = waitpid(pid, &status, WNOHANG);
  if (reaped == 0) look->found++; /* it has not ended yet */
  if (reaped == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) look->killed++;
  return true;
}

/* As long as no known one has ended the kernel names them, else they are looked for. */
void orphans_reap(const struct orphans_known *known) {
  for (;;) {
    siginfo_t info = {0};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0) return;
    if (known->is(known->user, info.si_pid)) break;
    waitpid(info.si_pid, NULL, WNOHANG);
  }
  struct search look = {.known = known};
  each_process(take_child, &look);
}

static bool has_children(void) {
  siginfo_t info = {0};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

size_t orphans_kill(const struct orphans_known *known, deadline until) {
  struct search look = {.known = known, .kills = true};
  while (has_children()) { /* what a killed one leaves behind becomes ours */
    const size_t before = look.killed;
    look.found = 0;
    each_process(take_child, &look);
    if (look.found == 0 && look.killed == before) return look.killed;
    if (deadline_left(until) == 0) return look.killed;
    if (look.found > 0) pause_shortly();
  }
  return look.killed;
}

/* ---- those of a parent that is dead --------------------------------------------------------------------------- */

/* The topmost of those with the mark has been left to the reaper: a job that was only handed our environment, as by a
 * batch system or a terminal multiplexer that was there before, has another parent. */
static bool is_left_behind(const struct search *look, pid_t pid) {
  for (int i = 0; i < HIGHEST && pid > 1 && is_marked(pid, look->mark); i++) {
    pid = parent_of(pid);
    if (pid == look->reaper) return true;
  }
  return false;
}

/* By a descriptor, which cannot come to mean another process while we look. */
static bool kill_marked(void *user, int fd, const char *name) {
  struct search *look = user;
  (void)fd;
  const pid_t pid = isdigit((unsigned char)*name) ? (pid_t)strtol(name, NULL, 10) : -1;
  if (pid <= 1 || pid == getpid()) return true;
  const int process = (int)syscall(SYS_pidfd_open, pid, 0);
  if (process < 0) return true;
  if (is_left_behind(look, pid) && syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0) == 0) look->found++;
  close(process);
  return true;
}

void orphans_kill_marked(const char *mark, pid_t reaper, deadline until) {
  for (;;) {
    struct search look = {.mark = mark, .reaper = reaper};
    each_process(kill_marked, &look);
    if (look.found == 0 || deadline_left(until) == 0) return;
    pause_shortly();
  }
}
