/* SPDX-License-Identifier: BSD-3-Clause */
/* The load generator of the store benchmark, in one page.
 *
 * Everything it does is an exchange: a connection writes some bytes and awaits exactly the bytes that a correct server
 * answers. wire.c makes both, loop.c carries exchanges out on all connections by one epoll loop, run.c, modes.c and
 * barrier.c say which exchanges follow each other, hist.c keeps the latencies, load.c reads the options.
 *
 * It is a program that measures, so whatever is not as expected (a lost connection, a wrong byte, a stall) ends it with
 * a sentence and exit code 1: a figure comes only out of a run in which every answer was right. */
#ifndef RDZV_BENCH_LOAD_H
#define RDZV_BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum mode { MODE_RUN, MODE_CONNECT, MODE_WAITERS, MODE_IDLE, MODE_BARRIER };
enum dialect { DIALECT_ECHO, DIALECT_V1, DIALECT_V2 };
enum op { OP_SET, OP_GET, OP_ADD, OP_COMPARE_SET, OP_CHECK, OP_WAIT, OP_BARRIER };

struct options {
  enum mode mode;
  enum dialect dialect;
  enum op op;
  uint16_t port;
  unsigned connections;
  unsigned pipeline;
  double seconds;
  double warmup;
  double period; /* seconds between two requests of a connection; 0: the next when the last is answered */
  bool json;
  pid_t server;            /* 0: not told */
  const char *secret_file; /* NULL: plain */
};

extern const char *const mode_names[], *const dialect_names[], *const op_names[];

__attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...);

/* Monotonic, in nanoseconds. */
int64_t now_ns(void);

/* --- wire.c: requests and the answers they must get; each function returns where it stopped writing --- */

enum {
  VALUE_LEN = 32,
  KEY_LEN = 22,
  /* Over the longest of what one connection writes before the run: hello, SET, CHECK; and of one request. */
  MESSAGE_MAX = 256,
};

/* The key of connection `index`. Runs that need fresh keys name them by a number of their own. */
void wire_key(char key[KEY_LEN + 1], uint32_t number, unsigned index);
uint8_t *wire_hello(uint8_t *out, enum dialect dialect);
/* From here on the echo server answers each `request` bytes with `answer` zeros. */
uint8_t *wire_echo_hello(uint8_t *out, size_t request, size_t answer);
uint8_t *wire_set(uint8_t *out, enum dialect dialect, const char *key, const char *value, size_t len);
uint8_t *wire_add(uint8_t *out, enum dialect dialect, const char *key, int64_t amount);
/* BARRIER of so many clients. */
uint8_t *wire_barrier(uint8_t *out, enum dialect dialect, const char *key, int64_t clients);
/* GET, or CHECK and WAIT of one key. */
uint8_t *wire_query(uint8_t *out, enum dialect dialect, enum op op, const char *key);
uint8_t *wire_number(uint8_t *out, int64_t number);

/* What brings a key to the state before the first request, and its one-byte answer. */
uint8_t *wire_prepare(uint8_t *out, enum dialect dialect, enum op op, const char *key, unsigned index);
/* Request number `turn` (from 1) of a connection, and its answer. Of one op all are of one length, and but for ADD's
 * answers, two with turns of the same parity are the same bytes. */
uint8_t *wire_request(uint8_t *out, enum dialect dialect, enum op op, const char *key, unsigned index, uint64_t turn);
uint8_t *wire_answer(uint8_t *out, enum op op, unsigned index, uint64_t turn);
/* The answer of a GET of the key after `turns` requests. */
uint8_t *wire_final(uint8_t *out, enum op op, unsigned index, uint64_t turns);

/* --- loop.c: connections and their exchanges --- */

struct conn {
  int fd;
  unsigned index;
  bool connecting;
  const uint8_t *out; /* what is still to be written */
  size_t out_len;
  /* What must come back, and how much of it has come; none under way when they are equal. NULL: whatever comes is put
   * into ans. */
  const uint8_t *want;
  size_t want_len, got;
  int64_t since;          /* when the exchange began */
  uint8_t *req, *ans;     /* the mode's own memory for them */
  uint64_t turns;         /* requests answered in the exchanges before this one */
  struct tls_stream *tls; /* NULL: plain */
  int64_t due;            /* when the next exchange is to begin, with a period */
};

struct loop {
  int poller;
  uint16_t port;
  struct conn *conns;
  unsigned count;
  unsigned busy; /* connections with an exchange under way */
  bool spin;     /* ask for events again and again, never sleep */
  int wait_ms;   /* how long to sleep at most */
  int64_t scanned;
  /* Called when bytes have come: `before` is conn->got as it was. May begin the next exchange once it is complete. */
  void (*answered)(struct loop *loop, struct conn *conn, size_t before, int64_t now);
  void *data;
};

/* `size` bytes each for req and ans of every connection. */
void loop_init(struct loop *loop, uint16_t port, unsigned count, size_t size);
/* Connections that are opened from here on are protected by that secret. The handshakes are one after the other. */
void loop_protect(const char *secret_file);
/* Connects all; each begins with the exchange that was set by conn_plan. At most `window` are on their way at once, so
 * that no server's queue of unaccepted connections overflows. Returns when all exchanges are complete. */
void loop_open(struct loop *loop, unsigned window);
/* Waits for events, at most wait_ms (not at all with `spin`), and carries them out. */
void loop_turn(struct loop *loop);
/* Until no exchange is under way. */
void loop_drain(struct loop *loop);
void loop_free(struct loop *loop);

void conn_plan(struct conn *conn, const uint8_t *out, size_t out_len, const uint8_t *want, size_t want_len);
/* Begins the planned exchange on an open connection. */
void conn_begin(struct loop *loop, struct conn *conn, int64_t now);

/* --- hist.c: latencies in fixed memory, to within 1/64 of their value --- */

enum { HIST_BUCKETS = 1056 };

struct hist {
  uint64_t total;
  int64_t longest;
  uint64_t buckets[HIST_BUCKETS];
};

void hist_add(struct hist *hist, int64_t ns, uint64_t times);
/* The latency in microseconds that `share` of all do not exceed; 0 when there are none. */
double hist_quantile(const struct hist *hist, double share);

/* --- the modes --- */

enum { CONNECT_WINDOW = 256 }; /* connections on their way at once, where connecting is not what is measured */

/* A name for keys that no earlier run on the same server has used. */
uint32_t fresh_number(void);
/* Plans what was written to conn->req up to `end`, with an answer of one byte or, from echo, of the same bytes. */
void plan_byte(struct conn *conn, enum dialect dialect, const uint8_t *end, uint8_t answer);

void load_run(const struct options *options);
void load_connect(const struct options *options);
void load_waiters(const struct options *options);
void load_idle(const struct options *options);
void load_barrier(const struct options *options);

#endif
