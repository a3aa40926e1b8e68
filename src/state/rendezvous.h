/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rules of the dynamic rendezvous, PyTorch's dynamic_rendezvous.py: what a node does next, given the state that all
 * nodes share, and how that changes the state. Pure: the time comes with the event, and nothing is read, written or
 * waited for.
 *
 * An operation is a loop (state/engine/engine.h): read the state, remove dead nodes (state/engine/liveness.h), ask
 * decide_*() for an action. An action that changes the state is applied and written back, if no other node has written
 * meanwhile; otherwise the loop starts again with what that node wrote.
 *
 *                    ADD_TO_PARTICIPANTS                MARK_COMPLETE
 *   outside ------------------------------> gathering ----------------> complete, with us: FINISH
 *      |                                        ^                            |
 *      | complete, without us                   | round + 1                  | the last participant exits or dies
 *      +--> wait list ------- incomplete -------+----------------------------+
 *      +--> redundancy list (full) -- no longer full --> outside
 *
 * The machine waits, with SYNC: while gathering, for other nodes or the end of the last call; in the wait list, for the
 * next round; in the redundancy list, for a free place.
 *
 * Decisions and their effects are those of PyTorch 2.6 (tests/interop/test_rules.py compares), except:
 *   - Wall clocks are never compared across nodes. The context says which nodes are dead, whether our heartbeat is due
 *     and whether the last call is over; state/engine/liveness.h and state/engine/last_call.h measure these on our own
 *     monotonic clock.
 *   - A node can leave without closing (decide_leave).
 *   - Rounds never go back for a node, even if the state is lost and starts again (state/engine/rounds.h).
 *   - Ranks can be assigned in another order (state/ranks.c).
 *   - A node does not enter a round that a participant has already left (WORLD_LEFT).
 *   - The error of a join names the nodes that are there (state/summary.h).
 */
#ifndef RDZV_STATE_RENDEZVOUS_H
#define RDZV_STATE_RENDEZVOUS_H

#include "state/state.h"

enum rank_order {
  RANK_ORDER_TORCH,   /* by node, as PyTorch does */
  RANK_ORDER_STABLE,  /* participants of the round before keep their ranks; others fill the gaps by node */
  RANK_ORDER_NATURAL, /* by node, numbers within an address as numbers */
};

/* Is a node an agent (rdzv_launcher)? */
enum launcher { LAUNCHER_UNKNOWN, LAUNCHER_AGENT, LAUNCHER_NONE };

/* Times in milliseconds. */
struct rendezvous_settings {
  int64_t min_nodes;
  int64_t max_nodes;
  int64_t join_timeout;
  int64_t last_call_timeout;
  int64_t close_timeout;
  int64_t heartbeat_timeout;
  int64_t keep_alive_interval;
  int64_t keep_alive_max_attempt;
  enum rank_order rank_order;
  enum launcher launcher;
  int64_t max_restarts;     /* of an agent */
  bool has_redundancy_list; /* layouts before 2.3 have none: a node that finds the round full waits in no list */
  bool marks; /* write marks that only nodes of this library read: WORLD_LEFT, `ours` of a node, settings, the
                               end */
};

/* PyTorch's defaults. */
#define RENDEZVOUS_SETTINGS_DEFAULT                             \
  ((struct rendezvous_settings){.min_nodes = 1,                 \
                                .max_nodes = 1,                 \
                                .join_timeout = 600000,         \
                                .last_call_timeout = 30000,     \
                                .close_timeout = 30000,         \
                                .heartbeat_timeout = 5000,      \
                                .keep_alive_interval = 5000,    \
                                .keep_alive_max_attempt = 3,    \
                                .rank_order = RANK_ORDER_TORCH, \
                                .has_redundancy_list = true,    \
                                .marks = true})

/* A heartbeat that is older belongs to a dead node. */
static inline int64_t rendezvous_dead_time(const struct rendezvous_settings *settings) {
  return settings->keep_alive_interval * settings->keep_alive_max_attempt;
}

/* PyTorch nodes ignore the keep-alive options: their interval is 5 s, of which 3 may be missed. */
enum { TORCH_DEAD_MS = 15000 };

/* The dead time of one node: a PyTorch node beats by its own times, and is judged by them at least. */
static inline int64_t rendezvous_dead_time_of(const struct rendezvous_settings *settings, bool ours) {
  const int64_t dead_time = rendezvous_dead_time(settings);
  return ours || dead_time > TORCH_DEAD_MS ? dead_time : TORCH_DEAD_MS;
}

/* When an event happened: by our monotonic clock, and by the clock that goes on the wire. */
struct moment {
  int64_t mono_ms;
  int64_t wall_us;
};

enum rendezvous_action {
  ACTION_KEEP_ALIVE,
  ACTION_ADD_TO_PARTICIPANTS,
  ACTION_ADD_TO_WAIT_LIST,
  ACTION_ADD_TO_REDUNDANCY_LIST,
  ACTION_REMOVE_FROM_PARTICIPANTS,
  ACTION_REMOVE_FROM_WAIT_LIST,
  ACTION_REMOVE_FROM_REDUNDANCY_LIST, /* in a join: restarts its deadline, since a place is free now */
  ACTION_MARK_RENDEZVOUS_COMPLETE,
  ACTION_MARK_RENDEZVOUS_CLOSED,
  ACTION_ENTER_SETTINGS, /* only our settings, without joining: see state/differences.h. Not PyTorch's */
  ACTION_SYNC,           /* wait for a change of the state, or for one of the times in the context */
  ACTION_ERROR_CLOSED,
  ACTION_ERROR_GRACEFUL_EXIT, /* closed, while we were in the redundancy list */
  ACTION_ERROR_TIMEOUT,
  ACTION_ERROR_CLASH, /* our settings and those of another node can never be satisfied together */
  ACTION_FINISH,
};

const char *rendezvous_action_name(enum rendezvous_action action);

/* Does it change the state, so that the state must be written? */
static inline bool action_writes(enum rendezvous_action action) { return action <= ACTION_ENTER_SETTINGS; }

/* Whether another node, that came before, has settings with which ours can never be in one round. */
enum rendezvous_clash {
  CLASH_NONE,
  CLASH_DOUBTFUL, /* if that node is alive */
  CLASH_SURE,
};

struct rendezvous_context {
  const struct node_desc *node; /* this one */
  struct rendezvous_state *state;
  const struct rendezvous_settings *settings;
  struct moment now;
  int64_t deadline_ms; /* of the operation, on the monotonic clock */
  bool keep_alive_due; /* our heartbeat, if the state has one, is to be renewed */
  bool last_call_over; /* the state's deadline, if it has one, has passed */
  int64_t first_round; /* we take part in none before that: see state/engine/rounds.h */
  enum rendezvous_clash clash;
};

enum rendezvous_action decide_exit(const struct rendezvous_context *context);
enum rendezvous_action decide_join(const struct rendezvous_context *context);
enum rendezvous_action decide_close(const struct rendezvous_context *context);
enum rendezvous_action decide_keep_alive(const struct rendezvous_context *context);

/* Takes the node out of its list for good, without closing the rendezvous. Not PyTorch's. */
enum rendezvous_action decide_leave(const struct rendezvous_context *context);

/* How long after its deadline a join still tries to take the node out of the state again. */
enum { RENDEZVOUS_ROLLBACK_MS = 5000 };

/* Changes the state as the action says. RDZV_E_NO_MEMORY, RDZV_E_LIMIT: the state is as it was. */
int rendezvous_apply(struct rendezvous_context *context, enum rendezvous_action action, rdzv_error *error);

/* Removes the nodes that is_dead says are dead, from every collection, and returns how many. is_dead is called for each
 * node, from the last to the first. */
size_t rendezvous_sanitize(struct rendezvous_state *state, const struct rendezvous_settings *settings,
                           bool (*is_dead)(void *argument, const struct state_node *node), void *argument);

/* ---- state/ranks.c ---- */

/*
 * Gives the participants the ranks 0 … n-1. The stable order needs the ranks of the round before, which all
 * participants have left by then. The state keeps them in an attribute that PyTorch nodes carry along: rdzv_ranks:
 * {"host_12_0": 0, …} It is renewed here, in the stable order only, and left out for more than RANKS_MAX_KEPT
 * participants. RDZV_E_NO_MEMORY.
 */
enum { RANKS_MAX_KEPT = 4096 };
#define RANKS_ATTRIBUTE "rdzv_ranks"
int rendezvous_assign_ranks(struct rendezvous_state *state, enum rank_order order, rdzv_error *error);

/* Below, at or above 0; runs of digits compare as numbers: node2 before node10. */
int natural_compare(const char *a, const char *b);

/* ---- questions about a state ---- */

/* How far a round has come. */
enum rendezvous_phase {
  PHASE_GATHERING, /* fewer than min_nodes */
  PHASE_LAST_CALL, /* enough, and more may come until the deadline */
  PHASE_COMPLETE,
  PHASE_CLOSED,
  PHASE_ENDED, /* not closed, but all nodes have left or died */
};

enum rendezvous_phase rendezvous_phase(const struct rendezvous_state *state);
const char *rendezvous_phase_name(enum rendezvous_phase phase);

/*
 * A complete round that a participant left stays complete (PyTorch's rule), so a node that reads it late could take the
 * survivors for the full world. A gap in the ranks tells, unless those with the highest ranks are gone. So a node that
 * removes a participant from a complete round marks the round: it puts a time of long ago where a complete round has no
 * deadline. PyTorch ignores the deadline there, carries it along, and sets another one when the next round has enough
 * nodes.
 */
#define WORLD_LEFT INT64_C(0) /* 1970 */

/* Are all participants of the complete round still there? Where PyTorch nodes removed those with the highest ranks, and
 * no other is gone, it cannot tell. */
bool world_is_whole(const struct rendezvous_state *state);

#endif
