/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside the store server. One thread, one libuv loop, one keyspace:
 *
 *   server.c    open, run, stop, close
 *   listen.c    the listening socket
 *   conn.c      a client's connection: bytes in, bytes out, its end
 *   execute.c   a request, done to the keyspace and answered
 *   pending.c   requests that are answered later
 *   session.c   what outlives a client's connection: which of its writes was done
 *   timeouts.c  clients that take too long
 *
 * The way of a request: conn.c reads into a buffer that all share, decodes in place, and calls execute(); the answers
 * of all requests of one read are gathered in `answers` and leave in one write.
 */
#ifndef RDZV_SERVER_SERVER_H
#define RDZV_SERVER_SERVER_H

#include "base/budget.h"
#include "base/buf.h"
#include "base/fork.h"
#include "server/session.h"
#include "store/keyspace.h"
#include "wire/request.h"
#include "wire/writer.h"

#include <pthread.h>
#include <rdzv/server.h>
#include <stdatomic.h>
#include <uv.h>

struct conn;
struct pending;

enum {
  READ_BYTES = 64 * 1024,          /* of the buffer that all connections read into */
  ANSWER_BYTES = 256 * 1024,       /* gathered answers are written when they are this long */
  KEEP_ANSWER_BYTES = 1024 * 1024, /* a longer answer buffer is not kept */
};

struct rdzv_server {
  uv_loop_t loop;
  uv_poll_t listener;
  int listen_fd;
  int reserve_fd;    /* given up for a moment when there is none for a client */
  bool accept_rests; /* until the next tick */
  uv_async_t wake_to_stop;
  uv_timer_t tick;
  bool stopping;
  bool threaded;
  pthread_t thread;
  atomic_bool running; /* in whatever thread */
  fork_mark born;

  rdzv_server_options options; /* with the defaults filled in; bind and listen_fd are not used after open */
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
  struct conn *unfinished; /* half a request came, or an answer is not read; oldest first */
  struct conn *idle;       /* longest idle first; only with an idle timeout */
  struct pending *again;   /* woken, to be executed once more */

  struct conn *active;        /* whose requests are being executed */
  struct wire_writer answers; /* to the active one */
  struct wire_writer aside;   /* to another one, for a moment */
  struct buf bytes;           /* of server_bytes */
  char *read_buffer;
  char doom_text[128]; /* of the active one */

  int64_t refusals_second; /* for not writing more than some lines a second about bad clients */
  unsigned refusals;
};

struct conn {
  uv_tcp_t tcp; /* first, so that the handle is the connection */
  uv_os_fd_t fd;
  struct rdzv_server *server;
  struct conn *prev, *next; /* of server->conns */
  struct conn *unfinished_prev, *unfinished_next;
  struct conn *idle_prev, *idle_next;
  struct conn *doomed_next;
  struct pending *pending; /* oldest first */
  struct wire_decoder decoder;
  struct session *session; /* NULL: a client that has none, or PyTorch's */
  uint64_t writes;         /* the number of the last write of the session that came here */
  uint64_t write;          /* that of the write under way */
  struct buf in;           /* the part of the stream that is not executed yet */
  struct buf out;          /* answers that wait for `sending` to be gone */
  struct buf sending;      /* under way in write_request */
  uv_write_t write_request;
  size_t charged; /* what in, out and sending have of the budget */
  int64_t since;  /* when it became unfinished */
  int64_t last_request;
  uint64_t requests_seen; /* decoder.requests when `since` was set */
  const char *doom_why;   /* valid until it is reaped; NULL: it left by itself */
  int doom_code;
  bool writing;
  bool reading;
  bool is_unfinished;
  bool is_doomed;
};

/* ---- server.c ---- */

/* One more client, or one less. */
void server_count(struct rdzv_server *server, int change);

/* ---- conn.c ---- */

/* Takes over the socket of a new client. */
void conn_begin(struct rdzv_server *server, int fd, const struct sockaddr *peer);

/* Logs that a client is closed, at most ten times a second, so that clients cannot fill a disk. */
void log_refusal(struct rdzv_server *server, const char *peer, const char *why);

/* Sends bytes to a client: gathered if it is the active one, at once if not. */
void conn_send(struct conn *conn, const void *data, size_t len);

/* Has the connection closed as soon as the request under way is done. The reason, which is not copied, is logged,
 * and sent to a client of our dialect; NULL: it left by itself. */
void conn_doom(struct conn *conn, int code, const char *why);

/* Closes all that are doomed. */
void conn_reap(struct rdzv_server *server);

/* ---- server.c ---- */

/* Room for an array of that many keys and values, until the next call; NULL: no memory. */
rdzv_bytes *server_bytes(struct rdzv_server *server, size_t count);

/* ---- execute.c ---- */
void execute(struct conn *conn, const struct wire_request *request, const uint8_t *data);

/* The write under way took effect, with that result: remembered if the client has a session. */
void did(struct conn *conn, enum wire_op op, uint64_t result);

/* The same of a pop that will take this value off its queue. False: no memory, it must not. */
bool took(struct conn *conn, enum wire_op op, uint64_t result, rdzv_bytes value);

/* The connection is gone, and its session is without one. */
void leave_session(struct conn *conn);

/* Tells the client no: an error answer in our dialect, the end of the connection in PyTorch's. */
void refuse(struct conn *conn, int code, const char *why);

/* ---- pending.c ---- */

/* Answers a blocking request now, or keeps it until it can be. */
void pending_begin(struct conn *conn, const struct wire_request *request, const uint8_t *data);

/* Keeps a BARRIER or WATCH_KEY; the keyspace then wakes or tells it. */
void pending_keep(struct conn *conn, const struct wire_request *request);

/* Ends what the client waits for, without an answer; watches too if `all`. */
void pending_cancel(struct conn *conn, bool all);

/* Executes again what was woken. */
void pending_run(struct rdzv_server *server);

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
