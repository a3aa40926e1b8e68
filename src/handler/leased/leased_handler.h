/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rendezvous made for etcd v3 as a handler, backend `etcd-v3`. state/leased/machine.h decides. A thread carries
 * that out: it makes the calls, renews the leases and listens, one after the other. The user's calls ask it, wait for
 * its answer, and keep what it tells of the round. The thread is started by the first call that asks.
 *
 *   open.c    opens and frees
 *   thread.c  the thread
 *   carry.c   what the machine wants, as calls of etcd; and their results
 *   ask.c     what the user's calls ask, and what the thread tells
 *   calls.c   the user's calls
 *   status.c  looking
 *
 * Locks: `call`, then `lock`; and those of the events under any of them.
 */
#ifndef RDZV_HANDLER_LEASED_LEASED_HANDLER_H
#define RDZV_HANDLER_LEASED_LEASED_HANDLER_H

#include "etcd/v3/v3.h"
#include "handler/change.h"
#include "handler/conf.h"
#include "handler/events.h"
#include "handler/handler.h"
#include "handler/result.h"
#include "state/leased/machine.h"

/* What can be asked, in the order in which it is taken. */
enum leased_ask { LEASED_LEAVE, LEASED_JOIN, LEASED_CLOSE, LEASED_ASKS };

struct leased_handler {
  rdzv_handler base;
  struct events events;
  struct etcd_client *client;
  struct etcd3 *etcd; /* the thread's */
  struct etcd3 *look; /* of calls that look */
  char *root;         /* "<prefix>/<run>/" */
  char *stores;       /* "<prefix>-store/<run>/" */
  char text[640];     /* where it is, for people */
  char addr[HOST_NAME_SIZE];

  pthread_mutex_t call; /* one call that asks at a time; guards port_fd */
  int port_fd;          /* keeps the port for us, after a join as rank 0 only; -1: none */

  /* The thread, and what only it uses once it is started. */
  pthread_t thread;
  bool started;
  struct flag wake, halt;
  struct leased machine;
  struct leased_update update;
  struct etcd3_watch *watch;
  uint64_t watch_id;
  bool data_lost; /* etcd has lost its data since the last join */

  pthread_mutex_t lock; /* guards what follows */
  bool stopping;
  bool asked[LEASED_ASKS];
  char *reason;                /* of LEASED_CLOSE */
  char master[HOST_NAME_SIZE]; /* where we can be reached as rank 0 */
  int port;
  rdzv_value seen;           /* what the user was shown last */
  bool awaited[LEASED_ASKS]; /* a call waits for the answer */
  struct flag answered;
  int outcome;
  rdzv_error error;
  struct round_result *joined;
  struct summary waits; /* what a join waits for */

  bool in_round;
  struct rdzv_change change;
  struct flag changed, ended;
  int64_t heard_ms;   /* when etcd answered last */
  rdzv_error trouble; /* code 0: it answers */
};

static inline struct leased_handler *leased_of(rdzv_handler *handler) { return (struct leased_handler *)handler; }

/* The stores of rounds are at <prefix>-store/<run>/<round>: apart from the keys that the nodes watch. */
#define LEASED_STORES "-store"

/* ---- open.c ---- */
void leased_close(rdzv_handler *base);
void leased_abandon(rdzv_handler *base);

/* The path that all runs are below, clean; NULL as prefix: the default. NULL: no memory. To be freed. */
char *leased_folder(const char *prefix);

/* The run's name as it is in keys: without slashes. To be freed; NULL: no memory. */
char *leased_run_name(const char *run_id);

/* ---- thread.c ---- */
int leased_start(struct leased_handler *handler, rdzv_error *error);
void leased_stop(struct leased_handler *handler);

/* ---- carry.c ---- */

/* Carries out what the machine wants, and steps it with the result. False: it was woken, and there is no result. */
bool leased_carry_out(struct leased_handler *handler);
void leased_feed(struct leased_handler *handler, struct leased_event *event);

/* ---- ask.c ---- */

/* Asks the thread, and waits for its answer until then. RDZV_E_CANCELED, RDZV_E_TIMEOUT: the wait is over.
 * Where `cancel` is the handler's hurry, it makes the time shorter. */
int leased_ask(struct leased_handler *handler, enum leased_ask what, const char *name, deadline until,
               const struct flag *cancel, rdzv_error *error);

/* Asks to leave, without waiting. */
void leased_give_up(struct leased_handler *handler);

/* What the last step tells. In the thread. */
void leased_told(struct leased_handler *handler);

/* ---- calls.c ---- */
extern const struct handler_ops leased_ops;

/* ---- status.c ---- */
int leased_is_closed(rdzv_handler *base, bool *closed, rdzv_error *error);
int leased_num_waiting(rdzv_handler *base, int64_t *count, rdzv_error *error);
int leased_status_read(rdzv_handler *base, int64_t wait_ms, rdzv_status **out, rdzv_error *error);

#endif
