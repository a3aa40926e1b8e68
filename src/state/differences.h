/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Settings that must be the same on all nodes of a run, and nodes that differ in them. Every node warns of each
 * difference once: which node differs, in what, and both values. Where two numbers of nodes can never be in one round,
 * or one node is an agent and the other is none, the node that came later fails. A node that does not tell whether it
 * is an agent can be with both.
 *
 * The settings are in an attribute of the state that PyTorch nodes carry along, one entry for all nodes that have the
 * same, in the order in which they came, with the name of one of these nodes:
 *
 *   rdzv_settings: {"nnodes=2:2 keep_alive_interval=5 …": "host_12_0", "nnodes=3:3 …": "other_7_0"}
 *
 * A node enters its own settings when it writes its heartbeat and no entry has the same. A node that cannot join
 * because of them enters them without joining, so that all are warned. A node that leaves or is evicted takes its entry
 * with it; the next one with the same settings enters its own. PyTorch nodes have no entry. They have no keep-alive
 * options, either: 5 s and 3 are fixed there, so an rdzv node with a shorter dead time differs from them.
 */
#ifndef RDZV_STATE_DIFFERENCES_H
#define RDZV_STATE_DIFFERENCES_H

#include "state/summary.h"

#define DIFFERENCES_ATTRIBUTE "rdzv_settings"

enum {
  DIFFERENCES_MOST = 8,            /* entries; a node whose settings are one more is not entered */
  DIFFERENCES_SETTINGS_SIZE = 256, /* of an entry as text */
};

/* The settings of a node as an entry has them. */
struct differences_settings {
  char text[DIFFERENCES_SETTINGS_SIZE];
};
struct differences_settings differences_settings(const struct rendezvous_settings *settings);

/* " agent=yes max_restarts=3", " agent=no"; "": not known. */
struct differences_launcher {
  char text[64];
};
struct differences_launcher differences_launcher(enum launcher launcher, int64_t max_restarts);

/* The number of nodes in settings as text. False: they have none. Other nodes can write them, so they may be
 * malformed. */
bool differences_parse_nnodes(const char *settings, int64_t *min_nodes, int64_t *max_nodes);

/* Enters the settings of a node into the state, as above, and takes out the entries of nodes that are gone. Without
 * memory nothing is changed. */
void differences_enter(struct rendezvous_state *state, const struct node_desc *node,
                       const struct rendezvous_settings *settings);
bool differences_is_entered(const struct rendezvous_state *state, const struct rendezvous_settings *settings);

/* Takes out the entries of nodes that are gone. */
void differences_clean(struct rendezvous_state *state);

/* The longest dead time of the nodes: that of PyTorch where a node has no entry, or none is valid. */
int64_t differences_dead_time(const struct rendezvous_state *state);

/* The number of nodes that the first entry has. False: the state has no entry. */
bool differences_nnodes(const struct rendezvous_state *state, int64_t *min_nodes, int64_t *max_nodes);

/* ---- warning ---- */

/* The differences that a node has warned of. All zero: none. */
struct differences {
  bool torch;                      /* a PyTorch node is in the run */
  uint64_t told[DIFFERENCES_MOST]; /* hashes of settings */
  size_t count;
};

/* The first PyTorch node of the state; NULL: it has none. */
const struct state_node *differences_find_torch(const struct rendezvous_state *state);

/* How many entries the state has. */
size_t differences_count(const struct rendezvous_state *state);

/* Is the last entry that of this node? */
bool differences_is_last(const struct rendezvous_state *state, const struct node_desc *node);

/* The next difference that was not told yet, as a sentence. `torch` is what differences_find_torch gives. False: there
 * is none. */
bool differences_next(struct differences *told, const struct rendezvous_state *state,
                      const struct rendezvous_settings *settings, const struct state_node *torch, struct summary *out);

/* The same for one other node, with its settings as text; "" is not known. */
bool differences_tell(struct differences *told, const char *own, const char *others, const char *other,
                      struct summary *out);

/* The sentence of a difference between a node's settings and those of another. */
struct summary differences_describe(const char *own, const char *others, const char *other);

/* The same where they clash: why, too. */
struct summary differences_describe_clash(const char *own, const char *others, const char *other);

/* ---- failing ---- */

/* Can a node with these settings, and one with those as text, never be in one round? */
bool differences_clashes(const struct rendezvous_settings *settings, const char *others);

/* Does an entry have this node, and does another clash with it? The node of that one waits to see whether this one
 * lives. */
bool differences_is_asked(const struct rendezvous_state *state, const struct node_desc *node,
                          const struct rendezvous_settings *settings);

/* For a node that has not been in a round yet: one that has is not the later one. Does a node that came before have
 * settings that can never be in one round with ours? *out says so. It may be dead: then the caller waits until
 * `lives` tells, or it is evicted. */
typedef bool differences_lives(const void *argument, const struct node_desc *node);
enum rendezvous_clash differences_clash(const struct rendezvous_state *state,
                                        const struct rendezvous_settings *settings, differences_lives *lives,
                                        const void *argument, struct summary *out);

#endif
