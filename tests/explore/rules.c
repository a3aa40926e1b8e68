/* SPDX-License-Identifier: BSD-3-Clause */
#include "rules.h"

#include "state/engine/liveness.h"
#include "state/engine/rounds.h"
#include "state/native/member.h"
#include "state/native/run.h"

#include <string.h>

enum rule { RULE_NONE, RULE_RANKS, RULE_ROUNDS, RULE_DEAD, RULE_GRACE, RULE_NUMBERS };
static enum rule broken;

bool rule_break(const char *name) {
  static const char *const names[] = {[RULE_RANKS] = "ranks",
                                      [RULE_ROUNDS] = "rounds",
                                      [RULE_DEAD] = "dead",
                                      [RULE_GRACE] = "grace",
                                      [RULE_NUMBERS] = "numbers"};
  broken = RULE_NONE;
  for (size_t i = RULE_RANKS; name && i < sizeof names / sizeof names[0]; i++)
    if (strcmp(names[i], name) == 0) broken = (enum rule)i;
  return !name || broken != RULE_NONE;
}

int __real_rendezvous_assign_ranks(struct rendezvous_state *state, enum rank_order order, rdzv_error *error);
int __wrap_rendezvous_assign_ranks(struct rendezvous_state *state, enum rank_order order, rdzv_error *error);
void __real_rounds_observe(struct rounds *rounds, const struct rendezvous_state *state, const struct node_desc *self,
                           uint64_t token);
void __wrap_rounds_observe(struct rounds *rounds, const struct rendezvous_state *state, const struct node_desc *self,
                           uint64_t token);
size_t __real_liveness_sanitize(const struct liveness *liveness, const struct rendezvous_settings *settings,
                                const struct node_desc *self, struct rendezvous_state *state, int64_t now_ms);
size_t __wrap_liveness_sanitize(const struct liveness *liveness, const struct rendezvous_settings *settings,
                                const struct node_desc *self, struct rendezvous_state *state, int64_t now_ms);

size_t __real_sessions_judge(struct coordinator_run *run, bool all);
size_t __wrap_sessions_judge(struct coordinator_run *run, bool all);

void __real_member_step(struct member *member, const struct member_event *event, struct member_update *update);
void __wrap_member_step(struct member *member, const struct member_event *event, struct member_update *update);

/* ranks: the last two participants get one rank. */
int __wrap_rendezvous_assign_ranks(struct rendezvous_state *state, enum rank_order order, rdzv_error *error) {
  const int result = __real_rendezvous_assign_ranks(state, order, error);
  for (size_t i = 0; i < state->count && broken == RULE_RANKS && state->num_participants > 1; i++)
    if (state->nodes[i].rank == (int64_t)state->num_participants - 1) state->nodes[i].rank--;
  return result;
}

/* rounds: a node does not remember the rounds that it has seen. */
void __wrap_rounds_observe(struct rounds *rounds, const struct rendezvous_state *state, const struct node_desc *self,
                           uint64_t token) {
  if (broken != RULE_ROUNDS) __real_rounds_observe(rounds, state, self, token);
}

/* dead: a node is taken for dead after the first heartbeat that is missing. */
size_t __wrap_liveness_sanitize(const struct liveness *liveness, const struct rendezvous_settings *settings,
                                const struct node_desc *self, struct rendezvous_state *state, int64_t now_ms) {
  struct rendezvous_settings hasty = *settings;
  if (broken == RULE_DEAD) hasty.keep_alive_max_attempt = 1;
  return __real_liveness_sanitize(liveness, &hasty, self, state, now_ms);
}

/* grace: a native node without a connection is dead. */
size_t __wrap_sessions_judge(struct coordinator_run *run, bool all) {
  for (struct native_node *node = run->lost; node && broken == RULE_GRACE; node = node->lost_next) {
    node->lost = INT64_MIN / 2;
    run->due = INT64_MIN / 2;
  }
  return __real_sessions_judge(run, all);
}

/* numbers: the joins of each session are counted from 1 on. */
void __wrap_member_step(struct member *member, const struct member_event *event, struct member_update *update) {
  const uint64_t tokens = member->tokens;
  __real_member_step(member, event, update);
  if (broken == RULE_NUMBERS && member->tokens != tokens) member->joins = update->join.number = 1;
}
