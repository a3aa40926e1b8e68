/* SPDX-License-Identifier: BSD-3-Clause */
/* While the node is a participant, a thread runs the machine between the user's calls, which go first. */
#include "base/error.h"
#include "base/wait/thread.h"
#include "handler/gen1/gen1.h"

#include <inttypes.h>

/* ---- the thread ----------------------------------------------------------------------------------------------- */

/* Begins and ends with the lock, which callers have in between. */
static void listen_once(struct gen1 *handler) {
  unsigned happened;
  if (gen1_carry_out(handler, &handler->lock.wanted, &happened, NULL) == 0) gen1_tell(handler, happened);
  fair_lock_return(&handler->lock);
  events_flush(&handler->events);
  fair_lock_borrow(&handler->lock);
}

static void *listen(void *argument) {
  struct gen1 *handler = argument;
  fair_lock_borrow(&handler->lock);
  while (!handler->over) {
    if (gen1_place_is_in(&handler->place))
      listen_once(handler);
    else
      fair_lock_await_caller(&handler->lock);
  }
  fair_lock_return(&handler->lock);
  return NULL;
}

int gen1_listen_start(struct gen1 *handler, rdzv_error *error) {
  const int errnum = thread_start(&handler->thread, listen, handler);
  handler->started = errnum == 0;
  return errnum == 0 ? 0 : error_errno(error, RDZV_E_IO, errnum, "cannot start the thread that watches for changes");
}

void gen1_listen_stop(struct gen1 *handler) {
  if (!handler->started) return;
  fair_lock_take(&handler->lock);
  handler->over = true;
  fair_lock_give(&handler->lock);
  pthread_join(handler->thread, NULL);
}

/* ---- for the user --------------------------------------------------------------------------------------------- */

int gen1_wait_change(rdzv_handler *base, int64_t timeout_ms, rdzv_change **out, rdzv_error *error) {
  struct gen1 *handler = (struct gen1 *)base;
  const deadline until = deadline_after(timeout_ms);
  struct pollfd fds[3] = {{.fd = flag_fd(&handler->place.changed), .events = POLLIN},
                          {.fd = flag_fd(&handler->place.outside), .events = POLLIN}};
  for (;;) {
    int result = gen1_take_change(handler, out, error);
    if (result != RDZV_E_TIMEOUT) return result;
    result = flag_poll(&base->cancel, fds, 2, until);
    if (result == RDZV_E_CANCELED) return error_set(error, result, "waiting for changes of the round: canceled");
    if (result < 0) return error_set(error, result, "nothing happened in %" PRId64 " ms", timeout_ms);
  }
}

int gen1_change_fd(const rdzv_handler *base) { return flag_fd(&((const struct gen1 *)base)->place.changed); }
int gen1_ended_fd(const rdzv_handler *base) { return flag_fd(&((const struct gen1 *)base)->place.ended); }
