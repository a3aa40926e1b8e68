/* SPDX-License-Identifier: BSD-3-Clause */
/* Scripted scenarios whose whole course is written down in stories/NAME.txt, to be read. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

enum { A, B, C, D, E };

/* A capital is a native node, t one that does as PyTorch does. */
static enum sim_kind kind_of(char name) {
  if (name == 't') return SIM_TORCH;
  return name >= 'A' && name <= 'Z' ? SIM_NATIVE : SIM_SWAP;
}

static void add(struct sim *sim, const char *names, int64_t skew_us) {
  for (; *names; names++) {
    const size_t host = sim_add_host(sim, *names == 'b' ? skew_us : 0);
    sim_add_node(sim, host, (char[]){*names, '\0'}, kind_of(*names));
  }
}

/* Native nodes, that join one after the other. */
static void serve(struct sim *sim, const char *names, size_t joining) {
  add(sim, names, 0);
  server_begin(sim);
  for (size_t i = A; i < joining; i++) sim_do(sim, (int64_t)i * 100, i, SIM_JOIN, 0);
}

static struct rendezvous_settings between(int64_t min, int64_t max) {
  struct rendezvous_settings settings = RENDEZVOUS_SETTINGS_DEFAULT;
  settings.min_nodes = min;
  settings.max_nodes = max;
  settings.last_call_timeout = 3000;
  return settings;
}

/* Four nodes join, one dies, the rest re-form, a new one waits and is admitted, one leaves, one closes. */
static void elastic(struct sim *sim) {
  sim->settings = between(2, 4);
  add(sim, "abcde", 0);
  for (size_t i = A; i <= D; i++) sim_do(sim, (int64_t)i * 100, i, SIM_JOIN, 0);
  sim_do(sim, 10000, C, SIM_KILL, 0);
  sim_do(sim, 40000, E, SIM_JOIN, 0);
  sim_do(sim, 60000, A, SIM_LEAVE, 0);
  sim_do(sim, 80000, B, SIM_CLOSE, 0);
}

/* More nodes than places: the surplus is spare, and takes over when a place becomes free. */
static void spares(struct sim *sim) {
  sim->settings = between(2, 2);
  add(sim, "abcd", 0);
  for (size_t i = A; i <= D; i++) sim_do(sim, (int64_t)i * 100, i, SIM_JOIN, 0);
  sim_do(sim, 10000, A, SIM_LEAVE, 0);
  sim_do(sim, 30000, D, SIM_CLOSE, 0);
}

/* b's clock is ten minutes ahead, then is set back by twenty; nobody is evicted, and the last call has its length. */
static void clocks(struct sim *sim) {
  sim->settings = between(2, 4);
  add(sim, "abc", INT64_C(600000000));
  for (size_t i = A; i <= C; i++) sim_do(sim, (int64_t)i * 100, i, SIM_JOIN, 0);
  sim_do(sim, 20000, B, SIM_JUMP, -1200000);
}

/* A node is stopped for a minute: the others go on without it; when it comes to itself it hears of it, and comes back.
 */
static void stopped(struct sim *sim) {
  sim->settings = between(2, 3);
  add(sim, "abc", 0);
  for (size_t i = A; i <= C; i++) sim_do(sim, (int64_t)i * 100, i, SIM_JOIN, 0);
  sim_do(sim, 10000, B, SIM_PAUSE, 60000);
}

/* Nobody reaches the store for half a minute: nobody is taken for dead because of it. */
static void outage(struct sim *sim) {
  sim->settings = between(2, 3);
  add(sim, "abc", 0);
  for (size_t i = A; i <= C; i++) sim_do(sim, (int64_t)i * 100, i, SIM_JOIN, 0);
  for (size_t i = A; i <= C; i++) sim_do(sim, 10000, i, SIM_CUT, 30000);
}

/* A PyTorch node and ours in one rendezvous. */
static void mixed(struct sim *sim) {
  sim->settings = between(2, 3);
  add(sim, "atc", 0);
  for (size_t i = A; i <= B; i++) sim_do(sim, (int64_t)i * 100, i, SIM_JOIN, 0);
  sim_do(sim, 10000, C, SIM_JOIN, 0);
  sim_do(sim, 30000, A, SIM_KILL, 0);
}

/* The state is deleted under a round: its members begin again, with the number after the last that they know of, also
 * where one that knows of none is faster. */
static void lost(struct sim *sim) {
  sim->settings = between(2, 3);
  add(sim, "abc", 0);
  for (size_t i = A; i <= B; i++) sim_do(sim, (int64_t)i * 100, i, SIM_JOIN, 0);
  sim_do(sim, 10000, A, SIM_JOIN, 0);
  sim_do(sim, 20000, A, SIM_LOSE, 0);
  sim_do(sim, 20000, C, SIM_JOIN, 0);
}

/* Native nodes: one dies and is known to be dead at once, one comes, one leaves, one closes. */
static void native(struct sim *sim) {
  sim->settings = between(2, 4);
  serve(sim, "ABCDE", 4);
  sim_do(sim, 10000, B, SIM_KILL, 0);
  sim_do(sim, 20000, E, SIM_JOIN, 0);
  sim_do(sim, 30000, A, SIM_LEAVE, 0);
  sim_do(sim, 40000, C, SIM_CLOSE, 0);
}

/* A connection ends, and the session goes on with another one: no new round. */
static void resumed(struct sim *sim) {
  sim->settings = between(2, 3);
  serve(sim, "ABC", 3);
  sim_do(sim, 10000, B, SIM_RESET, 0);
}

/* The reply to a join is lost after the join took effect: the node asks again, gets it, and is not in twice. */
static void lost_reply(struct sim *sim) {
  sim->settings = between(2, 2);
  serve(sim, "AB", 2);
  sim_do(sim, 106, A, SIM_RESET, 0);
}

/* The server gives a join up while its node leaves and joins again: the refusal is not taken for that of the second. */
static void late_refusal(struct sim *sim) {
  sim->settings = between(2, 2);
  sim->settings.join_timeout = 5000;
  serve(sim, "AB", 1);
  sim_do(sim, 5004, A, SIM_LEAVE, 0);
  sim_do(sim, 5004, A, SIM_JOIN, 0);
  sim_do(sim, 6000, B, SIM_JOIN, 0);
}

/* A connection is dead, and nobody is told: both ends find it by silence. */
static void half_open(struct sim *sim) {
  sim->settings = between(2, 3);
  serve(sim, "ABC", 3);
  sim_do(sim, 10000, B, SIM_VANISH, 0);
}

/* The server is stopped for five seconds, and blames nobody for it, not even who lost its connection meanwhile. */
static void server_stopped(struct sim *sim) {
  sim->settings = between(2, 3);
  serve(sim, "ABC", 3);
  sim_do(sim, 10000, A, SIM_STOP_SERVER, 5000);
  sim_do(sim, 12000, B, SIM_RESET, 0);
}

/* The server begins again with nothing: its nodes join again, and the round has the number after their last. */
static void server_restarted(struct sim *sim) {
  sim->settings = between(2, 3);
  serve(sim, "ABC", 3);
  sim_do(sim, 10000, A, SIM_LOSE, 0);
}

/* A native node, one by swaps and a PyTorch node: one dies, one leaves. */
static void three_ways(struct sim *sim) {
  sim->settings = between(2, 4);
  serve(sim, "Abt", 3);
  sim_do(sim, 10000, A, SIM_LEAVE, 0);
  sim_do(sim, 30000, A, SIM_JOIN, 0);
  sim_do(sim, 50000, B, SIM_KILL, 0);
}

/* Ours have a dead time of 2 s, a PyTorch node that beats every 5 s is not evicted for it; one of ours that dies is. */
static void torch_times(struct sim *sim) {
  sim->settings = between(3, 3);
  sim->settings.keep_alive_interval = 1000;
  sim->settings.keep_alive_max_attempt = 2;
  add(sim, "abtd", 0);
  for (size_t i = A; i <= C; i++) sim_do(sim, (int64_t)i * 100, i, SIM_JOIN, 0);
  sim_do(sim, 30000, D, SIM_JOIN, 0);
  sim_do(sim, 31000, A, SIM_KILL, 0);
}

/* The same with a server, that judges the PyTorch node for native nodes. */
static void torch_times_served(struct sim *sim) {
  sim->settings = between(3, 3);
  sim->settings.keep_alive_interval = 1000;
  sim->settings.keep_alive_max_attempt = 2;
  serve(sim, "ABtD", 3);
  sim_do(sim, 30000, D, SIM_JOIN, 0);
  sim_do(sim, 31000, A, SIM_KILL, 0);
}

/* b allows one node more than a and c, and all warn of it. d needs more than they allow: it fails as soon as it knows
 * that they live, and they go on. e comes when they have died, and waits for their end. */
static void differ(struct sim *sim) {
  sim->settings = between(2, 3);
  add(sim, "abcde", 0);
  sim->nodes[B].max_nodes = 4;
  sim->nodes[D].min_nodes = sim->nodes[D].max_nodes = sim->nodes[E].min_nodes = sim->nodes[E].max_nodes = 6;
  for (size_t i = A; i <= D; i++) sim_do(sim, (int64_t)i * 1000, i, SIM_JOIN, 0);
  for (size_t i = A; i <= C; i++) sim_do(sim, 29000, i, SIM_KILL, 0);
  sim_do(sim, 30000, E, SIM_JOIN, 0);
}

/* The same with a server, that knows who lives. */
static void differ_served(struct sim *sim) {
  sim->settings = between(2, 3);
  serve(sim, "ABcDE", 4);
  sim->nodes[B].max_nodes = 4;
  sim->nodes[D].min_nodes = sim->nodes[D].max_nodes = sim->nodes[E].min_nodes = sim->nodes[E].max_nodes = 6;
  for (size_t i = A; i <= C; i++) sim_do(sim, 29000, i, SIM_KILL, 0);
  sim_do(sim, 30000, E, SIM_JOIN, 0);
}

static const struct {
  const char *name;
  void (*script)(struct sim *sim);
} stories[] = {{"elastic", elastic},
               {"spares", spares},
               {"clocks", clocks},
               {"stopped", stopped},
               {"outage", outage},
               {"mixed", mixed},
               {"lost", lost},
               {"native", native},
               {"resumed", resumed},
               {"lost_reply", lost_reply},
               {"late_refusal", late_refusal},
               {"half_open", half_open},
               {"server_stopped", server_stopped},
               {"server_restarted", server_restarted},
               {"three_ways", three_ways},
               {"settings/torch_times", torch_times},
               {"settings/torch_times_served", torch_times_served},
               {"settings/differ", differ},
               {"settings/differ_served", differ_served}};

int story_run(const char *name, FILE *out) {
  static struct sim sim;
  for (size_t i = 0; i < sizeof stories / sizeof stories[0]; i++) {
    if (strcmp(stories[i].name, name) != 0) continue;
    sim_init(&sim, 1, &RENDEZVOUS_SETTINGS_DEFAULT);
    sim.story = out;
    stories[i].script(&sim);
    const bool good = sim_run(&sim, 100000);
    if (!good) fprintf(out, "FAILED %s\n", sim.failure);
    sim_free(&sim);
    return good ? 0 : 1;
  }
  fprintf(stderr, "sim: no story '%s'\n", name);
  return 2;
}

static bool is_same(const char *path, const char *text) {
  FILE *file = fopen(path, "r");
  char *expected = NULL;
  size_t size = 0;
  const bool read = file && getdelim(&expected, &size, '\0', file) >= 0;
  const bool same = read && strcmp(expected, text) == 0;
  free(expected);
  if (file) fclose(file);
  return same;
}

int story_check(const char *folder) {
  int failed = 0;
  for (size_t i = 0; i < sizeof stories / sizeof stories[0]; i++) {
    char path[4096], *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out) return 2;
    int result = story_run(stories[i].name, out);
    fclose(out);
    snprintf(path, sizeof path, "%s/%s.txt", folder, stories[i].name);
    if (result == 0 && !is_same(path, text)) {
      printf("%s is not what happens; this is (sim --story %s):\n%s", path, stories[i].name, text);
      result = 1;
    }
    failed |= result;
    free(text);
  }
  return failed;
}
