/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside the store server. One thread, one libuv loop, one keyspace:
 *
 *   server.c         opens, runs, stops and frees the server
 *   listen.c         binds the listening socket and accepts clients
 *   conn.c           a client's connection: reads requests, sends answers, closes
 *   execute.c        executes a request on the keyspace and answers it
 *   multi.c          CHECK, MULTI_GET, MULTI_SET over many keys, in slices
 *   listing.c        LIST_KEYS
 *   pending.c        blocking requests, which are answered later: WAIT, BARRIER, WATCH_KEY, …
 *   pending_large.c  WAIT and GET_WAIT over more keys than fit into a slice
 *   session.c        what the server knows of a client beyond its connection: the last of its writes
 *   outbox.c         bytes on their way to a client
 *   cover/           TLS, between the socket and the two
 *   schedule.c       which client is served when, so that no client holds up the others
 *   timeouts.c       closes clients that take too long
 *   groups.c         process groups of PyTorch workers that are formed again
 *   tenants.c        limits for many runs, and the removal of unused runs
 *   native/          rounds of native nodes, which the server forms
 *   keeper/          durability: what has changed is committed, and answers wait for it
 *
 * The path of a request: conn.c reads into a buffer that all connections share, decodes the request in place and calls
 * execute(). The answers to all requests of one read are gathered in `answers` and sent at once. A request that takes
 * longer than a slice is continued in later iterations of the loop.
 */
#ifndef RDZV_SERVER_SERVER_H
#define RDZV_SERVER_SERVER_H

#include "base/blob.h"
#include "base/budget.h"
#include "base/buf.h"
#include "base/wait/flag.h"
#include "base/wait/fork.h"
#include "server/cover/cover.h"
#include "server/session.h"
#include "store/keyspace/keyspace.h"
#include "wire/refusal.h"
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
struct natives;
struct keeper;
struct tenants;
struct standby;
struct keep;
struct leaver;

/* Executes a request and writes its answer; below 0: it is refused with that code. */
typedef int handler(struct conn *conn, const struct wire_request *request, struct wire_writer *out);

enum {
  READ_BYTES = 64 * 1024,          /* size of the buffer that all connections read into */
  ANSWER_BYTES = 256 * 1024,       /* gathered answers are sent when they are this long */
  KEEP_ANSWER_BYTES = 1024 * 1024, /* a longer buffer for answers is freed after use */
  SHARED_BYTES = 16 * 1024,        /* a value of this length or longer is sent without a copy */
  SLICE_KEYS = 1024,               /* keys, and bytes of keys, that one slice handles; */
  SLICE_BYTES = 256 * 1024,        /* also the bytes that it reads or sends */
  REAP_AT_ONCE = 64,               /* clients closed in one step */
};

/* A sequence of bytes and blobs. All zero: empty. */
struct chain {
  struct chunk *first, *last;
  size_t len; /* of all chunks */
};

/* Does the request take more than one slice? */
static inline bool is_large(const struct wire_request *request) {
  return request->count > SLICE_KEYS || request->list.len > SLICE_BYTES;
}

/* A request over many keys, in progress. */
struct multi {
  enum wire_op op;
  size_t size;     /* of the request, which is at the front of conn->in */
  size_t at, left; /* offset of its next key, number of keys left */
  bool absent;     /* CHECK: a key was absent */
  bool over;       /* it is answered, and what it holds is being freed */
  uint64_t write;  /* number of the write in its session */
  struct chain values;
  struct ks_stage *stages;
  size_t staged, stages_bytes;
};

/* A client that waits for the list of all keys. */
struct listing_wait {
  struct listing_wait *prev, *next;
  struct conn *conn;
  bool is_now;
};

struct listing {
  struct blob *keys; /* as sent to clients; NULL: there is none, `code` says why */
  int code;
  uint64_t version; /* ks_keys_version when the walk began */
  uint64_t count;
  bool walking;
  struct listing_wait *now, *next; /* clients that get this list, and the next one */
};

struct rdzv_server {
  uv_loop_t loop;
  uv_poll_t listener;
  int listen_fd;
  int reserve_fd;    /* closed for a moment when accept finds no free descriptor */
  bool accept_rests; /* no client is accepted until the next tick */
  struct flag wake;  /* raised by other threads and signal handlers, also while the server steps back, */
  atomic_bool stop_asked, reload_asked; /* for one of these */
  uv_poll_t waker;
  uv_timer_t tick;
  uv_idle_t scheduler; /* active while work is left */
  bool stopping;
  bool threaded;
  pthread_t thread;
  atomic_bool running; /* in any thread */
  fork_mark born;

  rdzv_server_options options; /* with the defaults filled in; bind, listen_fd and log are not used after open */
  rdzv_log log;
  struct wire_limits limits;
  char address[320];
  int port;
  uint64_t instance; /* random; by it, RDZV clients recognise a restarted server */

  struct budget budget;
  struct keyspace *ks;
  struct sessions sessions;
  struct conn *conns;
  size_t conns_count;
  pthread_mutex_t clients_lock; /* guards what follows */
  pthread_cond_t clients_gone;
  size_t clients;          /* conns_count, for other threads */
  struct conn *doomed;     /* to be closed after the current request */
  struct conn *leaving;    /* closed, but still with waiters in the keyspace */
  struct conn *ready;      /* to be given a slice, in this order */
  struct conn *unfinished; /* with half a request or an unread answer, oldest first */
  struct conn *idle;       /* longest idle first; only with an idle timeout */
  struct pending *again;   /* woken, to be executed again */
  struct pending *large;   /* over more keys than fit into a slice, in progress */

  struct listing listing;
  struct cover cover;

  struct keeper *keeper;   /* NULL: the server is not durable, or stands by */
  struct standby *standby; /* of a server with its state in etcd; NULL: it has none there */
  bool stands_by;          /* another server is active, as far as is known: no client is served */
  rdzv_error failure;      /* why the server ended by itself; code 0: it did not */
  size_t served;           /* how often requests of a client were executed */
  struct tenants *tenants; /* NULL: there are no limits for runs */
  char limit_text[64];     /* why a key of a run cannot be made; "": not because of the run */
  struct natives *natives;
  bool was_asked;     /* something else than a keep-alive; native.c resets it */
  size_t native_runs; /* runs with native nodes: if there are none, keys need no look */

  struct leaver *leavers; /* with renew_groups: where members of process groups have left */
  unsigned last_group;    /* the current one; 0: the first */
  struct siphash_seed groups_seed;

  uint64_t slice_end; /* 0: the clock has not been read yet */
  size_t slice_units; /* of work since the clock was read */

  struct conn *active;        /* the connection whose requests are being executed */
  struct wire_writer answers; /* to the active connection */
  uint64_t need;              /* the batch that `answers` depend on; 0: none */
  struct wire_writer aside;   /* scratch, for an answer to any connection */
  struct buf bytes;           /* memory of server_bytes */
  uint8_t *read_buffer;
  char doom_text[128]; /* of the active connection */

  int64_t refusals_second; /* with `refusals`, limits the log lines about refused clients */
  unsigned refusals;
};

struct conn {
  uv_poll_t poll; /* first, so that the handle is the connection */

  /* What every request uses, on few cache lines. */
  struct rdzv_server *server;
  int fd;
  int polled;    /* events polled for; 0: none */
  bool has_more; /* `in` may hold whole requests */
  bool reading;
  bool is_ready;
  bool is_unfinished;
  bool is_doomed;
  bool is_leaving;
  bool is_closed;
  bool is_held;      /* answers wait for a commit */
  bool is_node;      /* the coordinator may know it */
  bool may_be_plain; /* its address is one that needs no TLS */
  bool is_unproven;  /* it has not finished its handshake */
  enum cover_kind cover;
  struct tls_stream *tls;      /* NULL: plain, or the first byte has not come */
  struct outbox *out;          /* bytes to send; NULL: none */
  struct multi *multi;         /* the request at the front of `in`, in progress */
  struct listing_wait *asking; /* LIST_KEYS in progress */
  struct pending *holder;      /* a large wait that is not listed yet */
  struct wire_decoder decoder;
  struct session *session; /* NULL: none, as with PyTorch's clients */
  struct buf in;           /* bytes received and not executed yet */
  size_t charged;          /* what `in` takes from the budget */

  uint64_t writes;          /* number of the last write of the session that came by this connection */
  uint64_t write;           /* number of the current write */
  uint64_t floor;           /* the batch of its last write; 0: none */
  struct conn *prev, *next; /* of server->conns, then of server->leaving */
  struct conn *ready_prev, *ready_next;
  struct conn *unfinished_prev, *unfinished_next;
  struct conn *idle_prev, *idle_next;
  struct conn *unproven_prev, *unproven_next;
  struct conn *held_prev, *held_next; /* of keeper->held */
  struct conn *doomed_next;
  struct pending *pending; /* oldest first */
  struct pending *watches;
  size_t waits;    /* number of keys in all of them */
  size_t unread;   /* bytes sent to a native node unasked, since the outbox was empty */
  size_t promised; /* bytes of the outbox that are encrypted and not all sent */
  int64_t began;   /* when is_unproven was set */
  int64_t since;   /* when is_unfinished was set */
  int64_t last_request;
  uint64_t requests_seen; /* decoder.requests when `since` was set */
  const char *doom_why;   /* valid until the connection is reaped; NULL: the client closed it */
  int doom_code;
  uint64_t peer_address; /* with renew_groups: a hash of it, of one that is in a group */
  uint64_t peer_process; /* 0: unknown */
  unsigned group;
  bool in_group;  /* it has used a key of a process group */
  bool is_worker; /* it has counted itself, as PyTorch's clients do, and not their clones */
};

/* ---- server.c ---- */

/* Ends the loop; rdzv_server_run returns the error. */
void server_fail(struct rdzv_server *server, const rdzv_error *error);

/* Adds `change` to the number of clients. */
void server_count(struct rdzv_server *server, int change);

/* Returns an array of `count` byte strings, valid until the next call. NULL: no memory. */
rdzv_bytes *server_bytes(struct rdzv_server *server, size_t count);

/* ---- conn.c ---- */

/* Takes over the socket of a new client. */
void conn_begin(struct rdzv_server *server, int fd, const struct sockaddr *peer);

/* Closes the socket of a client that cannot be served, and logs why. */
void conn_refuse(struct rdzv_server *server, int fd, const struct sockaddr *address, const char *why);

/* Sends bytes to a client: with the gathered answers to the active connection, in its next slice to any other. Takes
 * over the content of the chain and the caller's hold on the blob. */
void conn_send(struct conn *conn, const void *data, size_t len);
void conn_send_chain(struct conn *conn, struct chain *chain);
void conn_send_blob(struct conn *conn, struct blob *blob);

/* Closes the connection after the current request. `why` is logged, and sent to an RDZV client together with the code;
 * it is not copied. With RDZV_E_CONNECTION nothing is sent, since an unanswered request may have been executed. NULL:
 * the client closed the connection. */
void conn_doom(struct conn *conn, int code, const char *why);

/* Closes doomed connections, at most `most`, and frees a part of what closed ones hold. True: some are left. */
bool conn_reap(struct rdzv_server *server, size_t most);

/* Executes what has come of a client, and keeps the rest. */
void conn_take(struct conn *conn, uint8_t *data, size_t len);

/* Continues the work for a client, for one slice. */
void conn_go_on(struct conn *conn);

/* Called after each event of a connection: decides whether to poll its socket, and notes its timeouts. */
void conn_settle(struct conn *conn);

/* Moves the first `size` bytes of conn->in to `out`, which takes its memory from the budget. False: no memory. */
bool conn_take_front(struct conn *conn, size_t size, struct buf *out);

/* ---- schedule.c ---- */
int schedule_init(struct rdzv_server *server);

/* Runs the scheduler in the next iteration. */
void schedule_work(struct rdzv_server *server);

/* Gives a client a slice in a later iteration; schedule_forget withdraws it. */
void schedule_conn(struct conn *conn);
void schedule_forget(struct conn *conn);

/* Wakes waiters, tells watchers and executes woken requests, for one slice. */
void schedule_wake(struct rdzv_server *server);

/* The slice of a client. slice_is_over counts one request of so many bytes, and reads the clock only after many. */
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

/* ---- groups.c ---- */

/* Gives the keys of a request, in `data`, the names that they have in the process group of the client. */
void groups_rename(struct conn *conn, const struct wire_request *request, uint8_t *data);
void groups_lost(struct conn *conn);
void groups_free(struct rdzv_server *server);

/* ---- outbox.c ---- */

/* Append to a chain. False: no memory, and a part may have been appended. chain_put_blob takes over the caller's hold,
 * also when it fails. */
bool chain_put(struct chain *chain, struct budget *budget, const void *data, size_t len);
bool chain_put_blob(struct chain *chain, struct budget *budget, struct blob *blob);

/* Appends a value with its length; NULL is an empty value. */
bool chain_put_value(struct chain *chain, struct budget *budget, struct blob *value);

/* The same for a value that ks_get returned. */
bool chain_put_found(struct chain *chain, struct rdzv_server *server, rdzv_bytes key, rdzv_bytes value);
void chain_move(struct chain *to, struct chain *from);
void chain_free(struct chain *chain, struct budget *budget);

/* The chain of bytes to send, made if there is none. NULL: no memory. */
struct chain *outbox_chain(struct conn *conn);
size_t outbox_len(const struct conn *conn);

/* The last `len` bytes of the chain must not leave before that batch is durable: keeper/keeper.h. */
void outbox_hold(struct conn *conn, uint64_t batch, size_t len);

/* May something be sent? Else all of it waits. */
bool outbox_can_send(const struct conn *conn);

/* Sends what the socket takes, up to SLICE_BYTES. */
void outbox_flush(struct conn *conn);

/* Is the socket full? When it is writable again, outbox_unstick sends; true: all that was stuck has been sent. */
bool outbox_is_stuck(const struct conn *conn);
bool outbox_unstick(struct conn *conn);

/* Sends without an outbox; returns how much was sent. */
ssize_t outbox_send_now(struct conn *conn, const void *data, size_t len);
void outbox_free(struct conn *conn);

/* ---- multi.c ---- */

/* True: the request is done. False: conn->multi is the rest of it. */
bool multi_begin(struct conn *conn, const struct wire_request *request, const uint8_t *data);
bool multi_go_on(struct conn *conn);

/* Frees a part of what the request in progress holds. True: something is left. */
bool multi_drop_some(struct conn *conn);

/* ---- listing.c ---- */

/* True: the request is answered. False: it is answered later. */
bool listing_ask(struct conn *conn);
bool listing_is_busy(const struct listing *listing);
void listing_go_on(struct rdzv_server *server);
void listing_forget(struct conn *conn);

/* Frees a list that is out of date. */
void listing_tidy(struct rdzv_server *server);

/* ---- execute.c ---- */

/* False: the request is not done, and the client's next requests wait for it. */
bool execute(struct conn *conn, const struct wire_request *request, const uint8_t *data);

/* Refuses a request: an RDZV client gets an error as its answer, a PyTorch client is closed. */
void refuse(struct conn *conn, int code, const char *why);
void refuse_code(struct conn *conn, int code);

/* Remembers in the client's session, if it has one, that the current write took effect, with its result. */
void write_done(struct conn *conn, enum wire_op op, uint64_t result);

/* The same for a pop, before it takes the value off its queue. False: no memory, and it must not take it. */
bool pop_done(struct conn *conn, enum wire_op op, uint64_t result, rdzv_bytes value);

/* Detaches the session from a connection that is closed. */
void leave_session(struct conn *conn);

/* The status byte that answers to RDZV clients begin with. */
void answer_ok(const struct conn *conn, struct wire_writer *out);

/* Answers with the value of a key and its length. A long value is not copied. */
void answer_value(struct conn *conn, struct wire_writer *out, rdzv_bytes key, rdzv_bytes value);

/* ---- pending.c ---- */

/* Answers a blocking request now or keeps it. Returns what execute() returns. */
bool pending_begin(struct conn *conn, const struct wire_request *request, const uint8_t *data);

/* The same for a request over more keys than fit into a slice. Takes its bytes from the front of conn->in. */
void pending_begin_large(struct conn *conn, enum wire_op op, size_t size, size_t first, size_t count);

/* Keeps a BARRIER or WATCH_KEY until the keyspace wakes or tells it. */
void pending_keep(struct conn *conn, const struct wire_request *request);

/* Ends waits of a client without an answer, up to `most` keys; pending_drop_some ends its watches, too. True: some are
 * left. */
bool pending_cancel_some(struct conn *conn, size_t most);
bool pending_drop_some(struct conn *conn, size_t most);

/* Executes woken requests again, at most `most`; returns how many. */
size_t pending_run(struct rdzv_server *server, size_t most);

/* Continues one large wait, for a slice. */
void pending_run_large(struct rdzv_server *server);

extern const struct ks_events pending_events;

/* ---- native/ ---- */
bool natives_new(struct rdzv_server *server); /* false: no memory */
int natives_init(struct rdzv_server *server);
void natives_shut_down(struct rdzv_server *server, void (*close_handle)(void *handle));
void natives_free(struct rdzv_server *server);

handler natives_join, natives_resume, natives_leave, natives_close, natives_beat, natives_query;

/* Answers a NODE_JOIN or NODE_CLOSE that is not executed. */
void natives_put_refusal(const struct wire_request *request, const rdzv_error *why, struct wire_writer *out);

/* The connection is closed. */
void natives_lost(struct conn *conn);

/* Is it the key of the state of a run that has native nodes? native_execute executes a request for such a key: what is
 * read is the state as it is now, and what is written is adopted, or refused. */
bool natives_owns(const struct rdzv_server *server, rdzv_bytes key);
void natives_execute(struct conn *conn, const struct wire_request *request, handler *run);

/* Before the value of a key is read, and before a client waits for a change of it. */
void natives_look_at(struct rdzv_server *server, rdzv_bytes key);
void natives_await_at(struct rdzv_server *server, rdzv_bytes key);

static inline void natives_look(struct rdzv_server *server, rdzv_bytes key) {
  if (server->native_runs > 0) natives_look_at(server, key);
}

/* ---- keeper/ ---- */

/* Opens and loads the folder, if the options name one, and starts to commit; before the server listens. */
int keeper_open(struct rdzv_server *server, rdzv_error *error);

/* Loads a keep that is open, and starts to commit. Takes it over, also on failure; `where` is for the log. */
int keeper_take(struct rdzv_server *server, struct keep *keep, const char *where, rdzv_error *error);

/* The server stops: commits what there is, and lets the answers go that wait for it. */
void keeper_finish(struct rdzv_server *server);
void keeper_shut_down(struct rdzv_server *server, void (*close_handle)(void *handle));
void keeper_free(struct rdzv_server *server);

/* May anything be sent to clients? False: another server may be active by now. */
bool keeper_holds_place(struct keeper *keeper);
static inline bool keeper_holds(const struct rdzv_server *server) {
  return !server->keeper || keeper_holds_place(server->keeper);
}

/* The batch that an answer that is made now depends on; 0: none that is not durable. */
uint64_t keeper_need_of(const struct keeper *keeper);
static inline uint64_t keeper_need(const struct rdzv_server *server) {
  return server->keeper ? keeper_need_of(server->keeper) : 0;
}

/* A request of the active connection was executed, or refused: notes what its answer depends on. */
void keeper_note(struct conn *conn, const struct wire_request *request, bool refused);

/* The number of the last durable batch. */
uint64_t keeper_committed(const struct rdzv_server *server);

/* Are writes refused for the time being? *why is the reason. */
bool keeper_refuses(const struct rdzv_server *server, const rdzv_error **why);

/* Would the answer to this request, which is no write, wait for a batch that cannot be committed for now? */
bool keeper_refuses_read(const struct conn *conn, const struct wire_request *request, const rdzv_error **why);

/* The connection has answers that wait; it has none, or is closed. */
void keeper_hold(struct conn *conn);
void keeper_forget(struct conn *conn);

/* ---- tenants.c ---- */
int tenants_init(struct rdzv_server *server); /* below 0: an error of libuv */

/* From now on the limits count: all is loaded. */
void tenants_enforce(struct rdzv_server *server);
void tenants_shut_down(struct rdzv_server *server, void (*close_handle)(void *handle));
void tenants_free(struct rdzv_server *server);

/* The run of a key that is new; for struct ks_events. */
bool tenants_owner(void *user, rdzv_bytes key, struct ks_owner **owner);

/* May there be such a run? If not, server->limit_text has the reason. */
bool tenants_admit(struct rdzv_server *server, const char *run_id);

/* A client names the key: its run is used. */
void tenants_use_key(struct rdzv_server *server, rdzv_bytes key);

/* ---- keeper/standby.c ---- */

/* If the options name an etcd: makes the server a standby, after it listens; prepares it to be one again, before the
 * keeper is freed; begins to wait for its turn; refuses a request, as execute() returns. */
int standby_open(struct rdzv_server *server, rdzv_error *error);
int standby_again(struct rdzv_server *server, rdzv_error *error);
int standby_begin(struct rdzv_server *server, rdzv_error *error);
bool standby_refuse(struct conn *conn, const struct wire_request *request);
void standby_shut_down(struct rdzv_server *server, void (*close_handle)(void *handle));
void standby_free(struct rdzv_server *server);

/* ---- listen.c ---- */
int server_listen(struct rdzv_server *server, rdzv_error *error);

/* Accepts clients again, after a pause because descriptors or memory had run out. */
void listen_again(struct rdzv_server *server);

/* ---- timeouts.c ---- */
int timeouts_init(struct rdzv_server *server);

/* Starts the tick, if it does not run: something was added that it checks. */
void timeouts_tick(struct rdzv_server *server);

/* Called after each event of a connection: notes whether it has something unfinished and when it was last active. */
void timeouts_note(struct conn *conn);

/* Restarts the clock of what is still unfinished, after the client has read an answer. */
void timeouts_restart(struct conn *conn);
void timeouts_forget(struct conn *conn);

#endif
