/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first-generation rendezvous on etcd, PyTorch's EtcdRendezvousHandler. state/gen1/machine.h decides. The user's
 * thread that joins, closes or leaves carries that out; while the node is a participant, a thread of the handler does
 * between the user's calls, and so hears of changes. etcd/v2/lease.h renews what expires.
 *
 *   gen1.c    joins, closes, leaves
 *   open.c    opens and frees
 *   carry.c   carries out what the machine wants
 *   place.c   our place in the round, and what happened to it
 *   listen.c  the thread that listens for changes, and the calls that wait for them
 *   result.c  what joining gives
 *   status.c  looking
 *   extra.c   extra data
 *
 * Everything is below <etcd_prefix>/run_<run_id>/rdzv, as PyTorch has it: version_counter, active_version, and for each
 * round a directory v_<n> with rank_<r> (keep-alives), extra_data and kv (the store).
 *
 * Locks: `lock`, then that of the leases, then that of the place; and those of the events under any of them.
 */
#ifndef RDZV_HANDLER_GEN1_GEN1_H
#define RDZV_HANDLER_GEN1_GEN1_H

#include "base/wait/fair_lock.h"
#include "etcd/v2/lease.h"
#include "etcd/v2/v2.h"
#include "handler/change.h"
#include "handler/events.h"
#include "handler/handler.h"
#include "state/gen1/machine.h"

enum { GEN1_PATH = 1024, GEN1_GRACE_MS = 1000 };

enum gen1_lease { GEN1_LEASE_RUN, GEN1_LEASE_RANK };

/* What the values of our keep-alives begin with, by which we know each other. PyTorch's are empty. */
#define GEN1_MARK "rdzv"

/* Our place in a round: the one record of it. */
struct gen1_place {
  struct flag changed;  /* up while there is something to tell */
  struct flag ended;    /* up while it is more than that a node waits */
  struct flag outside;  /* up while we are not in */
  pthread_mutex_t lock; /* guards what follows */

  /* The keep-alive of that round and rank is ours to delete, and extra data are of that round; "": we have no place.
   * Changed only with the handler's lock, too, so either lock is enough to read them. */
  char round[24];
  int64_t rank;
  bool in; /* a participant of it still, as far as the user knows or will have been told */

  struct rdzv_change change; /* not told yet */
  rdzv_error failure;        /* the same; code 0: none */
  enum etcd_lease_state lease;
  int64_t held_ms;  /* when the lease was held for sure */
  rdzv_error cause; /* of its silence */
};

/* A place that is not open: closing it does nothing. */
#define GEN1_PLACE_NONE \
  ((struct gen1_place){ \
      .changed = FLAG_NONE, .ended = FLAG_NONE, .outside = FLAG_NONE, .lock = PTHREAD_MUTEX_INITIALIZER})

/* The state that the user was shown last. */
struct gen1_look {
  pthread_mutex_t lock; /* guards what follows */
  bool looked;
  char *text; /* of the state; NULL: there was none */
};

struct gen1 {
  rdzv_handler base;
  char backend[16]; /* the name that we were asked for by */
  struct etcd_client *client;
  struct events events;
  struct etcd_leases *leases;
  char *root; /* <etcd_prefix>/run_<run_id> */
  char text[640];
  char mark[512]; /* the value of our keep-alive, and of no other */
  struct gen1_place place;
  struct gen1_look look;
  pthread_t thread;
  bool started;

  struct fair_lock lock; /* for the machine: of the user's calls, and of the thread between them; guards what follows */
  bool over;
  struct gen1_node machine;
  struct gen1_update update; /* what the machine wants next */
  bool renews_run;           /* the run's directory */
  rdzv_error trouble;        /* with etcd, the last; code 0: it answers */
  int port_fd, port;         /* as rank 0, of the last round; -1: none yet */
};

/* The path in etcd that the folders of all runs are in, clean; NULL as prefix: the default. NULL: no memory. To be
 * freed. */
char *gen1_folder(const char *prefix);

/* A path below the root. False: it is too long. */
bool gen1_path(const struct gen1 *handler, char out[GEN1_PATH], const char *format, ...) RDZV_PRINTF(3, 4);

/* The lease of the run's directory. */
struct etcd_lease gen1_run_lease(const struct gen1 *handler);

/* ---- gen1.c ---- */
extern const struct handler_ops gen1_ops;

/* What the machine failed with, as the user gets it. */
int gen1_fail(const struct gen1 *handler, rdzv_error *error);

/* ---- open.c ---- */
void gen1_free(rdzv_handler *base);
void gen1_abandon(rdzv_handler *base);

/* ---- carry.c ---- */

/* Carries out what the machine wants, and steps it with the outcome.
 * RDZV_E_CANCELED: the request is to be carried out again. */
int gen1_carry_out(struct gen1 *handler, const struct flag *cancel, unsigned *happened, rdzv_error *error);

/* ---- place.c ---- */
int gen1_place_open(struct gen1_place *place, rdzv_error *error);
void gen1_place_close(struct gen1_place *place);

/* The place that the machine has got is ours from here on; or none is. With the handler's lock. */
void gen1_place_take(struct gen1 *handler);
void gen1_place_leave(struct gen1 *handler);
bool gen1_place_is_in(struct gen1_place *place);

/* A path below the directory of our round. RDZV_E_INVALID: we are in none. */
int gen1_round_path(struct gen1 *handler, const char *name, char out[GEN1_PATH], rdzv_error *error);

/* Renews our keep-alive, which was created at that time, from here on; gen1_drop_rank stops that. False: no memory. */
bool gen1_hold_rank(struct gen1 *handler, const char *key, int64_t ttl, int64_t asked_ms);
void gen1_drop_rank(struct gen1 *handler);
void gen1_lease_told(void *user, int slot, enum etcd_lease_state state, int64_t since_ms, const rdzv_error *cause);
void gen1_lease_said(void *user, bool lost, const char *line);

/* Keeps what happened while we are in, for the user. With the handler's lock. */
void gen1_tell(struct gen1 *handler, unsigned happened);

/* What the user has not been told. RDZV_E_TIMEOUT, without a sentence: nothing. */
int gen1_take_change(struct gen1 *handler, rdzv_change **out, rdzv_error *error);

/* ---- listen.c ---- */
int gen1_listen_start(struct gen1 *handler, rdzv_error *error);
void gen1_listen_stop(struct gen1 *handler);
int gen1_wait_change(rdzv_handler *base, int64_t timeout_ms, rdzv_change **out, rdzv_error *error);
int gen1_change_fd(const rdzv_handler *base);
int gen1_ended_fd(const rdzv_handler *base);

/* ---- result.c ---- */

/* With the lock, after the machine has said GEN1_HAPPENED_JOINED. */
int gen1_result(struct gen1 *handler, int64_t world_size, rdzv_result **out, rdzv_error *error);
int gen1_find_master(rdzv_handler *base, rdzv_result *result, rdzv_error *error);

/* ---- status.c ---- */
int gen1_is_closed(rdzv_handler *base, bool *closed, rdzv_error *error);
int gen1_num_waiting(rdzv_handler *base, int64_t *count, rdzv_error *error);
int gen1_status_read(rdzv_handler *base, int64_t wait_ms, rdzv_status **out, rdzv_error *error);

/* ---- extra.c ---- */
int gen1_extra_set(rdzv_handler *base, const char *key, const char *value, rdzv_error *error);
int gen1_extra_get(rdzv_handler *base, const char *key, int64_t timeout_ms, rdzv_value *out, rdzv_error *error);

#endif
