/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client's session: what the server knows of a client beyond its connection. Pure: connections are pointers, and the
 * time is passed in.
 *
 * The writes of a session are numbered 1, 2, 3 …, and the session remembers the last write that took effect, with its
 * result. A client that lost its connection before the answer takes its session to a new connection and sends the same
 * write with the same number. If the write was done, it is answered from memory; if not, it is done now. A write
 * without effect (a refused swap, a pop from an empty queue, an error) is not remembered, since it can be repeated.
 *
 * A session has one connection. When it is taken to another, the caller closes the previous one, so that bytes that
 * arrive there late are never executed. The client numbers these takeovers, too: the epoch. A takeover that arrives
 * after a later one is refused, together with the copy of a write that it brings, which the client may have an answer
 * to already. So all writes come from the newest connection of the client, and a write without effect need not be
 * remembered. A session outlives its connection for some time and is then forgotten.
 *
 * The server issues tokens: a serial number and its keyed hash. A valid token that is not in the table belongs either
 * to a session that was never used, which may begin again, or to a forgotten one, whose last write has an unknown
 * outcome. `forgotten`, the highest serial of the forgotten sessions, tells them apart: a session with a higher serial
 * was never used.
 *
 * A durable server keeps its sessions (keep/keep.h), together with what their writes have changed. So a restarted
 * server knows each write that it knows the effect of. Serials are kept in blocks: a greeting is no change.
 */
#ifndef RDZV_SERVER_SESSION_H
#define RDZV_SERVER_SESSION_H

#include "base/budget.h"
#include "base/siphash.h"
#include "keep/record.h"
#include "wire/request.h"
#include "wire/writer.h"

#include <uthash.h>

struct session {
  UT_hash_handle hh; /* by serial */
  uint64_t serial;
  void *conn;                  /* NULL: none */
  struct session *prev, *next; /* in sessions->left */
  int64_t left_at;             /* when it lost its connection */
  uint64_t epoch;              /* of the last takeover; 0: none */

  /* The last write that took effect. `done` is its number; 0: there was none. */
  uint64_t done;
  enum wire_op op;
  uint64_t result;  /* a sum, a version, a length */
  rdzv_value value; /* the value that a pop took */

  /* If they are kept. */
  struct record_slot slot;
  struct session *dirty_prev, *dirty_next; /* of sessions->dirty */
  bool is_dirty;
};

enum { SESSIONS_KEPT = 65536 }; /* without a connection */

struct sessions {
  struct session *table;
  struct session *left; /* sessions without a connection, oldest first */
  size_t left_count;
  uint64_t issued;    /* the last serial issued */
  uint64_t forgotten; /* see above */
  struct siphash_seed seed;
  struct budget *budget;

  bool tracks;
  bool is_head_dirty;    /* `issued_kept` has changed */
  uint64_t issued_kept;  /* no higher serial is issued before more are reserved */
  uint64_t issued_safe;  /* the same, as far as it is durable: a serial must never be issued twice */
  struct session *dirty; /* have changed since the last collection */
  struct session *gone;  /* forgotten, but their records are to be removed; a list by `next` */
};

void sessions_init(struct sessions *sessions, struct budget *budget, struct siphash_seed seed);
void sessions_free(struct sessions *sessions);

/* Makes a session for a connection. NULL: no memory, or no serial is left for now. */
struct session *session_open(struct sessions *sessions, void *conn);
void session_token(const struct sessions *sessions, const struct session *session, uint8_t out[WIRE_TOKEN_BYTES]);

/* The session of a token, to be taken over, begun again if it is gone and was never used. RDZV_E_STALE: a takeover of
 * that epoch or a later one has been there. RDZV_E_OUTCOME_UNKNOWN: it is forgotten. RDZV_E_PROTOCOL: the server never
 * gave that token, or the epoch is 0. RDZV_E_NO_MEMORY. */
int session_find(struct sessions *sessions, rdzv_bytes token, uint64_t epoch, struct session **out);

/* Gives it to a connection, and takes it from the one before, which is returned; NULL: there was none. */
void *session_attach(struct sessions *sessions, struct session *session, uint64_t epoch, void *conn);

/* Its connection is closed. A session that was never used is freed; others wait for the client to come back. */
void session_leave(struct sessions *sessions, struct session *session, int64_t now);

/* Forgets sessions that lost their connection before `then`. */
void sessions_forget(struct sessions *sessions, int64_t then);

/* ---- keeping them ---------------------------------------------------------------------------------------------- */

/* Before the first session: from now on changes are tracked. */
void sessions_track(struct sessions *sessions);

/* Reserves serials; they can be issued when that is durable, and the caller has set issued_safe. */
void sessions_reserve(struct sessions *sessions);
bool sessions_have_changed(const struct sessions *sessions);

/* As ks_collect and ks_collected. */
void sessions_collect(struct sessions *sessions, struct batch *batch);
void sessions_collected(struct sessions *sessions);

/* Loads the head, and then each session, which has no connection since `now`. RDZV_E_CORRUPT, RDZV_E_LIMIT,
 * RDZV_E_NO_MEMORY. */
void sessions_load_head(struct sessions *sessions, const struct record_head *head);
int sessions_load(struct sessions *sessions, uint64_t serial, const struct record_session *record, rdzv_bytes value,
                  struct record_slot slot, int64_t now);

/* ---- writes --------------------------------------------------------------------------------------------------- */

enum session_verdict {
  SESSION_NEW,      /* do it */
  SESSION_REPEATED, /* session_repeat answers it */
  SESSION_WRONG,    /* older than the last one, or of another kind than the one with its number */
};

enum session_verdict session_judge(const struct session *session, uint64_t number, enum wire_op op);

/* Remembers a write that took effect, with its result. */
void session_done(struct sessions *sessions, struct session *session, uint64_t number, enum wire_op op,
                  uint64_t result);

/* The same for a pop: keeps the value as well, which is still in its queue. False: no memory, and nothing is changed.
 */
bool session_took(struct sessions *sessions, struct session *session, uint64_t number, enum wire_op op, uint64_t result,
                  rdzv_bytes value);

/* Answers a repeated write as it was answered when it was done. */
void session_repeat(const struct session *session, const struct wire_request *request, struct wire_writer *out);

#endif
