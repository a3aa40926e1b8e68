/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rendezvous in one thread on a virtual clock: nodes, each with the engine of src/state, or one that behaves as
 * PyTorch does, around one cell of state behind a network that delays and loses. Native nodes have connections to a
 * server that forms the rounds (state/native); the cell is then its view. Everything that is random comes from one
 * seed. After every change of the state the invariants are checked (check.c), and at the end, when all faults have
 * stopped, that the rendezvous completes.
 */
#ifndef RDZV_TESTS_SIM_H
#define RDZV_TESTS_SIM_H

#include "state/engine/engine.h"
#include "state/native/coordinator.h"
#include "state/native/member.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { SIM_MAX_ROUNDS = 4096, ANSWER_TIMEOUT_MS = 1500 };

enum sim_event_kind {
  SIM_REQUEST, /* arrives at the cell */
  SIM_ANSWER,  /* arrives at the node; also one that failed */
  SIM_LISTEN,  /* a node's rest is over */
  SIM_TIMER,
  SIM_SCRIPT,       /* something happens to a node */
  SIM_TO_SERVER,    /* a packet of a connection arrives at the server */
  SIM_TO_NODE,      /* or at its node */
  SIM_SERVER_TIMER, /* the coordinator's */
};

enum sim_kind { SIM_SWAP, SIM_TORCH, SIM_NATIVE };

/* Which kinds of nodes there are: those of before (a quarter of the seeds has PyTorch nodes), native ones, all. */
enum sim_mode { SIM_MODE_SWAP, SIM_MODE_NATIVE, SIM_MODE_MIXED };

enum sim_deed {
  SIM_JOIN,
  SIM_LEAVE,
  SIM_CLOSE,
  SIM_KILL,
  SIM_PAUSE,
  SIM_CUT,
  SIM_JUMP,
  SIM_LOSE,       /* the state, whatever the node: a server begins again with nothing */
  SIM_RESET,      /* the connection of a native node ends; what was under way is lost, and both ends hear of it */
  SIM_VANISH,     /* the same, and nobody hears of it; the node goes on */
  SIM_STOP_SERVER /* for a while */
};

enum packet_kind {
  PACKET_CONNECT,
  PACKET_CONNECTED,
  PACKET_DOWN, /* the other end has closed it, or the way is gone */
  PACKET_JOIN,
  PACKET_RESUME,
  PACKET_LEAVE,
  PACKET_CLOSE,
  PACKET_BEAT, /* and its answer */
  PACKET_JOINED,
  PACKET_RESUMED,
  PACKET_LEFT,
  PACKET_CLOSED,
  PACKET_NEWS,
  PACKET_REFUSED,
};

/* What a native node and the server send each other. */
struct sim_packet {
  enum packet_kind kind;
  struct native_join join; /* JOIN, RESUME */
  uint64_t number;         /* RESUMED; REFUSED: of the request; BEAT: 1 if an answer is wanted */
  struct native_joined joined;
  unsigned what; /* NEWS */
  int64_t round, waiting;
  size_t gone, who; /* so many, and the number of the first */
  enum member_request refused;
  int code;
  char text[400]; /* REFUSED; NEWS: the warning */
};

struct sim_link {
  size_t node;
  bool open;    /* the server has it open */
  bool broken;  /* what is under way gets lost, but for DOWN */
  bool refused; /* what came last was refused */
  int64_t arrives[2];
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
  uint64_t link;               /* TO_SERVER, TO_NODE: 1 is the first of all */
  struct sim_packet *packet;
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
  bool is_torch, is_native, alive, killed, wants; /* to be a member */
  bool joined;                                    /* a member of `round`, as far as it knows */
  int64_t min_nodes, max_nodes;                   /* its own; 0: those of the run */
  int64_t round;
  int64_t last_round; /* that it has ever joined; -1: none */
  uint64_t asked;     /* with which event it asked to join, for the first time or after it had left */
  int64_t seen, knew; /* the last complete round that it saw; when the state was lost */
  struct engine engine;
  struct torch_node torch;
  struct member member;
  uint64_t link;             /* its connection, open or not yet; 0: none */
  uint64_t attached;         /* the last one that the server took for its session's */
  bool lost;                 /* the server knows that that one is gone */
  int64_t lost_at, heard_at; /* on the server's clock */
  uint64_t join_number;      /* of the last join that the server got */
  int64_t join_ends;         /* by then it is answered; an answer without a connection is nothing */
  bool excused;              /* the server has just told it that it is out */
  uint64_t request, wait;    /* the numbers of the last ones */
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
  bool cut_by_torch;  /* a PyTorch node took somebody out of it */
  bool twice;         /* the number was given again by nodes that did not know of it, after the state was lost */
  int losses;         /* of the state, before */
  size_t *nodes;      /* by rank */
  uint64_t completed; /* with which event */
};

struct sim {
  uint64_t seed, random;
  struct rendezvous_settings settings;
  struct native_times times;
  int64_t now;
  struct sim_event *heap;
  size_t heap_count, heap_cap;
  uint64_t next_order, next_number;
  uint64_t events; /* that have happened */
  struct sim_node *nodes;
  size_t node_count, node_cap;
  struct sim_host *hosts;
  size_t host_count;
  struct sim_round *rounds; /* by number, up to the last that was completed */
  size_t round_count;

  struct rendezvous_state cell;
  uint64_t version; /* 0: there is no state */
  uint64_t versions;
  int losses;     /* of the state */
  int64_t called; /* when the last call was */

  struct coordinator *coordinator; /* NULL: there are no native nodes, and the cell is all */
  struct sim_node server;          /* its host and its name */
  struct sim_link *links;
  size_t link_count;
  struct buf blob; /* what was written last, as version `version` */
  bool blob_changed;
  uint64_t server_timer; /* the number of the last one */
  int64_t server_wake;
  int64_t server_stopped_at, server_stopped_until, server_missed; /* the time that it did not run */

  int64_t latency_ms; /* each way, up to this */
  int faults;         /* in a thousand messages: lost questions, lost answers, late ones */
  int64_t quiet_from; /* no faults from here on */

  FILE *story;   /* what happens, or NULL */
  FILE *details; /* every decision, too */
  char failure[512];
  int64_t swaps, wins, reads, steps;
  int64_t completions, evictions;
};

/* ---- sim.c ---- */
void sim_init(struct sim *sim, uint64_t seed, const struct rendezvous_settings *settings);
void sim_free(struct sim *sim);
uint64_t sim_random(struct sim *sim, uint64_t below);
void sim_schedule(struct sim *sim, struct sim_event event);
void sim_do(struct sim *sim, int64_t at, size_t node, enum sim_deed deed, int64_t amount);
size_t sim_add_host(struct sim *sim, int64_t skew_us);
size_t sim_add_node(struct sim *sim, size_t host, const char *addr, enum sim_kind kind);
bool sim_run(struct sim *sim, int64_t until);              /* false: something failed */
void sim_happen(struct sim *sim, struct sim_event *event); /* and frees its message */
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_tell(struct sim *sim, const struct sim_node *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
struct moment sim_moment(const struct sim *sim, const struct sim_node *node);
struct rendezvous_settings sim_settings(const struct sim *sim, const struct sim_node *node);

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
void sim_joined(struct sim *sim, size_t node, int64_t round, int64_t rank, int64_t size);
void sim_react(struct sim *sim, size_t node, const struct engine_update *update); /* as the program that uses it */

/* ---- native.c: native nodes ---- */
void native_ask(struct sim *sim, size_t node, enum engine_event_kind what);
void native_timer(struct sim *sim, size_t node);
void native_receive(struct sim *sim, struct sim_event *event);
void native_died(struct sim *sim, size_t node);

/* ---- link.c: their connections ---- */
void link_send(struct sim *sim, uint64_t link, bool to_server, const struct sim_packet *packet);
uint64_t link_new(struct sim *sim, size_t node); /* and sends CONNECT */
void link_reset(struct sim *sim, uint64_t link); /* both ends hear of it */
void link_vanish(struct sim *sim, uint64_t link);
static inline struct sim_link *link_of(const struct sim *sim, uint64_t link) { return &sim->links[link - 1]; }

/* ---- server.c: the server of native nodes ---- */
#define SIM_RUN_ID "run"
void server_begin(struct sim *sim);
void server_free(struct sim *sim);
void server_receive(struct sim *sim, struct sim_event *event);
void server_time(struct sim *sim);
void server_lose(struct sim *sim); /* it begins again, with nothing */
void server_stop(struct sim *sim, int64_t for_ms);
bool server_is_stopped(const struct sim *sim);
int64_t server_clock(const struct sim *sim); /* the time that it has run, as it can know it */
bool server_has_run(const struct sim *sim);  /* then the cell is its view */
void server_refresh(struct sim *sim);        /* the cell, if it is */
uint64_t server_swapped(struct sim *sim, size_t writer, struct rendezvous_state *state); /* won; taken over */

/* ---- check.c ---- */
void check_write(struct sim *sim, size_t writer, const struct rendezvous_state *before,
                 const struct rendezvous_state *after);
void check_joined(struct sim *sim, size_t node, int64_t number, int64_t rank, int64_t size);
void check_served(struct sim *sim, const struct rendezvous_state *after); /* the same of a step of the server */
void check_hearts(struct sim *sim, const struct rendezvous_state *state);
bool check_knows_round(const struct sim *sim, int64_t round);
bool check_settled(const struct sim *sim, const char **why);
size_t sim_find(const struct node_desc *desc); /* a node's pid is its number + 1 */

/* ---- schedule.c: what a seed stands for ---- */
bool schedule_run(uint64_t seed, enum sim_mode mode, size_t nodes, FILE *story, FILE *details, struct sim *sim);
bool schedule_settles(struct sim *sim); /* and stays so, without further faults */

/* ---- storm.c: N nodes at once ---- */
int storm(size_t nodes, int64_t latency_ms);

/* ---- story.c ---- */
int story_run(const char *name, FILE *out);
int story_check(const char *folder);

#endif
