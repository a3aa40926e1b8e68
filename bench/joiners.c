/* SPDX-License-Identifier: BSD-3-Clause */
/* N nodes that join one rendezvous at once: the measuring half of bench/rendezvous and bench/etcd.
 *
 * Each node is a thread with a handler of its own, opened and joined by the public API at a common start. The time is
 * from that start until the last rdzv_handler_next has returned, opening included. It is a figure only if all is right:
 * every rank once, one round, a world of N.
 *
 * What the nodes say to a TCPStore is counted where it is said (etcd counts for itself). The linker puts the functions
 * below in the place of three of the library's (--wrap, see bench/CMakeLists.txt), so that the figures are exact: the
 * requests that were written, by operation, and the bytes that went either way. */
#include "base/net/net.h"
#include "wire/writer.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <rdzv/rdzv.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ll

enum {
  MOST_NODES = 100000,
  STACK_SIZE = 256 * 1024,
  CLOSING_S = 30, /* after the limit, then the process is ended */
};

struct options {
  const char *backend;
  const char *endpoint;
  const char *run_id;
  const char *conf;
  unsigned nodes;
  unsigned max_nodes;
  unsigned limit; /* seconds */
  bool list;      /* when each node was there */
  bool hold;      /* the nodes stay until stdin ends, so that somebody can look at what they left */
};

struct counts {
  uint64_t requests[WIRE_OP_COUNT];
  uint64_t sent, received;
};

struct node {
  const struct options *options;
  pthread_t thread;
  rdzv_result *result;
  int64_t opened, joined; /* since the start, in ns; 0: not yet */
};

/* Guarded by the lock, which is held for moments only. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  unsigned ready, joined;
  bool go, over;
  int64_t start;
  struct counts counts; /* as they were when the last had joined */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("joiners: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  _exit(1); /* other threads are at work: nothing is taken down in order */
}

static int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * SECOND + time.tv_nsec;
}

/* ---- counting ------------------------------------------------------------------------------------------------- */

static atomic_uint_fast64_t requests[WIRE_OP_COUNT], bytes_sent, bytes_received;
static unsigned delay_us; /* before each request */

void __real_wire_put_op(struct wire_writer *writer, enum wire_dialect dialect, enum wire_op op);
void __wrap_wire_put_op(struct wire_writer *writer, enum wire_dialect dialect, enum wire_op op);
int __real_net_send(int fd, const void *data, size_t len, deadline until, const struct flag *cancel, size_t *sent,
                    rdzv_error *error);
int __wrap_net_send(int fd, const void *data, size_t len, deadline until, const struct flag *cancel, size_t *sent,
                    rdzv_error *error);
int __real_net_recv(int fd, void *data, size_t cap, deadline until, const struct flag *cancel, size_t *got,
                    rdzv_error *error);
int __wrap_net_recv(int fd, void *data, size_t cap, deadline until, const struct flag *cancel, size_t *got,
                    rdzv_error *error);

void __wrap_wire_put_op(struct wire_writer *writer, enum wire_dialect dialect, enum wire_op op) {
  atomic_fetch_add_explicit(&requests[op], 1, memory_order_relaxed);
  __real_wire_put_op(writer, dialect, op);
}

int __wrap_net_send(int fd, const void *data, size_t len, deadline until, const struct flag *cancel, size_t *sent,
                    rdzv_error *error) {
  if (delay_us > 0) usleep(delay_us);
  const int result = __real_net_send(fd, data, len, until, cancel, sent, error);
  atomic_fetch_add_explicit(&bytes_sent, *sent, memory_order_relaxed);
  return result;
}

int __wrap_net_recv(int fd, void *data, size_t cap, deadline until, const struct flag *cancel, size_t *got,
                    rdzv_error *error) {
  const int result = __real_net_recv(fd, data, cap, until, cancel, got, error);
  if (result == 0) atomic_fetch_add_explicit(&bytes_received, *got, memory_order_relaxed);
  return result;
}

static void take_counts(struct counts *out) {
  for (unsigned i = 0; i < WIRE_OP_COUNT; i++) out->requests[i] = atomic_load(&requests[i]);
  out->sent = atomic_load(&bytes_sent);
  out->received = atomic_load(&bytes_received);
}

/* ---- a node --------------------------------------------------------------------------------------------------- */

static void await_start(void) {
  pthread_mutex_lock(&all.lock);
  all.ready++;
  pthread_cond_broadcast(&all.changed);
  while (!all.go) pthread_cond_wait(&all.changed, &all.lock);
  pthread_mutex_unlock(&all.lock);
}

/* Nobody goes before the figures are taken. */
static void await_end(struct node *node, rdzv_result *result) {
  pthread_mutex_lock(&all.lock);
  node->joined = now_ns() - all.start;
  node->result = result;
  if (++all.joined == node->options->nodes) {
    take_counts(&all.counts);
    pthread_cond_broadcast(&all.changed);
  }
  while (!all.over) pthread_cond_wait(&all.changed, &all.lock);
  pthread_mutex_unlock(&all.lock);
}

static void *run_node(void *argument) {
  struct node *node = argument;
  const struct options *o = node->options;
  const rdzv_params params = {.size = sizeof params,
                              .backend = o->backend,
                              .endpoint = o->endpoint,
                              .run_id = o->run_id,
                              .min_nodes = o->nodes,
                              .max_nodes = o->max_nodes,
                              .conf = o->conf,
                              .local_addr = "127.0.0.1"};
  rdzv_handler *handler;
  rdzv_result *result;
  rdzv_error error;
  await_start();
  if (rdzv_handler_open(&params, &handler, &error) < 0) die("%s", error.message);
  node->opened = now_ns() - all.start;
  if (rdzv_handler_next(handler, &result, &error) < 0) die("%s", error.message);
  await_end(node, result);
  rdzv_result_free(result);
  rdzv_handler_free(handler);
  return NULL;
}

/* ---- the run -------------------------------------------------------------------------------------------------- */

static void raise_file_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) die("getrlimit: %s", strerror(errno));
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static void start_threads(struct node *nodes, const struct options *o) {
  pthread_attr_t attributes;
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&all.changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_SIZE);
  for (unsigned i = 0; i < o->nodes; i++) {
    nodes[i].options = o;
    const int errnum = pthread_create(&nodes[i].thread, &attributes, run_node, &nodes[i]);
    if (errnum) die("thread %u of %u: %s", i + 1, o->nodes, strerror(errnum));
  }
  pthread_attr_destroy(&attributes);
}

/* Lets them go, and waits until all have joined or the limit has passed. Gives the number of those that have. */
static unsigned run_all(const struct options *o) {
  int late = 0;
  pthread_mutex_lock(&all.lock);
  while (all.ready < o->nodes) pthread_cond_wait(&all.changed, &all.lock);
  all.start = now_ns();
  all.go = true;
  pthread_cond_broadcast(&all.changed);
  const int64_t end = all.start + o->limit * SECOND;
  const struct timespec until = {.tv_sec = (time_t)(end / SECOND), .tv_nsec = (long)(end % SECOND)};
  while (all.joined < o->nodes && !late) late = pthread_cond_timedwait(&all.changed, &all.lock, &until);
  if (all.joined < o->nodes) take_counts(&all.counts);
  const unsigned joined = all.joined;
  pthread_mutex_unlock(&all.lock);
  return joined;
}

static void await_stdin_end(void) {
  char byte[64];
  while (read(STDIN_FILENO, byte, sizeof byte) > 0) {
  }
}

static void end_all(struct node *nodes, unsigned count) {
  pthread_mutex_lock(&all.lock);
  all.over = true;
  pthread_cond_broadcast(&all.changed);
  pthread_mutex_unlock(&all.lock);
  for (unsigned i = 0; i < count; i++) pthread_join(nodes[i].thread, NULL);
}

/* One round, a world of all, each rank once. */
static void check(const struct node *nodes, unsigned count) {
  bool *seen = calloc(count, sizeof *seen);
  if (!seen) die("out of memory");
  for (unsigned i = 0; i < count; i++) {
    const rdzv_result *mine = nodes[i].result;
    if (mine->world_size != count || !rdzv_result_participant(mine, count - 1) || mine->round != nodes[0].result->round)
      die("node %s is in round %lld with a world of %lld", mine->node, (long long)mine->round,
          (long long)mine->world_size);
    if (mine->rank < 0 || mine->rank >= count || seen[mine->rank]) die("rank %lld twice", (long long)mine->rank);
    seen[mine->rank] = true;
  }
  free(seen);
}

/* ---- the report ----------------------------------------------------------------------------------------------- */

/* The greeting of a connection is not the user's to count. */
static bool is_greeting(unsigned op) { return op == WIRE_OP_VALIDATE || op == WIRE_OP_PING; }

static void print_requests(void) {
  const char *comma = "";
  printf("\"requests\": {");
  for (unsigned i = 0; i < WIRE_OP_COUNT; i++) {
    if (all.counts.requests[i] == 0 || is_greeting(i)) continue;
    printf("%s\"%s\": %llu", comma, wire_ops[i].name, (unsigned long long)all.counts.requests[i]);
    comma = ", ";
  }
  printf("}");
}

static uint64_t sum_of_requests(void) {
  uint64_t sum = 0;
  for (unsigned i = 0; i < WIRE_OP_COUNT; i++)
    if (!is_greeting(i)) sum += all.counts.requests[i];
  return sum;
}

static double last_of(const struct node *nodes, unsigned count, bool joined) {
  int64_t last = 0;
  for (unsigned i = 0; i < count; i++) {
    const int64_t at = joined ? nodes[i].joined : nodes[i].opened;
    if (at > last) last = at;
  }
  return (double)last / SECOND;
}

static void print_list(const struct node *nodes, unsigned count) {
  for (unsigned i = 0; i < count; i++)
    fprintf(stderr, "%u opened %.3f joined %.3f rank %lld\n", i, (double)nodes[i].opened / SECOND,
            (double)nodes[i].joined / SECOND, nodes[i].result ? (long long)nodes[i].result->rank : -1);
}

static void report(const struct node *nodes, const struct options *o, unsigned joined) {
  const double count = o->nodes;
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  printf("{\"nodes\": %u, \"joined\": %u, \"seconds\": %.4f, \"opened\": %.4f, ", o->nodes, joined,
         last_of(nodes, o->nodes, true), last_of(nodes, o->nodes, false));
  printf("\"ops_per_node\": %.2f, \"sent_per_node\": %.0f, \"received_per_node\": %.0f, \"connections\": %llu, ",
         (double)sum_of_requests() / count, (double)all.counts.sent / count, (double)all.counts.received / count,
         (unsigned long long)all.counts.requests[WIRE_OP_VALIDATE]);
  printf("\"user_s\": %.3f, \"system_s\": %.3f, ", (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6,
         (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6);
  print_requests();
  printf("}\n");
  fflush(stdout);
  if (o->list) print_list(nodes, o->nodes);
}

/* ---- the command line ----------------------------------------------------------------------------------------- */

static const char usage_text[] =
    "usage: joiners --endpoint HOST:PORT [--backend NAME] [--nodes N] [--max-nodes M] [--run-id NAME]\n"
    "               [--conf NAME=VALUE,…] [--limit SECONDS] [--delay-us D] [--hold] [--list]\n"
    "\n"
    "Joins a rendezvous of N to M (N) nodes with N at once and prints, as JSON, how long it took from the common "
    "start\n"
    "to the last, and what the nodes said to a TCPStore. Each request to that is held back by the delay, as if it was\n"
    "so far away. With --hold the nodes leave when stdin ends.\n"
    "Code 0: all joined; 2: not within the limit; 1: something failed.\n";

static const struct option long_options[] = {
    {"backend", required_argument, NULL, 'b'},  {"endpoint", required_argument, NULL, 'e'},
    {"nodes", required_argument, NULL, 'n'},    {"max-nodes", required_argument, NULL, 'm'},
    {"run-id", required_argument, NULL, 'r'},   {"conf", required_argument, NULL, 'c'},
    {"delay-us", required_argument, NULL, 'd'}, {"limit", required_argument, NULL, 'l'},
    {"hold", no_argument, NULL, 'H'},           {"list", no_argument, NULL, 'L'},
    {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0},
};

static unsigned whole(const char *what, const char *text, unsigned most) {
  char *end;
  errno = 0;
  const long number = strtol(text, &end, 10);
  if (end == text || *end || errno || number < 1 || number > (long)most)
    die("%s takes a number from 1 to %u, not '%s'", what, most, text);
  return (unsigned)number;
}

static void take_option(struct options *o, int option) {
  switch (option) {
    case 'b': o->backend = optarg; break;
    case 'e': o->endpoint = optarg; break;
    case 'n': o->nodes = whole("--nodes", optarg, MOST_NODES); break;
    case 'm': o->max_nodes = whole("--max-nodes", optarg, MOST_NODES); break;
    case 'r': o->run_id = optarg; break;
    case 'c': o->conf = optarg; break;
    case 'l': o->limit = whole("--limit", optarg, 3600); break;
    case 'd': delay_us = whole("--delay-us", optarg, 999999); break;
    case 'H': o->hold = true; break;
    case 'L': o->list = true; break;
    case 'h': fputs(usage_text, stdout); exit(0);
    default: fputs(usage_text, stderr); exit(1);
  }
}

int main(int argc, char **argv) {
  struct options o = {.backend = "c10d", .run_id = "bench", .nodes = 2, .limit = 60};
  int option;
  while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) take_option(&o, option);
  if (optind < argc || !o.endpoint) {
    fputs(usage_text, stderr);
    return 1;
  }
  if (!o.conf && strcmp(o.backend, "c10d") == 0) o.conf = "is_host=false"; /* somebody else serves it */
  if (o.max_nodes < o.nodes) o.max_nodes = o.nodes;
  struct node *nodes = calloc(o.nodes, sizeof *nodes);
  if (!nodes) die("out of memory");
  raise_file_limit();
  alarm(o.limit + CLOSING_S);
  start_threads(nodes, &o);
  const unsigned joined = run_all(&o);
  if (joined == o.nodes) check(nodes, o.nodes);
  report(nodes, &o, joined);
  if (joined < o.nodes) _exit(2); /* with threads that still try */
  if (o.hold) await_stdin_end();
  end_all(nodes, o.nodes);
  free(nodes);
  return 0;
}
