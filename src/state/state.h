/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of a rendezvous, PyTorch's _RendezvousState: the round, and its nodes. PyTorch keeps four
 * collections of nodes (participants, wait_list, redundancy_list, last_heartbeats); here they are one array of
 * nodes, in PyTorch's order, and each node says which collections it is in.
 */
#ifndef RDZV_STATE_STATE_H
#define RDZV_STATE_STATE_H

#include "state/pickle/datetime.h"
#include "state/pickle/pyvalue.h"

#include <rdzv/error.h>

enum {
  STATE_MAX_NODES = 1 << 16,
  STATE_MAX_ADDR = 1024, /* bytes */
};

/* PyTorch's _NodeDesc: unique for each handler. */
struct node_desc {
  const char *addr; /* UTF-8 */
  int64_t pid;
  int64_t local_id;
};

/* Below, at or above 0 in the order of PyTorch: by addr (as Python compares str), then pid, then local_id. */
int node_compare(const struct node_desc *a, const struct node_desc *b);

/* As PyTorch prints a node: addr_pid_localid. */
struct node_text {
  char text[STATE_MAX_ADDR + 44];
};
struct node_text node_text(const struct node_desc *node);

/* The collections a node is in. PyTorch puts a node in one at a time; a state from outside may have it in all. */
enum node_kind {
  NODE_PARTICIPANT = 1 << 0,
  NODE_WAITING = 1 << 1,
  NODE_SPARE = 1 << 2,
};

struct state_node {
  struct node_desc desc;
  int64_t rank;           /* of a participant; else 0 */
  int64_t last_heartbeat; /* or DATETIME_NONE: not in last_heartbeats */
  bool ours;              /* a node of this library: its heartbeats have `fold` set, which PyTorch's have not */
  unsigned kinds;         /* enum node_kind; changed by state_set_kinds only */
  bool owns_addr;         /* private */
};

struct rendezvous_state {
  int64_t round;
  bool complete;
  bool closed;
  int64_t deadline; /* or DATETIME_NONE */

  struct state_node *nodes; /* changed by the functions below only, but for rank and last_heartbeat */
  size_t count, cap;
  size_t num_participants, num_waiting, num_spares; /* kept by state_set_kinds and state_remove */

  struct pynames extra; /* attributes that are not PyTorch's */
  char *addrs;          /* private: the addresses that came with a copy or from a reader, in one piece */
};

/* A new rendezvous, without nodes. */
#define STATE_EMPTY ((struct rendezvous_state){.deadline = DATETIME_NONE})

/* Numbers of rounds go from 0 to this, to which every language counts. */
#define STATE_MOST_ROUND (INT64_C(1) << 53)

/* RDZV_E_CORRUPT: a state with such a number of its round was written by no node. */
int state_check_round(const struct rendezvous_state *state, rdzv_error *error);

/* Frees what it holds and leaves STATE_EMPTY. */
void state_free(struct rendezvous_state *state);

/* *to is not looked at. False: no memory, *to is STATE_EMPTY. */
bool state_copy(struct rendezvous_state *to, const struct rendezvous_state *from);

/* NULL: the state does not have the node. The pointer is valid until the next insert or remove. */
struct state_node *state_find(const struct rendezvous_state *state, const struct node_desc *node);

/* Finds the node, or adds it: in no collection and without a heartbeat. Such a node is not written, so other nodes do
 * not see it. The address is copied. RDZV_E_NO_MEMORY; RDZV_E_LIMIT: STATE_MAX_NODES,
 * STATE_MAX_ADDR; RDZV_E_INVALID: the address is not UTF-8. */
int state_insert(struct rendezvous_state *state, const struct node_desc *desc, struct state_node **node,
                 rdzv_error *error);
void state_remove(struct rendezvous_state *state, struct state_node *node);

/* Puts a node in these collections and in no other. */
void state_set_kinds(struct rendezvous_state *state, struct state_node *node, unsigned kinds);

#endif
