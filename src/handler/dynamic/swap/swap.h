/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver of a swap node: it drives the engine (state/engine/engine.h) on a backend. It carries out what the engine
 * wants next, and feeds it the results, the requests of the user and the time.
 *
 *   swap.c    the thread
 *   cell.c    the state in the backend, to and from the engine's form
 *   view.c    looking
 *   status.c  what was seen, for people
 */
#ifndef RDZV_HANDLER_DYNAMIC_SWAP_SWAP_H
#define RDZV_HANDLER_DYNAMIC_SWAP_SWAP_H

#include "handler/dynamic/driver.h"
#include "handler/status.h"
#include "state/engine/engine.h"
#include "state/pickle/layout.h"

#include <rdzv/backend.h>

struct swap {
  struct driver base; /* its lock guards what says so */
  struct driver_ops ops;
  rdzv_backend_ops backend_ops;
  rdzv_backend *backend;

  /* What only the thread uses. */
  bool has_permit; /* to be given back */
  bool layout_known;

  /* The node, guarded. The thread alone changes it, and reads it without the lock. */
  struct engine engine;
  enum torch_layout layout;

  pthread_cond_t asked; /* something is asked, or to be looked at */
  bool in_backend_wait; /* guarded: to be woken when something is asked */

  /* What is shown to callers of driver_look; guarded. */
  struct {
    pthread_mutex_t call; /* one call at a time */
    struct flag shown;
    bool wanted;    /* the thread is asked to read */
    bool watched;   /* the next state with another token than `known` is to be shown */
    uint64_t known; /* what the caller has seen */
    int64_t until;  /* for how long to wait for another one */
    int outcome;
    rdzv_error error;
    bool exists;
    struct rendezvous_state state;
    uint64_t token;
    struct status_still still;
  } view;
};

/* A driver without a thread yet; takes the backend over, which was checked. RDZV_E_NO_MEMORY, RDZV_E_IO: then the
 * backend is still the caller's. */
int swap_open(const struct driver_options *options, const rdzv_backend_ops *ops, rdzv_backend *backend,
              struct driver **out, rdzv_error *error);

/* ---- view.c ---- */

int swap_look(struct driver *driver, int64_t wait_ms, const struct flag *cancel, rdzv_status **out, rdzv_error *error);

/* Carries out what driver_look wants; *update is what the engine wants next, before and after. */
void view_carry_out(struct swap *swap, struct engine_update *update);

/* Shows a state that was read anyway, if it is another than the watching caller knows. With the lock held. */
void view_overhear(struct swap *swap, const struct engine_event *event);

/* ---- status.c ---- */

/* The view as the user gets it, with the lock held. NULL: no memory. */
rdzv_status *view_status(struct swap *swap);

/* ---- for view.c ---- */

/* Enters a wait in the backend, which what is asked ends. False: something is asked already. */
bool swap_begin_wait(struct swap *swap, bool is_look);
void swap_end_wait(struct swap *swap);

/* What an event tells of the store. With the lock held. */
void swap_note_store(struct swap *swap, const struct engine_event *event);

/* One step of the engine, which is then told. With no lock held. */
void swap_step(struct swap *swap, struct engine_event *event, struct engine_update *update);

/* ---- cell.c ---- */

/* Each carries one request out and fills in the event that comes of it: STATE_READ, SWAP_WON, SWAP_LOST, TIMER or
 * STORE_ERROR with *error. The state in the event is *state. */
void cell_read(struct swap *swap, struct engine_event *event, struct rendezvous_state *state, rdzv_error *error);
void cell_swap(struct swap *swap, const struct engine_update *update, struct engine_event *event,
               struct rendezvous_state *state, rdzv_error *error);

/* False: it was woken, and there is no event. */
bool cell_await(struct swap *swap, uint64_t token, int64_t until_ms, struct engine_event *event,
                struct rendezvous_state *state, rdzv_error *error);

#endif
