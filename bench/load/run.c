/* SPDX-License-Identifier: BSD-3-Clause */
/* Throughput and latency of one operation. Each connection writes `pipeline` requests at once and the next as many
 * when all are answered. The latency of a request is the time from that write to the read that brought the end of its
 * answer. Connecting, preparing the keys and the warm-up are not counted. */
#include "load.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

struct run {
  const struct options *options;
  size_t request_len, answer_len;
  int64_t counted_from, counted_to;
  struct hist hist;
  double busy;      /* the share of its time that this process was on the processor */
  double server_us; /* the server's processor time for an operation; 0 when its process is not known */
};

/* Processor time of a process since its start; 0 is this one. */
static int64_t cpu_ns(pid_t pid) {
  struct timespec time;
  clockid_t clock;
  const int error = clock_getcpuclockid(pid, &clock);
  if (error) die("cannot read the processor time of process %ld: %s", (long)pid, strerror(error));
  if (clock_gettime(clock, &time) < 0) die("process %ld has ended", (long)pid);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void key_of(char key[KEY_LEN + 1], const struct conn *conn) {
  wire_key(key, 0, conn->index); /* the same keys in every run: the store does not grow with them */
}

/* From the echo server: an answer as long as a store's, all zeros, as conn->ans is from the beginning. */
static void plan_prepare(const struct run *run, struct conn *conn) {
  const struct options *o = run->options;
  char key[KEY_LEN + 1];
  key_of(key, conn);
  if (o->dialect == DIALECT_ECHO) {
    uint8_t *end = wire_echo_hello(conn->req, run->request_len, run->answer_len);
    end = wire_request(end, o->dialect, o->op, key, conn->index, 1);
    conn_plan(conn, conn->req, (size_t)(end - conn->req), conn->ans, run->answer_len);
    return;
  }
  const uint8_t *end = wire_prepare(wire_hello(conn->req, o->dialect), o->dialect, o->op, key, conn->index);
  conn->ans[0] = 0;
  conn_plan(conn, conn->req, (size_t)(end - conn->req), conn->ans, 1);
}

/* One request more than the pipeline holds: a batch starts at the first or the second, by the parity of its turn. */
static void write_requests(const struct run *run, struct conn *conn) {
  const struct options *o = run->options;
  char key[KEY_LEN + 1];
  key_of(key, conn);
  uint8_t *req = conn->req, *ans = conn->ans;
  for (unsigned turn = 1; turn <= o->pipeline + 1; turn++) {
    req = wire_request(req, o->dialect, o->op, key, conn->index, turn);
    if (o->dialect != DIALECT_ECHO) ans = wire_answer(ans, o->op, conn->index, turn);
  }
}

static void begin_batch(struct loop *loop, const struct run *run, struct conn *conn, int64_t now) {
  const struct options *o = run->options;
  const size_t first = conn->turns & 1, depth = o->pipeline;
  const uint8_t *out = conn->req + first * run->request_len, *want = conn->ans + first * run->answer_len;
  if (o->op == OP_ADD && o->dialect != DIALECT_ECHO) {
    uint8_t *ans = conn->ans;
    for (uint64_t i = 1; i <= depth; i++) ans = wire_answer(ans, OP_ADD, conn->index, conn->turns + i);
    want = conn->ans;
  }
  conn_plan(conn, out, depth * run->request_len, want, depth * run->answer_len);
  conn_begin(loop, conn, now);
}

static void run_answered(struct loop *loop, struct conn *conn, size_t before, int64_t now) {
  struct run *run = loop->data;
  const size_t answers = conn->got / run->answer_len - before / run->answer_len;
  const bool counts =
      run->options->period > 0 ? conn->since >= run->counted_from : now >= run->counted_from && now < run->counted_to;
  if (counts) hist_add(&run->hist, now - conn->since, answers);
  if (conn->got < conn->want_len) return;
  conn->turns += run->options->pipeline;
  if (now < run->counted_to && run->options->period == 0) begin_batch(loop, run, conn, now);
}

/* The connections are due one after the other. */
static void run_by_period(struct loop *loop, const struct run *run, int64_t began) {
  const int64_t period = (int64_t)(run->options->period * 1e9);
  loop->wait_ms = 1;
  for (unsigned i = 0; i < loop->count; i++) loop->conns[i].due = began + period * i / loop->count;
  for (int64_t now; (now = now_ns()) < run->counted_to; loop_turn(loop)) {
    for (unsigned i = 0; i < loop->count; i++) {
      struct conn *conn = &loop->conns[i];
      if (conn->got < conn->want_len || now < conn->due) continue;
      begin_batch(loop, run, conn, conn->due);
      conn->due += period;
    }
  }
}

/* Reads every key once more: the answers of SET and of CHECK alone would not show that a value was kept. */
static void verify(struct loop *loop, const struct run *run) {
  const struct options *o = run->options;
  loop->answered = NULL;
  for (unsigned i = 0; i < loop->count; i++) {
    struct conn *conn = &loop->conns[i];
    char key[KEY_LEN + 1];
    key_of(key, conn);
    const uint8_t *req = wire_query(conn->req, o->dialect, OP_GET, key);
    const uint8_t *ans = wire_final(conn->ans, o->op, i, conn->turns);
    conn_plan(conn, conn->req, (size_t)(req - conn->req), conn->ans, (size_t)(ans - conn->ans));
    conn_begin(loop, conn, now_ns());
  }
  loop_drain(loop);
}

static void report(const struct run *run) {
  const struct options *o = run->options;
  const double rate = (double)run->hist.total / o->seconds;
  const double p50 = hist_quantile(&run->hist, 0.5), p99 = hist_quantile(&run->hist, 0.99);
  if (o->json) {
    printf(
        "{\"mode\": \"run\", \"dialect\": \"%s\", \"op\": \"%s\", \"connections\": %u, \"pipeline\": %u, "
        "\"seconds\": %.3f, \"ops\": %llu, \"ops_per_s\": %.1f, \"p50_us\": %.2f, \"p99_us\": %.2f, "
        "\"max_us\": %.2f, \"generator_busy\": %.3f, \"server_us_per_op\": %.4f}\n",
        dialect_names[o->dialect], op_names[o->op], o->connections, o->pipeline, o->seconds,
        (unsigned long long)run->hist.total, rate, p50, p99, (double)run->hist.longest / 1e3, run->busy,
        run->server_us);
    return;
  }
  printf("%s %s, %u connections, pipeline %u: %.0f ops/s, p50 %.1f us, p99 %.1f us, generator busy %.0f %%\n",
         dialect_names[o->dialect], op_names[o->op], o->connections, o->pipeline, rate, p50, p99, 100 * run->busy);
  if (o->server) printf("server: %.3f us of processor time an operation\n", run->server_us);
  if (o->op == OP_SET)
    printf("SET has no answer in this protocol: one operation is a SET and a CHECK of its key in the same write.\n");
}

static void measure(struct loop *loop, struct run *run) {
  const struct options *o = run->options;
  loop->answered = run_answered;
  loop->data = run;
  const int64_t began = now_ns(), cpu = cpu_ns(0), server_cpu = o->server ? cpu_ns(o->server) : 0;
  run->counted_from = began + (int64_t)(o->warmup * 1e9);
  run->counted_to = run->counted_from + (int64_t)(o->seconds * 1e9);
  if (o->period > 0)
    run_by_period(loop, run, began);
  else
    for (unsigned i = 0; i < loop->count; i++) begin_batch(loop, run, &loop->conns[i], now_ns());
  loop_drain(loop);
  uint64_t turns = 0;
  for (unsigned i = 0; i < loop->count; i++) turns += loop->conns[i].turns;
  run->busy = (double)(cpu_ns(0) - cpu) / (double)(now_ns() - began);
  if (o->server) run->server_us = (double)(cpu_ns(o->server) - server_cpu) / 1e3 / (double)turns;
}

void load_run(const struct options *options) {
  static struct run run;
  struct loop loop;
  uint8_t scratch[MESSAGE_MAX];
  char key[KEY_LEN + 1];
  run.options = options;
  wire_key(key, 0, 0);
  run.request_len = (size_t)(wire_request(scratch, options->dialect, options->op, key, 0, 1) - scratch);
  run.answer_len = (size_t)(wire_answer(scratch, options->op, 0, 1) - scratch);
  const size_t longest = run.request_len > run.answer_len ? run.request_len : run.answer_len;
  loop_init(&loop, options->port, options->connections, MESSAGE_MAX + (options->pipeline + 1) * longest);
  for (unsigned i = 0; i < loop.count; i++) plan_prepare(&run, &loop.conns[i]);
  loop_open(&loop, CONNECT_WINDOW);
  for (unsigned i = 0; i < loop.count; i++) write_requests(&run, &loop.conns[i]);
  measure(&loop, &run);
  if (run.hist.total == 0) die("no request was answered in the %.3f s that were counted", options->seconds);
  if (options->dialect != DIALECT_ECHO) verify(&loop, &run);
  report(&run);
  loop_free(&loop);
}
