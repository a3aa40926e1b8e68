/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine of `--state-etcd`: a place in etcd, of which one server at a time is the active one.
 *
 *   names.c   the layout, and what is stored beside the records; pure
 *   lease.c   the lease of the active server: a thread keeps it, and a clock of our own says when it may have ended
 *   wait.c    becoming the active one: waits, by a watch, until no server is active
 *   commit.c  batches
 *   load.c    reads all records
 *   room.c    whether etcd has room for more
 *   open.c    makes and closes a place
 *
 * How a batch is made durable. Each write is a transaction on two conditions: PREFIX/active is the key that this server
 * created (the fence), and PREFIX/batch, the marker, is as this server left it. A batch that fits is one transaction,
 * which writes the records and the marker. One that does not is packed into parts below PREFIX/staged; the last part
 * goes with a marker that says how many parts count, and from then on the batch is durable. Its records are put in
 * place later: before the next batch, in rest, or by the next server when it opens the place.
 *
 * Failure modes: An answer is lost: the transaction is sent again, or by the next commit; the marker tells whether it
 * was done, and the condition on it keeps a late one out. This server was paused, or cut off: the lease ends, another
 * server creates PREFIX/active, and the fence fails here: RDZV_E_STALE. Another program deletes or changes the marker:
 * the active server writes it again. It deletes or changes PREFIX/active: the next renewal of the lease sees it, and
 * the server has lost the place. etcd is full: RDZV_E_NO_SPACE, and the lease goes on. etcd has no leader: tries go on
 * until the lease may have ended; then the server has lost the place.
 */
#ifndef RDZV_KEEP_ETCD_PLACE_H
#define RDZV_KEEP_ETCD_PLACE_H

#include "base/wait/flag.h"
#include "etcd/v3/v3.h"
#include "keep/etcd/names.h"

#include <pthread.h>
#include <stdatomic.h>

struct place;

/* ---- lease.c ---- */
struct place_lease {
  struct etcd3 *etcd; /* of the thread */
  const char *key;    /* PREFIX/active, */
  int64_t fence;      /* with the revision that created it */
  int64_t id;         /* 0: none */
  int64_t ttl_ms;
  int64_t asked_ms;      /* when it was asked for */
  _Atomic int64_t until; /* that long we have it at least, by the clock that runs on while the machine sleeps */
  atomic_bool is_lost;   /* for good */
  struct flag stop;      /* ends the thread */
  struct flag *halt;     /* raised when it is lost */
  const rdzv_log *log;
  const char *where; /* for messages */
  pthread_t thread;
  bool started;
};

/* Asks etcd for it; then place_lease_keep has a thread keep it alive. */
int place_lease_grant(struct place_lease *lease, int64_t ttl_ms, const struct etcd_call *call);
int place_lease_keep(struct place_lease *lease, rdzv_error *error);
bool place_lease_holds(struct place_lease *lease);

/* Ends the thread, and the lease in etcd if that answers soon; else it ends by itself. */
void place_lease_end(struct place_lease *lease);

/* ---- a place ---- */
struct place {
  struct keep base;
  rdzv_log log;
  struct etcd_client *client;
  struct etcd3 *etcd; /* of open, load and commit */
  char prefix[PLACE_MAX_PREFIX + 1];
  struct place_name active, batch; /* the keys */
  char where[640];                 /* for messages */
  char address[320];               /* of this server, for its clients */
  int64_t lease_ms;
  bool was_answered; /* by etcd */
  void (*told)(void *user, const char *active);
  void *user;
  struct flag halt; /* stop calls: canceled, or the lease is lost */
  atomic_bool is_canceled;
  struct place_lease lease;

  struct place_marker marker; /* as last known, */
  int64_t marker_revision;    /* with the revision that wrote it; 0: there is none */
  uint64_t number;            /* of the last write that was tried */
  int disputes;               /* of this commit: how often the marker was another one */
  deadline next_look;         /* for room */
  int64_t written;            /* bytes since the last look, about */
  int64_t quota;              /* of etcd; 0: not asked yet; below: it does not tell */
  rdzv_error full;            /* why there was no room then; code 0: there was */
};

static inline struct place *place_of(struct keep *keep) { return (struct place *)keep; }

/* A call of this place; it ends when the place is lost. */
struct etcd_call place_call(struct place *place, rdzv_error *error);

/* What a code of etcd's means to the server, and the error in the server's terms. */
int place_conclude(struct place *place, int result, const char *what, rdzv_error *error);

/* ---- wait.c ---- */

/* Returns 0 when this server is the active one: fence and lease are set. */
int place_become_active(struct place *place, rdzv_error *error);

/* ---- commit.c ---- */

/* Whether PREFIX/active, as it was read, is the key that this server created. */
bool place_is_own(const struct place_lease *lease, const struct etcd3_result *active);

/* Reads the marker, makes one in a new place, and puts a staged batch in place that counts. */
int place_take_up(struct place *place, rdzv_error *error);
int place_commit(struct keep *keep, const struct keep_change *changes, size_t count, rdzv_error *error);
bool place_rest(struct keep *keep);

/* ---- room.c ---- */
int place_room(struct keep *keep, rdzv_error *error);

/* ---- load.c ---- */
int place_load(struct keep *keep, keep_take *take, void *user, rdzv_error *error);

#endif
