/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/wait/flag.h"

#include "base/error.h"
#include "base/wait/waiting.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/* From when there is an event descriptor, that alone tells whether the flag is up. Before, `up` does. A raise
 * sets `up` and then looks for the descriptor; making the descriptor publishes it and then looks at `up`. So at least
 * one of them writes to it. */
struct flag_state {
  _Atomic unsigned names;
  _Atomic bool up;
  _Atomic int event_fd; /* -1: none yet */
  int epoll_fd;         /* that also looks at a descriptor of the caller's; -1: there is none to look at */
  struct flag_group *group;
};

/* ---- opening and closing -------------------------------------------------------------------------------------- */

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

static bool look_at(int epoll_fd, int fd) {
  struct epoll_event event = {.events = EPOLLIN};
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void write_event(int fd) {
  const uint64_t one = 1;
  if (write(fd, &one, sizeof one) < 0) { /* full: it is up already */
  }
}

/* The event descriptor, which is made if there is none; or -1. */
static int event_fd(struct flag_state *state) {
  int fd = atomic_load(&state->event_fd), none = -1;
  if (fd >= 0) return fd;
  fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return -1;
  if (!atomic_compare_exchange_strong(&state->event_fd, &none, fd)) {
    close(fd);
    return none;
  }
  if (atomic_load(&state->up)) write_event(fd);
  return fd;
}

int flag_fd(const struct flag *flag) {
  struct flag_state *state = flag->state;
  if (!state) return flag->borrowed_fd > 0 ? flag->borrowed_fd : -1;
  return state->epoll_fd >= 0 ? state->epoll_fd : event_fd(state);
}

/* An epoll descriptor is itself readable when one of those it looks at is. */
int flag_open_in(struct flag *flag, struct flag_group *group, int also, rdzv_error *error) {
  *flag = FLAG_NONE;
  struct flag_state *state = malloc(sizeof *state);
  if (!state) return error_no_memory(error);
  *state = (struct flag_state){.names = 1, .event_fd = -1, .epoll_fd = -1, .group = group};
  flag->state = state;
  if (also <= 0) return 0;
  if (event_fd(state) < 0) return fail_open(flag, error);
  state->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (state->epoll_fd < 0 || !look_at(state->epoll_fd, event_fd(state))) return fail_open(flag, error);
  if (look_at(state->epoll_fd, also)) return 0;
  const int errnum = errno;
  flag_close(flag);
  return error_errno(error, RDZV_E_INVALID, errnum, "cannot watch the flag descriptor %d", also);
}

int flag_need_fd(const struct flag *flag, rdzv_error *error) {
  if (!flag || !flag->state || flag_fd(flag) >= 0) return 0;
  return error_errno(error, RDZV_E_IO, errno, "cannot create an event descriptor");
}

int flag_open_with(struct flag *flag, int also, rdzv_error *error) {
  int result = flag_open_in(flag, NULL, also, error);
  if (result < 0) return result;
  result = flag_need_fd(flag, error);
  if (result < 0) flag_close(flag);
  return result;
}

int flag_open(struct flag *flag, rdzv_error *error) { return flag_open_with(flag, 0, error); }

int flag_share(struct flag *flag, const struct flag *with, rdzv_error *error) {
  *flag = FLAG_NONE;
  if (!with->state) return error_set(error, RDZV_E_INVALID, "there is no flag to share");
  atomic_fetch_add(&with->state->names, 1);
  flag->state = with->state;
  return 0;
}

void flag_close(struct flag *flag) {
  struct flag_state *state = flag->state;
  *flag = FLAG_NONE;
  if (!state || atomic_fetch_sub(&state->names, 1) > 1) return;
  const int fd = atomic_load(&state->event_fd);
  if (fd >= 0) close(fd);
  if (state->epoll_fd >= 0) close(state->epoll_fd);
  free(state);
}

/* ---- raising -------------------------------------------------------------------------------------------------- */

/* May run in a signal handler. */
static void wake_group(struct flag_group *group) {
  atomic_fetch_add(&group->raised, 1);
  syscall(SYS_futex, &group->raised, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void flag_raise(struct flag *flag) {
  const int saved = errno;
  struct flag_state *state = flag->state;
  if (!state) return;
  atomic_store(&state->up, true);
  const int fd = atomic_load(&state->event_fd);
  if (fd >= 0) write_event(fd);
  if (state->group) wake_group(state->group);
  errno = saved;
}

void flag_lower(struct flag *flag) {
  struct flag_state *state = flag->state;
  uint64_t count;
  if (!state) return;
  atomic_store(&state->up, false);
  const int fd = atomic_load(&state->event_fd);
  if (fd >= 0 && read(fd, &count, sizeof count) < 0) { /* it was not up */
  }
}

bool flag_also(struct flag *flag, int also) { return look_at(flag->state->epoll_fd, also); }

void flag_forget(struct flag *flag, int also) {
  if (flag->state && flag->state->epoll_fd >= 0) epoll_ctl(flag->state->epoll_fd, EPOLL_CTL_DEL, also, NULL);
}

bool flag_raised(const struct flag *flag) {
  const struct flag_state *state = flag->state;
  if (state && atomic_load(&state->event_fd) < 0) return atomic_load(&state->up);
  struct pollfd fd = {.fd = flag_fd(flag), .events = POLLIN};
  return poll(&fd, 1, 0) > 0;
}

/* ---- waiting -------------------------------------------------------------------------------------------------- */

#define MOST_POLLED 8 /* no caller waits for more descriptors */

/* Cancels the waits of this thread while it is readable; 0: none. */
static _Thread_local int thread_fd;

void flag_set_thread_fd(int fd) { thread_fd = fd; }

int flag_thread_fd(const struct flag *flag) {
  return thread_fd > 0 && flag && (flag->state || flag->borrowed_fd > 0) ? thread_fd : -1;
}

bool flag_canceled(const struct flag *flag) {
  struct pollfd fd = {.fd = flag_thread_fd(flag), .events = POLLIN};
  return flag_raised(flag) || poll(&fd, 1, 0) > 0;
}

/* Polls the descriptors and that of this thread. */
static int poll_with_thread(const struct flag *flag, struct pollfd *fds, nfds_t count, int left) {
  struct pollfd all[MOST_POLLED + 1];
  const int also = flag_thread_fd(flag);
  if (also < 0 || count > MOST_POLLED) return poll(fds, count, left);
  memcpy(all, fds, count * sizeof *fds);
  all[count] = (struct pollfd){.fd = also, .events = POLLIN};
  const int ready = poll(all, count + 1, left);
  if (ready <= 0) return ready;
  memcpy(fds, all, count * sizeof *fds);
  fds[count - 1].revents |= all[count].revents; /* the place of the flag */
  return ready;
}

int flag_poll(const struct flag *flag, struct pollfd *fds, nfds_t count, deadline until) {
  const int fd = flag ? flag_fd(flag) : -1;
  if (fd < 0 && flag && flag->state) return RDZV_E_IO;
  fds[count] = (struct pollfd){.fd = fd, .events = POLLIN};
  struct waiting *waiting = flag_waiting(flag);
  for (;;) {
    waiting_tick(waiting);
    const int ready = poll_with_thread(flag, fds, count + 1, deadline_poll(waiting_until(waiting, until)));
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

/* Sleeps while the count is that, until the deadline at most. */
static void sleep_on(struct flag_group *group, unsigned raised, deadline until) {
  const int64_t left = deadline_left(until);
  const struct timespec time = {left / 1000, (long)(left % 1000) * 1000000};
  syscall(SYS_futex, &group->raised, FUTEX_WAIT_PRIVATE, raised, until == INT64_MAX ? NULL : &time, NULL, 0);
}

static int await_in_group(const struct flag *awaited, const struct flag *cancel, deadline until) {
  struct flag_group *group = awaited->state->group;
  struct waiting *waiting = flag_waiting(cancel);
  for (;;) {
    waiting_tick(waiting);
    const unsigned raised = atomic_load(&group->raised);
    if (cancel && flag_raised(cancel)) return RDZV_E_CANCELED;
    if (flag_raised(awaited)) return 0;
    if (deadline_left(until) == 0) return RDZV_E_TIMEOUT;
    sleep_on(group, raised, waiting_until(waiting, until));
  }
}

int flag_await(const struct flag *awaited, const struct flag *cancel, deadline until) {
  const struct flag_state *other = cancel ? cancel->state : NULL;
  const bool together = !other || (other->group == awaited->state->group && other->epoll_fd < 0);
  if (awaited->state->group && together && flag_thread_fd(cancel) < 0 && !(cancel && !other && cancel->borrowed_fd > 0))
    return await_in_group(awaited, cancel, until);
  struct pollfd fds[2] = {{.fd = flag_fd(awaited), .events = POLLIN}};
  return fds[0].fd < 0 ? RDZV_E_IO : flag_poll(cancel, fds, 1, until);
}
