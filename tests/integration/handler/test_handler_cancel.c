/* SPDX-License-Identifier: BSD-3-Clause */
/* Every call of a handler that waits, canceled from another thread, over each kind of store: while the store answers
 * and other nodes are waited for, while it is silent, and while the handler is opened. What says farewell works on,
 * within its time. */
#include "asleep.h"
#include "etcd_v1_scene.h"
#include "proxy.h"

#include <signal.h>
#include <sys/eventfd.h>

enum { AT_ONCE_MS = 20000, FAREWELL_MS = 300 };

/* ---- stores that fall silent ---------------------------------------------------------------------------------- */

struct place {
  const char *endpoint;
  rdzv_server *server;
  struct proxy proxy;
};

struct kind {
  const char *backend, *conf;
  void (*open)(struct place *place);
  void (*set_silent)(struct place *place, bool silent);
  void (*close)(struct place *place);
};

static void open_server(struct place *place) {
  place->server = serve();
  proxy_start(&place->proxy, rdzv_server_port(place->server));
  place->endpoint = place->proxy.endpoint;
}

static void silence_server(struct place *place, bool silent) { atomic_store(&place->proxy.silent, silent); }

static void close_server(struct place *place) {
  proxy_end(&place->proxy);
  rdzv_server_free(place->server);
}

static void open_etcd(struct place *place) { place->endpoint = rdzv_etcd_process_endpoint(etcd); }

/* The child of its guard. */
static pid_t etcd_pid(void) {
  const long guard = (long)rdzv_etcd_process_pid(etcd);
  char path[64];
  int pid = 0;
  snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", guard, guard);
  FILE *file = fopen(path, "re");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%d", &pid), 1);
  fclose(file);
  return pid;
}

static void silence_etcd(struct place *place, bool silent) {
  const pid_t pid = etcd_pid();
  (void)place;
  kill(pid, silent ? SIGSTOP : SIGCONT);
  for (const int64_t until = live_now_ms() + SOON_MS; silent && thread_state(pid) != 'T';)
    assert_true(live_now_ms() < until);
}

static void close_etcd(struct place *place) { (void)place; }

static const struct kind kinds[] = {
    {"c10d", "is_host=0,last_call_timeout=0.01", open_server, silence_server, close_server},
    {"c10d", "is_host=0,last_call_timeout=0.01,mode=swap", open_server, silence_server, close_server},
    {"etcd-v2", "last_call_timeout=0.01", open_etcd, silence_etcd, close_etcd},
    {"etcd", "last_call_timeout=0.01", open_etcd, silence_etcd, close_etcd},
};

/* ---- calls ---------------------------------------------------------------------------------------------------- */

static int call_next(rdzv_handler *handler, rdzv_error *error) {
  rdzv_result *result;
  const int code = rdzv_handler_next(handler, &result, error);
  if (code == 0) rdzv_result_free(result);
  return code;
}

static int call_wait_change(rdzv_handler *handler, rdzv_error *error) {
  struct heard change;
  return hear(handler, 10 * SOON_MS, &change, error);
}

/* The first is given at once. */
static int call_status(rdzv_handler *handler, rdzv_error *error) {
  int code = 0;
  while (code == 0) {
    rdzv_status *status;
    code = rdzv_handler_status(handler, 10 * SOON_MS, &status, error);
    if (code == 0) rdzv_status_free(status);
  }
  return code;
}

static int call_get_extra(rdzv_handler *handler, rdzv_error *error) {
  rdzv_value value;
  const int code = rdzv_handler_get_extra(handler, "never", 10 * SOON_MS, &value, error);
  if (code == 0) rdzv_value_free(&value);
  return code;
}

struct handler_row {
  const char *name;
  int (*make)(rdzv_handler *handler, rdzv_error *error);
  int64_t min_nodes; /* 2: the round never begins; 1: the node is in a round before the call */
  const char *only;  /* this backend has it; NULL: all */
};

static const struct handler_row rows[] = {
    {"next", call_next, 2, NULL},
    {"next, in a round", call_next, 1, NULL},
    {"wait_change", call_wait_change, 1, NULL},
    {"status", call_status, 2, NULL},
    {"status, in a round", call_status, 1, NULL},
    {"get_extra", call_get_extra, 1, "etcd"},
};

struct caller {
  pthread_t thread;
  atomic_int id; /* of the thread */
  const struct handler_row *row;
  rdzv_handler *handler;
  int code;
  rdzv_error error;
  char blame[300]; /* a warning that takes the cancel for a failure of the store */
};

static void note_blame(void *user, rdzv_log_level level, const char *line) {
  struct caller *caller = user;
  (void)level;
  if (strstr(line, "canceled")) snprintf(caller->blame, sizeof caller->blame, "%s", line);
}

static void *run_call(void *argument) {
  struct caller *caller = argument;
  atomic_store(&caller->id, gettid());
  caller->code = caller->row->make(caller->handler, &caller->error);
  return NULL;
}

static bool ends_soon(pthread_t thread) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += AT_ONCE_MS / 1000;
  return pthread_timedjoin_np(thread, NULL, &until) == 0;
}

static rdzv_params params_for(const struct kind *kind, const char *endpoint, int64_t min_nodes) {
  static char run_id[32];
  static int count;
  snprintf(run_id, sizeof run_id, "cancel-%d", ++count);
  return (rdzv_params){.size = sizeof(rdzv_params),
                       .backend = kind->backend,
                       .endpoint = endpoint,
                       .run_id = run_id,
                       .min_nodes = min_nodes,
                       .max_nodes = 2,
                       .local_addr = "127.0.0.1",
                       .conf = kind->conf};
}

/* They are not canceled, and where the store is silent they end by their own time; a node that is in no round may have
 * nothing to leave. */
static void say_farewell(rdzv_handler *handler, const char *name, bool silent, bool joined) {
  static int (*const calls[])(rdzv_handler *, rdzv_error *) = {rdzv_handler_leave, rdzv_handler_shutdown};
  assert_code(rdzv_handler_set_close_timeout(handler, silent ? FAREWELL_MS : SOON_MS, NULL), 0);
  for (size_t i = 0; i < COUNT_OF(calls); i++) {
    rdzv_error error = {0};
    const int64_t began = live_now_ms();
    const int code = calls[i](handler, &error);
    if (silent ? (code == 0 && (joined || i > 0)) || code == RDZV_E_CANCELED : code != 0)
      fail_msg("farewell %zu after %s: %s: %s", i, name, rdzv_error_name(code), error.message);
    if (silent) assert_within(began, AT_ONCE_MS);
  }
}

static void cancel_in(const struct kind *kind, const struct handler_row *row, bool silent) {
  struct place place = {0};
  struct caller caller = {.row = row};
  const rdzv_log log = {sizeof log, note_blame, &caller, RDZV_LOG_WARNING};
  rdzv_error error;
  char name[100];
  snprintf(name, sizeof name, "%s of %s%s", row->name, kind->backend, silent ? ", at a silent store" : "");
  kind->open(&place);
  rdzv_params params = params_for(kind, place.endpoint, row->min_nodes);
  params.log = &log;
  if (rdzv_handler_open(&params, &caller.handler, &error) < 0) fail_msg("%s: %s", name, error.message);
  if (row->min_nodes == 1) rdzv_result_free(must_join(caller.handler));
  if (row->make == call_next && row->min_nodes == 1) kind->set_silent(&place, true); /* else it would join at once */
  if (silent) kind->set_silent(&place, true);
  assert_int_equal(pthread_create(&caller.thread, NULL, run_call, &caller), 0);
  assert_true(await_asleep(&caller.id));
  rdzv_handler_cancel(caller.handler);
  const bool ended = ends_soon(caller.thread);
  if (!ended) kind->set_silent(&place, false);
  if (!ended) fail_msg("%s is not canceled", name);
  if (caller.code != RDZV_E_CANCELED || !caller.error.message[0])
    fail_msg("%s: %s: %s", name, rdzv_error_name(caller.code), caller.error.message);
  if (!silent) kind->set_silent(&place, false);
  say_farewell(caller.handler, name, silent, row->min_nodes == 1 && row->make != call_next);
  const int64_t began = live_now_ms();
  rdzv_handler_free(caller.handler);
  assert_within(began, AT_ONCE_MS);
  kind->set_silent(&place, false);
  kind->close(&place);
  if (caller.blame[0]) fail_msg("%s: a warning blames the store: %s", name, caller.blame);
}

static void check_kind(const struct kind *kind, bool silent) {
  for (size_t i = 0; i < COUNT_OF(rows); i++)
    if (!rows[i].only || strcmp(rows[i].only, kind->backend) == 0) cancel_in(kind, &rows[i], silent);
}

static void test_while_the_store_answers(void **state) { check_kind(*state, false); }
static void test_while_the_store_is_silent(void **state) { check_kind(*state, true); }

/* ---- opening -------------------------------------------------------------------------------------------------- */

struct opening {
  pthread_t thread;
  atomic_int id; /* of the thread */
  rdzv_params params;
  rdzv_handler *handler;
  int code;
  rdzv_error error;
};

static void *run_open(void *argument) {
  struct opening *opening = argument;
  atomic_store(&opening->id, gettid());
  opening->code = rdzv_handler_open(&opening->params, &opening->handler, &opening->error);
  if (opening->code == 0) opening->code = call_next(opening->handler, &opening->error);
  return NULL;
}

static const struct kind opened_kinds[] = {
    {.backend = "c10d", .conf = "is_host=0,read_timeout=600"},
    {.backend = "static", .conf = "rank=1,timeout=600"},
    {.backend = "etcd-v2", .conf = "read_timeout=600"},
    {.backend = "etcd", .conf = "read_timeout=600"},
};

/* Nobody listens there; or somebody does, and says nothing. Some kinds connect when they join. */
static void check_opening(bool listens) {
  for (size_t i = 0; i < COUNT_OF(opened_kinds); i++) {
    const struct kind *kind = &opened_kinds[i];
    char endpoint[32];
    int port;
    const int listener = peer_listen(16, &port), fd = eventfd(0, EFD_CLOEXEC);
    if (!listens) close(listener);
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
    struct opening opening = {.params = params_for(kind, endpoint, 2)};
    opening.params.cancel_fd = fd;
    assert_int_equal(pthread_create(&opening.thread, NULL, run_open, &opening), 0);
    assert_true(await_asleep(&opening.id));
    assert_int_equal(eventfd_write(fd, 1), 0);
    if (!ends_soon(opening.thread)) fail_msg("opening %s is not canceled", kind->backend);
    rdzv_handler_free(opening.handler);
    if (opening.code != RDZV_E_CANCELED || !opening.error.message[0])
      fail_msg("opening %s: %s: %s", kind->backend, rdzv_error_name(opening.code), opening.error.message);
    if (listens) close(listener);
    close(fd);
  }
}

static void test_opening_where_nobody_listens(void **state) {
  (void)state;
  check_opening(false);
}

static void test_opening_at_a_silent_store(void **state) {
  (void)state;
  check_opening(true);
}

#define ON_KIND(number, test) \
  { #test, test, NULL, NULL, (void *)&kinds[number] }

int main(void) {
  const struct CMUnitTest tests[] = {
      ON_KIND(0, test_while_the_store_answers),
      ON_KIND(0, test_while_the_store_is_silent),
      ON_KIND(1, test_while_the_store_answers),
      ON_KIND(1, test_while_the_store_is_silent),
      ON_KIND(2, test_while_the_store_answers),
      ON_KIND(2, test_while_the_store_is_silent),
      ON_KIND(3, test_while_the_store_answers),
      ON_KIND(3, test_while_the_store_is_silent),
      cmocka_unit_test(test_opening_where_nobody_listens),
      cmocka_unit_test(test_opening_at_a_silent_store),
  };
  if (!have_etcd()) return 77;
  return cmocka_run_group_tests(tests, start_etcd, stop_etcd);
}
