/* SPDX-License-Identifier: BSD-3-Clause */
/* A program that is a node itself, without a launcher: it joins rounds, works, and joins again when nodes come, leave
 * or die. Run it MIN to MAX times, with the same endpoint and id:
 *
 *   node HOST:PORT RUN_ID MIN MAX STEPS */
#include <rdzv/rdzv.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what, const rdzv_error *error) {
  fprintf(stderr, "node: %s: %s\n", what, error->message);
  return 1;
}

static void print_event(void *user, const rdzv_event *event) {
  (void)user;
  fprintf(stderr, "%s: %s\n", event->node, event->message);
}

/* Works until nothing is left to do or the round has changed. */
static int work(rdzv_handler *handler, const rdzv_result *round, long *steps, rdzv_error *error) {
  printf("round %lld: rank %lld of %lld, rank 0 is at %s:%d\n", (long long)round->round, (long long)round->rank,
         (long long)round->world_size, round->master_addr, round->master_port);
  while (*steps > 0) {
    rdzv_change *change;
    const int result = rdzv_handler_wait_change(handler, 100, &change, error); /* in earnest: work here */
    if (result == 0) {
      for (size_t i = 0; i < rdzv_change_node_count(change); i++) printf("gone: %s\n", rdzv_change_node(change, i));
      rdzv_change_free(change);
      return 0;
    }
    if (result != RDZV_E_TIMEOUT) return result;
    --*steps;
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc != 6) return fprintf(stderr, "usage: node HOST:PORT RUN_ID MIN MAX STEPS\n"), 2;
  const rdzv_params params = {.size = sizeof params,
                              .endpoint = argv[1],
                              .run_id = argv[2],
                              .min_nodes = strtol(argv[3], NULL, 10),
                              .max_nodes = strtol(argv[4], NULL, 10),
                              .conf = "last_call_timeout=1",
                              .on_event = print_event};
  long steps = strtol(argv[5], NULL, 10);
  rdzv_error error;
  rdzv_handler *handler;
  if (rdzv_handler_open(&params, &handler, &error) < 0) return fail("open", &error);
  int result = 0;
  while (steps > 0 && result == 0) {
    rdzv_result *round;
    result = rdzv_handler_next(handler, &round, &error);
    if (result < 0) break;
    result = work(handler, round, &steps, &error);
    rdzv_result_free(round);
  }
  if (result == 0) result = rdzv_handler_leave(handler, &error); /* the others go on */
  rdzv_handler_free(handler);
  return result < 0 ? fail("rendezvous", &error) : 0;
}
