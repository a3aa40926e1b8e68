/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/wait/cancel.h"

#include "base/error.h"
#include "base/wait/waiting.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int failed(struct cancel *cancel, rdzv_error *error) {
  const int errnum = errno;
  cancel_close(cancel);
  return error_errno(error, RDZV_E_IO, errnum, "cannot make an event descriptor");
}

struct cancel cancel_with(const struct cancel *cancel, struct waiting *waiting) {
  struct cancel flag = cancel ? *cancel : CANCEL_NONE;
  flag.waiting = waiting;
  return flag;
}

int cancel_open(struct cancel *cancel, rdzv_error *error) {
  cancel->waiting = NULL;
  cancel->fd = cancel->raise_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return cancel->fd < 0 ? failed(cancel, error) : 0;
}

static bool look_at(int epoll_fd, int fd) {
  struct epoll_event event = {.events = EPOLLIN};
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* An epoll descriptor is itself readable when one of those it looks at is. */
int cancel_open_with(struct cancel *cancel, int also, rdzv_error *error) {
  const int result = cancel_open(cancel, error);
  if (result < 0 || also <= 0) return result;
  cancel->fd = epoll_create1(EPOLL_CLOEXEC);
  if (cancel->fd < 0 || !look_at(cancel->fd, cancel->raise_fd)) return failed(cancel, error);
  if (look_at(cancel->fd, also)) return 0;
  const int errnum = errno;
  cancel_close(cancel);
  return error_errno(error, RDZV_E_INVALID, errnum, "cannot watch the cancel descriptor %d", also);
}

int cancel_share(struct cancel *cancel, const struct cancel *with, rdzv_error *error) {
  cancel->waiting = NULL;
  cancel->fd = cancel->raise_fd = fcntl(with->fd, F_DUPFD_CLOEXEC, 0);
  if (cancel->fd >= 0 && with->raise_fd != with->fd) cancel->raise_fd = fcntl(with->raise_fd, F_DUPFD_CLOEXEC, 0);
  return cancel->fd < 0 || cancel->raise_fd < 0 ? failed(cancel, error) : 0;
}

void cancel_raise(struct cancel *cancel) {
  const int saved = errno; /* may run in a signal handler */
  const uint64_t one = 1;
  if (write(cancel->raise_fd, &one, sizeof one) < 0) { /* full: it is up already */
  }
  errno = saved;
}

void cancel_lower(struct cancel *cancel) {
  uint64_t count;
  if (read(cancel->raise_fd, &count, sizeof count) < 0) { /* it was not up */
  }
}

bool cancel_also(struct cancel *cancel, int also) { return look_at(cancel->fd, also); }

void cancel_forget(struct cancel *cancel, int also) {
  if (cancel->fd != cancel->raise_fd) epoll_ctl(cancel->fd, EPOLL_CTL_DEL, also, NULL);
}

bool cancel_raised(const struct cancel *cancel) {
  struct pollfd fd = {.fd = cancel->fd, .events = POLLIN};
  return poll(&fd, 1, 0) > 0;
}

void cancel_close(struct cancel *cancel) {
  if (cancel->raise_fd >= 0 && cancel->raise_fd != cancel->fd) close(cancel->raise_fd);
  if (cancel->fd >= 0) close(cancel->fd);
  cancel->fd = cancel->raise_fd = -1;
}

int cancel_poll(const struct cancel *cancel, struct pollfd *fds, nfds_t count, deadline until) {
  fds[count] = (struct pollfd){.fd = cancel ? cancel->fd : -1, .events = POLLIN};
  struct waiting *waiting = cancel_waiting(cancel);
  for (;;) {
    waiting_tick(waiting);
    const int ready = poll(fds, count + 1, deadline_poll(waiting_until(waiting, until)));
    if (ready > 0) return fds[count].revents ? RDZV_E_CANCELED : 0;
    if (ready == 0 && deadline_left(until) == 0) return RDZV_E_TIMEOUT;
    if (ready < 0 && errno != EINTR) return RDZV_E_IO;
  }
}

int cancel_pause(const struct cancel *cancel, deadline until) {
  struct pollfd fds[1];
  const int result = cancel_poll(cancel, fds, 0, until);
  return result == RDZV_E_TIMEOUT ? 0 : result;
}
