/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/summary.h"

#include "state/rendezvous.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* False: it did not fit, and nothing was added. */
static bool add(struct summary *summary, size_t *len, const char *format, ...) RDZV_PRINTF(3, 4);
static bool add(struct summary *summary, size_t *len, const char *format, ...) {
  const size_t room = sizeof summary->text - *len;
  va_list args;
  va_start(args, format);
  const int wanted = vsnprintf(summary->text + *len, room, format, args);
  va_end(args);
  const bool fits = wanted >= 0 && (size_t)wanted < room;
  if (fits) *len += (size_t)wanted;
  summary->text[*len] = '\0';
  return fits;
}

enum { NAMED = 4, FOR_THE_REST = 32 };

struct heard {
  const struct state_node *node;
  int64_t age;
};

/* Puts it where it belongs among the longest silent. */
static void insert(struct heard named[NAMED], size_t *count, struct heard new) {
  size_t at = *count < NAMED ? (*count)++ : NAMED;
  while (at > 0 && named[at - 1].age < new.age) {
    if (at < NAMED) named[at] = named[at - 1];
    at--;
  }
  if (at < NAMED) named[at] = new;
}

static size_t longest_silent(const struct rendezvous_state *state, summary_age *age, const void *argument,
                             struct heard named[NAMED]) {
  size_t count = 0;
  for (size_t i = 0; i < state->count; i++) {
    const struct state_node *node = &state->nodes[i];
    if (!(node->kinds & NODE_PARTICIPANT)) continue;
    insert(named, &count, (struct heard){node, age(argument, node)});
  }
  return count;
}

struct observer {
  const struct liveness *liveness;
  const struct rendezvous_settings *settings;
  int64_t now_ms;
};

static int64_t age_observed(const void *argument, const struct state_node *node) {
  const struct observer *observer = argument;
  return liveness_age(observer->liveness, observer->settings, &node->desc, observer->now_ms);
}

struct summary summary_joined(const struct rendezvous_state *state, const struct rendezvous_settings *settings,
                              const struct liveness *liveness, int64_t now_ms) {
  const struct observer observer = {liveness, settings, now_ms};
  return summary_joined_by(state, settings, age_observed, &observer);
}

struct summary summary_joined_by(const struct rendezvous_state *state, const struct rendezvous_settings *settings,
                                 summary_age *age_of, const void *argument) {
  struct summary summary = {""};
  struct heard named[NAMED];
  size_t len = 0, done = 0;
  const size_t count = longest_silent(state, age_of, argument, named);
  add(&summary, &len, "%zu of at least %" PRId64 " nodes joined", state->num_participants, settings->min_nodes);
  for (; done < count && len < sizeof summary.text - FOR_THE_REST; done++) {
    const size_t before = len;
    const char *sep = done == 0 ? ": " : ", ";
    const int64_t age = named[done].age < 0 ? 0 : named[done].age / 1000;
    const bool fits =
        add(&summary, &len, "%s'%s' (heard %" PRId64 " s ago)", sep, node_text(&named[done].node->desc).text, age);
    if (fits && len <= sizeof summary.text - FOR_THE_REST) continue;
    summary.text[len = before] = '\0';
    break;
  }
  if (done < state->num_participants) add(&summary, &len, " and %zu more", state->num_participants - done);
  if (state->num_waiting > 0) add(&summary, &len, "; %zu wait", state->num_waiting);
  return summary;
}

static void add_names(struct summary *summary, size_t *len, const struct rendezvous_state *state) {
  size_t done = 0;
  for (size_t i = 0; i < state->count && done < NAMED; i++) {
    const struct state_node *node = &state->nodes[i];
    if (!(node->kinds & NODE_PARTICIPANT)) continue;
    const size_t before = *len;
    const bool fits = add(summary, len, "%s'%s'", done ? ", " : ": ", node_text(&node->desc).text);
    if (!fits || *len > sizeof summary->text - FOR_THE_REST) {
      summary->text[ *len = before] = '\0';
      break;
    }
    done++;
  }
  if (done < state->num_participants) add(summary, len, " and %zu more", state->num_participants - done);
}

struct summary summary_waiting(const struct rendezvous_state *state, const struct rendezvous_settings *settings,
                               const struct node_desc *node) {
  struct summary summary = {""};
  size_t len = 0;
  const struct state_node *own = state_find(state, node);
  const unsigned kinds = own ? own->kinds : 0;
  if (kinds & NODE_SPARE) {
    add(&summary, &len, "this node is a spare, waiting for a place: round %" PRId64 " is full with %zu node%s",
        state->round, state->num_participants, state->num_participants == 1 ? "" : "s");
  } else if (state->complete && !(kinds & NODE_PARTICIPANT)) {
    add(&summary, &len, "waiting for the next round: round %" PRId64 " goes on with %zu of at most %" PRId64 " nodes",
        state->round, state->num_participants, settings->max_nodes);
  } else if (state->complete) {
    add(&summary, &len, "waiting for the result of round %" PRId64 ", which is complete with %zu node%s", state->round,
        state->num_participants, state->num_participants == 1 ? "" : "s");
  } else if (rendezvous_phase(state) == PHASE_LAST_CALL) {
    add(&summary, &len, "waiting for the end of the last call: %zu of at most %" PRId64 " nodes have joined",
        state->num_participants, settings->max_nodes);
  } else if ((int64_t)state->num_participants < settings->min_nodes) {
    add(&summary, &len, "waiting for nodes: %zu of at least %" PRId64 " have joined", state->num_participants,
        settings->min_nodes);
  } else { /* others need more, or the call is about to begin */
    add(&summary, &len, "waiting for the last call to begin: %zu nodes have joined", state->num_participants);
  }
  add_names(&summary, &len, state);
  return summary;
}

static const char *role(const struct rendezvous_context *context) {
  const struct state_node *node = state_find(context->state, context->node);
  if (!node || node->kinds == 0) return "outside";
  if (node->kinds & NODE_PARTICIPANT) return "a participant";
  return node->kinds & NODE_WAITING ? "in the wait list" : "among the spares";
}

struct summary summary_condition(const struct rendezvous_context *context) {
  const struct rendezvous_state *state = context->state;
  struct summary summary = {""};
  size_t len = 0;
  add(&summary, &len, "round %" PRId64 " %s, %zu joined (%" PRId64 "..%" PRId64 ")", state->round,
      rendezvous_phase_name(rendezvous_phase(state)), state->num_participants, context->settings->min_nodes,
      context->settings->max_nodes);
  if (state->num_waiting > 0) add(&summary, &len, ", %zu wait", state->num_waiting);
  if (state->num_spares > 0) add(&summary, &len, ", %zu spare", state->num_spares);
  add(&summary, &len, ", this node is %s", role(context));
  if (context->last_call_over && !state->complete) add(&summary, &len, ", last call over");
  if (context->keep_alive_due) add(&summary, &len, ", keep-alive due");
  if (context->now.mono_ms > context->deadline_ms) add(&summary, &len, ", past the deadline");
  return summary;
}
