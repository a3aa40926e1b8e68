/* SPDX-License-Identifier: BSD-3-Clause */
/* A backend of one's own, "memory": nodes that are threads of one process meet in a cell behind a mutex.
 *
 *   backend NODES */
#include <errno.h>
#include <pthread.h>
#include <rdzv/rdzv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What all nodes share: the bytes, and a token that changes with them. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  rdzv_value state;
  uint64_t token;
} cell = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

struct memory {
  rdzv_backend base; /* first: the library knows this part */
  bool woken, canceled;
};

static struct memory *self(rdzv_backend *backend) { return (struct memory *)backend; }

/* With the lock held. */
static int copy_out(rdzv_value *out, uint64_t *token) {
  char *data = malloc(cell.state.len + 1);
  if (!data) return RDZV_E_NO_MEMORY;
  if (cell.state.len > 0) memcpy(data, cell.state.data, cell.state.len);
  data[cell.state.len] = '\0';
  *out = (rdzv_value){data, cell.state.len};
  *token = cell.token;
  return 0;
}

static const char *memory_describe(rdzv_backend *backend) {
  (void)backend;
  return "memory of this process";
}

static int memory_get(rdzv_backend *backend, rdzv_value *out, uint64_t *token, rdzv_error *error) {
  (void)backend, (void)error;
  pthread_mutex_lock(&cell.lock);
  const int result = copy_out(out, token);
  pthread_mutex_unlock(&cell.lock);
  return result;
}

/* Writes if there was no other write since `*token`. */
static int memory_set(rdzv_backend *backend, rdzv_bytes state, unsigned flags, uint64_t *token, bool *written,
                      rdzv_value *out, rdzv_error *error) {
  (void)backend, (void)flags, (void)error;
  int result = 0;
  pthread_mutex_lock(&cell.lock);
  if (*token == cell.token) {
    char *data = malloc(state.len + 1);
    if (data) {
      memcpy(data, state.data, state.len);
      free(cell.state.data);
      cell.state = (rdzv_value){data, state.len};
      *token = ++cell.token;
      *written = true;
      *out = (rdzv_value){0};
      pthread_cond_broadcast(&cell.changed);
    } else {
      result = RDZV_E_NO_MEMORY;
    }
  } else {
    *written = false;
    result = copy_out(out, token);
  }
  pthread_mutex_unlock(&cell.lock);
  return result;
}

static int memory_await_change(rdzv_backend *backend, int64_t timeout_ms, uint64_t *token, rdzv_value *out,
                               rdzv_error *error) {
  (void)error;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  const int64_t ns = until.tv_nsec + timeout_ms % 1000 * 1000000;
  until.tv_sec += (time_t)(timeout_ms / 1000 + ns / 1000000000);
  until.tv_nsec = (long)(ns % 1000000000);
  int status = 0;
  pthread_mutex_lock(&cell.lock);
  while (*token == cell.token && !self(backend)->woken && !self(backend)->canceled && status != ETIMEDOUT)
    status = pthread_cond_timedwait(&cell.changed, &cell.lock, &until);
  int result = RDZV_E_TIMEOUT;
  if (self(backend)->woken || self(backend)->canceled)
    result = RDZV_E_CANCELED;
  else if (*token != cell.token)
    result = copy_out(out, token);
  self(backend)->woken = false;
  pthread_mutex_unlock(&cell.lock);
  return result;
}

static void raise_flag(bool *flag) {
  pthread_mutex_lock(&cell.lock);
  *flag = true;
  pthread_cond_broadcast(&cell.changed);
  pthread_mutex_unlock(&cell.lock);
}

static void memory_wake(rdzv_backend *backend) { raise_flag(&self(backend)->woken); }
static void memory_cancel(rdzv_backend *backend) { raise_flag(&self(backend)->canceled); }
static void memory_close(rdzv_backend *backend) { free(self(backend)); }

static const rdzv_backend_ops memory_ops = {.size = sizeof memory_ops,
                                            .name = "memory",
                                            .describe = memory_describe,
                                            .get = memory_get,
                                            .set = memory_set,
                                            .await_change = memory_await_change,
                                            .wake = memory_wake,
                                            .cancel = memory_cancel,
                                            .close = memory_close};

/* The registry calls it for each handler that is opened with backend "memory". */
static int create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error) {
  struct memory *memory = calloc(1, sizeof *memory);
  (void)user;
  if (!memory) return RDZV_E_NO_MEMORY;
  memory->base.ops = &memory_ops;
  return rdzv_handler_open_dynamic(params, &memory->base, NULL, out, error);
}

/* A node that leaves takes its rank with it: all stay until all have theirs. */
static pthread_barrier_t all_have_ranks;

static void *run_node(void *params) {
  rdzv_error error;
  rdzv_handler *handler;
  rdzv_result *round = NULL;
  int result = rdzv_handler_open(params, &handler, &error);
  if (result == 0) {
    result = rdzv_handler_next(handler, &round, &error);
    if (result == 0) printf("rank %lld of %lld\n", (long long)round->rank, (long long)round->world_size);
    rdzv_result_free(round);
    pthread_barrier_wait(&all_have_ranks);
    rdzv_handler_leave(handler, NULL);
    rdzv_handler_free(handler);
  }
  if (result < 0) fprintf(stderr, "backend: %s\n", error.message);
  return result < 0 ? params : NULL;
}

int main(int argc, char **argv) {
  enum { MOST = 64 };
  const long nodes = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
  if (nodes < 1 || nodes > MOST) return fprintf(stderr, "usage: backend NODES (1 to %d)\n", MOST), 2;
  rdzv_error error;
  rdzv_registry *registry;
  if (rdzv_registry_open(&registry, &error) < 0 || rdzv_registry_add(registry, "memory", create, NULL, &error) < 0)
    return fprintf(stderr, "backend: %s\n", error.message), 1;
  rdzv_params params = {
      .size = sizeof params, .backend = "memory", .run_id = "example", .min_nodes = nodes, .registry = registry};
  pthread_barrier_init(&all_have_ranks, NULL, (unsigned)nodes);
  pthread_t threads[MOST];
  int failed = 0;
  for (long i = 0; i < nodes; i++)
    if (pthread_create(&threads[i], NULL, run_node, &params) != 0) return 1;
  for (long i = 0; i < nodes; i++) {
    void *status;
    pthread_join(threads[i], &status);
    failed |= status != NULL;
  }
  pthread_barrier_destroy(&all_have_ranks);
  rdzv_registry_free(registry);
  free(cell.state.data);
  return failed;
}
