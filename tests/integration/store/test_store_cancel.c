/* SPDX-License-Identifier: BSD-3-Clause */
/* Every call of a store, canceled from another thread in every phase in which it can wait. Each would last for minutes,
 * ends because it is canceled, and leaves a handle that can be freed. */
#include "backlog.h"
#include "store_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/eventfd.h>
#include <sys/file.h>

enum { MINUTES_MS = 10 * SOON_MS };

/* ---- a resolver that can be held ------------------------------------------------------------------------------ */

static struct {
  atomic_bool held;
  atomic_int inside;
  sem_t go_on;
} names;

typedef int resolver(const char *, const char *, const struct addrinfo *, struct addrinfo **);

/* Stands in for the C library's: "slow.test" is this machine. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **result) {
  resolver *real = (resolver *)(intptr_t)dlsym(RTLD_NEXT, "getaddrinfo");
  if (!name || strcmp(name, "slow.test") != 0) return real(name, service, hints, result);
  if (hints->ai_flags & AI_NUMERICHOST) return EAI_NONAME;
  if (atomic_load(&names.held)) {
    atomic_fetch_add(&names.inside, 1);
    sem_wait(&names.go_on);
    atomic_fetch_sub(&names.inside, 1);
    return EAI_NONAME;
  }
  return real("127.0.0.1", service, hints, result);
}

/* ---- phases --------------------------------------------------------------------------------------------------- */

struct scene {
  struct peer peer;
  struct backlog backlog;
  rdzv_server *server;
  rdzv_log log;
  int noted;           /* an event descriptor: the log has told of a try that failed */
  struct caller first; /* has the handle, if it has a row */
  char path[64];
  int lock;
};

struct phase {
  const char *name;
  rdzv_store *(*open)(struct scene *scene);
  void (*await)(struct scene *scene, const struct caller *caller); /* until the call is in it */
  void (*close)(struct scene *scene);
  unsigned kinds; /* of calls that get there: 1 << kind */
};

static rdzv_store *connect_for_minutes(const char *endpoint, const rdzv_log *log) {
  return connect_with(endpoint, (rdzv_tcp_options){.timeout_ms = MINUTES_MS, .log = log});
}

static void await_caller_asleep(struct scene *scene, const struct caller *caller) {
  (void)scene;
  assert_true(await_asleep(&caller->id));
}

static void await_reached(struct scene *scene, const struct caller *caller) {
  (void)caller;
  await_sem(&scene->peer.reached);
}

/* The request is at the server, which does not answer. */

static void greet_and_take_one_byte(struct peer *peer) {
  char first;
  const int fd = peer_accept(peer);
  peer_greet(fd, 7);
  peer_read(fd, &first, 1);
  sem_post(&peer->reached);
  peer_close_after_client(fd);
}

static rdzv_store *open_unanswered(struct scene *scene) {
  peer_start(&scene->peer, greet_and_take_one_byte, NULL);
  return connect_for_minutes(scene->peer.endpoint, NULL);
}

static void end_peer(struct scene *scene) { peer_end(&scene->peer); }

/* Another call has the handle. */

static rdzv_store *open_taken(struct scene *scene) {
  rdzv_store *store = open_unanswered(scene);
  caller_begin(&scene->first, store, &store_rows[1]);
  await_sem(&scene->peer.reached);
  return store;
}

/* The server has gone: a pause between two tries to connect again. */

static void note_failure(void *user, rdzv_log_level level, const char *line) {
  (void)level;
  if (strstr(line, "cannot connect")) eventfd_write(*(int *)user, 1);
}

static rdzv_store *open_deserted(struct scene *scene) {
  scene->server = serve();
  scene->noted = eventfd(0, EFD_CLOEXEC);
  scene->log = (rdzv_log){sizeof(rdzv_log), note_failure, &scene->noted, RDZV_LOG_INFO};
  rdzv_store *store = connect_for_minutes(rdzv_server_address(scene->server), &scene->log);
  rdzv_server_free(scene->server);
  return store;
}

static void await_noted(struct scene *scene, const struct caller *caller) {
  (void)caller;
  assert_true(await_readable(scene->noted));
}

static void end_deserted(struct scene *scene) { close(scene->noted); }

/* The server has closed the connection, and its backlog is full: connect(2) gets no answer. */

static void greet_and_close(struct peer *peer) {
  const int fd = peer_accept(peer);
  peer_greet(fd, 7);
  await_sem(&peer->go_on);
  close(fd);
  sem_post(&peer->reached);
}

static rdzv_store *open_full(struct scene *scene) {
  peer_start(&scene->peer, greet_and_close, NULL);
  rdzv_store *store = connect_for_minutes(scene->peer.endpoint, NULL);
  assert_int_equal(listen(scene->peer.listener, 0), 0);
  backlog_fill(&scene->backlog, scene->peer.listener);
  sem_post(&scene->peer.go_on);
  await_sem(&scene->peer.reached);
  return store;
}

static void await_connecting(struct scene *scene, const struct caller *caller) {
  (void)caller;
  await_connecting_to(scene->peer.port);
}

static void end_full(struct scene *scene) {
  backlog_free(&scene->backlog);
  peer_end(&scene->peer);
}

/* The server has closed the connection, and takes the greeting of the next one without an answer. */

static void greet_once(struct peer *peer) {
  char hello[HELLO_BYTES];
  greet_and_close(peer);
  const int fd = peer_accept(peer);
  peer_read(fd, hello, sizeof hello);
  sem_post(&peer->reached);
  peer_close_after_client(fd);
}

static rdzv_store *open_ungreeted(struct scene *scene) {
  peer_start(&scene->peer, greet_once, NULL);
  rdzv_store *store = connect_for_minutes(scene->peer.endpoint, NULL);
  sem_post(&scene->peer.go_on);
  await_sem(&scene->peer.reached);
  return store;
}

/* The server has gone, and its name is looked up again. */

static rdzv_store *open_named(struct scene *scene) {
  char endpoint[32];
  scene->server = serve();
  snprintf(endpoint, sizeof endpoint, "slow.test:%d", rdzv_server_port(scene->server));
  rdzv_store *store = connect_for_minutes(endpoint, NULL);
  rdzv_server_free(scene->server);
  sem_init(&names.go_on, 0, 0);
  atomic_store(&names.held, true);
  return store;
}

static void await_resolving(struct scene *scene, const struct caller *caller) {
  const struct timespec moment = {0, 1000000};
  (void)scene, (void)caller;
  for (const int64_t until = live_now_ms() + SOON_MS; atomic_load(&names.inside) == 0; nanosleep(&moment, NULL))
    assert_true(live_now_ms() < until);
}

/* The thread that looks it up is left behind by the call, and ends now. */
static void end_named(struct scene *scene) {
  (void)scene;
  const struct timespec moment = {0, 1000000};
  atomic_store(&names.held, false);
  for (; atomic_load(&names.inside) > 0; nanosleep(&moment, NULL)) sem_post(&names.go_on);
}

/* Nobody sets the key in a hash store, or in a file. */

static rdzv_store *open_hash(struct scene *scene) {
  const rdzv_hash_options options = {.size = sizeof options, .timeout_ms = MINUTES_MS};
  rdzv_store *store;
  (void)scene;
  assert_code(rdzv_store_open_hash(&options, &store, NULL), 0);
  return store;
}

static void end_nothing(struct scene *scene) { (void)scene; }

static rdzv_store *open_file(struct scene *scene) {
  const rdzv_file_options options = {.size = sizeof options, .timeout_ms = MINUTES_MS};
  rdzv_store *store;
  snprintf(scene->path, sizeof scene->path, "/tmp/rdzv-cancel-XXXXXX");
  scene->lock = mkstemp(scene->path);
  assert_true(scene->lock >= 0);
  assert_code(rdzv_store_open_file(scene->path, &options, &store, NULL), 0);
  return store;
}

static void end_file(struct scene *scene) {
  close(scene->lock);
  unlink(scene->path);
}

/* Another has the lock of the file. */

static rdzv_store *open_locked(struct scene *scene) {
  rdzv_store *store = open_file(scene);
  assert_int_equal(flock(scene->lock, LOCK_EX), 0);
  return store;
}

enum {
  OWN_CONNECTION = 1 << READS | 1 << WRITES | 1 << BLOCKS,
  ANY_CONNECTION = OWN_CONNECTION | 1 << CLONES,
};

static const struct phase phases[] = {
    {"the server does not answer", open_unanswered, await_reached, end_peer, OWN_CONNECTION},
    {"another call has the handle", open_taken, await_caller_asleep, end_peer, OWN_CONNECTION},
    {"a pause between two tries", open_deserted, await_noted, end_deserted, ANY_CONNECTION},
    {"connecting again", open_full, await_connecting, end_full, ANY_CONNECTION},
    {"greeting again", open_ungreeted, await_reached, end_peer, ANY_CONNECTION},
    {"resolving again", open_named, await_resolving, end_named, ANY_CONNECTION},
    {"a hash store without the key", open_hash, await_caller_asleep, end_nothing, 1 << BLOCKS},
    {"a file without the key", open_file, await_caller_asleep, end_file, 1 << BLOCKS},
    {"a file that is locked", open_locked, await_caller_asleep, end_file, 1 << WRITES},
};

/* ---- the tests ------------------------------------------------------------------------------------------------ */

/* False: the store does not have it. */
static bool cancel_in(const struct phase *phase, const struct store_row *row) {
  struct scene scene = {0};
  struct caller caller;
  rdzv_store *store = phase->open(&scene);
  const bool can = can_call(store, row);
  if (can) {
    caller_begin(&caller, store, row);
    phase->await(&scene, &caller);
  }
  rdzv_store_cancel(store);
  if (can) caller_end_canceled(&caller, phase->name);
  if (scene.first.row) caller_end_canceled(&scene.first, phase->name);
  assert_code(call_num_keys(store, NULL), RDZV_E_CANCELED);
  rdzv_store_free(store);
  phase->close(&scene);
  return can;
}

static void test_every_call_is_canceled(void **state) {
  const struct phase *phase = *state;
  int calls = 0;
  for (size_t i = 0; i < COUNT_OF(store_rows); i++)
    if (phase->kinds & 1u << store_rows[i].kind) calls += cancel_in(phase, &store_rows[i]);
  assert_in_range(calls, 3, COUNT_OF(store_rows));
}

int main(void) {
  struct CMUnitTest tests[COUNT_OF(phases)];
  for (size_t i = 0; i < COUNT_OF(phases); i++)
    tests[i] = (struct CMUnitTest){
        .name = phases[i].name, .test_func = test_every_call_is_canceled, .initial_state = (void *)&phases[i]};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
