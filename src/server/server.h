/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside the store server. One thread, one libuv loop, one keyspace:
 *
 *   server.c    open, run, stop, close
 *   listen.c    the listening socket
 *   conn.c      a client's connection: bytes in, bytes out, its end
 *   session.c   what outlives a client's connection: which of its writes was done
 *   schedule.c  who is served when, so that no client's work stops the others
 *   outbox.c    what is on its way to a client
 *   execute.c   a request, done to the keyspace and answered
 *   multi.c     requests over many keys
 *   listing.c   LIST_KEYS
 *   pending.c   requests that are answered later; pending_large.c those over very many keys
 *   timeouts.c  clients that take too long
 *
 * The way of a request: conn.c reads into a buffer that all share, decodes in place, and calls execute(); the answers
 * of all requests of one read are gathered in `answers` and leave in one write. Whatever takes longer than a slice goes
 * on in a later iteration of the loop.
 */
#ifndef RDZV_SERVER_SERVER_H
#define RDZV_SERVER_SERVER_H

#include "base/blob.h"
#include "base/budget.h"
#include "base/buf.h"
#include "base/wait/fork.h"
#include "server/session.h"
#include "store/keyspace/keyspace.h"
#include "wire/request.h"
#include "wire/writer.h"

#include <pthread.h>
#include <rdzv/server.h>
#include <stdatomic.h>
#include <uv.h>

struct conn;
struct pending;
struct chunk;
struct outbox;

enum {
  READ_BYTES = 64 * 1024,          /* of the buffer that all connections read into */
  ANSWER_BYTES = 256 * 1024,       /* gathered answers are written when they are this long */
  KEEP_ANSWER_BYTES = 1024 * 1024, /* a longer answer buffer is not kept */
  SHARED_BYTES = 16 * 1024,        /* values from this length on are sent from where they are */
  SLICE_KEYS = 1024,               /* done in one slice: keys, and bytes of them; */
  SLICE_BYTES = 256 * 1024,        /* also bytes read from, and sent to, one client */
  REAP_AT_ONCE = 64,               /* clients that are closed in one go */
};

/* Bytes and parts of blobs, in order. All zero: nothing. */
struct chain {
  struct chunk *first, *last;
  size_t len; /* of all */
};

/* It is more than a slice. */
static inline bool is_large(const struct wire_request *request) {
  return request->count > SLICE_KEYS || request->list.len > SLICE_BYTES;
}

/* A request over many keys that is under way. */
struct multi {
  enum wire_op op;
  size_t size;     /* of the request, which is in front of conn->in */
  size_t at, left; /* where its next key is, and how many are left */
  bool absent;     /* CHECK: one was */
  bool over;       /* it has been answered */
  uint64_t write;  /* its number, if it is a write of a session */
  struct chain values;
  struct ks_stage *stages;
  size_t staged, stages_bytes;
};

/* A client that waits for the list of all keys. */
struct asking {
  struct asking *prev, *next;
  struct conn *conn;
  bool is_now;
};

struct listing {
  struct blob *keys; /* as they are sent; NULL: none, see code */
  int code;
  uint64_t version; /* of the keyspace's keys when it was begun */
  uint64_t count;
  bool walking;
  struct asking *now, *next; /* those whom this one, and the next one, is for */
};

struct rdzv_server {
  uv_loop_t loop;
  uv_poll_t listener;
  int listen_fd;
  int reserve_fd;    /* given up for a moment when there is none for a client */
  bool accept_rests; /* until the next tick */
  uv_async_t wake_to_stop;
  uv_timer_t tick;
  uv_idle_t scheduler; /* active as long as something is left to do */
  bool stopping;
  bool threaded;
  pthread_t thread;
  atomic_bool running; /* in whatever thread */
  fork_mark born;

  rdzv_server_options options; /* with the defaults filled in; bind, listen_fd and log are not used after open */
  rdzv_log log;
  struct wire_limits limits;
  char address[320];
  int port;
  uint64_t instance; /* random; tells clients of our dialect that the server is still the same one */

  struct budget budget;
  struct keyspace *ks;
  struct sessions sessions;
  struct conn *conns;
  size_t conns_count;
  pthread_mutex_t clients_lock; /* guards what follows */
  pthread_cond_t clients_gone;
  size_t clients;          /* conns_count, for other threads */
  struct conn *doomed;     /* closed when the request under way is done */
  struct conn *leaving;    /* closed, but what they waited for is still in the keyspace */
  struct conn *ready;      /* have something to do that does not depend on them; in fair order */
  struct conn *unfinished; /* half a request came, or an answer is not read; oldest first */
  struct conn *idle;       /* longest idle first; only with an idle timeout */
  struct pending *again;   /* woken, to be executed once more */
  struct pending *large;   /* over very many keys, being looked at or listed */

  struct listing listing;

  uint64_t slice_end; /* 0: the clock has not been looked at yet */
  size_t slice_units; /* of work since the last look at it */

  struct conn *active;        /* whose requests are being executed */
  struct wire_writer answers; /* to the active one */
  struct wire_writer aside;   /* to another one, for a moment */
  struct buf bytes;           /* of server_bytes */
  uint8_t *read_buffer;
  char doom_text[128]; /* of the active one */

  int64_t refusals_second; /* for not writing more than some lines a second about bad clients */
  unsigned refusals;
};

struct conn {
  uv_poll_t poll; /* first, so that the handle is the connection */

  /* What a request needs, close together. */
  struct rdzv_server *server;
  int fd;
  int polled;    /* for these events; 0: not at all */
  bool has_more; /* `in` may have whole requests */
  bool reading;
  bool is_ready;
  bool is_unfinished;
  bool is_doomed;
  bool is_leaving;
  bool is_closed;
  struct outbox *out;     /* what is to be sent; NULL: nothing */
  struct multi *multi;    /* the request in front of `in`, which is under way */
  struct asking *asking;  /* LIST_KEYS is under way */
  struct pending *holder; /* a large wait is being looked at for the first time */
  struct wire_decoder decoder;
  struct session *session; /* NULL: a client that has none, or PyTorch's */
  struct buf in;           /* the part of the stream that is not executed yet */
  size_t charged;          /* what `in` has of the budget */

  uint64_t writes;          /* the number of the last write of the session that came here */
  uint64_t write;           /* that of the write under way */
  struct conn *prev, *next; /* of server->conns, then of server->leaving */
  struct conn *ready_prev, *ready_next;
  struct conn *unfinished_prev, *unfinished_next;
  struct conn *idle_prev, *idle_next;
  struct conn *doomed_next;
  struct pending *pending; /* oldest first */
  struct pending *watches;
  size_t waits;  /* keys of all of them */
  int64_t since; /* when it became unfinished */
  int64_t last_request;
  uint64_t requests_seen; /* decoder.requests when `since` was set */
  const char *doom_why;   /* valid until it is reaped; NULL: it left by itself */
  int doom_code;
};

/* ---- server.c ---- */

/* One more client, or one less. */
void server_count(struct rdzv_server *server, int change);

/* ---- conn.c ---- */

/* Takes over the socket of a new client. */
void conn_begin(struct rdzv_server *server, int fd, const struct sockaddr *peer);

/* Logs that a client is closed, at most ten times a second, so that clients cannot fill a disk. */
void log_refusal(struct rdzv_server *server, const char *peer, const char *why);

/* Sends bytes to a client: gathered if it is the active one, in its next slice if not. The chain is then empty; the
 * blob is the connection's to let go. */
void conn_send(struct conn *conn, const void *data, size_t len);
void conn_send_chain(struct conn *conn, struct chain *chain);
void conn_send_blob(struct conn *conn, struct blob *blob);

/* Has the connection closed as soon as the request under way is done. The reason, which is not copied, is logged,
 * and sent to a client of our dialect, but with RDZV_E_CONNECTION: what is not answered may have been done; NULL: it
 * left by itself. */
void conn_doom(struct conn *conn, int code, const char *why);

/* Closes those that are doomed, at most so many, and lets go of a part of what they held. True: some are left. */
bool conn_reap(struct rdzv_server *server, size_t most);

/* Does what is left to do for a client, for a slice. */
void conn_go_on(struct conn *conn);

/* After each event: reads from it, or does not any more; looks after its timeouts. */
void conn_settle(struct conn *conn);

/* Takes the first `size` bytes of conn->in, with what they have of the budget. False: no memory. */
bool conn_take_front(struct conn *conn, size_t size, struct buf *out);

/* ---- schedule.c ---- */
int schedule_init(struct rdzv_server *server);

/* Something is left to do. */
void schedule_work(struct rdzv_server *server);

/* Gives a client a slice in a later iteration, or not any more. */
void schedule_conn(struct conn *conn);
void schedule_forget(struct conn *conn);

/* Wakes, tells and executes again what is due, for a slice. */
void schedule_wake(struct rdzv_server *server);

/* The time that one client may have: slice_is_over counts a request and the bytes that it was about. The clock is
 * looked at only where there is much to do. */
bool slice_is_over_by_clock(struct rdzv_server *server);

static inline void slice_begin(struct rdzv_server *server) {
  server->slice_units = 0;
  server->slice_end = 0;
}

static inline bool slice_is_over(struct rdzv_server *server, size_t bytes) {
  enum { UNITS_BEFORE_CLOCK = 64, BYTES_OF_A_UNIT = 1024 };
  server->slice_units += 1 + bytes / BYTES_OF_A_UNIT;
  return server->slice_units >= UNITS_BEFORE_CLOCK && slice_is_over_by_clock(server);
}

/* ---- outbox.c ---- */

/* False: no memory, the chain may have a part of it. chain_put_blob takes over the caller's hold in any case. */
bool chain_put(struct chain *chain, struct budget *budget, const void *data, size_t len);
bool chain_put_blob(struct chain *chain, struct budget *budget, struct blob *blob);

/* A value with its length; NULL is an empty one. */
bool chain_put_value(struct chain *chain, struct budget *budget, struct blob *value);

/* The same for what ks_get has found. */
bool chain_put_found(struct chain *chain, struct rdzv_server *server, rdzv_bytes key, rdzv_bytes value);
void chain_move(struct chain *to, struct chain *from);
void chain_free(struct chain *chain, struct budget *budget);

/* Where to add what is to be sent; NULL: no memory. */
struct chain *outbox_chain(struct conn *conn);
size_t outbox_len(const struct conn *conn);

/* Sends what the socket takes, up to SLICE_BYTES. */
void outbox_flush(struct conn *conn);

/* The socket is full. outbox_unstick sends again when it is not any more; true: as much as was stuck has gone. */
bool outbox_is_stuck(const struct conn *conn);
bool outbox_unstick(struct conn *conn);

/* Without an outbox. Gives how much was sent. */
ssize_t outbox_send_now(struct conn *conn, const void *data, size_t len);
void outbox_free(struct conn *conn);

/* ---- multi.c ---- */

/* True: it is done. False: conn->multi is what is left of it. */
bool multi_begin(struct conn *conn, const struct wire_request *request, const uint8_t *data);
bool multi_go_on(struct conn *conn);

/* Lets go of a part of what a request under way holds. True: something is left. */
bool multi_drop_some(struct conn *conn);

/* ---- listing.c ---- */

/* True: it is done. False: it is answered later. */
bool listing_ask(struct conn *conn);
bool listing_is_busy(const struct listing *listing);
void listing_go_on(struct rdzv_server *server);
void listing_forget(struct conn *conn);

/* Lets go of a list that is not true any more. */
void listing_tidy(struct rdzv_server *server);

/* ---- server.c ---- */

/* Room for an array of that many keys and values, until the next call; NULL: no memory. */
rdzv_bytes *server_bytes(struct rdzv_server *server, size_t count);

/* ---- execute.c ---- */

/* False: it is not done yet, and the client's next requests have to wait. */
bool execute(struct conn *conn, const struct wire_request *request, const uint8_t *data);

/* Tells the client no: an error answer in our dialect, the end of the connection in PyTorch's. */
void refuse(struct conn *conn, int code, const char *why);
void refuse_code(struct conn *conn, int code);
void put_refusal(struct wire_writer *out, int code, const char *why);

/* The write under way took effect, with that result: remembered if the client has a session. */
void write_done(struct conn *conn, enum wire_op op, uint64_t result);

/* The same of a pop that will take this value off its queue. False: no memory, it must not. */
bool pop_done(struct conn *conn, enum wire_op op, uint64_t result, rdzv_bytes value);

/* The connection is gone, and its session is without one. */
void leave_session(struct conn *conn);

/* What an answer of our dialect begins with. */
void answer_ok(const struct conn *conn, struct wire_writer *out);

/* The value of a key with its length. A long one is not copied. */
void answer_value(struct conn *conn, struct wire_writer *out, rdzv_bytes key, rdzv_bytes value);

/* ---- pending.c ---- */

/* Answers a blocking request now, or keeps it until it can be. As execute(). */
bool pending_begin(struct conn *conn, const struct wire_request *request, const uint8_t *data);

/* The same for one over very many keys, whose bytes are in front of conn->in: they are taken. */
void pending_begin_large(struct conn *conn, enum wire_op op, size_t size, size_t first, size_t count);

/* Keeps a BARRIER or WATCH_KEY; the keyspace then wakes or tells it. */
void pending_keep(struct conn *conn, const struct wire_request *request);

/* Ends what the client waits for, without an answer, up to so many keys; pending_drop_some what it watches, too. True:
 * some are left. */
bool pending_cancel_some(struct conn *conn, size_t most);
bool pending_drop_some(struct conn *conn, size_t most);

/* Executes again what was woken, at most so many; gives how many it were. */
size_t pending_run(struct rdzv_server *server, size_t most);

/* Goes on with one of those over very many keys. */
void pending_run_large(struct rdzv_server *server);

extern const struct ks_events pending_events;

/* ---- listen.c ---- */
int server_listen(struct rdzv_server *server, rdzv_error *error);

/* Accepts again, after a pause for want of descriptors or memory. */
void listen_again(struct rdzv_server *server);

/* ---- timeouts.c ---- */
int timeouts_start(struct rdzv_server *server);

/* Called after each event of a connection: notes whether it has something unfinished and when it was last active. */
void timeouts_note(struct conn *conn);

/* The client has read an answer: the clock for what is still unfinished starts anew. */
void timeouts_restart(struct conn *conn);
void timeouts_forget(struct conn *conn);

#endif
