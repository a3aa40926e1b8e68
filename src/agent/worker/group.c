/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/worker/group.h"

#include "agent/guard/orphans.h"
#include "agent/worker/numa.h"
#include "agent/worker/spawn.h"
#include "base/error.h"
#include "base/os/process.h"
#include "base/wait/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  OUTPUT_MS = 5000,  /* for what the workers have written to be passed on */
  DAEMONS_MS = 2000, /* for what they have left behind to be gone */
};

/* ---- an end --------------------------------------------------------------------------------------------------- */

static void judge(struct worker *worker, const siginfo_t *info) {
  const bool by_signal = info->si_code != CLD_EXITED;
  worker->signal = by_signal ? info->si_status : 0;
  worker->exit_code = by_signal ? 128 + info->si_status : info->si_status;
  worker->ended_us = clock_wall_us();
  if (worker->group->stopping)
    worker->end = WORKER_STOPPED;
  else
    worker->end = worker->exit_code == 0 ? WORKER_SUCCEEDED : WORKER_FAILED;
}

/* Looks without taking the zombie away. */
static bool has_ended(struct worker *worker) {
  siginfo_t info = {0};
  if (worker->end != WORKER_RUNS) return true;
  if (waitid(P_PID, (id_t)worker->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0) { /* somebody else has waited */
    info.si_pid = worker->pid;
    info.si_code = CLD_EXITED;
    info.si_status = 1;
  }
  if (info.si_pid != worker->pid) return false;
  judge(worker, &info);
  worker->group->running--;
  return true;
}

static void on_poll(uv_poll_t *handle, int status, int events) {
  struct worker *worker = handle->data;
  (void)status, (void)events;
  if (worker->end != WORKER_RUNS || !has_ended(worker)) return;
  uv_poll_stop(handle);
  worker->group->on_end(worker->group->user, worker);
}

void group_sweep(struct group *group) {
  for (size_t i = 0; i < group->count; i++)
    if (group->workers[i].polled) on_poll(&group->workers[i].poll, 0, 0);
}

/* ---- starting ------------------------------------------------------------------------------------------------- */

static int watch(struct worker *worker, rdzv_error *error) {
  worker->pid_fd = (int)syscall(SYS_pidfd_open, worker->pid, 0);
  if (worker->pid_fd < 0) return error_errno(error, RDZV_E_IO, errno, "cannot watch worker %ld", (long)worker->pid);
  const int code = uv_poll_init(worker->group->loop, &worker->poll, worker->pid_fd);
  if (code < 0) return error_set(error, RDZV_E_IO, "cannot watch worker %ld: %s", (long)worker->pid, uv_strerror(code));
  worker->polled = true;
  worker->poll.data = worker;
  uv_poll_start(&worker->poll, UV_READABLE, on_poll);
  return 0;
}

static int run(struct worker *worker, const struct spawner *spawner, char *const *program,
               const struct attempt *attempt, rdzv_error *error) {
  char **argv = arguments_of(program, worker->local_rank);
  char **environment = environment_of(attempt, worker->local_rank, worker->error_file);
  int result = argv && environment ? 0 : error_no_memory(error);
  if (result == 0) {
    cpu_set_t allowed, cpus;
    const bool bound = attempt->numa_binding && sched_getaffinity(0, sizeof allowed, &allowed) == 0 &&
                       numa_cpus("", worker->local_rank, attempt->local_world_size, &allowed, &cpus);
    const struct spawn how = {.guard = worker->group->guard,
                              .slot = (size_t)worker->local_rank,
                              .argv = argv,
                              .environment = environment,
                              .out = worker->streams.out,
                              .err = worker->streams.err,
                              .descriptors = worker->group->descriptors,
                              .cpus = bound ? &cpus : NULL};
    pthread_mutex_lock(&worker->group->lock); /* who is being started is not missed */
    result = spawn(spawner, &how, &worker->pid, error);
    pthread_mutex_unlock(&worker->group->lock);
  }
  list_free(argv);
  list_free(environment);
  return result;
}

/* The folder of this run, and so the beginning of that variable, is no other run's. */
static void set_mark(struct guard *guard, const struct log_dir *dir) {
  char mark[PATH_MAX + 32];
  snprintf(mark, sizeof mark, "TORCHELASTIC_ERROR_FILE=%s/", dir->run);
  if (dir->run[0]) guard_set_mark(guard, mark);
}

static int start_one(struct worker *worker, const struct spawner *spawner, char *const *argv,
                     const struct attempt *attempt, struct log_dir *dir, rdzv_error *error) {
  struct group *group = worker->group;
  char folder[PATH_MAX];
  int result = log_dir_worker(dir, attempt->run_id, attempt->terms.restart_count, worker->local_rank, folder, error);
  if (result == 0)
    result = streams_open(group->streams, worker->local_rank, worker->rank, folder, &worker->streams, error);
  if (result < 0) return result;
  if (*folder) snprintf(worker->error_file, sizeof worker->error_file, "%.*s/error.json", PATH_MAX - 16, folder);
  if (worker->local_rank == 0) set_mark(group->guard, dir);
  result = run(worker, spawner, argv, attempt, error);
  streams_started(&worker->streams);
  if (result < 0) return result;
  worker->end = WORKER_RUNS;
  group->running++;
  return watch(worker, error);
}

static void forget_process(struct worker *worker) {
  pthread_mutex_lock(&worker->group->lock);
  guard_set_group(worker->group->guard, (size_t)worker->local_rank, 0);
  process_reap(worker->pid);
  worker->pid = 0;
  pthread_mutex_unlock(&worker->group->lock);
  worker->end = WORKER_STOPPED;
  worker->group->running--;
}

static int fail_start(const struct spawn_failure *failure, char *const *program, rdzv_error *error) {
  char **argv = arguments_of(program, (int64_t)failure->slot);
  const int result = fail_spawn(failure, argv ? argv[0] : program[0], error);
  list_free(argv);
  return result;
}

/* Waits until all programs run. */
static int await_programs(struct group *group, struct spawner *spawner, char *const *program, rdzv_error *error) {
  struct spawn_failure failure;
  int result = 0;
  while (spawner_await_failure(spawner, &failure)) {
    forget_process(&group->workers[failure.slot]);
    if (result == 0) result = fail_start(&failure, program, error);
  }
  return result;
}

static void set_workers(struct group *group, struct worker *workers, size_t count) {
  pthread_mutex_lock(&group->lock);
  group->workers = workers;
  group->count = count;
  pthread_mutex_unlock(&group->lock);
}

int group_start(struct group *group, char *const *argv, const struct attempt *attempt, struct log_dir *dir,
                rdzv_error *error) {
  const size_t count = (size_t)attempt->local_world_size;
  struct worker *workers = calloc(count + 1, sizeof *workers);
  if (!workers) return error_no_memory(error);
  group->running = 0;
  group->stopping = false;
  for (size_t i = 0; i < count; i++)
    workers[i] = (struct worker){.group = group,
                                 .local_rank = (int64_t)i,
                                 .rank = attempt->ranks.base + (int64_t)i,
                                 .pid_fd = -1,
                                 .end = WORKER_STOPPED,
                                 .streams = {.out = -1, .err = -1}};
  set_workers(group, workers, count);
  struct spawner spawner;
  int result = spawner_open(&spawner, error);
  if (result < 0) return result;
  for (size_t i = 0; i < count && result == 0; i++)
    result = start_one(&group->workers[i], &spawner, argv, attempt, dir, error);
  const int programs = await_programs(group, &spawner, argv, result == 0 ? error : NULL);
  spawner_close(&spawner);
  return result < 0 ? result : programs;
}

/* ---- ending --------------------------------------------------------------------------------------------------- */

void group_signal(struct group *group, int signal) {
  group->stopping = true;
  for (size_t i = 0; i < group->count; i++)
    if (group->workers[i].pid > 0 && group->workers[i].end == WORKER_RUNS) kill(-group->workers[i].pid, signal);
}

void group_suspend(struct group *group, bool suspended) {
  pthread_mutex_lock(&group->lock);
  for (size_t i = 0; i < group->count; i++)
    if (group->workers[i].pid > 0 && !group->workers[i].reaped)
      kill(-group->workers[i].pid, suspended ? SIGSTOP : SIGCONT);
  pthread_mutex_unlock(&group->lock);
}

static void on_closed(uv_handle_t *handle) { ((struct worker *)handle->data)->polled = false; }

static bool any_polled(const struct group *group) {
  for (size_t i = 0; i < group->count; i++)
    if (group->workers[i].polled) return true;
  return false;
}

static void stop_watching(struct group *group) {
  for (size_t i = 0; i < group->count; i++)
    if (group->workers[i].polled) uv_close((uv_handle_t *)&group->workers[i].poll, on_closed);
  while (any_polled(group)) uv_run(group->loop, UV_RUN_NOWAIT);
}

/* The group goes with its leader. */
static void kill_group(const struct worker *worker) {
  if (worker->pid > 0) kill(-worker->pid, SIGKILL);
}

static void reap(struct worker *worker, size_t *left) {
  if (worker->pid <= 0) return;
  guard_set_group(worker->group->guard, (size_t)worker->local_rank, 0);
  if (!has_ended(worker)) {
    (*left)++;
    return;
  }
  pthread_mutex_lock(&worker->group->lock);
  worker->reaped = true;
  waitpid(worker->pid, NULL, WNOHANG);
  pthread_mutex_unlock(&worker->group->lock);
}

static void close_worker(struct worker *worker, deadline until) {
  if (worker->pid_fd >= 0) close(worker->pid_fd);
  worker->pid_fd = -1;
  worker->last_lines = streams_close(worker->group->streams, &worker->streams, until);
}

/* ---- daemons -------------------------------------------------------------------------------------------------- */

static bool is_known(const void *user, pid_t pid) {
  const struct group *group = user;
  bool known = pid == group->guard->pid;
  for (size_t i = 0; i < group->count; i++) known |= group->workers[i].pid == pid && !group->workers[i].reaped;
  return known;
}

void group_reap_orphans(const struct group *group) {
  if (group->adopts) orphans_reap(&(struct orphans_known){is_known, group});
}

/* What left its process group: our children by now, or in the cgroup. */
static size_t kill_daemons(const struct group *group) {
  const deadline until = deadline_after(DAEMONS_MS);
  const size_t killed = group->adopts ? orphans_kill(&(struct orphans_known){is_known, group}, until) : 0;
  cgroup_kill(&group->guard->cgroup, until);
  return killed;
}

/* Daemons go first, since they may hold a pipe that we read. */
size_t group_end(struct group *group, size_t *left) {
  *left = 0;
  stop_watching(group);
  for (size_t i = 0; i < group->count; i++) kill_group(&group->workers[i]);
  for (size_t i = 0; i < group->count; i++) reap(&group->workers[i], left);
  const size_t killed = kill_daemons(group);
  const deadline until = deadline_after(OUTPUT_MS);
  for (size_t i = 0; i < group->count; i++) streams_finish(group->streams, &group->workers[i].streams);
  for (size_t i = 0; i < group->count; i++) close_worker(&group->workers[i], until);
  return killed;
}

void group_free(struct group *group) {
  struct worker *workers = group->workers;
  for (size_t i = 0; i < group->count; i++) free(workers[i].last_lines);
  set_workers(group, NULL, 0);
  group->running = 0;
  free(workers);
}
