/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The search of Wing and Gong with Lowe's memory: operations are taken one after the other, of those whose call is
 * before the first return of what is left; a set of taken operations with the same state is not looked at twice.
 * Operations of unknown outcome need not be taken, and are tried last.
 */
#include "history.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS = HISTORY_OPS / 64, MOST_CONFIGURATIONS = 1 << 20 };

struct configuration {
  uint64_t taken[WORDS];
  struct model_state state;
  bool used;
};

/* A call or a return, in the order of time; those of taken operations are unlinked. */
struct event {
  const struct op *op;
  size_t number; /* of the operation */
  int64_t at;
  struct event *match; /* of a call: its return; NULL: the outcome is unknown. Of a return: NULL */
  bool is_call;
  struct event *before, *after;
};

struct step {
  struct event *call;
  struct model_state state; /* before it */
  bool unknowns;            /* it was tried among those */
};

struct search {
  struct model model;
  struct event events[2 * HISTORY_OPS], head;
  size_t event_count, answered;
  struct step steps[HISTORY_OPS];
  size_t depth;
  struct configuration now, *seen;
  size_t room;
  struct check_result result;
};

/* ---- the list of events ------------------------------------------------------------------------------------------ */

/* At the same moment calls come first: what may have overlapped, has. */
static int by_time(const void *a, const void *b) {
  const struct event *x = a, *y = b;
  if (x->at != y->at) return x->at < y->at ? -1 : 1;
  return (int)y->is_call - (int)x->is_call;
}

static void add_op(struct search *search, const struct op *op, size_t number) {
  model_expect(&search->model, op);
  search->events[search->event_count++] =
      (struct event){.op = op, .number = number, .at = op->call_us, .is_call = true};
  if (op->outcome == UNKNOWN) return;
  search->events[search->event_count++] = (struct event){.op = op, .number = number, .at = op->return_us};
  search->answered++;
}

static void link_events(struct search *search) {
  struct event *calls[HISTORY_OPS] = {0}, *last = &search->head;
  qsort(search->events, search->event_count, sizeof *search->events, by_time);
  for (size_t i = 0; i < search->event_count; i++) {
    struct event *event = &search->events[i];
    if (event->is_call)
      calls[event->number] = event;
    else
      calls[event->number]->match = event;
    event->before = last;
    last->after = event;
    last = event;
  }
}

static void unlink_event(struct event *event) {
  event->before->after = event->after;
  if (event->after) event->after->before = event->before;
}

static void relink_event(struct event *event) {
  event->before->after = event;
  if (event->after) event->after->before = event;
}

/* ---- configurations that were seen ---------------------------------------------------------------------------------
 */

static size_t hash_of(const struct configuration *one) {
  uint64_t hash = ((uint64_t)(uint32_t)one->state.value << 32) ^ one->state.version;
  for (size_t i = 0; i < WORDS; i++) hash = (hash ^ one->taken[i]) * 0x9e3779b97f4a7c15u ^ hash >> 29;
  return (size_t)(hash ^ hash >> 32);
}

static bool same(const struct configuration *a, const struct configuration *b) {
  return memcmp(a->taken, b->taken, sizeof a->taken) == 0 && a->state.value == b->state.value &&
         a->state.version == b->state.version;
}

/* Its place: that of the same one, or a free one. */
static struct configuration *place_of(struct configuration *seen, size_t room, const struct configuration *one) {
  size_t i = hash_of(one) & (room - 1);
  while (seen[i].used && !same(&seen[i], one)) i = (i + 1) & (room - 1);
  return &seen[i];
}

static void grow(struct search *search) {
  const size_t room = search->room ? 4 * search->room : 1024;
  struct configuration *seen = calloc(room, sizeof *seen);
  if (!seen) abort();
  for (size_t i = 0; i < search->room; i++)
    if (search->seen[i].used) *place_of(seen, room, &search->seen[i]) = search->seen[i];
  free(search->seen);
  search->seen = seen;
  search->room = room;
}

static bool is_new(struct search *search, struct configuration one) {
  if (2 * search->result.configurations >= search->room) grow(search);
  struct configuration *place = place_of(search->seen, search->room, &one);
  if (place->used) return false;
  one.used = true;
  *place = one;
  search->result.configurations++;
  return true;
}

/* ---- the search ----------------------------------------------------------------------------------------------------
 */

static void remember_longest(struct search *search) {
  if (search->depth <= search->result.longest) return;
  search->result.longest = search->depth;
  for (size_t i = 0; i < search->depth; i++) search->result.order[i] = search->steps[i].call->op;
}

/* Takes the operation if its answer fits and that leads to something new. */
static bool take(struct search *search, struct event *call, bool unknowns) {
  struct configuration next = search->now;
  if (!model_step(&search->model, search->now.state, call->op, &next.state)) return false;
  next.taken[call->number / 64] |= UINT64_C(1) << call->number % 64;
  if (!is_new(search, next)) return false;
  search->steps[search->depth++] = (struct step){call, search->now.state, unknowns};
  search->now = next;
  unlink_event(call);
  if (call->match) unlink_event(call->match);
  if (call->match) search->answered--;
  remember_longest(search);
  return true;
}

static struct step take_back(struct search *search) {
  const struct step step = search->steps[--search->depth];
  search->now.taken[step.call->number / 64] &= ~(UINT64_C(1) << step.call->number % 64);
  search->now.state = step.state;
  if (step.call->match) search->answered++;
  if (step.call->match) relink_event(step.call->match);
  relink_event(step.call);
  return step;
}

/* Takes the first that can be taken, from `event` on. */
static bool take_one(struct search *search, struct event *event, bool unknowns) {
  for (;;) {
    for (; event && event->is_call; event = event->after)
      if ((event->match == NULL) == unknowns && take(search, event, unknowns)) return true;
    if (unknowns) return false;
    unknowns = true;
    event = search->head.after;
  }
}

static enum verdict run(struct search *search) {
  struct event *from = search->head.after;
  bool unknowns = false;
  while (search->answered > 0) {
    if (search->result.configurations > MOST_CONFIGURATIONS) return UNDECIDED;
    if (take_one(search, from, unknowns)) {
      from = search->head.after;
      unknowns = false;
      continue;
    }
    if (search->depth == 0) return NOT_LINEARIZABLE;
    const struct step step = take_back(search);
    from = step.call->after;
    unknowns = step.unknowns;
  }
  return LINEARIZABLE;
}

struct check_result history_check(const struct op *const *ops, size_t count, struct dialect_rules rules) {
  struct search *search = calloc(1, sizeof *search);
  if (!search) abort();
  model_init(&search->model, rules);
  search->now.state = model_start();
  for (size_t i = 0; i < count && i < HISTORY_OPS; i++)
    if (ops[i]->outcome != FAILED && !(ops[i]->outcome == UNKNOWN && model_is_read(ops[i]->kind)))
      add_op(search, ops[i], i);
  link_events(search);
  search->result.verdict = count > HISTORY_OPS ? UNDECIDED : run(search);
  const struct check_result result = search->result;
  model_free(&search->model);
  free(search->seen);
  free(search);
  return result;
}
