/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rendezvous in one thread on a virtual clock: nodes, each with the engine of src/state, or one that behaves as
 * PyTorch does, around one cell of state behind a network that delays and loses. Everything that is random comes from
 * one seed. After every write of the cell the invariants are checked (check.c), and at the end, when all faults have
 * stopped, that the rendezvous completes.
 */
#ifndef RDZV_TESTS_SIM_H
#define RDZV_TESTS_SIM_H

#include "state/engine/engine.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { SIM_MAX_ROUNDS = 4096 };

enum sim_event_kind {
  SIM_REQUEST, /* arrives at the cell */
  SIM_ANSWER,  /* arrives at the node; also one that failed */
  SIM_LISTEN,  /* a node's rest is over */
  SIM_TIMER,
  SIM_SCRIPT, /* something happens to a node */
};

enum sim_deed {
  SIM_JOIN,
  SIM_LEAVE,
  SIM_CLOSE,
  SIM_KILL,
  SIM_PAUSE,
  SIM_CUT,
  SIM_JUMP,
  SIM_LOSE /* the state, whatever the node */
};

struct sim_message {
  enum engine_event_kind
      kind; /* STATE_READ (also the question), SWAP_WON (also the question), SWAP_LOST, STORE_ERROR */
  bool has_state;
  struct rendezvous_state state;
  uint64_t token;
};

struct sim_event {
  int64_t at;
  uint64_t order; /* of those at one time */
  enum sim_event_kind kind;
  size_t node;
  uint64_t number;             /* ANSWER: of the request; LISTEN, TIMER: of the wait; older ones are nothing */
  enum sim_deed deed;          /* SCRIPT */
  int64_t amount;              /* SCRIPT: for how long, by how much */
  struct sim_message *message; /* REQUEST, ANSWER */
};

/* How PyTorch goes about it: state/rendezvous.h by the wall clock, and a second of sleep. */
struct torch_node {
  enum { TORCH_IDLE, TORCH_EXIT, TORCH_JOIN, TORCH_KEEP_ALIVE, TORCH_WATCH } doing;
  struct rendezvous_state state;
  uint64_t token;
  int64_t deadline_ms, next_beat_ms;
};

struct sim_node {
  char addr[24], label[48];
  struct node_desc desc;
  size_t host;
  bool is_torch, alive, killed, wants; /* to be a member */
  bool joined;                         /* a member of `round`, as far as it knows */
  int64_t round;
  int64_t last_round; /* that it has ever joined; -1: none */
  int64_t seen, knew; /* the last complete round that it saw; when the state was lost */
  struct engine engine;
  struct torch_node torch;
  uint64_t request, wait; /* the numbers of the last ones */
  bool listening;
  uint64_t listens_to;
  int64_t paused_until, cut_until, born;
  int64_t troubled;         /* when it was last paused, cut off, or lost a message */
  int64_t heartbeat, heard; /* its heartbeat in the cell, and when that changed */
  int64_t swaps, reads, joins;
};

struct sim_host {
  int64_t skew_us;
  int64_t jumped; /* when */
};

struct sim_round {
  size_t count;
  bool cut_by_torch; /* a PyTorch node took somebody out of it */
  bool twice;        /* the number was given again by nodes that did not know of it, after the state was lost */
  int losses;        /* of the state, before */
  size_t *nodes;     /* by rank */
};

struct sim {
  uint64_t seed, random;
  struct rendezvous_settings settings;
  int64_t now;
  struct sim_event *heap;
  size_t heap_count, heap_cap;
  uint64_t next_order, next_number;
  struct sim_node *nodes;
  size_t node_count, node_cap;
  struct sim_host *hosts;
  size_t host_count;
  struct sim_round rounds[SIM_MAX_ROUNDS];

  struct rendezvous_state cell;
  uint64_t version; /* 0: there is no state */
  uint64_t versions;
  int losses;     /* of the state */
  int64_t called; /* when the last call was */

  int64_t latency_ms; /* each way, up to this */
  int faults;         /* in a thousand messages: lost questions, lost answers, late ones */
  int64_t quiet_from; /* no faults from here on */

  FILE *story;   /* what happens, or NULL */
  FILE *details; /* every decision, too */
  char failure[512];
  int64_t swaps, wins, reads, steps;
};

/* ---- sim.c ---- */
void sim_init(struct sim *sim, uint64_t seed, const struct rendezvous_settings *settings);
void sim_free(struct sim *sim);
uint64_t sim_random(struct sim *sim, uint64_t below);
void sim_schedule(struct sim *sim, struct sim_event event);
void sim_do(struct sim *sim, int64_t at, size_t node, enum sim_deed deed, int64_t amount);
size_t sim_add_host(struct sim *sim, int64_t skew_us);
size_t sim_add_node(struct sim *sim, size_t host, const char *addr, bool is_torch);
bool sim_run(struct sim *sim, int64_t until); /* false: something failed */
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_tell(struct sim *sim, const struct sim_node *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
struct moment sim_moment(const struct sim *sim, const struct sim_node *node);

/* ---- cell.c: the store and the way to it ---- */
void sim_send(struct sim *sim, size_t node, enum engine_event_kind kind, const struct rendezvous_state *state,
              uint64_t token);
void sim_receive(struct sim *sim, struct sim_event *event);
void sim_listen(struct sim *sim, size_t node);
void sim_message_free(struct sim_message *message);
void sim_lose(struct sim *sim);

/* ---- ours.c and torch.c: the two kinds of nodes ---- */
void ours_ask(struct sim *sim, size_t node, enum engine_event_kind what);
void ours_answer(struct sim *sim, size_t node, struct sim_message *message);
void ours_timer(struct sim *sim, size_t node);
void torch_ask(struct sim *sim, size_t node, enum engine_event_kind what);
void torch_answer(struct sim *sim, size_t node, struct sim_message *message);
void torch_timer(struct sim *sim, size_t node);
void sim_wait(struct sim *sim, size_t node, int64_t until, bool listen, int64_t from, uint64_t token);
void sim_joined(struct sim *sim, size_t node, const struct rendezvous_state *state, int64_t rank, int64_t size);

/* ---- check.c ---- */
void check_write(struct sim *sim, size_t writer, const struct rendezvous_state *before,
                 const struct rendezvous_state *after);
void check_joined(struct sim *sim, size_t node, const struct rendezvous_state *state, int64_t rank, int64_t size);
bool check_settled(const struct sim *sim, const char **why);
size_t sim_find(const struct node_desc *desc); /* a node's pid is its number + 1 */

/* ---- schedule.c: what a seed stands for ---- */
bool schedule_run(uint64_t seed, size_t nodes, FILE *story, FILE *details, struct sim *sim);

/* ---- storm.c: N nodes at once ---- */
int storm(size_t nodes, int64_t latency_ms);

/* ---- story.c ---- */
int story_run(const char *name, FILE *out);
int story_check(const char *folder);

#endif
