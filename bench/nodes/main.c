/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of joiners and swarm, their processes, and the report. */
#include "nodes.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  MOST_NODES = 100000,
  MOST_PROCESSES = 64,
  CLOSING_S = 30, /* after the limit, then the process is ended */
};

struct crew {
  struct board *board;
  const struct options *options;
  pid_t pids[MOST_PROCESSES + 2];
  unsigned count;
  pid_t victim;
};

/* ---- processes ------------------------------------------------------------------------------------------------ */

static void raise_file_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) die("getrlimit: %s", strerror(errno));
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

/* One more node than asked for: a spare. */
static struct board *make_board(unsigned nodes) {
  const size_t size = sizeof(struct board) + (nodes + 1) * sizeof(struct slot);
  struct board *board = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (board == MAP_FAILED) die("out of memory");
  for (unsigned i = 0; i <= nodes; i++)
    for (unsigned k = 0; k < ROUNDS; k++) board->slots[i].places[k].rank = -1;
  return board;
}

static pid_t start_process(struct crew *crew, unsigned first, unsigned count) {
  const pid_t pid = fork();
  if (pid < 0) die("fork: %s", strerror(errno));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    nodes_run(crew->board, crew->options, first, count);
    exit(0);
  }
  crew->pids[crew->count++] = pid;
  return pid;
}

static void start_processes(struct crew *crew) {
  const struct options *o = crew->options;
  const unsigned nodes = o->nodes - (o->victim ? 1 : 0);
  for (unsigned i = 0, first = 0; i < o->processes; i++) {
    const unsigned next = (unsigned)((uint64_t)nodes * (i + 1) / o->processes);
    if (next > first) start_process(crew, first, next - first);
    first = next;
  }
  if (o->victim) crew->victim = start_process(crew, nodes, 1);
}

/* A process that ends early has printed why. */
static void check_processes(struct crew *crew) {
  for (unsigned i = 0; i < crew->count; i++)
    if (crew->pids[i] != 0 && waitpid(crew->pids[i], NULL, WNOHANG) == crew->pids[i]) _exit(1);
}

/* As board_await, and ends this process if one of the others does. */
static bool await(struct crew *crew, atomic_uint *word, unsigned least, int64_t until) {
  for (;;) {
    const int64_t slice = now_ns() + SECOND / 4;
    if (board_await(word, least, slice < until ? slice : until)) return true;
    if (now_ns() >= until) return false;
    check_processes(crew);
  }
}

static void end_processes(const struct crew *crew) {
  bool failed = false;
  board_go(crew->board, GO_END);
  for (unsigned i = 0; i < crew->count; i++) {
    int status = 0;
    if (crew->pids[i] == 0) continue;
    while (waitpid(crew->pids[i], &status, 0) < 0 && errno == EINTR) {
    }
    failed = failed || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  }
  if (failed) die("a process did not end in order");
}

/* ---- the report ----------------------------------------------------------------------------------------------- */

/* One round, a world of all, no rank twice. */
static void check_places(const struct crew *crew, unsigned which) {
  const unsigned nodes = crew->options->nodes, world = nodes + crew->options->others;
  bool *seen = calloc(world, sizeof *seen);
  int64_t round = -1;
  if (!seen) die("out of memory");
  for (unsigned i = 0; i <= nodes; i++) {
    const struct place *place = &crew->board->slots[i].places[which];
    if (place->rank < 0) continue;
    if (round < 0) round = place->round;
    if (place->world != world || place->round != round)
      die("node %u is in round %lld with a world of %lld", i, (long long)place->round, (long long)place->world);
    if (place->rank >= world || seen[place->rank]) die("rank %lld twice", (long long)place->rank);
    seen[place->rank] = true;
  }
  for (unsigned i = 0; i < nodes; i++)
    if (world == nodes && !seen[i]) die("no node has rank %u", i);
  free(seen);
}

/* The greeting of a connection is not the user's to count. */
static bool is_greeting(unsigned op) { return op == WIRE_OP_VALIDATE || op == WIRE_OP_PING; }

static uint64_t print_requests(const struct board *board) {
  const char *comma = "";
  uint64_t sum = 0;
  printf("\"requests\": {");
  for (unsigned i = 0; i < WIRE_OP_COUNT; i++) {
    const uint64_t count = board->requests[i];
    if (count == 0 || is_greeting(i)) continue;
    printf("%s\"%s\": %llu", comma, wire_ops[i].name, (unsigned long long)count);
    comma = ", ";
    sum += count;
  }
  printf("}, ");
  return sum;
}

static double opened_at(const struct slot *slot) { return (double)slot->opened / SECOND; }
static double joined_at(const struct slot *slot) { return (double)slot->places[0].at / SECOND; }
static double known_at(const struct slot *slot) { return (double)slot->known / SECOND; }
static double again_at(const struct slot *slot) { return (double)slot->places[1].at / SECOND; }

static double last_of(const struct crew *crew, double (*at)(const struct slot *)) {
  double last = 0;
  for (unsigned i = 0; i <= crew->options->nodes; i++)
    if (at(&crew->board->slots[i]) > last) last = at(&crew->board->slots[i]);
  return last;
}

static void print_list(const struct crew *crew) {
  for (unsigned i = 0; i < crew->options->nodes; i++) {
    const struct slot *slot = &crew->board->slots[i];
    fprintf(stderr, "%u opened %.3f joined %.3f rank %lld\n", i, opened_at(slot), joined_at(slot),
            (long long)slot->places[0].rank);
  }
}

static void report(const struct crew *crew, unsigned joined) {
  const struct board *board = crew->board;
  const double count = crew->options->nodes;
  printf("{\"nodes\": %u, \"joined\": %u, \"seconds\": %.4f, \"opened\": %.4f, ", crew->options->nodes, joined,
         last_of(crew, joined_at), last_of(crew, opened_at));
  printf("\"sent_per_node\": %.0f, \"received_per_node\": %.0f, \"messages_per_node\": %.2f, \"connections\": %llu, ",
         (double)board->sent / count, (double)board->received / count,
         (double)(board->messages_out + board->messages_in) / count,
         (unsigned long long)board->requests[WIRE_OP_VALIDATE]);
  printf("\"ops_per_node\": %.2f}\n", (double)print_requests(board) / count);
  fflush(stdout);
  if (crew->options->list) print_list(crew);
}

/* ---- the run -------------------------------------------------------------------------------------------------- */

static void run_round(struct crew *crew) {
  const struct options *o = crew->options;
  struct board *board = crew->board;
  start_processes(crew);
  const int64_t until = now_ns() + o->limit * SECOND;
  if (!await(crew, &board->ready, o->nodes, until)) die("not all nodes have started");
  board->start = now_ns();
  board_go(board, GO_JOIN);
  const bool all = await(crew, &board->joined, o->nodes, board->start + o->limit * SECOND);
  if (all) check_places(crew, 0);
  report(crew, atomic_load(&board->joined));
  if (!all) _exit(2); /* with nodes that still try */
}

static void start_spare(struct crew *crew) {
  const struct options *o = crew->options;
  if (crew->count == sizeof crew->pids / sizeof *crew->pids) die("there is a spare already");
  start_process(crew, o->nodes, 1);
  if (!await(crew, &crew->board->ready, o->nodes + 1, now_ns() + o->limit * SECOND)) die("the spare did not start");
  printf("{}\n");
}

static void kill_victim(struct crew *crew) {
  const struct options *o = crew->options;
  struct board *board = crew->board;
  if (crew->victim == 0) die("there is no node to kill (--victim)");
  const int64_t at = now_ns(), until = at + o->limit * SECOND;
  kill(crew->victim, SIGKILL);
  waitpid(crew->victim, NULL, 0);
  for (unsigned i = 0; i < crew->count; i++)
    if (crew->pids[i] == crew->victim) crew->pids[i] = 0;
  crew->victim = 0;
  if (!await(crew, &board->known, o->nodes - 1, until)) die("not all nodes know of the death");
  if (!await(crew, &board->again, o->nodes, until)) die("%u of %u are in the next round", board->again, o->nodes);
  check_places(crew, 1);
  const double killed = (double)(at - board->start) / SECOND;
  printf("{\"nodes\": %u, \"known_s\": %.4f, \"seconds\": %.4f}\n", o->nodes, last_of(crew, known_at) - killed,
         last_of(crew, again_at) - killed);
}

/* Until stdin ends. */
static void take_commands(struct crew *crew) {
  char line[64];
  alarm(0);
  while (fgets(line, sizeof line, stdin)) {
    if (strcmp(line, "spare\n") == 0)
      start_spare(crew);
    else if (strcmp(line, "kill\n") == 0)
      kill_victim(crew);
    else
      die("there is no command '%s'", line);
    fflush(stdout);
  }
}

/* ---- the command line ----------------------------------------------------------------------------------------- */

static const char usage_text[] =
    "usage: %s --endpoint HOST:PORT [--nodes N] [--max-nodes M] [--others K] [--processes P]\n"
    "               [--run-id NAME] [--limit SECONDS] [--backend NAME] [--conf NAME=VALUE,…]\n"
    "               [--delay-us D] [--keep-alive-ms K] [--victim] [--hold] [--list]\n"
    "\n"
    "Joins a rendezvous of N to M (N) nodes with N at once and prints, as JSON, how long it took from the common "
    "start\n"
    "to the last, and what the nodes said. With --others, K more nodes have to join. With --hold the nodes leave\n"
    "when stdin ends. With --victim, stdin takes the commands 'spare' (one more node) and 'kill' (one of N, by\n"
    "SIGKILL: how long until all know, and until the next round).\n"
    "%s"
    "Code 0: all joined; 2: not within the limit; 1: something failed.\n";

static const struct option long_options[] = {
    {"backend", required_argument, NULL, 'b'},
    {"endpoint", required_argument, NULL, 'e'},
    {"nodes", required_argument, NULL, 'n'},
    {"max-nodes", required_argument, NULL, 'm'},
    {"others", required_argument, NULL, 'o'},
    {"run-id", required_argument, NULL, 'r'},
    {"conf", required_argument, NULL, 'c'},
    {"delay-us", required_argument, NULL, 'd'},
    {"limit", required_argument, NULL, 'l'},
    {"hold", no_argument, NULL, 'H'},
    {"list", no_argument, NULL, 'L'},
    {"help", no_argument, NULL, 'h'},
    {"processes", required_argument, NULL, 'p'},
    {"victim", no_argument, NULL, 'v'},
    {"keep-alive-ms", required_argument, NULL, 'k'},
    {NULL, 0, NULL, 0},
};

static unsigned whole(const char *what, const char *text, unsigned most) {
  char *end;
  errno = 0;
  const long number = strtol(text, &end, 10);
  if (end == text || *end || errno || number < 1 || number > (long)most)
    die("%s takes a number from 1 to %u, not '%s'", what, most, text);
  return (unsigned)number;
}

static void print_usage(FILE *stream) { fprintf(stream, usage_text, nodes_name, nodes_usage); }

static void take_option(struct options *o, int option) {
  switch (option) {
    case 'b': o->backend = optarg; break;
    case 'e': o->endpoint = optarg; break;
    case 'n': o->nodes = whole("--nodes", optarg, MOST_NODES); break;
    case 'm': o->max_nodes = whole("--max-nodes", optarg, MOST_NODES); break;
    case 'o': o->others = whole("--others", optarg, MOST_NODES); break;
    case 'p': o->processes = whole("--processes", optarg, MOST_PROCESSES); break;
    case 'r': o->run_id = optarg; break;
    case 'c': o->conf = optarg; break;
    case 'l': o->limit = whole("--limit", optarg, 3600); break;
    case 'd': o->delay_us = whole("--delay-us", optarg, 999999); break;
    case 'k': o->keep_alive_ms = whole("--keep-alive-ms", optarg, 3600 * 1000); break;
    case 'H': o->hold = true; break;
    case 'L': o->list = true; break;
    case 'v': o->victim = o->hold = true; break;
    case 'h': print_usage(stdout); exit(0);
    default: print_usage(stderr); exit(1);
  }
}

int main(int argc, char **argv) {
  struct options o = {
      .backend = "c10d", .run_id = "bench", .nodes = 2, .processes = 1, .limit = 60, .keep_alive_ms = 2000};
  int option;
  while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) take_option(&o, option);
  if (optind < argc || !o.endpoint) {
    print_usage(stderr);
    return 1;
  }
  if (!o.conf && strcmp(o.backend, "c10d") == 0) o.conf = "is_host=false"; /* somebody else serves it */
  if (o.max_nodes < o.nodes + o.others) o.max_nodes = o.nodes + o.others;
  nodes_check_options(&o);
  struct crew crew = {.board = make_board(o.nodes), .options = &o};
  raise_file_limit();
  alarm(2 * o.limit + CLOSING_S);
  run_round(&crew);
  if (o.hold) take_commands(&crew);
  end_processes(&crew);
  return 0;
}
