/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the library does to its process: nothing that outlives its objects. Signals, limits, environment, locale, umask,
 * folder, descriptors and children are compared before and after every object was used; and a child that is forked
 * while all objects live gets what the headers say. On public headers alone.
 */
#include "unit.h"

#include <dirent.h>
#include <limits.h>
#include <locale.h>
#include <pthread.h>
#include <rdzv/rdzv.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MOST_FDS = 256, MOST_ENVIRON = 65536, CHILD_S = 60, SOON_MS = 60000 };

/* ---- what a process has --------------------------------------------------------------------------------------- */

struct process {
  void (*handlers[NSIG])(int);
  int handler_flags[NSIG];
  sigset_t mask;
  struct rlimit limits[RLIM_NLIMITS];
  char environment[MOST_ENVIRON];
  char locale[256], folder[PATH_MAX];
  mode_t umask;
  int subreaper, dumpable, priority;
  char fds[MOST_FDS][64]; /* what each is; "" none */
  int children;
};

static void take_fds(struct process *process) {
  for (int fd = 0; fd < MOST_FDS; fd++) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const ssize_t len = readlink(path, process->fds[fd], sizeof process->fds[fd] - 1);
    process->fds[fd][len > 0 ? len : 0] = '\0';
  }
}

/* Of all threads, for a thread that is left would be one. */
static int count_children(void) {
  int count = 0;
  DIR *tasks = opendir("/proc/self/task");
  assert_non_null(tasks);
  for (const struct dirent *entry; (entry = readdir(tasks));) {
    char path[300];
    int pid;
    snprintf(path, sizeof path, "/proc/self/task/%s/children", entry->d_name);
    FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
    while (file && fscanf(file, "%d", &pid) == 1) count++;
    if (file) fclose(file);
  }
  closedir(tasks);
  return count;
}

static void take(struct process *process) {
  *process = (struct process){.priority = getpriority(PRIO_PROCESS, 0)};
  for (int number = 1; number < NSIG; number++) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) < 0) continue;
    process->handlers[number] = action.sa_handler;
    process->handler_flags[number] = action.sa_flags;
  }
  pthread_sigmask(SIG_BLOCK, NULL, &process->mask);
  for (int i = 0; i < (int)RLIM_NLIMITS; i++) getrlimit((__rlimit_resource_t)i, &process->limits[i]);
  size_t used = 0;
  for (char **at = environ; *at; at++)
    used +=
        (size_t)snprintf(process->environment + used, sizeof process->environment - used, "%p %s\n", (void *)*at, *at);
  assert_true(used < sizeof process->environment);
  snprintf(process->locale, sizeof process->locale, "%s", setlocale(LC_ALL, NULL));
  assert_non_null(getcwd(process->folder, sizeof process->folder));
  process->umask = umask(0);
  umask(process->umask);
  prctl(PR_GET_CHILD_SUBREAPER, &process->subreaper);
  process->dumpable = prctl(PR_GET_DUMPABLE);
  take_fds(process);
  process->children = count_children();
}

static void assert_same(const struct process *before, const struct process *after) {
  for (int number = 1; number < NSIG; number++) {
    if (before->handlers[number] != after->handlers[number]) fail_msg("the handler of signal %d was changed", number);
    assert_int_equal(before->handler_flags[number], after->handler_flags[number]);
    assert_int_equal(sigismember(&before->mask, number), sigismember(&after->mask, number));
  }
  assert_memory_equal(before->limits, after->limits, sizeof before->limits);
  assert_string_equal(before->environment, after->environment);
  assert_string_equal(before->locale, after->locale);
  assert_string_equal(before->folder, after->folder);
  assert_int_equal(before->umask, after->umask);
  assert_int_equal(before->subreaper, after->subreaper);
  assert_int_equal(before->dumpable, after->dumpable);
  assert_int_equal(before->priority, after->priority);
  for (int fd = 0; fd < MOST_FDS; fd++)
    if (strcmp(before->fds[fd], after->fds[fd]) != 0)
      fail_msg("descriptor %d was '%s' and is '%s'", fd, before->fds[fd], after->fds[fd]);
  assert_int_equal(before->children, after->children);
}

/* ---- one object of each kind ---------------------------------------------------------------------------------- */

struct objects {
  char folder[32], path[64];
  rdzv_etcd_process *etcd;
  rdzv_server *server;
  rdzv_store *stores[5]; /* hash, file, tcp, etcd, and a view of the third */
  rdzv_registry *registry;
  rdzv_handler *handlers[3]; /* c10d, static, etcd */
  rdzv_result *results[3];
  rdzv_change *change; /* of the first */
  rdzv_status *status;
  rdzv_agent *agent;
};

#define MUST(call)                                            \
  do {                                                        \
    rdzv_error error;                                         \
    if ((call) < 0) fail_msg("%s: %s", #call, error.message); \
  } while (0)

static void open_stores(struct objects *all) {
  const rdzv_etcd_options etcd = {.size = sizeof etcd, .endpoints = rdzv_etcd_process_endpoint(all->etcd)};
  const rdzv_etcd_store_options in_etcd = {.size = sizeof in_etcd, .etcd = &etcd};
  MUST(rdzv_store_open_hash(NULL, &all->stores[0], &error));
  MUST(rdzv_store_open_file(all->path, NULL, &all->stores[1], &error));
  MUST(rdzv_store_open_tcp(rdzv_server_address(all->server), NULL, &all->stores[2], &error));
  MUST(rdzv_store_open_etcd("/effects", &in_etcd, &all->stores[3], &error));
  MUST(rdzv_store_open_prefix(all->stores[2], rdzv_str("p"), &all->stores[4], &error));
}

static void open_handlers(struct objects *all) {
  char conf[64], endpoint[64];
  snprintf(conf, sizeof conf, "rank=0");
  snprintf(endpoint, sizeof endpoint, "127.0.0.1:0");
  const rdzv_params params[] = {
      {.size = sizeof *params,
       .endpoint = rdzv_server_address(all->server),
       .run_id = "effects",
       .conf = "last_call_timeout=0.1"},
      {.size = sizeof *params, .backend = "static", .endpoint = endpoint, .run_id = "effects", .conf = conf},
      {.size = sizeof *params,
       .backend = "etcd",
       .endpoint = rdzv_etcd_process_endpoint(all->etcd),
       .run_id = "effects",
       .registry = all->registry,
       .conf = "last_call_timeout=0.1"}};
  for (int i = 0; i < 3; i++) {
    MUST(rdzv_handler_open(&params[i], &all->handlers[i], &error));
    MUST(rdzv_handler_next(all->handlers[i], &all->results[i], &error));
    MUST(rdzv_result_load_participants(all->results[i], &error)); /* a child has no connection to do so */
  }
}

/* With `adopts`, every child of this process is the agent's to kill. */
static void open_agent(struct objects *all, bool adopts) {
  static const char *const argv[] = {"/bin/true", NULL};
  const rdzv_agent_options options = {
      .size = sizeof options, .standalone = true, .argv = argv, .adopt_orphans = adopts};
  MUST(rdzv_agent_open(&options, &all->agent, &error));
}

static void open_all(struct objects *all, bool adopts) {
  const rdzv_server_options options = {.size = sizeof options, .port = RDZV_ANY_PORT};
  *all = (struct objects){.folder = "/tmp/rdzv-effects-XXXXXX"};
  assert_non_null(mkdtemp(all->folder));
  snprintf(all->path, sizeof all->path, "%s/store", all->folder);
  MUST(rdzv_etcd_process_start(NULL, &all->etcd, &error));
  MUST(rdzv_server_open(&options, &all->server, &error));
  MUST(rdzv_server_start(all->server, &error));
  MUST(rdzv_registry_open(&all->registry, &error));
  open_stores(all);
  open_handlers(all);
  open_agent(all, adopts);
}

static void use_stores(struct objects *all) {
  rdzv_value value;
  for (int i = 0; i < 5; i++) {
    MUST(rdzv_store_set(all->stores[i], rdzv_str("k"), rdzv_str("v"), &error));
    MUST(rdzv_store_get(all->stores[i], rdzv_str("k"), &value, &error));
    rdzv_value_free(&value);
  }
}

static void use_handlers(struct objects *all) {
  rdzv_change *change;
  for (int i = 0; i < 3; i++) {
    assert_code(rdzv_handler_wait_change(all->handlers[i], 0, &change, NULL), RDZV_E_TIMEOUT);
    MUST(rdzv_store_set(all->results[i]->store, rdzv_str("k"), rdzv_str("v"), &error));
  }
  rdzv_status_free(all->status);
  MUST(rdzv_handler_status(all->handlers[0], 0, &all->status, &error));
}

/* Closing the rendezvous is a change. */
static void make_change(struct objects *all) {
  MUST(rdzv_handler_set_closed(all->handlers[0], "the end", &error));
  MUST(rdzv_handler_wait_change(all->handlers[0], SOON_MS, &all->change, &error));
}

static void use_agent(struct objects *all) {
  rdzv_agent_result *result;
  MUST(rdzv_agent_run(all->agent, &result, &error));
  assert_int_equal(result->state, RDZV_AGENT_SUCCEEDED);
  rdzv_agent_result_free(result);
}

static void free_all(struct objects *all) {
  rdzv_agent_free(all->agent);
  rdzv_change_free(all->change);
  rdzv_status_free(all->status);
  for (int i = 0; i < 3; i++) {
    rdzv_result_free(all->results[i]);
    rdzv_handler_free(all->handlers[i]);
  }
  for (int i = 4; i >= 0; i--) rdzv_store_free(all->stores[i]);
  rdzv_registry_free(all->registry);
  rdzv_server_free(all->server);
  rdzv_etcd_process_free(all->etcd);
}

static void remove_files(const struct objects *all) {
  unlink(all->path);
  assert_int_equal(rmdir(all->folder), 0);
}

/* ---- the process ---------------------------------------------------------------------------------------------- */

/* What the headers say of the first server and the first agent: libuv keeps descriptors for the process. */
static void begin_libuv(void) {
  const rdzv_server_options options = {.size = sizeof options, .port = RDZV_ANY_PORT};
  rdzv_server *server;
  MUST(rdzv_server_open(&options, &server, &error));
  rdzv_server_free(server);
}

static void on_usr1(int number) { (void)number; }

static struct process before, during, after;

static void test_no_object_leaves_a_trace(void **state) {
  (void)state;
  struct objects all;
  begin_libuv();
  signal(SIGUSR1, on_usr1); /* so that there is something to be lost */
  signal(SIGPIPE, SIG_DFL);
  signal(SIGCHLD, SIG_DFL);
  take(&before);
  open_all(&all, true);
  use_stores(&all);
  use_handlers(&all);
  make_change(&all);
  use_agent(&all);
  take(&during);
  free_all(&all);
  remove_files(&all);
  take(&after);
  assert_same(&before, &after);
  assert_int_equal(during.subreaper, 1); /* adopt_orphans, while the agent lives */
  during.subreaper = before.subreaper;
  memcpy(during.fds, before.fds, sizeof during.fds);
  during.children = before.children;
  assert_same(&before, &during);
}

/* ---- its children --------------------------------------------------------------------------------------------- */

#define CHILD_CHECK(condition)                                        \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      _exit(1);                                                       \
    }                                                                 \
  } while (0)
#define CHILD_REFUSED(call)                                                           \
  do {                                                                                \
    rdzv_error error = {0};                                                           \
    CHILD_CHECK((call) == RDZV_E_INVALID && strstr(error.message, "parent") != NULL); \
  } while (0)

/* Handles refuse; values are the child's own copies. */
static void use_in_child(struct objects *all) {
  rdzv_value value;
  rdzv_result *round;
  rdzv_agent_result *outcome;
  int status;
  for (int i = 0; i < 5; i++) CHILD_REFUSED(rdzv_store_get(all->stores[i], rdzv_str("k"), &value, &error));
  for (int i = 0; i < 3; i++) CHILD_REFUSED(rdzv_handler_next(all->handlers[i], &round, &error));
  for (int i = 0; i < 3; i++)
    CHILD_REFUSED(rdzv_store_set(all->results[i]->store, rdzv_str("k"), rdzv_str("child"), &error));
  CHILD_REFUSED(rdzv_server_start(all->server, &error));
  CHILD_REFUSED(rdzv_agent_run(all->agent, &outcome, &error));
  CHILD_REFUSED(rdzv_etcd_process_wait(all->etcd, 0, &status, &error));
  CHILD_CHECK(all->results[0]->world_size == 1 && strcmp(all->results[0]->run_id, "effects") == 0);
  CHILD_CHECK(rdzv_result_participant(all->results[0], 0) != NULL);
  CHILD_CHECK(rdzv_status_node_count(all->status) == 1);
  rdzv_server_stop(all->server);
  rdzv_agent_stop(all->agent, SIGTERM);
  rdzv_agent_suspend(all->agent, true);
  rdzv_handler_cancel(all->handlers[0]);
  rdzv_store_cancel(all->stores[2]);
  CHILD_CHECK(rdzv_registry_add(all->registry, "c10d", NULL, NULL, NULL) == RDZV_E_INVALID);
}

static void test_a_child_refuses_handles_and_takes_nothing(void **state) {
  (void)state;
  struct objects all;
  open_all(&all, false);
  use_stores(&all);
  use_handlers(&all);
  assert_non_null(rdzv_result_participant(all.results[0], 0)); /* asked for by the parent, so the child has them */
  fflush(NULL);
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    alarm(CHILD_S);
    use_in_child(&all);
    free_all(&all);
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
  use_stores(&all); /* all are as they were */
  use_handlers(&all);
  make_change(&all);
  use_agent(&all);
  free_all(&all);
  remove_files(&all);
}

/* A child that lives on, with a copy of every descriptor, holds nobody. */
static void test_a_child_that_lives_on_does_not_hold_the_parent(void **state) {
  (void)state;
  struct objects all;
  int fds[2];
  open_all(&all, false);
  use_stores(&all);
  assert_int_equal(pipe(fds), 0);
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    char byte;
    alarm(CHILD_S);
    close(fds[1]);
    _exit(read(fds[0], &byte, 1) != 0); /* until the parent has closed its end */
  }
  close(fds[0]);
  use_handlers(&all);
  make_change(&all);
  use_agent(&all);
  free_all(&all);
  remove_files(&all);
  assert_int_equal(waitpid(pid, NULL, WNOHANG), 0); /* it is there still */
  int status;
  close(fds[1]);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_object_leaves_a_trace),
      cmocka_unit_test(test_a_child_refuses_handles_and_takes_nothing),
      cmocka_unit_test(test_a_child_that_lives_on_does_not_hold_the_parent),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
