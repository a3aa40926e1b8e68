/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first-generation rendezvous on etcd, PyTorch's EtcdRendezvousHandler: state/gen1/machine.h decides; the thread of
 * the user's that joins, closes or leaves carries it out, and while the node is a member a thread of the handler does,
 * which hears of changes. Another renews what expires.
 *
 *   gen1.c    joins, closes, leaves
 *   open.c    opens and frees
 *   carry.c   carries out what the machine wants
 *   listen.c  the thread that hears of changes, and the calls that wait for them
 *   result.c  what joining gives
 *   status.c  looking
 *   extra.c   extra data
 *   lease.c   renews
 *
 * Everything is below <etcd_prefix>/run_<run_id>/rdzv, as PyTorch has it: version_counter, active_version, and for each
 * round a directory v_<n> with rank_<r> (keep-alives), extra_data and kv (the store).
 *
 * Locks: `call`, then that of the leases, then that of the news; and those of the events under any of them.
 */
#ifndef RDZV_HANDLER_GEN1_GEN1_H
#define RDZV_HANDLER_GEN1_GEN1_H

#include "etcd/v2.h"
#include "handler/gen1/lease.h"
#include "handler/handler.h"
#include "state/gen1/machine.h"

#include <stdatomic.h>

enum { GEN1_PATH = 1024, GEN1_GRACE_MS = 1000 };

/* What the values of our keep-alives begin with, by which we know each other. PyTorch's are empty. */
#define GEN1_MARK "rdzv"

/* What has happened to the round, for who asks. */
struct gen1_news {
  pthread_mutex_t lock; /* guards what follows */
  struct flag changed;  /* up while there is something to tell */
  struct flag ended;    /* up while it is more than that somebody waits */
  struct flag outside;  /* up while we are in no round */
  bool member;          /* as far as the user knows, or will have been told */
  char round[24];       /* that extra data are of; "": none */
  rdzv_change change;   /* not told yet */
  rdzv_error failure;   /* the same; code 0: none */
  enum etcd_lease_state lease;
  int64_t held_ms;  /* when the lease was held for sure */
  rdzv_error cause; /* of its silence */
};

/* What the user has been shown last, to tell whether what is there is another. */
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
  char mark[512]; /* the value of our keep-alive, and of nobody else's */
  struct gen1_news news;
  struct gen1_look look;
  pthread_t thread;
  bool started;

  atomic_int callers;   /* that have their turn or want it; the thread lets them go first */
  struct flag wake;     /* up while there are any */
  pthread_mutex_t call; /* one that uses the machine at a time; guards what follows */
  pthread_cond_t turn;
  bool over;
  bool listens; /* the thread has work: we are a member */
  struct gen1_node machine;
  struct gen1_update update; /* what the machine wants next */
  bool member;               /* our keep-alive of that round and rank is ours to delete */
  char round[24];
  int64_t rank;
  bool renews_run;    /* the run's directory */
  rdzv_error trouble; /* with etcd, the last; code 0: it answers */
  int port_fd, port;  /* as rank 0, of the last round; -1: none yet */
};

/* A path below the root. False: it is too long. */
/* The path in etcd that the folders of all runs are in; NULL as prefix: the default. NULL: no memory. To be freed. */
char *gen1_folder(const char *prefix);

bool gen1_path(const struct gen1 *handler, char out[GEN1_PATH], const char *format, ...) RDZV_PRINTF(3, 4);

/* The lease of the run's directory. */
struct etcd_lease gen1_run_lease(const struct gen1 *handler);

/* ---- gen1.c ---- */
extern const struct handler_ops gen1_ops;

/* For whoever uses the machine. */
void gen1_take_turn(struct gen1 *handler);
void gen1_end_turn(struct gen1 *handler);

/* What the machine failed with, as the user gets it. */
int gen1_failure(const struct gen1 *handler, rdzv_error *error);

/* ---- open.c ---- */
void gen1_free(rdzv_handler *base);
void gen1_abandon(rdzv_handler *base);

/* ---- carry.c ---- */

/* Carries out what the machine wants, and steps it with what comes of that. `happened` is what came about.
 * RDZV_E_CANCELED: the request is to be carried out again. */
int gen1_carry_out(struct gen1 *handler, const struct flag *cancel, unsigned *happened, rdzv_error *error);

/* ---- listen.c ---- */
int gen1_listen_open(struct gen1 *handler, rdzv_error *error);
void gen1_listen_close(struct gen1 *handler);

/* We are a member from here on, or in no round any more; in our turn. */
void gen1_listen_begin(struct gen1 *handler);
void gen1_listen_end(struct gen1 *handler);

/* Keeps what came about while we are a member for who asks; in our turn. */
void gen1_tell(struct gen1 *handler, unsigned happened);

/* Renews our keep-alive from here on, which was put there at that time; or not any more. False: no memory. */
bool gen1_hold_rank(struct gen1 *handler, const char *key, int64_t ttl, int64_t asked_ms);
void gen1_drop_rank(struct gen1 *handler);

etcd_lease_told gen1_lease_told;
int gen1_wait_event(rdzv_handler *base, int64_t timeout_ms, rdzv_change *out, rdzv_error *error);
int gen1_change_fd(const rdzv_handler *base);
int gen1_ended_fd(const rdzv_handler *base);

/* A path below the round that we are in. RDZV_E_INVALID: in none. */
int gen1_round_path(struct gen1 *handler, const char *name, char out[GEN1_PATH], rdzv_error *error);

/* ---- result.c ---- */

/* In our turn, after the machine has said GEN1_HAPPENED_JOINED. */
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
