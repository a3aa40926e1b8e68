/* SPDX-License-Identifier: BSD-3-Clause */
/*
 *   sim --seed S [--mode native|swap|mixed] [--nodes N] [--trace]
 *                                        one seed, told as a story; with every decision
 *   sim --seeds A:B [--mode …] [--nodes N]
 *                                        many; each that fails with the command that replays it
 *   sim --kept FILE                      the seeds of a file, one a line: MODE S [N], and # why it is kept
 *   sim --storm N [--latency MS]         N nodes at once: swaps a join, and time
 *   sim --story NAME                     a scripted scenario
 *   sim --stories FOLDER                 all of them, compared with FOLDER/NAME.txt
 */
#include "sim.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct sim sim;

static const char *const modes[] = {[SIM_MODE_SWAP] = "swap", [SIM_MODE_NATIVE] = "native", [SIM_MODE_MIXED] = "mixed"};

/* -1: there is no such mode. */
static int find_mode(const char *name) {
  for (int i = SIM_MODE_SWAP; i <= SIM_MODE_MIXED; i++)
    if (strcmp(modes[i], name) == 0) return i;
  return -1;
}

static bool run_one(uint64_t seed, int mode, size_t nodes, FILE *story, FILE *details) {
  const bool good = schedule_run(seed, (enum sim_mode)mode, nodes, story, details, &sim);
  if (!good) {
    printf("seed %" PRIu64 " fails %s\n  replay: sim --seed %" PRIu64 " --mode %s", seed, sim.failure, seed,
           modes[mode]);
    if (nodes > 0) printf(" --nodes %zu", nodes);
    puts(" --trace");
  }
  sim_free(&sim);
  return good;
}

static int run_many(uint64_t from, uint64_t to, int mode, size_t nodes) {
  uint64_t failed = 0;
  for (uint64_t seed = from; seed < to; seed++) failed += !run_one(seed, mode, nodes, NULL, NULL);
  printf("%" PRIu64 " %s seeds from %" PRIu64 ", %" PRIu64 " failed\n", to - from, modes[mode], from, failed);
  return failed > 0;
}

static int run_kept(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) {
    perror(path);
    return 2;
  }
  char line[256];
  int failed = 0, count = 0;
  while (fgets(line, sizeof line, file)) {
    uint64_t seed;
    size_t nodes = 0;
    char name[16];
    if (line[0] == '#' || sscanf(line, "%15s %" SCNu64 " %zu", name, &seed, &nodes) < 2) continue;
    const int mode = find_mode(name);
    if (mode < 0) return 2;
    count++;
    failed += !run_one(seed, mode, nodes, NULL, NULL);
  }
  fclose(file);
  printf("%d kept seeds, %d failed\n", count, failed);
  return failed > 0;
}

int main(int argc, char **argv) {
  static const struct option options[] = {{"seed", required_argument, NULL, 's'},
                                          {"seeds", required_argument, NULL, 'm'},
                                          {"kept", required_argument, NULL, 'k'},
                                          {"nodes", required_argument, NULL, 'n'},
                                          {"trace", no_argument, NULL, 't'},
                                          {"storm", required_argument, NULL, 'w'},
                                          {"latency", required_argument, NULL, 'l'},
                                          {"story", required_argument, NULL, 'y'},
                                          {"stories", required_argument, NULL, 'f'},
                                          {"mode", required_argument, NULL, 'o'},
                                          {NULL, 0, NULL, 0}};
  int command = 0, mode = SIM_MODE_SWAP;
  const char *value = "";
  size_t nodes = 0;
  int64_t latency = 1;
  bool trace = false;
  for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    if (option == 'o') mode = find_mode(optarg);
    if (option == '?' || mode < 0) return 2;
    if (option == 'n')
      nodes = strtoul(optarg, NULL, 10);
    else if (option == 't')
      trace = true;
    else if (option == 'l')
      latency = strtol(optarg, NULL, 10);
    else if (option != 'o')
      command = option, value = optarg;
  }
  uint64_t from, to;
  switch (command) {
    case 's': return run_one(strtoull(value, NULL, 10), mode, nodes, stdout, trace ? stdout : NULL) ? 0 : 1;
    case 'm': return sscanf(value, "%" SCNu64 ":%" SCNu64, &from, &to) == 2 ? run_many(from, to, mode, nodes) : 2;
    case 'k': return run_kept(value);
    case 'w': return storm(strtoul(value, NULL, 10), latency);
    case 'y': return story_run(value, stdout);
    case 'f': return story_check(value);
    default: fputs("sim: see the head of tests/sim/main.c\n", stderr); return 2;
  }
}
