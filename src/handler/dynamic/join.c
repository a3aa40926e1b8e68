/* SPDX-License-Identifier: BSD-3-Clause */
/* rdzv_handler_next: asks the driver for a round, then connects to the round's store and finds rank 0. */
#include "base/error.h"
#include "base/wait/waiting.h"
#include "handler/dynamic/dynamic.h"
#include "handler/dynamic/native/native.h"
#include "store/run_keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUND_OVER = 1 };

char *dynamic_round_prefix(const struct dynamic *handler, int64_t round) {
  return run_round_prefix(handler->base.run_id, round);
}

static struct round_result *take_joined(struct dynamic *handler) {
  pthread_mutex_lock(&handler->lock);
  struct round_result *result = handler->joined;
  handler->joined = NULL;
  pthread_mutex_unlock(&handler->lock);
  return result;
}

static void tell_of_nodes(struct waiting *waiting, void *user) {
  driver_tell_wait(((struct dynamic *)user)->driver, waiting);
}

/* Waits until a round is complete with us in it. A node that has been in a round gives up as soon as the store has been
 * silent for the dead time, as the other participants do. A node that joins first may come before the store does. */
static int await_round(struct dynamic *handler, struct round_result **out, rdzv_error *error) {
  struct waiting waiting;
  struct driver_words words;
  const bool native = handler->driver->ops->native;
  const struct flag telling = flag_with(&handler->base.cancel, &waiting);
  const deadline until = deadline_after(driver_settings(handler->driver)->join_timeout);
  struct patience patience = {.until = until + DYNAMIC_GRACE_MS, .cancel = &telling};
  driver_begin_waiting(handler->driver, &waiting, "join", until);
  waiting.refresh = tell_of_nodes;
  waiting.user = handler;
  pthread_mutex_lock(&handler->lock);
  patience.for_answers = handler->been_in_round;
  pthread_mutex_unlock(&handler->lock);
  events_note(&handler->events, RDZV_NODE_STATE_INIT, -1, -1, "attempts to join the next round");
  events_flush(&handler->events);
  int result = native ? dynamic_offer_master(handler, &words, error) : 0;
  if (result < 0) return result;
  result = dynamic_ask(handler, DRIVER_JOIN, native ? &words : NULL, "join the rendezvous", &patience, error);
  if (result == RDZV_E_CLOSED || result == RDZV_E_GRACEFUL_EXIT) dynamic_add_reason(handler, error);
  if (result == 0) *out = take_joined(handler);
  return result;
}

/* The answer to the join has said where rank 0 is: there is nothing to find, and a node that does not use the store of
 * the round does not connect to it. */
static int open_later(struct dynamic *handler, struct round_result *joined, const char *prefix, rdzv_error *error) {
  rdzv_store *store;
  int result = tcp_store_clone_idle(handler->store, native_instance(handler->driver), &store, error);
  if (result == 0) result = result_take_store(joined, store, prefix, error);
  return result;
}

/* Connects to the round's store, and finds rank 0. */
static int complete(struct dynamic *handler, struct round_result *joined, rdzv_error *error) {
  if (!handler->store) return 0;
  char *prefix = dynamic_round_prefix(handler, joined->base.round);
  if (!prefix) return error_no_memory(error);
  int result = joined->all_native ? open_later(handler, joined, prefix, error)
                                  : result_open_store(joined, handler->store, prefix, &handler->base.cancel, error);
  free(prefix);
  if (handler->driver->ops->native) joined->load = native_load_participants;
  if (joined->all_native) return result;
  const bool later = handler->base.master_later && joined->base.rank != 0;
  if (result == 0 && !later) result = dynamic_find_master(handler, joined, error);
  if (result == 0) dynamic_remove_past_master(handler, joined);
  if (result == 0) result_forget_cancel(joined);
  return result;
}

/* ROUND_OVER: the round ended before it could be entered. That, and a failure, free it. */
static int enter(struct dynamic *handler, struct round_result *joined, rdzv_error *error) {
  int result = complete(handler, joined, error);
  if (result == 0) return 0;
  if (result == RDZV_E_CANCELED && flag_raised(&handler->base.cancel)) {
    error_set(error, result, "cannot join the rendezvous: canceled");
  } else if (result == RDZV_E_CANCELED) {
    events_note(&handler->events, RDZV_NODE_STATE_RUNNING, joined->base.round, joined->base.rank,
                "round %" PRId64 " ended before rank 0 published its address", joined->base.round);
    result = ROUND_OVER;
  } else {
    events_note(&handler->events, RDZV_NODE_STATE_FAILED, joined->base.round, joined->base.rank,
                "the store of the round cannot be used");
  }
  events_flush(&handler->events);
  rdzv_result_free(&joined->base);
  return result;
}

static int join(struct dynamic *handler, rdzv_result **out, rdzv_error *error) {
  const deadline until = deadline_after(driver_settings(handler->driver)->join_timeout);
  struct round_result *joined = NULL;
  int result;
  do {
    result = await_round(handler, &joined, error);
    if (result == 0) result = enter(handler, joined, error);
  } while (result == ROUND_OVER && deadline_left(until) > 0);
  if (result == ROUND_OVER)
    result =
        error_set(error, RDZV_E_TIMEOUT, "join timed out: rank 0 left before it published its address (try again)");
  if (result < 0) {
    dynamic_give_up(handler);
    return result;
  }
  *out = &joined->base;
  return 0;
}

int dynamic_next(rdzv_handler *base, rdzv_result **out, rdzv_error *error) {
  struct dynamic *handler = (struct dynamic *)base;
  if (flag_raised(&base->cancel)) return error_set(error, RDZV_E_CANCELED, "cannot join the rendezvous: canceled");
  pthread_mutex_lock(&handler->call);
  const int result = join(handler, out, error);
  pthread_mutex_unlock(&handler->call);
  return result;
}
