/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The dynamic rendezvous: state/engine/engine.h decides, a thread of the handler carries it out on a backend, and the
 * calls of the user ask that thread and wait for its answer.
 *
 *   dynamic_open.c    open and close
 *   dynamic.c         the user's calls
 *   dynamic_loop.c    the thread
 *   dynamic_cell.c    the state in the backend, to and from the engine's form
 *   dynamic_master.c  where rank 0 can be reached
 *   dynamic_status.c  the state for people
 *
 * Failure modes: the store is slow or gone: the engine tries again, until the deadline of what was asked. It is silent:
 * a call of the user ends by its own deadline, whatever the thread is at. The user cancels: the call ends, the thread
 * takes the node out. The handler is closed: the backend is canceled, and the thread ends.
 */
#ifndef RDZV_HANDLER_DYNAMIC_DYNAMIC_H
#define RDZV_HANDLER_DYNAMIC_DYNAMIC_H

#include "handler/change.h"
#include "handler/conf.h"
#include "handler/events.h"
#include "handler/handler.h"
#include "handler/result.h"
#include "state/engine/engine.h"
#include "state/engine/silence.h"

#include <rdzv/backend.h>

/* What the thread can be asked for: one at a time of the first three, and LOOK and STOP at any time. */
enum {
  DYNAMIC_JOIN = 1 << 0,
  DYNAMIC_LEAVE = 1 << 1,
  DYNAMIC_CLOSE = 1 << 2,
  DYNAMIC_LOOK = 1 << 3,
  DYNAMIC_STOP = 1 << 4
};

struct dynamic {
  rdzv_handler base;
  rdzv_backend_ops ops;
  rdzv_backend *backend;
  rdzv_server *server; /* that the backend owns; NULL: another process serves */
  rdzv_store *store;   /* of the rounds, and that of the backend: for clones only. May be NULL */
  struct events events;
  struct node_desc node;
  char addr[HOST_NAME_SIZE]; /* of the node */
  pthread_mutex_t call;      /* one call that asks at a time */
  pthread_mutex_t look;      /* one call that looks at a time */
  pthread_t thread;
  bool started;

  /* Where rank 0 was in the last round, and what of ours that was: guarded by `call`. */
  struct {
    char *node, *addr;
    int port;
    int port_fd; /* keeps a port for us; -1: none yet */
    int own_port;
  } master;

  /* The thread's own, but that others read it under the lock. */
  struct engine engine;
  enum torch_layout preferred, layout;
  bool layout_known;
  bool store_failed; /* the last request */
  bool has_permit;   /* to be given back */

  pthread_mutex_t lock; /* guards what follows, and every step of the engine */
  pthread_cond_t asked;
  unsigned asks;        /* DYNAMIC_… */
  bool in_backend_wait; /* to be woken when something is asked */
  bool stopping;
  int64_t answered_ms; /* when the store answered last */
  struct silence silence;
  bool told_silent;   /* a call has ended with the store's silence */
  rdzv_error trouble; /* what it failed with since; code 0: nothing */

  /* The answer to what was asked last, but for LOOK. */
  struct flag done;
  unsigned answering; /* DYNAMIC_…; 0: nobody waits for an answer */
  int outcome;
  rdzv_error error;
  struct round_result *joined;

  /* What has happened to the round since. */
  struct flag changed;
  struct flag ended; /* more than that somebody waits */
  bool member;
  bool been_member; /* ever */
  struct rdzv_change change;

  /* What LOOK found. */
  struct flag looked;
  int look_outcome;
  rdzv_error look_error;
  bool watching;       /* somebody wants to see the next one that is another than look_known */
  uint64_t look_known; /* wait for another than that */
  int64_t look_until;
  bool view_exists;
  struct rendezvous_state view;
  uint64_t view_token;
};

/* ---- dynamic.c ---- */
extern const struct handler_ops dynamic_ops;

/* What the keys of a round begin with, in its store: to be freed. NULL: no memory. */
char *dynamic_round_prefix(const struct dynamic *handler, int64_t round);

/* Frees a round that nobody has asked for, with the lock held, or when nobody else is there. */
void dynamic_drop_joined(struct dynamic *handler);

/* ---- dynamic_open.c ---- */
void dynamic_close(rdzv_handler *base);
void dynamic_abandon(rdzv_handler *base);

/* As rdzv_handler_open_dynamic, with the options of those kinds: CONF_… */
int dynamic_open(const rdzv_params *params, unsigned options, rdzv_backend *backend, rdzv_store *store,
                 rdzv_handler **out, rdzv_error *error);

/* ---- c10d_create.c ---- */

/* Opens the store of a c10d rendezvous as its options say, and serves it where this node is the host and may. *server:
 * see c10d_store_open. */
int c10d_open_store(const rdzv_params *params, bool may_serve, rdzv_store **store, rdzv_server **server,
                    rdzv_error *error);

/* ---- dynamic_loop.c ---- */
void *dynamic_run(void *handler);

/* Asks the thread, with the lock held. */
void dynamic_ask(struct dynamic *handler, unsigned what);

/* ---- dynamic_cell.c ---- */

/* Each carries one request out and fills in the event that comes of it: STATE_READ, SWAP_WON, SWAP_LOST, TIMER or
 * STORE_ERROR with *error. The state in the event is *state. */
void cell_read(struct dynamic *handler, struct engine_event *event, struct rendezvous_state *state, rdzv_error *error);
void cell_swap(struct dynamic *handler, const struct engine_update *update, struct engine_event *event,
               struct rendezvous_state *state, rdzv_error *error);

/* False: it was woken, and there is no event. */
bool cell_await(struct dynamic *handler, uint64_t token, int64_t until_ms, struct engine_event *event,
                struct rendezvous_state *state, rdzv_error *error);

/* ---- dynamic_master.c ---- */

/* Publishes or gets where rank 0 is, through the round's store. RDZV_E_CANCELED: the user has had enough, or the round
 * ended before rank 0, a node of ours, has said so. */
int dynamic_find_master(struct dynamic *handler, struct round_result *result, rdzv_error *error);
void dynamic_forget_master(struct dynamic *handler);

/* ---- dynamic_status.c ---- */

/* The view as the user gets it, with the lock held. NULL: no memory. */
rdzv_status *dynamic_status(struct dynamic *handler);

#endif
