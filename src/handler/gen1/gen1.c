/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/gen1/gen1.h"

#include "base/error.h"
#include "base/log.h"
#include "base/wait/waiting.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct etcd_v1 *self(rdzv_handler *handler) { return (struct etcd_v1 *)handler; }

/* ---- turns ---------------------------------------------------------------------------------------------------- */

void etcd_v1_take_turn(struct etcd_v1 *handler) {
  atomic_fetch_add(&handler->callers, 1);
  flag_raise(&handler->wake);
  pthread_mutex_lock(&handler->call);
}

void etcd_v1_end_turn(struct etcd_v1 *handler) {
  if (atomic_fetch_sub(&handler->callers, 1) == 1) flag_lower(&handler->wake);
  pthread_cond_broadcast(&handler->turn);
  pthread_mutex_unlock(&handler->call);
}

/* ---- running the machine -------------------------------------------------------------------------------------- */

static unsigned ask(struct etcd_v1 *handler, enum gen1_event_kind what, const char *text) {
  const struct gen1_event event = {.kind = what, .now_ms = clock_now_ms(), .text = text};
  rdzv_error error;
  if (gen1_step(&handler->machine, &event, &handler->update, &error) < 0)
    handler->update = (struct gen1_update){.request = GEN1_DO_READ};
  return handler->update.happened;
}

/* After ask: goes on until one of those has happened. */
static int run(struct etcd_v1 *handler, unsigned wanted, const struct flag *cancel, unsigned *happened,
               rdzv_error *error) {
  for (;;) {
    if (handler->listens) etcd_v1_tell(handler, *happened);
    if (*happened & GEN1_HAPPENED_FAILED) return etcd_v1_failure(handler, error);
    if (*happened & wanted) return 0;
    const int result = etcd_v1_carry_out(handler, cancel, happened, error);
    if (result < 0) return result;
  }
}

int etcd_v1_failure(const struct etcd_v1 *handler, rdzv_error *error) {
  rdzv_error own = handler->update.error;
  size_t len = strlen(own.message);
  if (own.code == RDZV_E_TIMEOUT) snprintf(own.message + len, sizeof own.message - len, "; at %.200s", handler->text);
  len = strlen(own.message);
  if (own.code == RDZV_E_TIMEOUT && handler->trouble.code)
    snprintf(own.message + len, sizeof own.message - len, ", which fails: %.300s", handler->trouble.message);
  if (error) *error = own;
  return own.code;
}

static bool is_watched(const struct etcd_node *key) {
  const char *name = strrchr(key->key, '/');
  return !name || strncmp(name, "/rank_", 6) != 0 || strncmp(key->value, ETCD_V1_MARK, strlen(ETCD_V1_MARK)) == 0;
}

/* Do all members hear at once that a round ends? PyTorch's agents look now and then whether somebody waits, and are
 * left behind where the round is gone by then: they need the time that a lease takes to lapse. */
static bool all_watch(struct etcd_v1 *handler, const struct etcd_call *call) {
  char path[ETCD_V1_PATH];
  struct etcd_result result;
  bool all = true;
  etcd_v1_path(handler, path, "/rdzv/v_%s", handler->round);
  if (etcd_v2_get(handler->client, path, 0, call, &result) != 0) return true;
  for (size_t i = 0; i < result.node.count; i++) all = all && is_watched(&result.node.nodes[i]);
  etcd_result_free(&result);
  return all;
}

/* Where the answer gets lost it is done again: the value is ours alone. 0: the key is gone, or another's. */
static int delete_own_key(struct etcd_v1 *handler, const struct etcd_call *call) {
  const struct etcd_delete ours = {.prev_value = handler->mark};
  char path[ETCD_V1_PATH];
  struct etcd_result result;
  int code;
  etcd_v1_path(handler, path, "/rdzv/v_%s/rank_%" PRId64, handler->round, handler->rank);
  do code = etcd_v2_delete(handler->client, path, &ours, call, &result);
  while (code == RDZV_E_OUTCOME_UNKNOWN && deadline_left(call->until) > 0);
  if (code == 0) etcd_result_free(&result);
  return etcd_v2_is_lost_race(code) ? 0 : etcd_v2_unexpected(code);
}

/* Out of whatever we are in: our key goes, so that others need not wait for it to expire. */
static int give_up(struct etcd_v1 *handler, bool for_another_round, int64_t within_ms, rdzv_error *error) {
  const struct etcd_call call = {deadline_after(within_ms), NULL, error};
  const bool member = handler->member;
  ask(handler, GEN1_EV_ASK_STOP, NULL);
  etcd_v1_drop_rank(handler);
  etcd_v1_listen_end(handler);
  handler->member = false;
  return member && (!for_another_round || all_watch(handler, &call)) ? delete_own_key(handler, &call) : 0;
}

/* ---- the user's calls ----------------------------------------------------------------------------------------- */

/* Also where another node made it, which may be long ago. */
static int renew_run(struct etcd_v1 *handler, rdzv_error *error) {
  const struct etcd_lease lease = etcd_v1_run_lease(handler);
  if (!handler->renews_run && !etcd_leases_set(handler->leases, ETCD_LEASE_RUN, &lease)) return error_no_memory(error);
  handler->renews_run = true;
  return 0;
}

static int become_member(struct etcd_v1 *handler, unsigned happened, rdzv_result **out, rdzv_error *error) {
  const int64_t world_size = handler->update.world_size;
  snprintf(handler->round, sizeof handler->round, "%s", handler->machine.round);
  handler->rank = handler->machine.rank;
  handler->member = true;
  etcd_v1_listen_begin(handler);
  etcd_v1_tell(handler, happened);
  return etcd_v1_result(handler, world_size, out, error);
}

/* Who is there, and who is not. It is the thread of the join that asks, and it has the turn. */
static void tell_of_nodes(struct waiting *waiting, void *user) {
  const struct gen1_node *machine = &((struct etcd_v1 *)user)->machine;
  const struct gen1_state *state = &machine->state;
  const int64_t min = machine->settings.min_nodes, max = machine->settings.max_nodes;
  waiting->until = gen1_deadline(machine);
  if (machine->absent || !state->text) return;
  if (state->status == GEN1_STATUS_FINAL)
    waiting_about(waiting, "waiting for the next round: round %s goes on with %zu of at most %" PRId64 " nodes",
                  state->round, state->participants, max);
  else if (state->status == GEN1_STATUS_FROZEN)
    waiting_about(waiting, "waiting for nodes to confirm: %zu of %zu have", state->keep_alives, state->participants);
  else if ((int64_t)state->participants < min)
    waiting_about(waiting, "waiting for nodes: %zu of at least %" PRId64 " have joined", state->participants, min);
  else
    waiting_about(waiting, "waiting for the end of the last call: %zu of at most %" PRId64 " nodes have joined",
                  state->participants, max);
}

static int join(struct etcd_v1 *handler, rdzv_result **out, rdzv_error *error) {
  unsigned happened;
  struct waiting waiting;
  const struct flag telling = flag_with(&handler->base.cancel, &waiting);
  waiting_begin(&waiting, &handler->base.log, INT64_MAX);
  waiting_about(&waiting, "waiting to join: no answer yet from %s", handler->text);
  waiting.refresh = tell_of_nodes;
  waiting.user = handler;
  give_up(handler, true, ETCD_V1_GRACE_MS, NULL);
  int result = renew_run(handler, error);
  happened = ask(handler, GEN1_EV_ASK_JOIN, NULL);
  if (result == 0) result = run(handler, GEN1_HAPPENED_JOINED, &telling, &happened, error);
  if (result == 0) result = become_member(handler, happened, out, error);
  if (result == 0) return 0;
  give_up(handler, false, ETCD_V1_GRACE_MS, NULL);
  return error_prefix(error, result, "cannot join the rendezvous");
}

static void note_joined(struct etcd_v1 *handler, int code, const rdzv_result *joined, const rdzv_error *error) {
  if (code == 0)
    events_note(&handler->events, RDZV_NODE_STATE_SUCCEEDED, joined->round, joined->rank,
                "joined round %" PRId64 " as rank %" PRId64 " in a world of %" PRId64, joined->round, joined->rank,
                joined->world_size);
  else
    events_note(&handler->events, RDZV_NODE_STATE_FAILED, -1, -1, "%s", error->message);
  events_flush(&handler->events);
}

static int v1_next(rdzv_handler *base, rdzv_result **out, rdzv_error *error) {
  struct etcd_v1 *handler = self(base);
  rdzv_error own = {0};
  if (flag_raised(&base->cancel)) return error_set(error, RDZV_E_CANCELED, "cannot join the rendezvous: canceled");
  events_note(&handler->events, RDZV_NODE_STATE_INIT, -1, -1, "attempts to join the next round");
  events_flush(&handler->events);
  etcd_v1_take_turn(handler);
  const int result = join(handler, out, &own);
  etcd_v1_end_turn(handler);
  note_joined(handler, result, result == 0 ? *out : NULL, &own);
  if (result < 0 && error) *error = own;
  return result;
}

static int v1_set_closed(rdzv_handler *base, const char *reason, rdzv_error *error) {
  struct etcd_v1 *handler = self(base);
  unsigned happened;
  etcd_v1_take_turn(handler);
  happened = ask(handler, GEN1_EV_ASK_CLOSE, reason && *reason ? reason : NULL);
  const int result = run(handler, GEN1_HAPPENED_CLOSED, NULL, &happened, error);
  etcd_v1_end_turn(handler);
  events_flush(&handler->events);
  return result;
}

static int v1_leave(rdzv_handler *base, rdzv_error *error) {
  struct etcd_v1 *handler = self(base);
  rdzv_error own = {0};
  const int64_t farewell = base->farewell_ms, usual = handler->machine.settings.close_timeout;
  etcd_v1_take_turn(handler);
  const int result = give_up(handler, false, farewell > 0 && farewell < usual ? farewell : usual, &own);
  etcd_v1_end_turn(handler);
  if (result == 0) return 0;
  if (error) *error = own;
  return error_prefix(error, result, "cannot leave the rendezvous: others count this node until its lease ends");
}

/* Those who find it closed do not wait for our key to expire, so leaving is not worth a long wait. */
static int v1_shutdown(rdzv_handler *base, rdzv_error *error) {
  struct etcd_v1 *handler = self(base);
  const int result = v1_set_closed(base, NULL, error);
  etcd_v1_take_turn(handler);
  give_up(handler, false, ETCD_V1_GRACE_MS, NULL);
  etcd_v1_end_turn(handler);
  return result;
}

static const char *v1_describe(rdzv_handler *base) { return self(base)->text; }

const struct handler_ops etcd_v1_ops = {
    .next = v1_next,
    .wait_event = etcd_v1_wait_event,
    .is_closed = etcd_v1_is_closed,
    .num_waiting = etcd_v1_num_waiting,
    .set_closed = v1_set_closed,
    .leave = v1_leave,
    .shutdown = v1_shutdown,
    .status_read = etcd_v1_status_read,
    .describe = v1_describe,
    .find_master = etcd_v1_find_master,
    .change_fd = etcd_v1_change_fd,
    .ended_fd = etcd_v1_ended_fd,
    .extra_set = etcd_v1_extra_set,
    .extra_get = etcd_v1_extra_get,
    .close = etcd_v1_close,
    .abandon = etcd_v1_abandon,
};
