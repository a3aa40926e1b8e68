/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The thread of a dynamic rendezvous, of which there are two kinds. swap/ drives the engine of this node
 * (state/engine/engine.h) on a backend: the state that all nodes share is read and swapped. native/ drives the member
 * (state/native/member.h) on a connection to our own server, which forms the rounds. What both have is here:
 *
 *   ask      driver_ask, from any thread: join, leave, close, stop. Returns a ticket.
 *   answer   driver_tell, in the driver's thread with no lock held: what each step tells. driver_taken says which
 *            ticket that answers.
 *   look     driver_look, from any thread: the state as the store has it, now or when it has changed.
 *   silence  how long the store has not answered: a caller gives up by its own deadline, whatever the thread does.
 *
 * Failure modes: while the store fails, the thread tries again, until the deadline of what was asked. While it is
 * silent, the thread waits; driver_stop ends that.
 */
#ifndef RDZV_HANDLER_DYNAMIC_DRIVER_H
#define RDZV_HANDLER_DYNAMIC_DRIVER_H

#include "base/net/host.h"
#include "handler/events.h"
#include "state/engine/engine.h"
#include "state/native/native.h"

#include <rdzv/handler.h>

struct waiting;
struct driver;

/* What can be asked, in the order in which it is taken. */
enum driver_ask { DRIVER_STOP, DRIVER_LEAVE, DRIVER_JOIN, DRIVER_CLOSE, DRIVER_ASKS };

/* What a step tells. Valid during the call. */
struct driver_news {
  const struct engine_update *update; /* news, and what belongs to them */
  const struct native_joined *joined; /* JOINED by the server; NULL: update->state has the participants */
  const struct engine *engine;        /* engine_gone names the nodes that left or died; or: */
  const struct native_news *native;   /* has their names. NULL: none did */
};
typedef void driver_tell(void *user, const struct driver_news *news);

/* What is known of the rendezvous. */
struct driver_facts {
  bool is_fresh; /* read in the last second */
  bool closed;
  size_t waiting;
  enum torch_layout layout;
};

/* What a kind of driver provides. */
struct driver_ops {
  const char *backend; /* its name, for results */
  bool native;         /* the server forms the rounds: a join has the address of this node, its answer that of rank 0 */
  void (*run)(struct driver *driver);  /* in the thread, until `stopping` */
  void (*wake)(struct driver *driver); /* something is asked, or it is to stop. With the lock held */
  void (*cancel)(struct driver *driver);
  const char *(*describe)(struct driver *driver);
  int64_t (*usual_silence)(const struct driver *driver); /* of a store that is there. With the lock held */
  struct driver_facts (*facts)(struct driver *driver);
  void (*tell_wait)(struct driver *driver, struct waiting *waiting);
  int (*look)(struct driver *driver, int64_t wait_ms, const struct flag *cancel, rdzv_status **out, rdzv_error *error);

  /* Frees it, when the thread has ended. `abandoned`: in a child of the process, see base/wait/fork.h; then `quiet`
   * tells that the lock was free when the process forked. */
  void (*free)(struct driver *driver, bool abandoned, bool quiet);
};

/* What the driver is opened with. The pointers are borrowed. */
struct driver_options {
  const char *run_id;
  struct engine_config engine; /* node, trace and argument are filled in by the driver */
  struct native_times times;
  enum torch_layout layout; /* of a state that this node writes first */
  const char *local_addr;   /* the node's address; NULL: the host name */
  const rdzv_log *log;
  struct events *events;
  driver_tell *tell;
  void *user;
};

/* What a native node says with what it asks for. */
struct driver_words {
  char master_addr[HOST_NAME_SIZE]; /* JOIN: where it is reached as rank 0 */
  int master_port;
  char role[NATIVE_MAX_ROLE + 1]; /* and its workers */
  int64_t local_world_size, restart_count;
  char reason[NATIVE_MAX_REASON + 1]; /* CLOSE */
};

/* The first field of each kind. */
struct driver {
  const struct driver_ops *ops;
  const rdzv_log *log;
  struct events *events;
  driver_tell *tell;
  void *user;
  char addr[HOST_NAME_SIZE];
  struct node_desc node; /* this one */
  struct rendezvous_settings settings;

  /* The thread, and what only it uses. */
  pthread_t thread;
  bool started;
  bool store_failed;           /* the last request */
  int64_t failed_ms;           /* the first of them, since the last answer */
  uint64_t taken[DRIVER_ASKS]; /* the tickets that were taken last */

  pthread_mutex_t lock; /* guards what follows, and what a kind says */

  /* What is asked. */
  uint64_t pending[DRIVER_ASKS]; /* tickets; 0: not asked */
  uint64_t tickets;              /* given so far */
  struct driver_words words;
  bool stopping;

  /* How the store does. */
  int64_t answered_ms; /* the last answer */
  struct silence silence;
  rdzv_error trouble; /* what it failed with since; code 0: nothing */
};

int driver_start(struct driver *driver, rdzv_error *error);

/* Ends the thread, whatever it waits for. */
void driver_stop(struct driver *driver);

/* Both take NULL. driver_abandon is driver_free in a child of the process that started it: see base/wait/fork.h. */
void driver_free(struct driver *driver);
void driver_abandon(struct driver *driver);

/* Asks, and returns the ticket, which is not 0. A join and a leave that is not taken yet replace each other. `words`
 * may be NULL: as before. */
uint64_t driver_ask(struct driver *driver, enum driver_ask what, const struct driver_words *words);

/* In driver_tell: the ticket that news of that kind answer. */
uint64_t driver_taken(const struct driver *driver, enum driver_ask what);

static inline const struct rendezvous_settings *driver_settings(const struct driver *driver) {
  return &driver->settings;
}
static inline const char *driver_describe(struct driver *driver) { return driver->ops->describe(driver); }

/* ---- what the thread knows ---- */

/* Returns how long the store has been silent. *wake is when to look again. */
int64_t driver_silence(struct driver *driver, int64_t *wake);

/* The silence so far does not count. */
void driver_forgive_silence(struct driver *driver);

/* Has the store answered lately, for a node that keeps alive? */
bool driver_hears(struct driver *driver);

/* The error of a call that could not wait for the store any longer: the store's own, or RDZV_E_TIMEOUT. */
int driver_fail_silent(struct driver *driver, const char *what, rdzv_error *error);

static inline struct driver_facts driver_facts(struct driver *driver) { return driver->ops->facts(driver); }

/* Begins a wait for an answer of the store: "waiting to <what>: no answer yet from …". */
void driver_begin_waiting(struct driver *driver, struct waiting *waiting, const char *what, deadline until);

/* Brings a wait of a join up to date: which nodes are there; the time of a spare does not pass. */
static inline void driver_tell_wait(struct driver *driver, struct waiting *waiting) {
  driver->ops->tell_wait(driver, waiting);
}

/* Reads the state: now, or, with wait_ms, once it is another than the one seen last. DRIVER_LOOK_ASIDE: now, and it
 * does not count as seen. `cancel` may be NULL. */
enum { DRIVER_LOOK_ASIDE = -1 };
static inline int driver_look(struct driver *driver, int64_t wait_ms, const struct flag *cancel, rdzv_status **out,
                              rdzv_error *error) {
  return driver->ops->look(driver, wait_ms, cancel, out, error);
}

/* ---- for the kinds ---- */

/* Fills in what both have; the rest is all zero. */
void driver_init(struct driver *driver, const struct driver_ops *ops, const struct driver_options *options);

/* With the lock held. */
bool driver_is_asked(const struct driver *driver);

/* Takes the first thing that is asked, and its words. False: nothing is. */
bool driver_take(struct driver *driver, enum driver_ask *what, struct driver_words *words);

/* The store has answered; or it has failed. With the lock held. */
void driver_note_answer(struct driver *driver);
void driver_note_failure(struct driver *driver, const rdzv_error *error);

/* For logs of decisions: an engine's or a member's trace, with the driver as its argument. */
void driver_trace(void *driver, const char *line);

#endif
