/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a client finds the dialect of a server (docs/wire.md, "Greeting"):
 * - It connects and sends VALIDATE and two PINGs whose numbers PyTorch's clients never send.
 * - Our server answers with its own greeting and a session. PyTorch's server echoes the numbers from 2.5 on. A node of
 *   a rendezvous sends one more, to which a server that forms rounds says so.
 * - PyTorch 1.x reads an impossible request and resets the connection. After two resets the client connects again and
 *   sends V1's CHECK of the empty key, which our own server answers like no server of PyTorch.
 * - An rdzv standby answers with the address of the active server, where the client goes next (choice.h).
 * A handle keeps the dialect until a server answers in another one. So a server that answered this greeting before and
 * resets it now counts as a lost connection.
 *
 * Failure modes:
 * - refused, unreachable, unresolved, closed or silent: the client tries again after a pause, until the deadline, and
 *   reports the last cause;
 * - a server of another kind than the one asked for: final;
 * - a server that closes or is silent is asked whether it speaks another protocol. If it does: final.
 */
#include "store/tcp/conn.h"

#include "base/error.h"
#include "base/log.h"
#include "base/net/net.h"
#include "base/wait/waiting.h"
#include "store/tcp/io.h"
#include "wire/probe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  FIRST_PAUSE_MS = 20,
  LONGEST_PAUSE_MS = 1000,
  FIRST_TRY_MS = 4000, /* a server of another protocol may serve only one connection at a time */
  TRY_MS = 10000,      /* a host that comes up late is found by the next try */
  SILENT_MS = 2500,    /* without an answer, before the server is asked what it is */
  SHORT_TRY_MS = 1000, /* a try that the deadline ends sooner has found no cause */
  LOOK_MS = 3000,      /* without an answer, before asking the other servers which is active; then twice as long, … */
  LONGEST_LOOK_MS = 30000,
  SEVERAL_MS = 2000, /* a try at one of several servers */
  HOPS = 2,          /* from one standby to another, in one pass over all servers */
  STANDBY = 1,       /* no code: the server is a standby, and the endpoint that of the next server to try */
  FOREIGN_MS = 10000 /* before a server that closes all connections is asked again what it is */
};

#define CANNOT_YET "cannot connect to '%s' yet: "
#define NOT_ANSWERING "%s accepts connections, but does not answer (is this a store server?)"

/* What a server may send us. */
static const struct wire_limits limits = {
    .max_key = 1u << 20, .max_value = 1u << 30, .max_count = 1u << 24, .max_message = 2u << 30};

void tcp_conn_init(struct tcp_conn *conn, struct tcp_servers *servers, rdzv_dialect wanted, const rdzv_log *log) {
  *conn = (struct tcp_conn){.wanted = wanted, .log = *log, .fd = -1};
  tcp_choice_init(&conn->choice, servers);
  for (size_t i = 0; i < servers->count; i++) {
    const size_t len = strlen(conn->name);
    char one[ENDPOINT_TEXT_SIZE];
    endpoint_format(servers->list[i].host, servers->list[i].port, one);
    snprintf(conn->name + len, sizeof conn->name - len, "%s%s", i > 0 ? "," : "", one);
  }
}

void tcp_conn_drop(struct tcp_conn *conn) {
  if (conn->fd >= 0) close(conn->fd);
  conn->fd = -1;
  tcp_io_end(conn);
  conn->is_greeted = false;
  tcp_session_drop(&conn->session);
  conn->cancel_owed = false;
  conn->in.len = 0;
  conn->out.buf.len = 0;
  conn->out.failed = false;
}

void tcp_conn_drop_if_dead(struct tcp_conn *conn) {
  char byte;
  if (conn->fd < 0) return;
  const bool quiet = recv(conn->fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
  if (!quiet || conn->in.len > 0) tcp_conn_drop(conn);
}

void tcp_conn_free(struct tcp_conn *conn) {
  tcp_conn_drop(conn);
  buf_free(&conn->in);
  buf_free(&conn->out.buf);
  free(conn->run_id);
  tls_client_drop(conn->guard);
  tcp_servers_drop(conn->choice.servers);
}

/* ---- messages ---------------------------------------------------------------------------------------------- */

int tcp_conn_send(struct tcp_conn *conn, deadline until, const struct flag *cancel, rdzv_error *error) {
  if (conn->out.failed) return error_no_memory(error);
  return tcp_io_send(conn, until, cancel, error);
}

/* How many bytes to make room for: what the message still needs, but at most as much again as has already come. */
static size_t room(const struct tcp_conn *conn) {
  enum { LEAST = 16 * 1024 };
  const size_t missing = conn->scan.want > conn->in.len ? conn->scan.want - conn->in.len : 0;
  const size_t most = conn->in.len > LEAST ? conn->in.len : LEAST;
  return missing > most || missing < LEAST ? most : missing;
}

static int receive(struct tcp_conn *conn, const char *fields, uint64_t items, deadline until, const struct flag *cancel,
                   rdzv_error *error) {
  wire_scan_start(&conn->scan, fields, 0);
  conn->scan.items = items;
  for (;;) {
    const enum wire_result result = wire_scan(&conn->scan, &limits, conn->in.data, conn->in.len);
    if (result == WIRE_RESULT_DONE) return 0;
    if (result == WIRE_RESULT_BAD)
      return error_set(error, RDZV_E_PROTOCOL, "%s does not answer like a TCPStore: %s", conn->peer, conn->scan.why);
    const int failed = tcp_io_receive(conn, room(conn), until, cancel, error);
    if (failed) return failed;
  }
}

/* Of one of several servers: an answer that does not come may never come. What has come in part stays. */
int tcp_conn_receive(struct tcp_conn *conn, const char *fields, uint64_t items, deadline until,
                     const struct flag *cancel, rdzv_error *error) {
  const bool looks = conn->is_greeted && conn->dialect == WIRE_DIALECT_RDZV && tcp_choice_has_others(&conn->choice);
  for (int64_t pause = LOOK_MS;; pause = 2 * pause < LONGEST_LOOK_MS ? 2 * pause : LONGEST_LOOK_MS) {
    const deadline next = looks ? deadline_sooner(deadline_after(pause), until) : until;
    const int result = receive(conn, fields, items, next, cancel, error);
    if (result != RDZV_E_TIMEOUT || next == until) return result;
    if (tcp_conn_is_left_behind(conn, until, cancel))
      return error_set(error, RDZV_E_CONNECTION, "the server at %s does not answer, and another one is active",
                       conn->peer);
  }
}

void tcp_conn_consume(struct tcp_conn *conn) {
  enum { KEEP = 64 * 1024 };
  buf_consume(&conn->in, conn->scan.pos);
  if (conn->in.len == 0 && conn->in.cap > KEEP) buf_free(&conn->in);
}

/* ---- the greeting ------------------------------------------------------------------------------------------ */

struct conn_try {
  deadline until;
  const struct flag *cancel;
  rdzv_error *error;
};

static int dial(struct tcp_conn *conn, const struct conn_try *try) {
  tcp_conn_drop(conn);
  const int result = net_connect(&conn->choice.endpoint, try->until, try->cancel, &conn->fd, try->error);
  if (result < 0) return result;
  struct sockaddr_storage address = {0};
  socklen_t len = sizeof address;
  getpeername(conn->fd, (struct sockaddr *)&address, &len);
  net_format((struct sockaddr *)&address, conn->peer);
  return tcp_io_begin(conn, try->until, try->cancel, try->error);
}

const char *tcp_foreign_text(enum foreign foreign) {
  switch (foreign) {
    case FOREIGN_ETCD:
      return "etcd answers there, not a store (did you mean --rdzv-backend etcd-v2, or rdzv store --etcd?)";
    case FOREIGN_HTTP: return "a web server answers there, not a store (is the port right?)";
    case FOREIGN_TLS:
      return "the server there requires TLS (give its secret with --secret-file or option secret_file, or its CA with "
             "--tls-ca or tls_ca; if it is etcd: rdzv store --etcd https://..., or --rdzv-backend etcd-v2 --rdzv-conf "
             "protocol=https)";
    case FOREIGN_SSH: return "an SSH server answers there, not a store (is the port right?)";
    case FOREIGN_UNKNOWN: break;
  }
  return NULL;
}

/* Fails if the server is known to speak another protocol. */
static int look_for_foreign(struct tcp_conn *conn, const struct conn_try *try) {
  conn->foreign_asked = clock_now_ms();
  const char *text = tcp_foreign_text(foreign_ask(&conn->choice.endpoint, try->until, try->cancel));
  return text ? error_set(try->error, RDZV_E_PROTOCOL, "%s", text) : 0;
}

/* A server that is silent for a while may wait for a request in its own protocol. One with TLS has shown what it is. */
static int receive_greeting(struct tcp_conn *conn, const char *fields, const struct conn_try *try) {
  if (conn->tls) return tcp_conn_receive(conn, fields, 0, try->until, try->cancel, try->error);
  const deadline first = deadline_sooner(deadline_after(SILENT_MS), try->until);
  waiting_for(flag_waiting(try->cancel), CANNOT_YET NOT_ANSWERING, conn->name, conn->peer);
  int result = tcp_conn_receive(conn, fields, 0, first, try->cancel, try->error);
  if (result != RDZV_E_TIMEOUT || first == try->until) return result;
  result = conn->foreign_asked ? 0 : look_for_foreign(conn, try);
  return result < 0 ? result : tcp_conn_receive(conn, fields, 0, try->until, try->cancel, try->error);
}

/* Sends what is in `out` and receives the fields. */
static int ask(struct tcp_conn *conn, const char *fields, const struct conn_try *try) {
  const int result = conn->out.buf.len ? tcp_conn_send(conn, try->until, try->cancel, try->error) : 0;
  return result < 0 ? result : receive_greeting(conn, fields, try);
}

/* The same, and consumes the fields. *number is the last one. */
static int ask_number(struct tcp_conn *conn, const char *fields, uint64_t *number, const struct conn_try *try) {
  const int result = ask(conn, fields, try);
  if (result < 0) return result;
  *number = conn->scan.field[conn->scan.count - 1].number;
  tcp_conn_consume(conn);
  return 0;
}

/* The server sent something else than a greeting, which may show what server it is. */
static int fail_greeting(struct tcp_conn *conn, const struct conn_try *try) {
  const enum foreign found = foreign_recognize((rdzv_bytes){conn->in.data, conn->in.len});
  const bool known = found != FOREIGN_UNKNOWN && found != FOREIGN_HTTP; /* which may still be etcd */
  if (known) conn->foreign_asked = clock_now_ms();
  return error_set(try->error, RDZV_E_PROTOCOL, "%s",
                   known ? tcp_foreign_text(found) : "the answer is not a TCPStore's");
}

static void put_validate(struct tcp_conn *conn) {
  wire_put_op(&conn->out, WIRE_DIALECT_V2, WIRE_OP_VALIDATE);
  wire_put32(&conn->out, WIRE_MAGIC);
}

static void put_ping(struct tcp_conn *conn, uint32_t nonce) {
  wire_put_op(&conn->out, WIRE_DIALECT_V2, WIRE_OP_PING);
  wire_put32(&conn->out, nonce);
}

/* In RDZV every answer begins with a status. A server that is for another run refuses for good; one that stops, or has
 * no room, may serve the next try. */
static int receive_status(struct tcp_conn *conn, const struct conn_try *try) {
  uint64_t status = 0;
  int result = conn->dialect == WIRE_DIALECT_RDZV ? ask_number(conn, "b", &status, try) : 0;
  if (result < 0 || status == 0) return result;
  result = ask(conn, "v", try);
  if (result < 0) return result;
  const rdzv_bytes text = wire_field_bytes(&conn->scan, 0, conn->in.data);
  const int len = (int)(text.len < 160 ? text.len : 160);
  if (status == -RDZV_E_STALE && conn->run_id)
    return error_set(try->error, RDZV_E_STALE, "%.*s, not '%s' (give each job its own port, or start 'rdzv serve')",
                     len, (const char *)text.data, conn->run_id);
  return error_set(try->error, RDZV_E_CONNECTION, "refused by the server: %.*s", len, (const char *)text.data);
}

/* The answer to the second PING: our server offers a session. PyTorch's servers, and older rdzv servers, echo it. */
static int receive_offer(struct tcp_conn *conn, const struct conn_try *try) {
  uint64_t answer = 0;
  const bool ours = conn->dialect == WIRE_DIALECT_RDZV;
  int result = receive_status(conn, try);
  if (result == 0) result = ask_number(conn, "w", &answer, try);
  if (result < 0 || answer == WIRE_SESSION_NONCE) return result;
  if (!ours || answer != WIRE_SESSION_ANSWER)
    return error_set(try->error, RDZV_E_PROTOCOL, "%s does not answer the greeting like a TCPStore", conn->peer);
  result = ask(conn, "nn", try);
  if (result < 0) return result;
  memcpy(conn->offer, conn->in.data, sizeof conn->offer);
  conn->has_offer = true;
  tcp_conn_consume(conn);
  return 0;
}

/* The answer to the third PING: a server of another run refuses it, all others echo it. */
static int receive_run(struct tcp_conn *conn, const struct conn_try *try) {
  uint64_t echo;
  if (!conn->run_id) return 0;
  const int result = receive_status(conn, try);
  return result < 0 ? result : ask_number(conn, "w", &echo, try);
}

/* The answer to the last PING: a server that forms rounds says so, all others echo it. */
static int receive_native(struct tcp_conn *conn, const struct conn_try *try) {
  uint64_t answer;
  if (!conn->asks_native) return 0;
  int result = receive_status(conn, try);
  if (result == 0) result = ask_number(conn, "w", &answer, try);
  if (result == 0) conn->native = conn->dialect == WIRE_DIALECT_RDZV && answer == WIRE_NATIVE_ANSWER;
  return result;
}

/* A standby tells which server is active. */
static int receive_standby(struct tcp_conn *conn, const struct conn_try *try) {
  tcp_conn_consume(conn);
  const int result = ask(conn, "v", try);
  if (result < 0) return result;
  const rdzv_bytes active = wire_field_bytes(&conn->scan, 0, conn->in.data);
  const int len = (int)(active.len < ENDPOINT_TEXT_SIZE ? active.len : 0);
  error_set(try->error, RDZV_E_CONNECTION, "the server at %s is a standby%s%.*s", conn->peer,
            len > 0 ? ", and the active one is at " : "; it knows of no active one", len, (const char *)active.data);
  tcp_choice_follow(&conn->choice, active);
  return STANDBY;
}

static int greet_v2(struct tcp_conn *conn, const struct conn_try *try) {
  put_validate(conn);
  put_ping(conn, WIRE_HELLO_NONCE);
  put_ping(conn, WIRE_SESSION_NONCE);
  if (conn->run_id) put_ping(conn, wire_run_nonce(conn->run_id));
  if (conn->asks_native) put_ping(conn, WIRE_NATIVE_NONCE);
  int result = ask(conn, "w", try);
  if (result < 0) return result;
  const uint64_t answer = conn->scan.field[0].number;
  if (answer == WIRE_STANDBY_ANSWER) return receive_standby(conn, try);
  if (answer != WIRE_HELLO_NONCE && answer != WIRE_HELLO_ANSWER) return fail_greeting(conn, try);
  tcp_conn_consume(conn);
  conn->dialect = answer == WIRE_HELLO_ANSWER ? WIRE_DIALECT_RDZV : WIRE_DIALECT_V2;
  if (conn->dialect == WIRE_DIALECT_RDZV) result = ask_number(conn, "n", &conn->instance, try);
  if (result < 0) return result;
  result = receive_offer(conn, try);
  if (result == 0) result = receive_run(conn, try);
  return result < 0 ? result : receive_native(conn, try);
}

/* A server that closed the connection on our greeting is PyTorch 1.x if it answers this one. If it is our own server,
 * the network or a full server closed the connection, and the greeting is tried again. */
static int greet_v1(struct tcp_conn *conn, const struct conn_try *try) {
  int result = dial(conn, try);
  if (result < 0) return result;
  wire_put_op(&conn->out, WIRE_DIALECT_V1, WIRE_OP_CHECK);
  wire_put64(&conn->out, 1);
  wire_put_bytes(&conn->out, (rdzv_bytes){0});
  result = ask(conn, "b", try);
  if (result == RDZV_E_CONNECTION)
    error_prefix(try->error, result,
                 "%s closes every connection: it is full, or stopping, or PyTorch 2.2 to 2.4 (then choose dialect v2)",
                 conn->peer);
  if (result < 0) return result;
  const uint64_t answer = conn->scan.field[0].number;
  if (answer == WIRE_BYTE_NOT_V1)
    return error_set(
        try->error, RDZV_E_CONNECTION,
        "the rdzv server at %s was reached, but the connection was lost in the greeting (is there a proxy in between?)",
        conn->peer);
  if (answer > 1 || conn->in.len > conn->scan.pos) return fail_greeting(conn, try);
  tcp_conn_consume(conn);
  conn->dialect = WIRE_DIALECT_V1;
  return 0;
}

/* The server was a store before, so there is no need to ask soon what it is. */
static int fail_lost_greeting(struct tcp_conn *conn, const struct conn_try *try) {
  if (!conn->foreign_asked) conn->foreign_asked = clock_now_ms();
  return error_prefix(try->error, RDZV_E_CONNECTION, "the connection to %s was lost in the greeting", conn->peer);
}

static int greet(struct tcp_conn *conn, const struct conn_try *try) {
  conn->instance = 0;
  conn->has_offer = conn->native = false;
  if (conn->wanted == RDZV_DIALECT_V1) {
    conn->dialect = WIRE_DIALECT_V1;
    return tcp_conn_send(conn, try->until, try->cancel, try->error); /* what is left of a handshake */
  }
  if (conn->wanted == RDZV_DIALECT_V2) {
    conn->dialect = WIRE_DIALECT_V2;
    put_validate(conn);
    return tcp_conn_send(conn, try->until, try->cancel, try->error);
  }
  int result = greet_v2(conn, try);
  if (conn->wanted == RDZV_DIALECT_RDZV) {
    if (result == 0 && conn->dialect != WIRE_DIALECT_RDZV)
      result = error_set(try->error, RDZV_E_UNSUPPORTED, "the server at %s is not an rdzv server", conn->peer);
    return result;
  }
  if (result == RDZV_E_CONNECTION && conn->dialect == WIRE_DIALECT_UNKNOWN) { /* one reset may be an accident */
    result = dial(conn, try);
    if (result == 0) result = greet_v2(conn, try);
  }
  if (result != RDZV_E_CONNECTION) return result;
  return conn->dialect == WIRE_DIALECT_V2 || conn->dialect == WIRE_DIALECT_RDZV ? fail_lost_greeting(conn, try)
                                                                                : greet_v1(conn, try);
}

/* ---- connecting -------------------------------------------------------------------------------------------- */

static bool is_worth_another_try(int code) {
  return code == RDZV_E_CONNECTION || code == RDZV_E_ADDRESS || code == RDZV_E_TIMEOUT;
}

/* Finds out what a server is that closes on the greeting, answers it in another way, or not at all. */
static int explain(struct tcp_conn *conn, int result, const struct conn_try *try) {
  const bool recently = conn->foreign_asked && clock_now_ms() - conn->foreign_asked < FOREIGN_MS;
  const bool silent = result == RDZV_E_TIMEOUT;
  if (silent) error_set(try->error, result, NOT_ANSWERING, conn->peer);
  if (!silent && (recently || (result != RDZV_E_CONNECTION && result != RDZV_E_PROTOCOL))) return result;
  const int foreign = look_for_foreign(conn, try);
  return foreign < 0 ? foreign : result;
}

/* Our greeting, as a store answers it that wants no TLS. It tells nothing that a stranger may not know. */
static bool is_plain_store(const struct tcp_conn *conn, const struct conn_try *try) {
  char answer[16];
  const size_t len = net_ask(&conn->choice.endpoint, probe_greeting(), answer, sizeof answer, try->until, try->cancel);
  return probe_is_plain_store((rdzv_bytes){answer, len});
}

/* The handshake failed. A server that has proved that it speaks TLS is not asked further. */
static int explain_guarded(struct tcp_conn *conn, int result, const struct conn_try *try) {
  const bool recently = conn->foreign_asked && clock_now_ms() - conn->foreign_asked < FOREIGN_MS;
  if (recently || (result != RDZV_E_CONNECTION && result != RDZV_E_TIMEOUT)) return result;
  conn->foreign_asked = clock_now_ms();
  if (!is_plain_store(conn, try)) return result;
  return error_set(try->error, RDZV_E_PROTOCOL,
                   "no protected connection to '%s': the store there does not use TLS (start it with --secret-file or "
                   "--tls-cert, or connect without them)",
                   conn->name);
}

static int try_once(struct tcp_conn *conn, deadline until, const struct flag *cancel, rdzv_error *error) {
  const deadline pass = deadline_after(conn->foreign_asked ? TRY_MS : FIRST_TRY_MS);
  const struct conn_try one = {deadline_sooner(pass, until), cancel, error}, whole = {until, cancel, error};
  int result = dial(conn, &one);
  if (result < 0 && conn->fd < 0) return result;
  if (result == 0) result = greet(conn, &one);
  if (result == 0) {
    conn->foreign_asked = 0;
    conn->is_greeted = true;
    return 0;
  }
  tcp_conn_drop(conn);
  return conn->guard ? explain_guarded(conn, result, &whole) : explain(conn, result, &whole);
}

/* One pass over all servers, and to where standbys send the client. A server that cannot be used at all does not keep
 * the client from waiting for another one. */
static int try_all(struct tcp_conn *conn, deadline until, const struct flag *cancel, rdzv_error *error) {
  rdzv_error first = {0};
  for (size_t tries = conn->choice.servers->count, hops = HOPS; tries > 0;) {
    const bool others = tcp_choice_has_others(&conn->choice);
    const deadline one = others ? deadline_sooner(deadline_after(SEVERAL_MS), until) : until;
    const int result = try_once(conn, one, cancel, error);
    if (result == 0 || result == RDZV_E_CANCELED || result == RDZV_E_NO_MEMORY) return result;
    if (result == STANDBY && hops-- > 0) continue;
    if (first.code == 0 || is_worth_another_try(error->code)) first = *error;
    if (result != STANDBY) tcp_choice_next(&conn->choice);
    tries--;
  }
  *error = first;
  return first.code;
}

int tcp_conn_try(struct tcp_conn *conn, deadline until, const struct flag *cancel, rdzv_error *error) {
  rdzv_error own = {0};
  const int result = conn->fd >= 0 ? 0 : try_all(conn, until, cancel, &own);
  if (result < 0 && error) *error = own;
  return result;
}

/* A last try that has little time left times out whatever is wrong. The cause of the try before is better then. */
static int try_until(struct tcp_conn *conn, deadline until, const struct flag *cancel, rdzv_error *cause) {
  const int64_t began = clock_now_ms();
  const rdzv_error before = *cause;
  const int result = try_all(conn, until, cancel, cause);
  if (result != RDZV_E_TIMEOUT || before.code == 0 || clock_now_ms() - began >= SHORT_TRY_MS) return result;
  *cause = before;
  return before.code;
}

static int fail_connect(struct tcp_conn *conn, int result, int tries, int64_t waited, rdzv_error *error) {
  if (result == RDZV_E_TIMEOUT) {
    result = RDZV_E_CONNECTION;
    error->code = result;
  }
  if (result == RDZV_E_PROTOCOL || result == RDZV_E_STALE) return result; /* their texts are complete */
  return error_prefix(error, result, "cannot connect to '%s' (%d %s in %lld ms)", conn->name, tries,
                      tries == 1 ? "try" : "tries", (long long)waited);
}

/* A restarted server has neither the keys nor the sessions of the one before. */
static int compare_instance(struct tcp_conn *conn, rdzv_error *error) {
  const bool changed = conn->known_instance != 0 && conn->instance != conn->known_instance;
  conn->known_instance = conn->instance;
  if (changed) tcp_session_forget(&conn->session);
  if (conn->has_offer) tcp_session_offer(&conn->session, conn->offer);
  if (!changed) return 0;
  return error_set(error, RDZV_E_DATA_LOST, "the server at '%s' was restarted and has forgotten its keys", conn->name);
}

int tcp_conn_open(struct tcp_conn *conn, deadline until, const struct flag *cancel, rdzv_error *error) {
  if (conn->fd >= 0) return 0;
  rdzv_error cause = {0};
  struct waiting alone, *waiting = flag_waiting(cancel);
  if (!waiting) waiting_begin(waiting = &alone, &conn->log, until);
  const struct flag telling = flag_with(cancel, waiting);
  const int64_t began = clock_now_ms();
  struct backoff backoff = {FIRST_PAUSE_MS, LONGEST_PAUSE_MS};
  for (int tries = 1;; tries++) {
    int result = try_until(conn, until, &telling, &cause);
    if (result == 0) waiting_succeed(waiting, "connected to '%s'", conn->name);
    if (result == 0) return compare_instance(conn, error);
    const deadline next = backoff_next(&backoff);
    if (is_worth_another_try(result) && next < until) {
      waiting_fail(waiting, CANNOT_YET "%s", conn->name, cause.message);
      if (flag_pause(&telling, next) == 0) continue;
      result = error_set(&cause, RDZV_E_CANCELED, "connecting was canceled");
    }
    result = fail_connect(conn, result, tries, clock_now_ms() - began, &cause);
    if (error) *error = cause;
    return result;
  }
}
