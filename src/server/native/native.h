/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The native rendezvous in the server: rounds that the server forms itself (state/native/coordinator.h).
 *
 *   native.c    the coordinator in the loop: its events, effects, timers and memory
 *   requests.c  the operations of native nodes
 *   query.c     NODE_QUERY
 *   blob.c      the key that PyTorch nodes share the state by
 *
 * The connection is the coordinator's link. A node's connection is lost when it is reaped.
 *
 * Time. libuv runs timers before it looks at the sockets. If the server was stopped for a while, keep-alives wait in
 * the sockets then, and their senders must not be judged before they are heard. So a timer only asks for a look at the
 * sockets that does not wait, and the coordinator gets its timer event after that.
 */
#ifndef RDZV_SERVER_NATIVE_NATIVE_H
#define RDZV_SERVER_NATIVE_NATIVE_H

#include "server/server.h"
#include "state/native/coordinator.h"
#include "state/state.h"
#include "store/run_keys.h"

/* What the server keeps of a run that has native nodes. */
struct native_run {
  struct native_run *prev, *next;
  struct coordinator_run *run;
  uint64_t version; /* of the key, when it was written last by us or adopted */
  bool is_dirty;    /* a client may wait for a change of the key */
  bool is_private;  /* the server made the key, and no client has used it */
  uint64_t rest_ns; /* earliest next write for clients that wait for a change */
  size_t key_len;
  char key[]; /* as clients write it, with a slash */
};

struct natives {
  struct rdzv_server *server;
  struct coordinator *coordinator;
  struct native_run *runs;
  uv_timer_t timer;   /* of the coordinator */
  uv_timer_t changes; /* dirty runs are to be looked at */
  uv_idle_t nudge;    /* while `judge` is active, the loop does not wait for events */
  uv_check_t judge;
  uv_prepare_t lull; /* runs before the loop waits */
  bool was_beat;     /* since it ran last, keep-alives have come */
  size_t charged;    /* what the coordinator takes from the budget */
  struct buf pickle; /* scratch */
  struct buf text;
  int64_t lines_second; /* with `lines`, limits the log */
  unsigned lines;
};

/* ---- native.c ---- */

/* The moment of an event. */
struct moment natives_now(void);

/* Steps the coordinator; the moment is filled in. What it answers is sent by its effects. */
void natives_step(struct rdzv_server *server, struct coordinator_event event);

/* Sends what is in server->aside. `unasked`: the client may never read it. */
void natives_send(struct conn *conn, bool unasked);
void natives_refuse(struct conn *conn, enum wire_op op, uint64_t number, int code, const char *why);

/* At most ten lines a second, so that clients cannot fill a disk. */
bool natives_may_log(struct rdzv_server *server);

/* A run was restored: makes what the server keeps of it. RDZV_E_NO_MEMORY. All are there: natives_loaded. */
int natives_load(struct rdzv_server *server, const char *run_id, bool is_private, rdzv_error *error);
void natives_loaded(struct rdzv_server *server);

/* ---- blob.c ---- */
#define NATIVE_KEY "/" RUN_STATE_PREFIX

/* Checks a run id that came as a key. RDZV_E_INVALID. */
int natives_take_id(rdzv_bytes bytes, char run_id[NATIVE_MAX_RUN_ID + 1], rdzv_error *error);

/* Decodes what is in the key of a run. *exists: there is a state; else nothing, or PyTorch's sentinel.
 * RDZV_E_CORRUPT, RDZV_E_NO_MEMORY. */
int natives_decode(rdzv_bytes text, enum torch_layout preferred, bool *exists, struct rendezvous_state *state,
                   enum torch_layout *layout, rdzv_error *error);

/* The value of a key of a run; version 0: it is absent. */
uint64_t natives_get(struct rdzv_server *server, const char *run_id, enum run_part part, rdzv_bytes *value);
int natives_set(struct rdzv_server *server, const char *run_id, enum run_part part, rdzv_bytes value);

/* A run that is about to get its first native node begins with the state that is there. */
int natives_adopt(struct rdzv_server *server, const char *run_id, enum torch_layout preferred, rdzv_error *error);

/* The effects CHANGED and SAVE. */
void natives_changed(struct rdzv_server *server, struct coordinator_run *run);
void natives_save(struct rdzv_server *server, struct coordinator_run *run);
void natives_on_changes(uv_timer_t *timer);

#endif
