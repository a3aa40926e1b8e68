/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/worker/group.h"

#include "agent/guard/orphans.h"
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
  NOT_STARTED = 127, /* exit code, as a shell has it */
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
  if (waitid(P_PID, (id_t)worker->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0) { /* other code has reaped it */
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

void group_sweep(struct worker_group *group) {
  for (size_t i = 0; i < group->count; i++)
    if (group->workers[i].polled) on_poll(&group->workers[i].poll, 0, 0);
}

/* ---- starting ------------------------------------------------------------------------------------------------- */

static int monitor(struct worker *worker, rdzv_error *error) {
  worker->pid_fd = (int)syscall(SYS_pidfd_open, worker->pid, 0);
  if (worker->pid_fd < 0) return error_errno(error, RDZV_E_IO, errno, "cannot monitor worker %ld", (long)worker->pid);
  const int code = uv_poll_init(worker->group->loop, &worker->poll, worker->pid_fd);
  if (code < 0) return error_errno(error, RDZV_E_IO, -code, "cannot monitor worker %ld", (long)worker->pid);
  worker->polled = true;
  worker->poll.data = worker;
  uv_poll_start(&worker->poll, UV_READABLE, on_poll);
  return 0;
}

/* What the guard needs. The folder of this run, and so the beginning of that variable, is no other run's. */
static void set_guard(struct guard *guard, const struct log_dir *dir) {
  char mark[PATH_MAX + 32];
  snprintf(mark, sizeof mark, "TORCHELASTIC_ERROR_FILE=%s/", dir->run);
  if (dir->run[0]) guard_set_mark(guard, mark);
  guard_set_folder(guard, log_dir_useless(dir));
}

/* What a worker is started with. */
struct start {
  const struct attempt *attempt;
  char *const *program;
  char **common; /* environment */
  struct log_dir *dir;
  struct spawn *spawns;
  pid_t *pids;
};

static int bind_to(const struct attempt *attempt, int64_t local_rank, cpu_set_t *cpus, rdzv_error *error) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
    return error_errno(error, RDZV_E_IO, errno, "cannot find out which processors may be used");
  return numa_cpus("", attempt->numa, local_rank, attempt->local_world_size, &allowed, cpus, error);
}

static int prepare_one(struct worker *worker, const struct start *start, rdzv_error *error) {
  const struct attempt *attempt = start->attempt;
  struct worker_group *group = worker->group;
  char folder[PATH_MAX];
  int result =
      log_dir_worker(start->dir, attempt->run_id, attempt->terms.restart_count, worker->local_rank, folder, error);
  if (result == 0)
    result = streams_open(group->streams, worker->local_rank, worker->rank, folder, &worker->streams, error);
  if (result < 0) return result;
  if (*folder) snprintf(worker->error_file, sizeof worker->error_file, "%.*s/error.json", PATH_MAX - 16, folder);
  struct spawn *spawn = &start->spawns[worker->local_rank];
  *spawn = (struct spawn){.argv = arguments_of(start->program, worker->local_rank),
                          .environment = environment_of(start->common, attempt, worker->local_rank, worker->error_file),
                          .out = worker->streams.out,
                          .err = worker->streams.err,
                          .descriptors = group->descriptors};
  if (!spawn->argv || !spawn->environment) return error_no_memory(error);
  spawn->bound = attempt->numa != NUMA_NONE;
  return spawn->bound ? bind_to(attempt, worker->local_rank, &spawn->cpus, error) : 0;
}

static void not_started(struct worker *worker, const rdzv_error *error) {
  worker->end = WORKER_FAILED;
  worker->exit_code = NOT_STARTED;
  worker->ended_us = clock_wall_us();
  worker->start_error = strdup(error->message);
}

static int prepare(struct worker_group *group, struct start *start, rdzv_error *error) {
  start->common = environment_common(start->attempt);
  start->spawns = calloc(group->count, sizeof *start->spawns);
  start->pids = calloc(group->count, sizeof *start->pids);
  if (!start->common || !start->spawns || !start->pids) return error_no_memory(error);
  for (size_t i = 0; i < group->count; i++) {
    const int result = prepare_one(&group->workers[i], start, error);
    if (result == 0) continue;
    not_started(&group->workers[i], error);
    return result;
  }
  return 0;
}

static void prepared_free(struct worker_group *group, struct start *start) {
  for (size_t i = 0; i < group->count; i++) {
    streams_started(&group->workers[i].streams);
    if (start->spawns) list_free((char **)start->spawns[i].argv);
    if (start->spawns) environment_free((char **)start->spawns[i].environment, start->common);
  }
  list_free(start->common);
  free(start->spawns);
  free(start->pids);
}

/* The first one of those that could not be started is what the error is about. */
static int run(struct worker_group *group, const struct start *start, rdzv_error *error) {
  pthread_mutex_lock(&group->lock); /* a signal reaches workers that are being started */
  int result = spawn(group->guard, start->spawns, group->count, group->stop, start->pids, error);
  for (size_t i = 0; i < group->count; i++) group->workers[i].pid = start->pids[i];
  pthread_mutex_unlock(&group->lock);
  bool marked = result == 0;
  for (size_t i = 0; i < group->count; i++) {
    if (start->pids[i] == 0 && !marked) not_started(&group->workers[i], error);
    marked |= start->pids[i] == 0;
    if (start->pids[i] == 0) continue;
    group->workers[i].end = WORKER_RUNS;
    group->running++;
    const int monitored = monitor(&group->workers[i], result == 0 ? error : NULL);
    if (result == 0) result = monitored;
  }
  return result;
}

static void set_workers(struct worker_group *group, struct worker *workers, size_t count) {
  pthread_mutex_lock(&group->lock);
  group->workers = workers;
  group->count = count;
  pthread_mutex_unlock(&group->lock);
}

int group_start(struct worker_group *group, char *const *argv, const struct attempt *attempt, struct log_dir *dir,
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
  struct start start = {.attempt = attempt, .program = argv, .dir = dir};
  int result = prepare(group, &start, error);
  set_guard(group->guard, dir);
  if (result == 0) result = run(group, &start, error);
  prepared_free(group, &start);
  return result;
}

/* ---- ending --------------------------------------------------------------------------------------------------- */

void group_signal(struct worker_group *group, int signal) {
  group->stopping = true;
  for (size_t i = 0; i < group->count; i++)
    if (group->workers[i].pid > 0 && group->workers[i].end == WORKER_RUNS) kill(-group->workers[i].pid, signal);
}

void group_suspend(struct worker_group *group, bool suspended) {
  pthread_mutex_lock(&group->lock);
  for (size_t i = 0; i < group->count; i++)
    if (group->workers[i].pid > 0 && !group->workers[i].reaped)
      kill(-group->workers[i].pid, suspended ? SIGSTOP : SIGCONT);
  pthread_mutex_unlock(&group->lock);
}

static void on_closed(uv_handle_t *handle) { ((struct worker *)handle->data)->polled = false; }

static bool any_polled(const struct worker_group *group) {
  for (size_t i = 0; i < group->count; i++)
    if (group->workers[i].polled) return true;
  return false;
}

static void stop_monitoring(struct worker_group *group) {
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
  const struct worker_group *group = user;
  bool known = pid == group->guard->pid;
  for (size_t i = 0; i < group->count; i++) known |= group->workers[i].pid == pid && !group->workers[i].reaped;
  return known;
}

void group_reap_orphans(const struct worker_group *group) {
  if (group->adopts) orphans_reap(&(struct orphans_known){is_known, group});
}

/* What left its process group: our children by now, or in the cgroup. */
static size_t kill_daemons(const struct worker_group *group) {
  const deadline until = deadline_after(DAEMONS_MS);
  const size_t killed = group->adopts ? orphans_kill(&(struct orphans_known){is_known, group}, until) : 0;
  cgroup_kill(&group->guard->cgroup, until);
  return killed;
}

/* Daemons go first, since they may hold a pipe that we read. */
size_t group_end(struct worker_group *group, size_t *left) {
  *left = 0;
  stop_monitoring(group);
  for (size_t i = 0; i < group->count; i++) kill_group(&group->workers[i]);
  for (size_t i = 0; i < group->count; i++) reap(&group->workers[i], left);
  const size_t killed = kill_daemons(group);
  const deadline until = deadline_after(OUTPUT_MS);
  for (size_t i = 0; i < group->count; i++) streams_finish(group->streams, &group->workers[i].streams);
  for (size_t i = 0; i < group->count; i++) close_worker(&group->workers[i], until);
  return killed;
}

void group_free(struct worker_group *group) {
  struct worker *workers = group->workers;
  for (size_t i = 0; i < group->count; i++) {
    free(workers[i].last_lines);
    free(workers[i].start_error);
  }
  set_workers(group, NULL, 0);
  group->running = 0;
  free(workers);
}
