/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/gen1/gen1.h"

#include "base/error.h"
#include "base/log.h"
#include "base/wait/waiting.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct gen1 *self(rdzv_handler *handler) { return (struct gen1 *)handler; }

/* ---- running the machine -------------------------------------------------------------------------------------- */

static unsigned ask(struct gen1 *handler, enum gen1_event_kind what, const char *text) {
  const struct gen1_event event = {.kind = what, .now_ms = clock_now_ms(), .text = text};
  rdzv_error error;
  if (gen1_step(&handler->machine, &event, &handler->update, &error) < 0)
    handler->update = (struct gen1_update){.request = GEN1_DO_READ};
  return handler->update.happened;
}

/* After ask: goes on until one of those has happened. */
static int run(struct gen1 *handler, unsigned wanted, const struct flag *cancel, unsigned *happened,
               rdzv_error *error) {
  for (;;) {
    gen1_tell(handler, *happened);
    if (*happened & GEN1_HAPPENED_FAILED) return gen1_fail(handler, error);
    if (*happened & wanted) return 0;
    const int result = gen1_carry_out(handler, cancel, happened, error);
    if (result < 0) return result;
  }
}

int gen1_fail(const struct gen1 *handler, rdzv_error *error) {
  rdzv_error own = handler->update.error;
  if (own.code == RDZV_E_TIMEOUT) error_append(&own, "; at %.200s", handler->text);
  if (own.code == RDZV_E_TIMEOUT && handler->trouble.code)
    error_append(&own, ", which fails: %.300s", handler->trouble.message);
  if (error) *error = own;
  return own.code;
}

static bool is_watched(const struct etcd_node *key) {
  const char *name = strrchr(key->key, '/');
  return !name || strncmp(name, "/rank_", 6) != 0 || strncmp(key->value, GEN1_MARK, strlen(GEN1_MARK)) == 0;
}

/* Do all participants hear at once that a round ends? PyTorch's agents look now and then whether a node waits, and are
 * left behind where the round is gone by then: they need the time that a lease takes to expire. */
static bool all_watch(struct gen1 *handler, const char *round_path, const struct etcd_call *call) {
  struct etcd_result result;
  bool all = true;
  if (etcd_v2_get(handler->client, round_path, 0, call, &result) != 0) return true;
  for (size_t i = 0; i < result.node.count; i++) all = all && is_watched(&result.node.nodes[i]);
  etcd_result_free(&result);
  return all;
}

/* Where the answer gets lost, or the time gets shorter, it is done again: the value is ours alone. 0: the key is gone,
 * or another's. */
static int delete_own_key(struct gen1 *handler, const char *key, struct etcd_call *call) {
  const struct etcd_delete ours = {.prev_value = handler->mark};
  struct etcd_result result;
  int code;
  do {
    if (flag_raised(call->cancel))
      call->until = deadline_sooner(call->until, deadline_after(handler_farewell(&handler->base, INT64_MAX)));
    code = etcd_v2_delete(handler->client, key, &ours, call, &result);
  } while ((code == RDZV_E_OUTCOME_UNKNOWN || code == RDZV_E_CANCELED) && deadline_left(call->until) > 0);
  if (code == 0) etcd_result_free(&result);
  return etcd_v2_is_lost_race(code) ? 0 : etcd_v2_unexpected(code);
}

/* Out of whatever we are in: our key goes, so that others need not wait for it to expire. */
static int give_up(struct gen1 *handler, bool for_another_round, int64_t within_ms, rdzv_error *error) {
  struct etcd_call call = {deadline_after(within_ms), &handler->base.hurry, error};
  const struct gen1_place *place = &handler->place;
  const struct gen1_node *machine = &handler->machine; /* its keep-alive may be there before the place is */
  const bool in = place->round[0], had = in || machine->leased;
  char round[GEN1_PATH], key[GEN1_PATH];
  gen1_path(handler, round, "/rdzv/v_%s", in ? place->round : machine->round);
  gen1_path(handler, key, "%s/rank_%" PRId64, round + strlen(handler->root), in ? place->rank : machine->rank);
  ask(handler, GEN1_EV_ASK_STOP, NULL);
  gen1_place_leave(handler);
  return had && (!for_another_round || all_watch(handler, round, &call)) ? delete_own_key(handler, key, &call) : 0;
}

/* ---- the user's calls ----------------------------------------------------------------------------------------- */

/* Also where another node made it, which may be long ago. */
static int renew_run(struct gen1 *handler, rdzv_error *error) {
  const struct etcd_lease lease = gen1_run_lease(handler);
  if (!handler->renews_run && !etcd_leases_set(handler->leases, GEN1_LEASE_RUN, &lease)) return error_no_memory(error);
  handler->renews_run = true;
  return 0;
}

static int become_participant(struct gen1 *handler, unsigned happened, rdzv_result **out, rdzv_error *error) {
  const int64_t world_size = handler->update.world_size;
  gen1_place_take(handler);
  gen1_tell(handler, happened);
  return gen1_result(handler, world_size, out, error);
}

/* What the join waits for. Called by the thread that joins, which has the lock. */
static void tell_of_nodes(struct waiting *waiting, void *user) {
  const struct gen1_node *machine = &((struct gen1 *)user)->machine;
  const struct gen1_state *state = &machine->state;
  const int64_t min = machine->settings.min_nodes, max = machine->settings.max_nodes;
  const bool joinable = state->status == GEN1_STATUS_JOINABLE && (int64_t)state->participants >= min;
  waiting->until = joinable ? gen1_last_call_ends(machine) : gen1_deadline(machine);
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

static int join(struct gen1 *handler, rdzv_result **out, rdzv_error *error) {
  unsigned happened;
  struct waiting waiting;
  const struct flag telling = flag_with(&handler->base.cancel, &waiting);
  waiting_begin(&waiting, &handler->base.log, INT64_MAX);
  waiting_about(&waiting, "waiting to join: no answer yet from %s", handler->text);
  waiting.refresh = tell_of_nodes;
  waiting.user = handler;
  give_up(handler, true, GEN1_GRACE_MS, NULL);
  int result = renew_run(handler, error);
  happened = ask(handler, GEN1_EV_ASK_JOIN, NULL);
  if (result == 0) result = run(handler, GEN1_HAPPENED_JOINED, &telling, &happened, error);
  if (result == 0) result = become_participant(handler, happened, out, error);
  if (result == 0) return 0;
  give_up(handler, false, GEN1_GRACE_MS, NULL);
  return error_prefix(error, result, "cannot join the rendezvous");
}

static void note_joined(struct gen1 *handler, int code, const rdzv_result *joined, const rdzv_error *error) {
  if (code == 0)
    events_note(&handler->events, RDZV_NODE_STATE_SUCCEEDED, joined->round, joined->rank,
                "joined round %" PRId64 " as rank %" PRId64 " in a world of %" PRId64, joined->round, joined->rank,
                joined->world_size);
  else
    events_note(&handler->events, RDZV_NODE_STATE_FAILED, -1, -1, "%s", error->message);
  events_flush(&handler->events);
}

static int gen1_next(rdzv_handler *base, rdzv_result **out, rdzv_error *error) {
  struct gen1 *handler = self(base);
  rdzv_error own = {0};
  if (flag_raised(&base->cancel)) return error_set(error, RDZV_E_CANCELED, "cannot join the rendezvous: canceled");
  events_note(&handler->events, RDZV_NODE_STATE_INIT, -1, -1, "attempts to join the next round");
  events_flush(&handler->events);
  fair_lock_take(&handler->lock);
  const int result = join(handler, out, &own);
  fair_lock_give(&handler->lock);
  note_joined(handler, result, result == 0 ? *out : NULL, &own);
  if (result < 0 && error) *error = own;
  return result;
}

static int gen1_set_closed(rdzv_handler *base, const char *reason, rdzv_error *error) {
  struct gen1 *handler = self(base);
  unsigned happened;
  fair_lock_take(&handler->lock);
  const int64_t usual = handler->machine.settings.close_timeout;
  handler->machine.settings.close_timeout = handler_farewell(base, usual);
  happened = ask(handler, GEN1_EV_ASK_CLOSE, reason && *reason ? reason : NULL);
  handler->machine.settings.close_timeout = usual;
  const int result = run(handler, GEN1_HAPPENED_CLOSED, &base->hurry, &happened, error);
  fair_lock_give(&handler->lock);
  events_flush(&handler->events);
  return result;
}

static int gen1_leave(rdzv_handler *base, rdzv_error *error) {
  struct gen1 *handler = self(base);
  rdzv_error own = {0};
  fair_lock_take(&handler->lock);
  const int64_t within_ms = handler_farewell(base, handler->machine.settings.close_timeout);
  const int result = give_up(handler, false, within_ms, &own);
  fair_lock_give(&handler->lock);
  if (result == 0) return 0;
  if (error) *error = own;
  return error_prefix(error, result, "cannot leave the rendezvous: others count this node until its lease ends");
}

/* Nodes that find it closed do not wait for our key to expire, so leaving is not worth a long wait. */
static int gen1_shutdown(rdzv_handler *base, rdzv_error *error) {
  struct gen1 *handler = self(base);
  const int result = gen1_set_closed(base, NULL, error);
  fair_lock_take(&handler->lock);
  give_up(handler, false, GEN1_GRACE_MS, NULL);
  fair_lock_give(&handler->lock);
  return result;
}

static const char *gen1_describe(rdzv_handler *base) { return self(base)->text; }

const struct handler_ops gen1_ops = {
    .next = gen1_next,
    .wait_change = gen1_wait_change,
    .is_closed = gen1_is_closed,
    .num_waiting = gen1_num_waiting,
    .set_closed = gen1_set_closed,
    .leave = gen1_leave,
    .shutdown = gen1_shutdown,
    .status_read = gen1_status_read,
    .describe = gen1_describe,
    .find_master = gen1_find_master,
    .change_fd = gen1_change_fd,
    .ended_fd = gen1_ended_fd,
    .extra_set = gen1_extra_set,
    .extra_get = gen1_extra_get,
    .close = gen1_free,
    .abandon = gen1_abandon,
};
