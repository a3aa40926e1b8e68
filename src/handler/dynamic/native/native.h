/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver of a native node: it drives the member (state/native/member.h) on one connection to an rdzv server. The
 * thread waits for that connection and for what is asked; it blocks in nothing else but in connecting, which what is
 * asked ends.
 *
 *   native.c  the thread
 *   link.c    the connection, and the messages on it
 *   look.c    looking, on another connection that lasts as long as the look
 */
#ifndef RDZV_HANDLER_DYNAMIC_NATIVE_NATIVE_H
#define RDZV_HANDLER_DYNAMIC_NATIVE_NATIVE_H

#include "backend/c10d/store.h"
#include "base/wait/waiting.h"
#include "handler/dynamic/driver.h"
#include "handler/status.h"
#include "state/native/member.h"
#include "store/tcp/io.h"
#include "store/tcp/tcp.h"

/* The connection of a node. */
struct link {
  struct tcp_conn conn; /* connected, or not */
  bool fresh;           /* it was connected with the store, and has not been used yet */
  int64_t timeout_ms;   /* after which the kernel gives up what the server does not confirm */
  int64_t asked_us;     /* when the beat was sent whose answer is awaited; 0: none is */
};

struct native {
  struct driver base; /* its lock guards what says so */
  char *run_id;
  rdzv_store *store;                      /* the handler's, which it shares: for clones */
  rdzv_server *server;                    /* NULL: another process serves */
  char text[3 * ENDPOINT_TEXT_SIZE + 64]; /* of describe */
  struct flag wake;                       /* something is asked */

  /* What only the thread uses. */
  struct link link;
  struct member_update update; /* what the member wants */
  bool connecting;
  bool is_lost;           /* the connection, */
  bool is_put_off;        /* or the join; then: */
  struct waiting waiting; /* for another one */

  struct member member;      /* guarded; the thread alone changes it, and reads it without the lock */
  _Atomic uint64_t instance; /* of the server that was connected last */

  struct {
    pthread_mutex_t call; /* one call at a time; guards: */
    uint64_t version;     /* of the state that was seen last */
    struct status_still still;
  } view;
};

/* A driver without a thread yet. The store, whose connection it takes, is the caller's and must outlive it; takes the
 * server over, which may be NULL. RDZV_E_NO_MEMORY, RDZV_E_IO: then the server is still the caller's. */
int native_open(const struct driver_options *options, rdzv_store *store, rdzv_server *server, struct driver **out,
                rdzv_error *error);

/* Which server the node is at. For stores that are connected later. */
uint64_t native_instance(const struct driver *driver);

/* ---- link.c ---- */

/* Connects in one try. RDZV_E_CANCELED: `wake` was raised. RDZV_E_TIMEOUT, RDZV_E_UNSUPPORTED: the server is there, and
 * forms no rounds. */
int link_connect(struct link *link, deadline until, const struct flag *wake, rdzv_error *error);
void link_drop(struct link *link);

/* Puts the requests of an update behind each other, and sends as much as goes. link_flush sends more of it. */
int link_put(struct link *link, const struct member_update *update, rdzv_error *error);
int link_flush(struct link *link, rdzv_error *error);
static inline bool link_is_full(const struct link *link) { return tcp_io_is_full(&link->conn); }

/* Takes in what has come. RDZV_E_CONNECTION: the server has closed. */
int link_receive(struct link *link, rdzv_error *error);

/* One message, with what it points to: valid until the next call. */
struct link_message {
  struct member_event event;
  struct native_joined joined;
  struct native_news news;
  rdzv_error error;
  size_t size;
};

/* 1: a message; 0: none has come whole. RDZV_E_PROTOCOL; or the error with which the server refuses the connection. */
int link_next(struct link *link, struct link_message *out, rdzv_error *error);
void link_consume(struct link *link, const struct link_message *message);

/* ---- look.c ---- */

/* Says in the wait's line which nodes are there, if the server answers soon, and how long the last call lasts; `until`
 * is when the join is over. */
void native_tell_nodes(struct native *native, struct waiting *waiting, deadline until);
int native_look(struct driver *driver, int64_t wait_ms, const struct flag *cancel, rdzv_status **out,
                rdzv_error *error);

/* The participants of a round that the server has formed, through the result's store: a result_load. */
struct round_result;
int native_load_participants(struct round_result *result, rdzv_error *error);

#endif
