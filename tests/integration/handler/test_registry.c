/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rendezvous is opened with, backends of others, and the dynamic rendezvous over one in memory that stops where
 * a test wants it to. */
#include "nodes.h"

#include <rdzv/backend.h>

/* ---- a backend in memory -------------------------------------------------------------------------------------- */

/* What all nodes share. */
struct memory {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  char *data;
  size_t len;
  uint64_t version;
  atomic_int open, gets, sets, waits;
  atomic_bool held; /* get waits until it is let go */
  atomic_int fails; /* which call does so, without a word; */
  atomic_int code;  /* with that code; 0: none fails */
  sem_t in_get, go_on;
};

struct cell {
  rdzv_backend base;
  struct memory *memory;
  bool woken, canceled;
};

enum { GET_FAILS, SET_FAILS, WAIT_FAILS, FAILING_CALLS };

static bool fails(struct memory *memory, int call) {
  return atomic_load(&memory->code) && atomic_load(&memory->fails) == call;
}

static rdzv_value copy_of(struct memory *memory) {
  rdzv_value value = {malloc(memory->len + 1), memory->len};
  if (!value.data) abort();
  if (memory->len > 0) memcpy(value.data, memory->data, memory->len);
  value.data[memory->len] = '\0';
  return value;
}

static const char *memory_describe(rdzv_backend *backend) {
  (void)backend;
  return "a cell in memory";
}

static int memory_get(rdzv_backend *backend, rdzv_value *out, uint64_t *token, rdzv_error *error) {
  struct memory *memory = ((struct cell *)backend)->memory;
  (void)error;
  atomic_fetch_add(&memory->gets, 1);
  if (fails(memory, GET_FAILS)) return atomic_load(&memory->code);
  if (atomic_load(&memory->held)) {
    sem_post(&memory->in_get);
    while (sem_wait(&memory->go_on) < 0) {
    }
  }
  pthread_mutex_lock(&memory->lock);
  *out = copy_of(memory);
  *token = memory->version;
  pthread_mutex_unlock(&memory->lock);
  return 0;
}

static int memory_set(rdzv_backend *backend, rdzv_bytes state, unsigned flags, uint64_t *token, bool *written,
                      rdzv_value *out, rdzv_error *error) {
  struct memory *memory = ((struct cell *)backend)->memory;
  (void)flags, (void)error;
  atomic_fetch_add(&memory->sets, 1);
  if (fails(memory, SET_FAILS)) return atomic_load(&memory->code);
  pthread_mutex_lock(&memory->lock);
  *written = *token == memory->version;
  if (*written) {
    free(memory->data);
    memory->data = malloc(state.len);
    memcpy(memory->data, state.data, state.len);
    memory->len = state.len;
    memory->version++;
    pthread_cond_broadcast(&memory->changed);
    *out = (rdzv_value){calloc(1, 1), 0};
  } else {
    *out = copy_of(memory);
  }
  *token = memory->version;
  pthread_mutex_unlock(&memory->lock);
  return 0;
}

static int memory_await(rdzv_backend *backend, int64_t timeout_ms, uint64_t *token, rdzv_value *out,
                        rdzv_error *error) {
  struct cell *cell = (struct cell *)backend;
  struct memory *memory = cell->memory;
  struct timespec until;
  int late = 0, result = 0;
  atomic_fetch_add(&memory->waits, 1);
  if (fails(memory, WAIT_FAILS)) return atomic_load(&memory->code);
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += timeout_ms / 1000;
  until.tv_nsec += timeout_ms % 1000 * 1000000;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_mutex_lock(&memory->lock);
  while (memory->version == *token && !cell->woken && !cell->canceled && !late)
    late = pthread_cond_timedwait(&memory->changed, &memory->lock, &until);
  if (cell->woken || cell->canceled) {
    cell->woken = false;
    result = RDZV_E_CANCELED;
  } else if (memory->version == *token) {
    result = RDZV_E_TIMEOUT;
  } else {
    *out = copy_of(memory);
    *token = memory->version;
  }
  pthread_mutex_unlock(&memory->lock);
  if (result < 0) *error = (rdzv_error){.code = result, .message = "no change"};
  return result;
}

static void memory_raise(struct cell *cell, bool *flag) {
  pthread_mutex_lock(&cell->memory->lock);
  *flag = true;
  pthread_cond_broadcast(&cell->memory->changed);
  pthread_mutex_unlock(&cell->memory->lock);
}

static void memory_wake(rdzv_backend *backend) {
  memory_raise((struct cell *)backend, &((struct cell *)backend)->woken);
}

static void memory_cancel(rdzv_backend *backend) {
  memory_raise((struct cell *)backend, &((struct cell *)backend)->canceled);
}

static void memory_close(rdzv_backend *backend) {
  atomic_fetch_sub(&((struct cell *)backend)->memory->open, 1);
  free(backend);
}

static const rdzv_backend_ops memory_ops = {.size = sizeof memory_ops,
                                            .name = "memory",
                                            .describe = memory_describe,
                                            .get = memory_get,
                                            .set = memory_set,
                                            .await_change = memory_await,
                                            .wake = memory_wake,
                                            .cancel = memory_cancel,
                                            .close = memory_close};

static int memory_create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error) {
  struct cell *cell = calloc(1, sizeof *cell);
  if (!cell) return RDZV_E_NO_MEMORY;
  cell->base.ops = &memory_ops;
  cell->memory = user;
  atomic_fetch_add(&cell->memory->open, 1);
  return rdzv_handler_open_dynamic(params, &cell->base, NULL, out, error);
}

/* ---- a scene with it ------------------------------------------------------------------------------------------ */

struct scene {
  struct memory memory;
  rdzv_registry *registry;
  struct node_options options; /* to open with */
  struct node nodes[3];
};

static int setup(void **state) {
  struct scene *scene = calloc(1, sizeof *scene);
  if (!scene) return -1;
  pthread_mutex_init(&scene->memory.lock, NULL);
  pthread_cond_init(&scene->memory.changed, NULL);
  sem_init(&scene->memory.in_get, 0, 0);
  sem_init(&scene->memory.go_on, 0, 0);
  assert_code(rdzv_registry_open(&scene->registry, NULL), 0);
  assert_code(rdzv_registry_add(scene->registry, "memory", memory_create, &scene->memory, NULL), 0);
  scene->options = (struct node_options){.registry = scene->registry, .backend = "memory"};
  *state = scene;
  return 0;
}

static int teardown(void **state) {
  struct scene *scene = *state;
  close_all(scene->nodes, COUNT_OF(scene->nodes));
  assert_int_equal(atomic_load(&scene->memory.open), 0); /* each was closed, also where opening failed */
  rdzv_registry_free(scene->registry);
  free(scene->memory.data);
  pthread_mutex_destroy(&scene->memory.lock);
  pthread_cond_destroy(&scene->memory.changed);
  sem_destroy(&scene->memory.in_get);
  sem_destroy(&scene->memory.go_on);
  free(scene);
  return 0;
}

/* A backend of somebody else's carries the whole rendezvous; without a store results have none. */
static void test_a_backend_of_others_carries_a_rendezvous(void **state) {
  struct scene *scene = *state;
  struct node *nodes = scene->nodes;
  rdzv_error error;
  scene->options.min = 2;
  scene->options.max = 3;
  scene->options.conf = "last_call_timeout=0.2,join_timeout=30,rank_order=natural,torch_version=2.3";
  open_and_join(nodes, 2, NULL, scene->options);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(nodes[i].result->rank, i);
    assert_int_equal(nodes[i].result->world_size, 2);
    assert_string_equal(nodes[i].result->backend, "memory");
    assert_null(nodes[i].result->store);
    assert_string_equal(nodes[i].result->master_addr, "");
    assert_int_equal(nodes[i].result->master_port, 0);
    assert_string_equal(rdzv_handler_describe(nodes[i].handler), "a cell in memory");
  }
  assert_code(rdzv_handler_leave(nodes[0].handler, &error), 0);
  assert_string_equal(await_change(&nodes[1], RDZV_CHANGE_LEFT).who, rdzv_handler_node(nodes[0].handler));
  assert_code(rdzv_handler_set_closed(nodes[1].handler, "a reason that has no place", &error), 0);
  node_join_run(&nodes[0]);
  assert_error(nodes[0].code, RDZV_E_CLOSED, &nodes[0].error, "the rendezvous is closed");
}

/* A request is under way when something else is asked: what it gave is not lost, nor is what was asked. */
static void test_what_is_asked_while_a_request_is_under_way_is_done(void **state) {
  struct scene *scene = *state;
  struct node *node = &scene->nodes[0];
  rdzv_error error;
  scene->options.min = scene->options.max = 2;
  scene->options.conf = "close_timeout=1";
  node_open(node, NULL, "a", scene->options);
  atomic_store(&scene->memory.held, true);
  join_start(node);
  await_sem(&scene->memory.in_get); /* the thread reads the state, to write itself into it */
  rdzv_handler_cancel(node->handler);
  assert_code(join_end(node), RDZV_E_CANCELED); /* and is asked to leave */
  atomic_store(&scene->memory.held, false);
  sem_post(&scene->memory.go_on);
  if (rdzv_handler_leave(node->handler, &error) < 0) fail_msg("%s", error.message);
  node_open(&scene->nodes[1], NULL, "watcher", scene->options);
  await_counts(scene->nodes[1].handler, 0, 0, 0);
}

/* Nobody writes or asks more often than there is a reason to: one node that is alone and at rest. */
static void test_a_member_at_rest_writes_its_heartbeat_and_no_more(void **state) {
  struct scene *scene = *state;
  struct memory *memory = &scene->memory;
  struct heard change;
  rdzv_error error;
  scene->options.conf = "keep_alive_interval=0.2";
  open_and_join(scene->nodes, 1, NULL, scene->options);
  const int sets = atomic_load(&memory->sets), gets = atomic_load(&memory->gets), waits = atomic_load(&memory->waits);
  const int64_t began = live_now_ms();
  assert_code(hear(scene->nodes[0].handler, 1000, &change, &error), RDZV_E_TIMEOUT);
  const int most = (int)((live_now_ms() - began) / 200) + 2;
  assert_in_range(atomic_load(&memory->sets) - sets, 2, most);
  assert_in_range(atomic_load(&memory->gets) - gets, 0, most);
  assert_in_range(atomic_load(&memory->waits) - waits, 2, 2 * most);
}

/* What cannot be opened is closed all the same, and the sentence names the run. */
static void test_an_option_that_is_wrong_closes_the_backend(void **state) {
  struct scene *scene = *state;
  struct node node;
  rdzv_error error;
  scene->options.conf = "join_timeout=never";
  assert_error(node_try_open(&node, NULL, "a", scene->options, &error), RDZV_E_INVALID, &error,
               "cannot open rendezvous 'job': invalid value 'never' for option 'join_timeout'");
  scene->options.conf = "rank=1";
  assert_error(node_try_open(&node, NULL, "a", scene->options, &error), RDZV_E_INVALID, &error,
               "option 'rank' does not apply to this backend");
  assert_int_equal(atomic_load(&scene->memory.open), 0);
}

/* The options of c10d's own are none of another backend. */
static void test_options_of_c10d_are_for_c10d(void **state) {
  struct scene *scene = *state;
  struct node node;
  rdzv_error error;
  scene->options.conf = "is_host=true";
  const int result = node_try_open(&node, NULL, "a", scene->options, &error);
  if (result == 0) node_close(&node);
  assert_error(result, RDZV_E_INVALID, &error, "option 'is_host' does not apply to this backend");
}

/* A call that must be there is asked for before anything is called. `ops` end before it, or it is NULL. */
static void test_a_backend_that_lacks_a_call_is_refused(void **state) {
  struct scene *scene = *state;
  static const size_t needed[] = {offsetof(rdzv_backend_ops, name),         offsetof(rdzv_backend_ops, describe),
                                  offsetof(rdzv_backend_ops, get),          offsetof(rdzv_backend_ops, set),
                                  offsetof(rdzv_backend_ops, await_change), offsetof(rdzv_backend_ops, wake),
                                  offsetof(rdzv_backend_ops, cancel),       offsetof(rdzv_backend_ops, close)};
  const rdzv_params params = {.size = sizeof params, .run_id = "job"};
  for (size_t i = 0; i < 2 * COUNT_OF(needed); i++) {
    const size_t at = needed[i / 2];
    rdzv_backend_ops ops = memory_ops;
    struct cell cell = {.base = {&ops}, .memory = &scene->memory};
    rdzv_handler *handler = NULL;
    rdzv_error error;
    if (i % 2)
      ops.size = at;
    else
      memset((char *)&ops + at, 0, sizeof(void *));
    assert_error(rdzv_handler_open_dynamic(&params, &cell.base, NULL, &handler, &error), RDZV_E_INVALID, &error,
                 "lacks a call");
    assert_null(handler);
  }
}

/* A backend that fails without a sentence gets one, and a number that is no code is not taken for success. */
static void test_a_backend_that_fails_without_a_word_is_explained(void **state) {
  struct scene *scene = *state;
  static const struct {
    int returns;
    const char *says;
  } cases[] = {{RDZV_E_CORRUPT, "backend 'memory': the data is corrupt"},
               {RDZV_E_IO, "backend 'memory': input or output failed"},
               {7, "backend 'memory' returned 7, which is not an error code"}};
  scene->options.conf = "join_timeout=0.3,close_timeout=0.3";
  scene->options.min = scene->options.max = 2; /* so that it also waits */
  for (size_t i = 0; i < COUNT_OF(cases) * FAILING_CALLS; i++) {
    struct node node;
    node_open(&node, NULL, "a", scene->options);
    atomic_store(&scene->memory.fails, (int)i % FAILING_CALLS);
    atomic_store(&scene->memory.code, cases[i / FAILING_CALLS].returns);
    node_join_run(&node);
    assert_true(node.code < 0);
    if (!strstr(node.error.message, cases[i / FAILING_CALLS].says)) fail_msg("%s", node.error.message);
    atomic_store(&scene->memory.code, 0);
    node_close(&node);
    scene->memory.len = scene->memory.version = 0; /* nobody is in it any more */
  }
}

/* ---- names ---------------------------------------------------------------------------------------------------- */

static void test_names_are_given_once(void **state) {
  struct scene *scene = *state;
  rdzv_error error;
  static const char *const taken[] = {"memory", "c10d", "static"};
  for (size_t i = 0; i < COUNT_OF(taken); i++)
    assert_error(rdzv_registry_add(scene->registry, taken[i], memory_create, NULL, &error), RDZV_E_INVALID, &error,
                 taken[i]);
  assert_code(rdzv_registry_add(scene->registry, "", memory_create, NULL, &error), RDZV_E_INVALID);
  assert_code(rdzv_registry_add(scene->registry, NULL, memory_create, NULL, &error), RDZV_E_INVALID);
  assert_code(rdzv_registry_add(scene->registry, "x", NULL, NULL, &error), RDZV_E_INVALID);
  int result = 0, count = 1;
  for (; result == 0; count++) {
    char name[16];
    snprintf(name, sizeof name, "n%d", count);
    result = rdzv_registry_add(scene->registry, name, memory_create, NULL, &error);
  }
  assert_error(result, RDZV_E_LIMIT, &error, "which is the limit");
  assert_true(count > 32);
  rdzv_registry_free(NULL);
}

struct broken_creator {
  int returns, fills; /* codes; 0: none */
};

static int broken_create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error) {
  const struct broken_creator *broken = user;
  (void)params, (void)out;
  if (broken->fills) *error = (rdzv_error){.code = broken->fills, .message = "its own words"};
  return broken->returns;
}

/* Whatever a creator of somebody else's does, opening fails with a code and a sentence unless there is a handler. */
static void test_a_creator_that_fails_is_an_error(void **state) {
  struct scene *scene = *state;
  static const struct {
    struct broken_creator creator;
    int code;
    const char *sentence;
  } cases[] = {{{RDZV_E_TIMEOUT, 0}, RDZV_E_TIMEOUT, "cannot open rendezvous 'job': timed out"},
               {{RDZV_E_TIMEOUT, RDZV_E_ADDRESS}, RDZV_E_ADDRESS, "cannot open rendezvous 'job': its own words"},
               {{0, 0}, RDZV_E_INVALID, "cannot open rendezvous 'job': backend 'broken' made no handler"},
               {{7, 0}, RDZV_E_INVALID, "backend 'broken' returned 7, which is not an error code"}};
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    rdzv_registry *registry;
    rdzv_error error = {.code = RDZV_E_CORRUPT, .message = "of a call before"};
    assert_code(rdzv_registry_open(&registry, &error), 0);
    assert_code(rdzv_registry_add(registry, "broken", broken_create, (void *)&cases[i].creator, &error), 0);
    struct node_options options = scene->options;
    options.registry = registry;
    options.backend = "broken";
    struct node node;
    assert_error(node_try_open(&node, NULL, "a", options, &error), cases[i].code, &error, cases[i].sentence);
    assert_code(error.code, cases[i].code);
    assert_null(node.handler);
    assert_code(node_try_open(&node, NULL, "a", options, NULL), cases[i].code);
    rdzv_registry_free(registry);
  }
}

static void test_an_unknown_backend_is_refused_with_the_nearest(void **state) {
  struct scene *scene = *state;
  struct node node;
  rdzv_error error;
  static const struct {
    const char *name, *sentence;
  } names[] = {{"c1od", "unknown backend 'c1od' (did you mean 'c10d'?)"},
               {"memori", "unknown backend 'memori' (did you mean 'memory'?)"},
               {"statik", "unknown backend 'statik' (did you mean 'static'?)"},
               {"zookeeper", "unknown backend 'zookeeper' (known: c10d, etcd, etcd-v2, etcd-v3, static)"}};
  for (size_t i = 0; i < COUNT_OF(names); i++) {
    scene->options.backend = names[i].name;
    assert_error(node_try_open(&node, NULL, "a", scene->options, &error), RDZV_E_INVALID, &error, names[i].sentence);
  }
  scene->options.registry = NULL;
  scene->options.backend = "memory";
  assert_code(node_try_open(&node, NULL, "a", scene->options, &error), RDZV_E_INVALID);
}

/* ---- params --------------------------------------------------------------------------------------------------- */

static void assert_params(rdzv_params params, const char *sentence) {
  rdzv_handler *handler;
  rdzv_error error;
  assert_error(rdzv_handler_open(&params, &handler, &error), RDZV_E_INVALID, &error, sentence);
  assert_code(rdzv_handler_open(&params, &handler, NULL), RDZV_E_INVALID);
}

/* Each field that is wrong is named, with its value. */
static void test_params_that_are_wrong_are_named(void **state) {
  (void)state;
  char text[601];
  memset(text, 'x', 600);
  text[600] = '\0';
  const rdzv_params good = {.size = sizeof good, .run_id = "job", .endpoint = "localhost"};
  rdzv_params params = good;
  params.run_id = NULL;
  assert_params(params, "the run id is missing");
  params.run_id = "";
  assert_params(params, "the run id is missing");
  params.run_id = text;
  assert_params(params, "the run id has 600 bytes");
  params = good;
  params.min_nodes = -1;
  assert_params(params, "min_nodes is -1: it must be at least 1");
  params.min_nodes = 3;
  params.max_nodes = 2;
  assert_params(params, "max_nodes is 2: it must be at least min_nodes, 3");
  params = good;
  params.local_addr = text;
  assert_params(params, "local_addr has 600 bytes");
  params = good;
  params.endpoint = "host:port";
  assert_params(params, "'host:port'");
  params = good;
  params.conf = "frobnicate=1";
  assert_params(params, "unknown option 'frobnicate'");
  params.conf = "store_type=file";
  params.endpoint = "";
  assert_params(params, "needs the path of a file");
  params = good;
  params.size = 0;
  assert_params(params, "");
}

#define IN_A_SCENE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_A_SCENE(test_a_backend_of_others_carries_a_rendezvous),
      IN_A_SCENE(test_what_is_asked_while_a_request_is_under_way_is_done),
      IN_A_SCENE(test_a_member_at_rest_writes_its_heartbeat_and_no_more),
      IN_A_SCENE(test_an_option_that_is_wrong_closes_the_backend),
      IN_A_SCENE(test_options_of_c10d_are_for_c10d),
      IN_A_SCENE(test_a_backend_that_lacks_a_call_is_refused),
      IN_A_SCENE(test_a_backend_that_fails_without_a_word_is_explained),
      IN_A_SCENE(test_names_are_given_once),
      IN_A_SCENE(test_a_creator_that_fails_is_an_error),
      IN_A_SCENE(test_an_unknown_backend_is_refused_with_the_nearest),
      cmocka_unit_test(test_params_that_are_wrong_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
