/* SPDX-License-Identifier: BSD-3-Clause */
/* What must hold whatever happens, and what must come about when nothing more does. */
#include "invariants.h"
#include "sim.h"

#include <stdlib.h>
#include <string.h>

enum { JUMP_EXCUSE_MS = 40000 };

size_t sim_find(const struct node_desc *desc) { return (size_t)desc->pid - 1; }

/* Who is alive and heard is evicted by nobody of ours. A clock that was set lately is an excuse: see liveness.h. */
static void check_eviction(struct sim *sim, const struct sim_node *writer, struct sim_node *victim) {
  const int64_t dead = rendezvous_dead_time_of(&sim->settings, !victim->is_torch), silent = sim->now - victim->heard;
  const int64_t age =
      (sim_moment(sim, victim).wall_us - victim->heartbeat) / 1000; /* it may have been long under way */
  const int64_t jumped_writer = sim->hosts[writer->host].jumped, jumped_victim = sim->hosts[victim->host].jumped;
  const int64_t jumped = jumped_writer > jumped_victim ? jumped_writer : jumped_victim;
  const bool troubled =
      sim->now < victim->paused_until || sim->now < victim->cut_until || sim->now - victim->troubled <= dead + 10000;
  sim->evictions++;
  sim_tell(sim, writer, "evicts %s, silent for %.1f s", victim->label, (double)silent / 1000);
  if (writer->is_torch || sim->now - jumped < JUMP_EXCUSE_MS) return;
  if (silent <= dead && age <= dead)
    sim_fail(sim, "%s evicts %s, which was heard %lld ms ago", writer->label, victim->label, (long long)silent);
  if (victim->alive && victim->wants && !troubled && sim->now - victim->born > dead + 10000)
    sim_fail(sim, "%s evicts %s, which is well and was not heard: starved", writer->label, victim->label);
}

/* The server takes a native node for dead that has no connection for its grace, or that it has not heard for so many
 * intervals, of the time in which it ran itself. */
static void check_burial(struct sim *sim, const struct sim_node *victim, bool closed) {
  const struct native_times *times = &victim->member.config.times;
  const int64_t now = server_clock(sim), silent = now - victim->heard_at;
  sim->evictions++;
  sim_tell(sim, &sim->server, "buries %s, %s for %.1f s", victim->label, victim->lost ? "gone" : "silent",
           (double)(victim->lost ? now - victim->lost_at : silent) / 1000);
  if (victim->lost && !victim->joined && (closed || sim->now > victim->join_ends)) return; /* its join is over */
  if (victim->lost ? now - victim->lost_at < times->grace_ms : silent <= NATIVE_SILENT_INTERVALS * times->keep_alive_ms)
    sim_fail(sim, "the server buries %s, heard %lld ms ago%s", victim->label, (long long)silent,
             victim->lost ? ", before its grace is over" : "");
}

/* A number is given once in the life of a run, unless the state was lost, and nobody of those who take part in the
 * second has seen the first. */
static void check_twice(struct sim *sim, const struct rendezvous_state *state, const struct sim_round *first) {
  if (first->losses == sim->losses) sim_fail(sim, "round %d is completed twice", (int)state->round);
  for (size_t i = 0; i < state->count; i++) {
    const struct sim_node *node = &sim->nodes[sim_find(&state->nodes[i].desc)];
    if (!(state->nodes[i].kinds & NODE_PARTICIPANT) || node->is_torch) continue;
    if (node->knew >= state->round)
      sim_fail(sim, "round %d is completed twice, with %s, which knows of round %d", (int)state->round, node->label,
               (int)node->knew);
  }
}

/* The record of a round; all zero if it was not completed. */
static struct sim_round *round_of(struct sim *sim, int64_t number) {
  const size_t count = (size_t)number + 1;
  if (count > sim->round_count) {
    sim->rounds = realloc(sim->rounds, count * sizeof *sim->rounds);
    if (!sim->rounds) abort();
    memset(sim->rounds + sim->round_count, 0, (count - sim->round_count) * sizeof *sim->rounds);
    sim->round_count = count;
  }
  return &sim->rounds[number];
}

static void record_round(struct sim *sim, const struct rendezvous_state *state) {
  if (state->round >= SIM_MAX_ROUNDS) {
    sim_fail(sim, "more than %d rounds", SIM_MAX_ROUNDS);
    return;
  }
  sim->completions++;
  struct sim_round *round = round_of(sim, state->round);
  if (round->count > 0) check_twice(sim, state, round);
  free(round->nodes);
  *round = (struct sim_round){
      .twice = round->count > 0, .losses = sim->losses, .count = state->num_participants, .completed = sim->events};
  round->nodes = calloc(round->count + 1, sizeof *round->nodes);
  if (!round->nodes) abort();
  for (size_t i = 0; i < state->count; i++) {
    const struct state_node *member = &state->nodes[i];
    if (member->kinds & NODE_PARTICIPANT && member->rank >= 0 && (size_t)member->rank < round->count)
      round->nodes[member->rank] = sim_find(&member->desc);
  }
}

/* Who is gone by its own will was told so. */
static void check_served_evictions(struct sim *sim, const struct rendezvous_state *after) {
  for (size_t i = 0; i < sim->cell.count; i++) {
    const struct node_desc *desc = &sim->cell.nodes[i].desc;
    struct sim_node *victim = &sim->nodes[sim_find(desc)];
    if (state_find(after, desc) || victim->excused) continue;
    if (victim->is_native)
      check_burial(sim, victim, after->closed);
    else
      check_eviction(sim, &sim->server, victim);
  }
}

static void tell_place(struct sim *sim, const struct sim_node *node, const struct rendezvous_state *before,
                       const struct rendezvous_state *after) {
  const struct state_node *was = state_find(before, &node->desc), *is = state_find(after, &node->desc);
  const unsigned from = was ? was->kinds : 0, to = is ? is->kinds : 0;
  if (from != to && to)
    sim_tell(sim, node, "%s",
             to == NODE_PARTICIPANT ? "becomes a participant"
             : to == NODE_WAITING   ? "enters the wait list"
                                    : "becomes a spare");
  if (from != to && !to && (!node->is_native || node->excused)) sim_tell(sim, node, "takes itself out");
}

static void tell_phase(struct sim *sim, const struct sim_node *writer, const struct rendezvous_state *before,
                       const struct rendezvous_state *after) {
  if (before->deadline == DATETIME_NONE && rendezvous_phase(after) == PHASE_LAST_CALL)
    sim_tell(sim, writer, "calls the last call");
  if (after->complete && (!before->complete || before->round != after->round))
    sim_tell(sim, writer, "completes round %d with %zu nodes", (int)after->round, after->num_participants);
  if (before->complete && !after->complete) sim_tell(sim, writer, "begins round %d", (int)after->round);
  if (!before->closed && after->closed) sim_tell(sim, writer, "closes the rendezvous");
}

/* A last call lasts as long as it should, whatever the clocks say; late messages shorten it. */
static void check_last_call(struct sim *sim, const struct sim_node *writer, const struct rendezvous_state *before,
                            const struct rendezvous_state *after) {
  const bool full = (int64_t)after->num_participants == sim->settings.max_nodes;
  if (before->deadline == DATETIME_NONE && rendezvous_phase(after) == PHASE_LAST_CALL) sim->called = sim->now;
  if (before->complete || !after->complete || full || writer->is_torch || sim->faults > 0) return;
  if (sim->coordinator && sim->called < sim->server_stopped_until + sim->settings.last_call_timeout) return;
  const int64_t lasted = sim->now - sim->called, slack = 2 * (sim->latency_ms + 1);
  if (lasted < sim->settings.last_call_timeout - slack)
    sim_fail(sim, "%s ends the last call after %lld ms", writer->label, (long long)lasted);
}

/* When each heartbeat in the cell changed last. */
void check_hearts(struct sim *sim, const struct rendezvous_state *after) {
  for (size_t i = 0; i < after->count; i++) {
    struct sim_node *node = &sim->nodes[sim_find(&after->nodes[i].desc)];
    if (node->heartbeat == after->nodes[i].last_heartbeat) continue;
    node->heartbeat = after->nodes[i].last_heartbeat;
    node->heard = sim->now;
  }
}

static void check_states(struct sim *sim, const struct sim_node *writer, const struct rendezvous_state *before,
                         const struct rendezvous_state *after) {
  const char *broken = rendezvous_broken_invariant(after, &sim->settings);
  if (!broken) broken = rendezvous_broken_transition(before, after, &sim->settings);
  if (broken) sim_fail(sim, "%s wrote a state of which this does not hold: %s", writer->label, broken);
  if (after->complete && (!before->complete || before->round != after->round)) record_round(sim, after);
  check_hearts(sim, after);
}

static void tell_served(struct sim *sim, const struct rendezvous_state *before, const struct rendezvous_state *after) {
  for (size_t i = 0; i < sim->node_count && sim->story; i++) {
    const struct sim_node *node = &sim->nodes[i];
    if (node->desc.addr && node->is_native) tell_place(sim, node, before, after);
  }
  tell_phase(sim, &sim->server, before, after);
}

void check_served(struct sim *sim, const struct rendezvous_state *after) {
  const struct rendezvous_state *before = &sim->cell;
  check_served_evictions(sim, after);
  tell_served(sim, before, after);
  check_last_call(sim, &sim->server, before, after);
  check_states(sim, &sim->server, before, after);
}

void check_write(struct sim *sim, size_t at, const struct rendezvous_state *before,
                 const struct rendezvous_state *after) {
  const struct sim_node *writer = &sim->nodes[at];
  for (size_t i = 0; i < before->count; i++) {
    const struct node_desc *node = &before->nodes[i].desc;
    if (!state_find(after, node) && node_compare(node, &writer->desc) != 0)
      check_eviction(sim, writer, &sim->nodes[sim_find(node)]);
  }
  tell_place(sim, writer, before, after);
  tell_phase(sim, writer, before, after);
  check_last_call(sim, writer, before, after);
  check_states(sim, writer, before, after);
  const bool cut =
      before->complete && after->round == before->round && after->num_participants < before->num_participants;
  if (cut && writer->is_torch) round_of(sim, before->round)->cut_by_torch = true;
}

/* Everybody gets the same world of a round. Of one that a PyTorch node took somebody out of, nobody knows. */
void check_joined(struct sim *sim, size_t at, int64_t number, int64_t rank, int64_t size) {
  const struct sim_node *node = &sim->nodes[at];
  const struct sim_round *round = round_of(sim, number);
  if (round->count == 0) sim_fail(sim, "%s joined round %d before it was complete", node->label, (int)number);
  if (round->twice) return; /* and it may be the first one */
  if (round->completed < node->asked)
    sim_fail(sim, "%s is told that it is in round %d, which was complete before it asked", node->label, (int)number);
  const bool known = !round->cut_by_torch && !node->is_torch;
  if (known ? (size_t)size != round->count : (size_t)size > round->count)
    sim_fail(sim, "%s takes round %d for a world of %d, it has %zu", node->label, (int)number, (int)size, round->count);
  else if (rank < 0 || (size_t)rank >= round->count || round->nodes[rank] != at)
    sim_fail(sim, "%s takes itself for rank %d of round %d, which is another", node->label, (int)rank, (int)number);
}

bool check_knows_round(const struct sim *sim, int64_t round) {
  return (size_t)round < sim->round_count && sim->rounds[round].count > 0;
}

static bool has_dead(const struct sim *sim) {
  for (size_t i = 0; i < sim->cell.count; i++)
    if (!sim->nodes[sim_find(&sim->cell.nodes[i].desc)].alive) return true;
  return false;
}

/* As many as can be are members of one complete round, and know it. Where there are too few of them, at least the dead
 * are gone. */
bool check_settled(const struct sim *sim, const char **why) {
  int64_t wanting = 0, joined = 0;
  *why = "somebody does not know of the round";
  for (size_t i = 0; i < sim->node_count; i++) {
    const struct sim_node *node = &sim->nodes[i];
    if (!node->alive || !node->wants) continue;
    wanting++;
    joined += node->joined && node->round == sim->cell.round;
  }
  if (sim->cell.closed || wanting < sim->settings.min_nodes) {
    *why = NULL;
    return !has_dead(sim) || wanting == 0 || sim->cell.closed;
  }
  const int64_t most = wanting < sim->settings.max_nodes ? wanting : sim->settings.max_nodes;
  if (!sim->cell.complete)
    *why = "the round is not complete";
  else if ((int64_t)sim->cell.num_participants != most)
    *why = "not as many as can be are in the round";
  return sim->cell.complete && (int64_t)sim->cell.num_participants == most && joined == most;
}
