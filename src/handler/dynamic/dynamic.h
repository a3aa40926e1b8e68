/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The dynamic rendezvous as a handler: the user's calls ask the driver (handler/dynamic/driver.h), wait for its answer
 * by their own deadline, and keep what it tells of the round.
 *
 *   open.c     open and close
 *   dynamic.c  the user's calls
 *   join.c     the longest of them, rdzv_handler_next
 *   ask.c      asking the driver, and what it tells
 *   master.c   where rank 0 can be reached
 *
 * Failure modes: the store is silent: a call ends by its own deadline, whatever the driver does. The user cancels: the
 * call ends, and the driver takes the node out. The handler is closed: the driver is stopped.
 */
#ifndef RDZV_HANDLER_DYNAMIC_DYNAMIC_H
#define RDZV_HANDLER_DYNAMIC_DYNAMIC_H

#include "handler/change.h"
#include "handler/conf.h"
#include "handler/dynamic/driver.h"
#include "handler/handler.h"
#include "handler/result.h"

#include <rdzv/backend.h>

struct dynamic {
  rdzv_handler base;
  struct driver *driver;
  rdzv_server *server; /* that the driver owns; NULL: another process serves */
  rdzv_store *store;   /* of the rounds, and that of the backend: for clones only. May be NULL */
  struct events events;

  pthread_mutex_t call; /* one call that asks at a time; guards `master` */

  /* Where rank 0 was in the last round, and this node's own port. */
  struct {
    char *node, *addr;
    int port;
    int port_fd; /* keeps a port for us; -1: none yet */
    int own_port;
    bool keeps;                    /* it is ours for life: PyTorch nodes may have heard of it */
    int64_t past_round;            /* the last round, if the store has its address for rdzv nodes only; else -1 */
    bool past_is_own;              /* this node was its rank 0 */
    char own_addr[HOST_NAME_SIZE]; /* where others reach us; "": not looked for yet */
  } master;

  pthread_mutex_t lock; /* guards what follows. The driver's lock may be taken while it is held */

  /* What was asked last, and the answer. */
  uint64_t awaited; /* the driver's ticket; 0: no call waits for an answer */
  struct flag answered;
  int outcome;
  rdzv_error error;
  struct round_result *joined;

  /* What has happened to the round since. */
  bool in_round;      /* this node is a participant of the round that was given out last */
  bool been_in_round; /* ever */
  struct {            /* of rdzv_handler_set_workers */
    char role[NATIVE_MAX_ROLE + 1];
    int64_t local_world_size, restart_count;
  } workers;
  bool told_silent; /* a call has ended with the store's silence */
  struct rdzv_change change;
  struct flag changed;
  struct flag ended; /* up if more has happened than that nodes wait */
};

/* ---- dynamic.c ---- */
extern const struct handler_ops dynamic_ops;

/* Puts the reason for closing, if there is one, behind the sentence. */
void dynamic_add_reason(struct dynamic *handler, rdzv_error *error);

/* ---- join.c ---- */
int dynamic_next(rdzv_handler *base, rdzv_result **out, rdzv_error *error);

/* What the keys of a round begin with, in its store: to be freed. NULL: no memory. */
char *dynamic_round_prefix(const struct dynamic *handler, int64_t round);

/* ---- ask.c ---- */

/* For how long an answer is waited for. */
struct patience {
  deadline until;
  const struct flag *cancel; /* or NULL */
  bool for_answers;          /* not longer than the dead time, where the store does not answer */
  bool is_farewell;          /* cancel is the handler's hurry, and makes the time shorter */
};

/* How long a call waits beyond the deadline of what it asked, for the driver to say that it has passed. */
enum { DYNAMIC_GRACE_MS = RENDEZVOUS_ROLLBACK_MS + 2000 };

/* Asks the driver, and waits for its answer; `words` go with it, or are NULL; `name` is what was asked, for errors. On
 * failure the wait for the answer is over. With `call` held. */
int dynamic_ask(struct dynamic *handler, enum driver_ask what, const struct driver_words *words, const char *name,
                const struct patience *patience, rdzv_error *error);

/* Has the driver take the node out, whatever it does. */
void dynamic_give_up(struct dynamic *handler);

/* What the driver tells: a driver_tell, for the handler. */
void dynamic_told(void *handler, const struct driver_news *news);

/* Frees a round that no call has taken. With the lock held, or when no other thread is there. */
void dynamic_drop_joined(struct dynamic *handler);

/* The store is lost, whatever became of the last request: a time-out is for what the caller waits for. */
int dynamic_fail_lost(struct dynamic *handler, const char *what, rdzv_error *error);

int dynamic_fail_poll(const char *what, int errnum, rdzv_error *error);

/* ---- open.c ---- */
void dynamic_close(rdzv_handler *base);
void dynamic_abandon(rdzv_handler *base);

/* What a handler is made of. */
struct dynamic_parts {
  rdzv_backend *backend; /* of a swap node, which owns the server; or: */
  bool native;           /* the server of `store` forms the rounds */
  rdzv_store *store;     /* may be NULL for a swap node */
  rdzv_server *server;   /* NULL: another process serves */

  /* Of the store, once the handler is open: until then its calls end with the time to open, and the descriptor of the
   * params cancels them. 0: the store stays as it is. */
  int64_t read_timeout_ms, request_timeout_ms;
  rdzv_backend_ops ops; /* private */
};
void dynamic_parts_free(const struct dynamic_parts *parts);

/* As rdzv_handler_open_dynamic, with the options of those kinds: CONF_…. Takes the parts over, also on failure. */
int dynamic_open(const rdzv_params *params, unsigned options, const struct dynamic_parts *parts, rdzv_handler **out,
                 rdzv_error *error);

/* torchrun's run id where none was given: two jobs that have nothing to do with each other may both have it. */
#define UNNAMED_RUN "none"

/* Notes the program in the store, if the run is unnamed and no node has. RDZV_E_INVALID: it is for another program. */
int dynamic_check_program(rdzv_store *store, const rdzv_params *params, rdzv_error *error);

/* ---- c10d_create.c ---- */

typedef int c10d_store_user(rdzv_store *store, void *argument, rdzv_error *error);

/* Opens the store of a c10d rendezvous as its options say, without serving it, calls `use`, and closes it. The time of
 * the options bounds each call of the store, and the descriptor of the params cancels it. */
int c10d_use_store(const rdzv_params *params, c10d_store_user *use, void *argument, rdzv_error *error);

/* ---- master.c ---- */

/* Where this node is, should it be rank 0: what a native node says with its join. */
int dynamic_offer_master(struct dynamic *handler, struct driver_words *words, rdzv_error *error);

/* Publishes or gets where rank 0 is, through the round's store. RDZV_E_CANCELED: the user has canceled, or the round
 * ended before rank 0, an rdzv node, has published. */
int dynamic_find_master(struct dynamic *handler, struct round_result *result, rdzv_error *error);
void dynamic_forget_master(struct dynamic *handler);

/* Removes the address of this node's last round from the store, if this node published it or is rank 0 now. */
void dynamic_remove_past_master(struct dynamic *handler, const struct round_result *result);

#endif
