/* SPDX-License-Identifier: BSD-3-Clause */
/* The user's calls. */
#include "base/error.h"
#include "base/wait/waiting.h"
#include "handler/leased/leased_handler.h"
#include "handler/master.h"
#include "store/etcd3/etcd3_store.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GRACE_MS = RENDEZVOUS_ROLLBACK_MS + 2000, LOOK_MS = 1000 };

/* ---- joining -------------------------------------------------------------------------------------------------- */

static void tell_of_nodes(struct waiting *waiting, void *user) {
  struct leased_handler *handler = user;
  pthread_mutex_lock(&handler->lock);
  const struct summary waits = handler->waits;
  const rdzv_error trouble = handler->trouble;
  pthread_mutex_unlock(&handler->lock);
  waiting_about(waiting, "%s%s%.200s", waits.text[0] ? waits.text : "waiting to join",
                trouble.code ? "; etcd fails: " : "", trouble.code ? trouble.message : "");
}

/* Where we can be reached as rank 0: on a port that workers of before do not know. */
static int renew_address(struct leased_handler *handler, rdzv_error *error) {
  char master[HOST_NAME_SIZE];
  int port = handler->port;
  const int result = host_renew_port(&handler->port_fd, &port, error);
  if (result < 0) return result;
  if (handler->master[0])
    memcpy(master, handler->master, sizeof master);
  else
    master_own_address(&handler->base, RDZV_ETCD_PORT, master);
  pthread_mutex_lock(&handler->lock);
  memcpy(handler->master, master, sizeof handler->master);
  handler->port = port;
  pthread_mutex_unlock(&handler->lock);
  return 0;
}

/* Only rank 0 needs its port until the next round. */
static void let_port_go(struct leased_handler *handler, const struct round_result *joined) {
  if (joined->base.rank == 0 || handler->port_fd < 0) return;
  close(handler->port_fd);
  handler->port_fd = -1;
}

/* The machine knows when the time of a join is over: that of a spare does not pass. */
static int join(struct leased_handler *handler, struct round_result **out, rdzv_error *error) {
  struct waiting waiting;
  const struct flag telling = flag_with(&handler->base.cancel, &waiting);
  waiting_begin(&waiting, &handler->base.log, INT64_MAX);
  waiting_about(&waiting, "waiting to join: no answer yet from %.300s", handler->text);
  waiting.refresh = tell_of_nodes;
  waiting.user = handler;
  const int result = leased_ask(handler, LEASED_JOIN, "join", INT64_MAX, &telling, error);
  if (result < 0) return result;
  pthread_mutex_lock(&handler->lock);
  *out = handler->joined;
  handler->joined = NULL;
  pthread_mutex_unlock(&handler->lock);
  return *out ? 0 : error_set(error, RDZV_E_CANCELED, "cannot join the rendezvous: another call interrupted it");
}

static int open_store(struct leased_handler *handler, struct round_result *joined, rdzv_error *error);

static int leased_next(rdzv_handler *base, rdzv_result **out, rdzv_error *error) {
  struct leased_handler *handler = leased_of(base);
  struct round_result *joined = NULL;
  if (flag_raised(&base->cancel)) return error_set(error, RDZV_E_CANCELED, "cannot join the rendezvous: canceled");
  events_note(&handler->events, RDZV_NODE_STATE_INIT, -1, -1, "attempts to join the next round");
  events_flush(&handler->events);
  pthread_mutex_lock(&handler->call);
  int result = renew_address(handler, error);
  if (result == 0) result = join(handler, &joined, error);
  if (result == 0) result = open_store(handler, joined, error);
  if (result == 0) let_port_go(handler, joined);
  if (result < 0 && joined) rdzv_result_free(&joined->base);
  if (result < 0 && handler->started) leased_give_up(handler);
  pthread_mutex_unlock(&handler->call);
  events_flush(&handler->events);
  if (result == 0) *out = &joined->base;
  return result;
}

static int leased_find_master(rdzv_handler *base, rdzv_result *result, rdzv_error *error) {
  (void)base, (void)result, (void)error; /* it came with the round */
  return 0;
}

/* ---- changes -------------------------------------------------------------------------------------------------- */

/* Has etcd not answered for as long as our lease lasts? With the lock held. */
static bool is_silent(const struct leased_handler *handler) {
  return handler->in_round && handler->trouble.code &&
         clock_now_ms() - handler->heard_ms > handler->machine.config.lease_ms;
}

static int fail_silent(struct leased_handler *handler, rdzv_error *error) {
  const double silence = (double)(clock_now_ms() - handler->heard_ms) / 1000;
  return error_set(error, RDZV_E_CONNECTION, "cannot stay in the round: no answer for %.1f s from %.200s: %s", silence,
                   handler->text, handler->trouble.message);
}

/* RDZV_E_TIMEOUT, without a sentence: there is none. */
static int take_change(struct leased_handler *handler, rdzv_change **out, rdzv_error *error) {
  pthread_mutex_lock(&handler->lock);
  int result = RDZV_E_TIMEOUT;
  if (handler->change.what) {
    result = change_take(&handler->change, out, error);
    flag_lower(&handler->changed);
    flag_lower(&handler->ended);
  } else if (!handler->in_round) {
    result = error_set(error, RDZV_E_INVALID, "this node is not in a round");
  } else if (is_silent(handler)) {
    result = fail_silent(handler, error);
  }
  pthread_mutex_unlock(&handler->lock);
  return result;
}

static int leased_wait_change(rdzv_handler *base, int64_t timeout_ms, rdzv_change **out, rdzv_error *error) {
  struct leased_handler *handler = leased_of(base);
  const deadline until = deadline_after(timeout_ms);
  for (;;) {
    int result = take_change(handler, out, error);
    if (result != RDZV_E_TIMEOUT) return result;
    result = flag_await(&handler->changed, &base->cancel, deadline_sooner(until, deadline_after(LOOK_MS)));
    if (result == RDZV_E_CANCELED) return error_set(error, result, "waiting for changes of the round: canceled");
    if (result == RDZV_E_IO) return error_errno(error, result, errno, "cannot hear of changes of the round");
    if (result < 0 && deadline_left(until) == 0)
      return error_set(error, RDZV_E_TIMEOUT, "nothing happened in %" PRId64 " ms", timeout_ms);
  }
}

/* The thread may raise or lower the flag meanwhile. */
static int fd_of(const rdzv_handler *base, const struct flag *flag) {
  struct leased_handler *handler = leased_of((rdzv_handler *)base);
  pthread_mutex_lock(&handler->lock);
  const int fd = flag_fd(flag);
  pthread_mutex_unlock(&handler->lock);
  return fd;
}

static int leased_change_fd(const rdzv_handler *base) {
  return fd_of(base, &((const struct leased_handler *)base)->changed);
}
static int leased_ended_fd(const rdzv_handler *base) {
  return fd_of(base, &((const struct leased_handler *)base)->ended);
}

/* ---- ending --------------------------------------------------------------------------------------------------- */

/* With `call` held. */
static int ask_farewell(struct leased_handler *handler, enum leased_ask what, const char *name, rdzv_error *error) {
  const int64_t usual = handler->machine.config.settings.close_timeout + GRACE_MS;
  const deadline until = deadline_after(handler_farewell(&handler->base, usual));
  return leased_ask(handler, what, name, until, &handler->base.hurry, error);
}

static int leased_set_closed(rdzv_handler *base, const char *reason, rdzv_error *error) {
  struct leased_handler *handler = leased_of(base);
  char *copy = reason && *reason ? strdup(reason) : NULL;
  pthread_mutex_lock(&handler->call);
  pthread_mutex_lock(&handler->lock);
  free(handler->reason);
  handler->reason = copy;
  pthread_mutex_unlock(&handler->lock);
  const int result = ask_farewell(handler, LEASED_CLOSE, "close", error);
  pthread_mutex_unlock(&handler->call);
  events_flush(&handler->events);
  return result;
}

static int leased_leave(rdzv_handler *base, rdzv_error *error) {
  struct leased_handler *handler = leased_of(base);
  pthread_mutex_lock(&handler->call);
  const int result = handler->started ? ask_farewell(handler, LEASED_LEAVE, "leave", error) : 0;
  pthread_mutex_unlock(&handler->call);
  events_flush(&handler->events);
  return result;
}

static int leased_shutdown(rdzv_handler *base, rdzv_error *error) {
  const int closed = leased_set_closed(base, NULL, error);
  const int left = leased_leave(base, closed == 0 ? error : NULL);
  return closed < 0 ? closed : left;
}

static const char *leased_describe(rdzv_handler *base) { return leased_of(base)->text; }

const struct handler_ops leased_ops = {
    .next = leased_next,
    .wait_change = leased_wait_change,
    .is_closed = leased_is_closed,
    .num_waiting = leased_num_waiting,
    .set_closed = leased_set_closed,
    .leave = leased_leave,
    .shutdown = leased_shutdown,
    .status_read = leased_status_read,
    .describe = leased_describe,
    .find_master = leased_find_master,
    .change_fd = leased_change_fd,
    .ended_fd = leased_ended_fd,
    .close = leased_close,
    .abandon = leased_abandon,
};

/* ---- the store of a round ------------------------------------------------------------------------------------- */

/* Its keys outlive the nodes for as long as the world does. It outlives the user's flag, and opening it asks nothing of
 * etcd: the flag is not for it. */
static int open_store(struct leased_handler *handler, struct round_result *joined, rdzv_error *error) {
  char *path = NULL;
  if (asprintf(&path, "%s%" PRId64, handler->stores, joined->base.round) < 0) return error_no_memory(error);
  const int result = etcd3_store_open(etcd_share(handler->client), path, 0, LEASED_RUN_MS, 0, &handler->base.log,
                                      &joined->base.store, error);
  free(path);
  return result;
}
