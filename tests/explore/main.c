/* SPDX-License-Identifier: BSD-3-Clause */
/*
 *   explore --suite STATES     all scenarios, up to so many states each; fails if an invariant does not hold
 *   explore --broken           breaks one rule after the other, and fails if that is not found
 *   explore [FLAG…]            one scenario:
 *     --nodes KINDS            a letter for each node: n native, s swap, t as PyTorch does (sss)
 *     --from empty|complete|partial|dying   where it begins
 *     --states N, --depth N    the bounds: distinct states, moves
 *     --every N                of N states one is checked for progress without further faults (1000)
 *     --drop N, --leave N, --close N, --kill N, --stop N, --forget N, --reset N, --vanish N, --stop-server N
 *                              how often that may happen in one course (0)
 *     --break RULE             ranks, rounds, dead, grace, numbers
 */
#include "rules.h"
#include "search.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum { BUDGET = 256, UNLIMITED = 1000, PROGRESS_EVERY = 1000 };

struct scenario {
  const char *nodes;
  enum world_start start;
  int drop, leave, close, kill, stop, forget, reset, vanish, stop_server;
};

/* Few kinds of faults at a time reach further than all at once. */
static const struct scenario suite[] = {
    {"sss", START_EMPTY, .drop = 1, .leave = 1, .close = 1, .kill = 1, .stop = 1, .forget = 1},
    {"sss", START_EMPTY, .drop = 2},
    {"sss", START_COMPLETE, .drop = 1, .leave = 1, .close = 1, .kill = 1, .stop = 1, .forget = 1},
    {"sss", START_COMPLETE, .kill = 1},
    {"sss", START_COMPLETE, .forget = 1},
    {"sss", START_DYING, .drop = 1, .leave = 1, .stop = 1},
    {"nnn", START_EMPTY, .leave = 1, .close = 1, .kill = 1, .stop = 1, .forget = 1, .reset = 1, .stop_server = 1},
    {"nnn", START_EMPTY, .reset = 2},
    {"nnn", START_COMPLETE, .leave = 1, .close = 1, .kill = 1, .stop = 1, .forget = 1, .reset = 1, .stop_server = 1},
    {"nnn", START_COMPLETE, .kill = 1, .reset = 1},
    {"nnn", START_COMPLETE, .vanish = 1, .stop_server = 1},
    {"nnn", START_DYING, .reset = 1, .stop_server = 1},
    {"nst", START_EMPTY, .drop = 1, .kill = 1, .reset = 1},
    {"nst", START_COMPLETE, .leave = 1, .kill = 1, .stop = 1, .reset = 1},
    {"nst", START_DYING, .drop = 1, .leave = 1, .reset = 1},
    {"nnn", .start = START_PARTIAL},
    {"nnn", START_PARTIAL, .leave = 1, .reset = 1},
    {"nst", .start = START_PARTIAL},
    {"sst", START_EMPTY, .drop = 1, .kill = 1},
    {"sst", START_COMPLETE, .leave = 1, .kill = 1, .stop = 1},
};

/* The least that each has to be enough for to be found. */
static const struct {
  const char *rule;
  struct scenario scenario;
} breaks[] = {
    {"ranks", {"sss", .start = START_EMPTY}},       {"rounds", {"sss", START_COMPLETE, .forget = 1}},
    {"dead", {"sss", .start = START_COMPLETE}},     {"numbers", {"nnn", START_EMPTY, .leave = 1}},
    {"grace", {"nnn", START_COMPLETE, .reset = 1}}, {"dead", {"nst", .start = START_COMPLETE, .kill = 1}},
};

static struct world_options options_of(const struct scenario *scenario) {
  return (struct world_options){.nodes = scenario->nodes,
                                .start = scenario->start,
                                .budget.most = {[MOVE_JOIN] = UNLIMITED,
                                                [MOVE_CONTINUE] = UNLIMITED,
                                                [MOVE_DROP] = scenario->drop,
                                                [MOVE_LEAVE] = scenario->leave,
                                                [MOVE_CLOSE] = scenario->close,
                                                [MOVE_KILL] = scenario->kill,
                                                [MOVE_STOP] = scenario->stop,
                                                [MOVE_FORGET] = scenario->forget,
                                                [MOVE_RESET] = scenario->reset,
                                                [MOVE_VANISH] = scenario->vanish,
                                                [MOVE_STOP_SERVER] = scenario->stop_server,
                                                [MOVE_CONTINUE_SERVER] = UNLIMITED,
                                                [MOVE_SERVER] = UNLIMITED}};
}

static const char *const start_names[] = {"empty", "complete", "partial", "dying"};

static struct search_result run(const struct world_options *options, const struct search_limits *limits) {
  const struct search_result result = search(options, limits, stdout);
  printf(
      "%s from %-8s %9zu states, all of %2zu moves; %8zu with a complete round, %7zu with a second, %7zu with an "
      "eviction; %zu checked for progress%s\n",
      options->nodes, start_names[options->start], result.states, result.depth, result.complete, result.second,
      result.evicted, result.settled, result.broken ? "; BROKEN" : "");
  fflush(stdout);
  return result;
}

static int run_suite(size_t states) {
  size_t all = 0, complete = 0, second = 0, evicted = 0;
  for (size_t i = 0; i < sizeof suite / sizeof suite[0]; i++) {
    const struct world_options options = options_of(&suite[i]);
    const struct search_limits limits = {.depth = SIZE_MAX, .states = states, .every = PROGRESS_EVERY};
    const struct search_result result = run(&options, &limits);
    if (result.broken) return 1;
    all += result.states;
    complete += result.complete;
    second += result.second;
    evicted += result.evicted;
  }
  printf("%zu states, %zu with a complete round, %zu with a second, %zu with an eviction\n", all, complete, second,
         evicted);
  return complete > 0 && evicted > 0 && second > 0 ? 0 : 1; /* else it looks at too little */
}

static int run_broken(void) {
  int failed = 0;
  for (size_t i = 0; i < sizeof breaks / sizeof breaks[0]; i++) {
    const struct world_options options = options_of(&breaks[i].scenario);
    struct search_limits limits = {.depth = SIZE_MAX, .states = 2000000};
    printf("the rule '%s' is broken:\n", breaks[i].rule);
    rule_break(breaks[i].rule);
    const struct search_result found = run(&options, &limits);
    rule_break(NULL);
    limits.states = found.states;
    const struct search_result sound = run(&options, &limits);
    if (!found.broken || sound.broken) printf("'%s' was %s\n", breaks[i].rule, sound.broken ? "blamed" : "not found");
    failed |= !found.broken || sound.broken;
  }
  return failed;
}

static const struct option flags[] = {{"suite", required_argument, NULL, 'u'},
                                      {"broken", no_argument, NULL, 'o'},
                                      {"nodes", required_argument, NULL, 'n'},
                                      {"from", required_argument, NULL, 'f'},
                                      {"states", required_argument, NULL, 's'},
                                      {"depth", required_argument, NULL, 'd'},
                                      {"every", required_argument, NULL, 'e'},
                                      {"break", required_argument, NULL, 'b'},
                                      {"drop", required_argument, NULL, BUDGET + MOVE_DROP},
                                      {"leave", required_argument, NULL, BUDGET + MOVE_LEAVE},
                                      {"close", required_argument, NULL, BUDGET + MOVE_CLOSE},
                                      {"kill", required_argument, NULL, BUDGET + MOVE_KILL},
                                      {"stop", required_argument, NULL, BUDGET + MOVE_STOP},
                                      {"forget", required_argument, NULL, BUDGET + MOVE_FORGET},
                                      {"reset", required_argument, NULL, BUDGET + MOVE_RESET},
                                      {"vanish", required_argument, NULL, BUDGET + MOVE_VANISH},
                                      {"stop-server", required_argument, NULL, BUDGET + MOVE_STOP_SERVER},
                                      {NULL, 0, NULL, 0}};

static size_t number(const char *text) { return strtoul(text, NULL, 10); }

int main(int argc, char **argv) {
  struct world_options options = options_of(&(struct scenario){"sss", .start = START_EMPTY});
  struct search_limits limits = {.depth = SIZE_MAX, .states = 1000000, .every = PROGRESS_EVERY};
  for (int flag; (flag = getopt_long(argc, argv, "", flags, NULL)) != -1;) {
    if (flag == 'u') return run_suite(number(optarg));
    if (flag == 'o') return run_broken();
    if (flag == '?' || (flag == 'b' && !rule_break(optarg))) return 2;
    if (flag >= BUDGET) options.budget.most[flag - BUDGET] = (int)number(optarg);
    if (flag == 'n') options.nodes = optarg;
    for (size_t i = START_EMPTY; flag == 'f' && i <= START_DYING; i++)
      if (strcmp(start_names[i], optarg) == 0) options.start = (enum world_start)i;
    if (flag == 's') limits.states = number(optarg);
    if (flag == 'd') limits.depth = number(optarg);
    if (flag == 'e') limits.every = number(optarg);
  }
  return run(&options, &limits).broken;
}
