/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/wait/flag.h"

#include "base/error.h"
#include "base/wait/waiting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int fail_open(struct flag *flag, rdzv_error *error) {
  const int errnum = errno;
  flag_close(flag);
  return error_errno(error, RDZV_E_IO, errnum, "cannot create an event descriptor");
}

struct flag flag_with(const struct flag *flag, struct waiting *waiting) {
  struct flag same = flag ? *flag : FLAG_NONE;
  same.waiting = waiting;
  return same;
}

int flag_open(struct flag *flag, rdzv_error *error) {
  flag->waiting = NULL;
  flag->fd = flag->raise_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return flag->fd < 0 ? fail_open(flag, error) : 0;
}

static bool look_at(int epoll_fd, int fd) {
  struct epoll_event event = {.events = EPOLLIN};
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* An epoll descriptor is itself readable when one of those it looks at is. */
int flag_open_with(struct flag *flag, int also, rdzv_error *error) {
  const int result = flag_open(flag, error);
  if (result < 0 || also <= 0) return result;
  flag->fd = epoll_create1(EPOLL_CLOEXEC);
  if (flag->fd < 0 || !look_at(flag->fd, flag->raise_fd)) return fail_open(flag, error);
  if (look_at(flag->fd, also)) return 0;
  const int errnum = errno;
  flag_close(flag);
  return error_errno(error, RDZV_E_INVALID, errnum, "cannot watch the flag descriptor %d", also);
}

int flag_share(struct flag *flag, const struct flag *with, rdzv_error *error) {
  flag->waiting = NULL;
  flag->fd = flag->raise_fd = fcntl(with->fd, F_DUPFD_CLOEXEC, 0);
  if (flag->fd >= 0 && with->raise_fd != with->fd) flag->raise_fd = fcntl(with->raise_fd, F_DUPFD_CLOEXEC, 0);
  return flag->fd < 0 || flag->raise_fd < 0 ? fail_open(flag, error) : 0;
}

void flag_raise(struct flag *flag) {
  const int saved = errno; /* may run in a signal handler */
  const uint64_t one = 1;
  if (write(flag->raise_fd, &one, sizeof one) < 0) { /* full: it is up already */
  }
  errno = saved;
}

void flag_lower(struct flag *flag) {
  uint64_t count;
  if (read(flag->raise_fd, &count, sizeof count) < 0) { /* it was not up */
  }
}

bool flag_also(struct flag *flag, int also) { return look_at(flag->fd, also); }

void flag_forget(struct flag *flag, int also) {
  if (flag->fd != flag->raise_fd) epoll_ctl(flag->fd, EPOLL_CTL_DEL, also, NULL);
}

bool flag_raised(const struct flag *flag) {
  struct pollfd fd = {.fd = flag->fd, .events = POLLIN};
  return poll(&fd, 1, 0) > 0;
}

void flag_close(struct flag *flag) {
  if (flag->raise_fd >= 0 && flag->raise_fd != flag->fd) close(flag->raise_fd);
  if (flag->fd >= 0) close(flag->fd);
  flag->fd = flag->raise_fd = -1;
}

int flag_poll(const struct flag *flag, struct pollfd *fds, nfds_t count, deadline until) {
  fds[count] = (struct pollfd){.fd = flag ? flag->fd : -1, .events = POLLIN};
  struct waiting *waiting = flag_waiting(flag);
  for (;;) {
    waiting_tick(waiting);
    const int ready = poll(fds, count + 1, deadline_poll(waiting_until(waiting, until)));
    if (ready > 0) return fds[count].revents ? RDZV_E_CANCELED : 0;
    if (ready == 0 && deadline_left(until) == 0) return RDZV_E_TIMEOUT;
    if (ready < 0 && errno != EINTR) return RDZV_E_IO;
  }
}

int flag_pause(const struct flag *flag, deadline until) {
  struct pollfd fds[1];
  const int result = flag_poll(flag, fds, 0, until);
  return result == RDZV_E_TIMEOUT ? 0 : result;
}
