/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Workers that share out a batch of numbers in each step and add their parts up around a ring. They go on where they
 * were when nodes come, go or die, with however many there are then:
 *
 *   rdzv run --nnodes=2:3 --nproc-per-node=2 --rdzv-endpoint=node0:29400 ring STEPS [CHECKPOINT [PAUSE_MS]]
 *
 * CHECKPOINT is a file that all nodes see. Every worker may be stopped at any time (SIGTERM, SIGKILL): in the next
 * round rank 0 reads how far they were, and tells the others.
 */
#include <errno.h>
#include <rdzv/rdzv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH = 60, WIDTH = 16, TIMEOUT_MS = 60000 };

struct worker {
  rdzv_store *server, *store; /* the agent's store, and our corner of it */
  long long rank, world, node, nodes;
  const char *checkpoint; /* NULL: none */
};

/* What a checkpoint keeps. */
struct progress {
  long long step, total;
};

static int fail(const char *what, const char *why) {
  fprintf(stderr, "ring: %s: %s\n", what, why);
  return -1;
}

/* ---- the round's store ---------------------------------------------------------------------------------------- */

static int number_of(const char *name, long long *out) {
  const char *text = getenv(name);
  char *end = NULL;
  *out = text ? strtoll(text, &end, 10) : 0;
  return text && end != text && *end == '\0' ? 0 : fail(name, "no number in the environment: is this run by rdzv run?");
}

/* As PyTorch's workers do: the agent of rank 0 serves the store, and each attempt has keys of its own. */
static int open_store(struct worker *worker) {
  const char *host = getenv("MASTER_ADDR"), *served = getenv("TORCHELASTIC_USE_AGENT_STORE");
  const rdzv_tcp_options options = {.size = sizeof options, .timeout_ms = TIMEOUT_MS};
  long long port, attempt;
  char endpoint[300], prefix[64];
  rdzv_error error;
  if (!host || !served || strcmp(served, "True") != 0) return fail("MASTER_ADDR", "no agent serves the workers' store");
  if (number_of("MASTER_PORT", &port) < 0 || number_of("TORCHELASTIC_RESTART_COUNT", &attempt) < 0) return -1;
  snprintf(endpoint, sizeof endpoint, strchr(host, ':') ? "[%s]:%lld" : "%s:%lld", host, port);
  snprintf(prefix, sizeof prefix, "/worker/attempt_%lld", attempt);
  if (rdzv_store_open_tcp(endpoint, &options, &worker->server, &error) < 0 ||
      rdzv_store_open_prefix(worker->server, rdzv_str(prefix), &worker->store, &error) < 0)
    return fail("the workers' store", error.message);
  return 0;
}

/* ---- the ring ------------------------------------------------------------------------------------------------- */

/* The numbers as they are in memory: all workers are on machines of one kind. */
static int send_on(struct worker *worker, const char *turn, const long long *numbers, size_t count) {
  char key[80];
  rdzv_error error;
  snprintf(key, sizeof key, "%s/%lld", turn, (worker->rank + 1) % worker->world);
  const rdzv_bytes value = {numbers, count * sizeof *numbers};
  return rdzv_store_set(worker->store, rdzv_str(key), value, &error) < 0 ? fail("send", error.message) : 0;
}

/* Waits for what the one before us sends. If it dies, nothing comes: then our agent stops us. */
static int receive(struct worker *worker, const char *turn, long long *numbers, size_t count) {
  char key[80];
  rdzv_error error;
  rdzv_value value;
  bool deleted;
  snprintf(key, sizeof key, "%s/%lld", turn, worker->rank);
  if (rdzv_store_get(worker->store, rdzv_str(key), &value, &error) < 0) return fail("receive", error.message);
  rdzv_store_delete_key(worker->store, rdzv_str(key), &deleted, NULL); /* a key that stays only takes up room */
  const bool fits = value.len == count * sizeof *numbers;
  if (fits) memcpy(numbers, value.data, value.len);
  rdzv_value_free(&value);
  return fits ? 0 : fail("receive", "another worker sent something else");
}

/*
 * Each of n ranks has n parts. n-1 times, each passes a part on and adds the one that it gets: then each has the sum of
 * one part. n-1 times more, sums are passed on and kept: then each has all.
 */
static int all_reduce(struct worker *worker, long long step, long long *parts, size_t len) {
  const long long n = worker->world;
  long long got[WIDTH];
  for (long long turn = 0; turn < 2 * (n - 1); turn++) {
    const bool sums = turn >= n - 1;
    const long long out = (worker->rank - turn + 2 * n) % n, in = (out - 1 + n) % n;
    char name[48];
    snprintf(name, sizeof name, "%lld/%lld", step, turn);
    if (send_on(worker, name, parts + (size_t)out * len, len) < 0 || receive(worker, name, got, len) < 0) return -1;
    for (size_t i = 0; i < len; i++) parts[(size_t)in * len + i] = got[i] + (sums ? 0 : parts[(size_t)in * len + i]);
  }
  return 0;
}

/* One step: our share of the batch, the sum of all shares, and whether it is what it must be. */
static int take_step(struct worker *worker, struct progress *progress) {
  const long long step = progress->step + 1;
  const size_t n = (size_t)worker->world, len = (WIDTH + n - 1) / n; /* of a part; the last ones may be padding */
  long long *numbers = calloc(n * len, sizeof *numbers);
  if (!numbers) return fail("memory", strerror(ENOMEM));
  for (long long item = worker->rank + 1; item <= BATCH; item += worker->world)
    for (long long i = 0; i < WIDTH; i++) numbers[i] += item * (step + i);
  int result = all_reduce(worker, step, numbers, len);
  for (long long i = 0; i < WIDTH && result == 0; i++)
    if (numbers[i] != BATCH * (BATCH + 1) / 2 * (step + i)) result = fail("all-reduce", "the sum is wrong");
  progress->step = step;
  progress->total += numbers[0];
  free(numbers);
  return result;
}

/* ---- the checkpoint ------------------------------------------------------------------------------------------- */

/* In one step: a reader sees the old file or the new one. */
static int save(const struct worker *worker, const struct progress *progress) {
  char path[4096];
  if (!worker->checkpoint) return 0;
  snprintf(path, sizeof path, "%s.new", worker->checkpoint);
  FILE *file = fopen(path, "w");
  if (!file) return fail(path, strerror(errno));
  const bool written = fprintf(file, "%lld %lld\n", progress->step, progress->total) > 0;
  if (fclose(file) != 0 || !written || rename(path, worker->checkpoint) < 0) return fail(path, strerror(errno));
  return 0;
}

static int load(const struct worker *worker, struct progress *progress) {
  *progress = (struct progress){0};
  FILE *file = worker->checkpoint ? fopen(worker->checkpoint, "r") : NULL;
  if (!file) return !worker->checkpoint || errno == ENOENT ? 0 : fail(worker->checkpoint, strerror(errno));
  const int found = fscanf(file, "%lld %lld", &progress->step, &progress->total);
  fclose(file);
  return found == 2 ? 0 : fail(worker->checkpoint, "not a checkpoint");
}

/* Rank 0 reads it, so that all begin at the same step. */
static int agree(struct worker *worker, struct progress *progress) {
  rdzv_error error;
  rdzv_value value;
  if (worker->rank == 0) {
    if (load(worker, progress) < 0) return -1;
    const rdzv_bytes bytes = {progress, sizeof *progress};
    if (rdzv_store_set(worker->store, rdzv_str("progress"), bytes, &error) < 0) return fail("set", error.message);
  }
  if (rdzv_store_get(worker->store, rdzv_str("progress"), &value, &error) < 0) return fail("get", error.message);
  const bool fits = value.len == sizeof *progress;
  if (fits) memcpy(progress, value.data, value.len);
  rdzv_value_free(&value);
  return fits ? 0 : fail("get", "another worker set something else");
}

/* ---- the job -------------------------------------------------------------------------------------------------- */

static int work(struct worker *worker, long long steps, long long pause_ms) {
  const struct timespec pause = {.tv_sec = (time_t)(pause_ms / 1000), .tv_nsec = (long)(pause_ms % 1000 * 1000000)};
  struct progress progress;
  if (agree(worker, &progress) < 0) return -1;
  printf("rank %lld of %lld, node %lld of %lld: goes on after step %lld\n", worker->rank, worker->world, worker->node,
         worker->nodes, progress.step);
  while (progress.step < steps) {
    if (take_step(worker, &progress) < 0) return -1;
    if (worker->rank == 0) {
      if (save(worker, &progress) < 0) return -1;
      printf("step %lld of %lld: %lld workers, total %lld\n", progress.step, steps, worker->world, progress.total);
    }
    nanosleep(&pause, NULL); /* in earnest, this is where the time goes */
  }
  const long long right = BATCH * (BATCH + 1) / 2 * (steps * (steps + 1) / 2);
  if (progress.total != right) return fail("total", "a step was left out, or counted twice");
  printf("rank %lld of %lld: done, the total is right\n", worker->rank, worker->world);
  return 0;
}

int main(int argc, char **argv) {
  const long long steps = argc > 1 ? strtoll(argv[1], NULL, 10) : 0,
                  pause_ms = argc > 3 ? strtoll(argv[3], NULL, 10) : 0;
  if (argc > 4 || steps < 1 || pause_ms < 0)
    return fprintf(stderr, "usage: rdzv run ... ring STEPS [CHECKPOINT [PAUSE_MS]]\n"), 2;
  setvbuf(stdout, NULL, _IOLBF, 0); /* a line is one write, also into a file: those of several workers do not mix */
  struct worker worker = {.checkpoint = argc > 2 && *argv[2] ? argv[2] : NULL};
  int result = number_of("RANK", &worker.rank);
  if (result == 0) result = number_of("WORLD_SIZE", &worker.world);
  if (result == 0) result = number_of("GROUP_RANK", &worker.node);
  if (result == 0) result = number_of("GROUP_WORLD_SIZE", &worker.nodes);
  if (result == 0) result = open_store(&worker);
  if (result == 0) result = work(&worker, steps, pause_ms);
  rdzv_store_free(worker.store);
  rdzv_store_free(worker.server);
  return result < 0 ? 1 : 0;
}
