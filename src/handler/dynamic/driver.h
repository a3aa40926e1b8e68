/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The thread of a dynamic rendezvous. It drives the engine of this node (state/engine/engine.h) on a backend: it
 * carries out what the engine wants next, and feeds it what comes of that, what is asked and what time it is.
 *
 *   ask      driver_ask, from any thread: join, leave, close, stop. Returns a ticket.
 *   answer   driver_tell, in the driver's thread with no lock held: what each step of the engine tells. driver_taken
 *            says which ticket that answers.
 *   look     driver_look, from any thread: the state as the store has it, now or when it has changed.
 *   silence  how long the store has not answered: a caller gives up by its own deadline, whatever the thread does.
 *
 *   driver.c  the thread, and what is asked of it
 *   cell.c    the state in the backend, to and from the engine's form
 *   view.c    looking
 *   status.c  what was seen, for people
 *
 * Failure modes: while the store fails, the engine tries again, until the deadline of what was asked. While it is
 * silent, the thread waits; driver_stop cancels the backend's call.
 */
#ifndef RDZV_HANDLER_DYNAMIC_DRIVER_H
#define RDZV_HANDLER_DYNAMIC_DRIVER_H

#include "handler/events.h"
#include "state/engine/engine.h"
#include "state/pickle/layout.h"

#include <rdzv/backend.h>
#include <rdzv/handler.h>

struct waiting;

/* What can be asked, in the order in which it is taken. */
enum driver_ask { DRIVER_STOP, DRIVER_LEAVE, DRIVER_JOIN, DRIVER_CLOSE, DRIVER_ASKS };

/* A step of the engine has something to tell, or not. *update is valid during the call. */
typedef void driver_tell(void *user, const struct engine_update *update);

/* What the driver is opened with. The pointers are borrowed, `backend` is taken over. */
struct driver_options {
  const rdzv_backend_ops *ops;
  rdzv_backend *backend;
  struct engine_config engine; /* node, trace and argument are filled in by the driver */
  enum torch_layout layout;    /* of a state that this node writes first */
  const char *local_addr;      /* the node's address; NULL: the host name */
  const rdzv_log *log;
  struct events *events;
  driver_tell *tell;
  void *user;
};

struct driver {
  rdzv_backend_ops ops;
  rdzv_backend *backend;
  const rdzv_log *log;
  struct events *events;
  driver_tell *tell;
  void *user;
  char addr[HOST_NAME_SIZE]; /* of the node */

  /* The thread, and what only it uses. */
  pthread_t thread;
  bool started;
  bool store_failed; /* the last request */
  bool has_permit;   /* to be given back */
  bool layout_known;
  uint64_t taken[DRIVER_ASKS]; /* the tickets that were taken last */

  pthread_mutex_t lock; /* guards the groups that follow */

  /* The node. The thread alone changes it, and reads it without the lock. */
  struct engine engine;
  enum torch_layout layout;

  /* What is asked. */
  pthread_cond_t asked;
  uint64_t pending[DRIVER_ASKS]; /* tickets; 0: not asked */
  uint64_t tickets;              /* given so far */
  bool stopping;
  bool in_backend_wait; /* to be woken when something is asked */

  /* How the store does. */
  int64_t answered_ms; /* the last answer */
  struct silence silence;
  rdzv_error trouble; /* what it failed with since; code 0: nothing */

  /* What is shown to callers of driver_look. */
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
  } view;
};

/* Fills it in, without a thread. Then driver_free is fine. */
void driver_init(struct driver *driver, const struct driver_options *options);
int driver_start(struct driver *driver, rdzv_error *error);

/* Ends the thread, whatever it waits for. */
void driver_stop(struct driver *driver);
void driver_free(struct driver *driver);

/* driver_free in a child of the process that started it: see base/wait/fork.h. */
void driver_abandon(struct driver *driver);

/* Asks, and returns the ticket, which is not 0. A join and a leave that is not taken yet replace each other. */
uint64_t driver_ask(struct driver *driver, enum driver_ask what);

/* In driver_tell: the ticket that news of that kind answer. */
uint64_t driver_taken(const struct driver *driver, enum driver_ask what);

static inline const struct rendezvous_settings *driver_settings(const struct driver *driver) {
  return &driver->engine.config.settings;
}
static inline const char *driver_describe(const struct driver *driver) { return driver->ops.describe(driver->backend); }

/* ---- what the thread knows ---- */

/* Returns how long the store has been silent. *wake is when to look again. */
int64_t driver_silence(struct driver *driver, int64_t *wake);

/* The silence so far does not count. */
void driver_forgive_silence(struct driver *driver);

/* Has the store answered lately, for a node that keeps alive? */
bool driver_hears(struct driver *driver);

/* The error of a call that could not wait for the store any longer: the store's own, or RDZV_E_TIMEOUT. */
int driver_fail_silent(struct driver *driver, const char *what, rdzv_error *error);

/* What is known of the state in the store. */
struct driver_facts {
  bool is_fresh; /* read in the last second */
  bool closed;
  size_t waiting;
  enum torch_layout layout;
};
struct driver_facts driver_facts(struct driver *driver);

/* Begins a wait for an answer of the store: "waiting to <what>: no answer yet from …". */
void driver_begin_waiting(struct driver *driver, struct waiting *waiting, const char *what, deadline until);

/* Brings a wait of a join up to date: which nodes are there; the time of a spare does not pass. */
void driver_tell_wait(struct driver *driver, struct waiting *waiting);

/* ---- view.c ---- */

/* Reads the state: now, or, with wait_ms, once it is another than the one seen last. `cancel` may be NULL. */
int driver_look(struct driver *driver, int64_t wait_ms, const struct flag *cancel, rdzv_status **out,
                rdzv_error *error);

/* Carries out what driver_look wants; *update is what the engine wants next, before and after. */
void view_carry_out(struct driver *driver, struct engine_update *update);

/* Shows a state that was read anyway, if it is another than the watching caller knows. With the lock held. */
void view_overhear(struct driver *driver, const struct engine_event *event);

/* ---- status.c ---- */

/* The view as the user gets it, with the lock held. NULL: no memory. */
rdzv_status *view_status(struct driver *driver);

/* ---- for view.c ---- */

/* Enters a wait in the backend, which what is asked ends. False: something is asked already. */
bool driver_begin_wait(struct driver *driver, bool is_look);
void driver_end_wait(struct driver *driver);

/* What an event tells of the store. With the lock held. */
void driver_note_store(struct driver *driver, const struct engine_event *event);

/* One step of the engine, which is then told. With no lock held. */
void driver_step(struct driver *driver, struct engine_event *event, struct engine_update *update);

/* ---- cell.c ---- */

/* Each carries one request out and fills in the event that comes of it: STATE_READ, SWAP_WON, SWAP_LOST, TIMER or
 * STORE_ERROR with *error. The state in the event is *state. */
void cell_read(struct driver *driver, struct engine_event *event, struct rendezvous_state *state, rdzv_error *error);
void cell_swap(struct driver *driver, const struct engine_update *update, struct engine_event *event,
               struct rendezvous_state *state, rdzv_error *error);

/* False: it was woken, and there is no event. */
bool cell_await(struct driver *driver, uint64_t token, int64_t until_ms, struct engine_event *event,
                struct rendezvous_state *state, rdzv_error *error);

#endif
