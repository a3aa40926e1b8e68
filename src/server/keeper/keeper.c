/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The way of a commit: at the end of a turn of the loop, if something has changed and no commit is under way, begin()
 * makes the batch and hands it to the commit thread. The thread commits it, and wakes the loop. on_done() notes that it
 * is durable, and lets the answers go that waited for it.
 *
 * The clients that are let go often ask again within a moment. What they change belongs into one commit, not into two
 * that alternate, each with half of them. So a commit waits a moment for as many clients as the one before has let go,
 * but no longer than a part of the time that a commit takes.
 *
 * Where all clients wait for the commit, and commits are quick, the loop makes it itself.
 */
#include "server/keeper/keeper.h"

#include "base/error.h"
#include "base/log.h"
#include "base/wait/thread.h"

#include <stdlib.h>

enum {
  AGAIN_MS = 200, /* after a commit that failed */
  ROOM_MS = 500,  /* between two looks for room */
  REST_MS = 1000, /* without a change, before the keep may tidy up */
  REST_AGAIN_MS = 10,
  LOOK_MS = 100,      /* between two looks whether the place is still ours */
  FINISH_MS = 5000,   /* for the last commits of a server that stops */
  PATIENCE_MS = 1000, /* of clients, for a commit that fails */
};

/* ---- the commit thread ---------------------------------------------------------------------------------------- */

/* In the thread, which wakes the loop, or in the loop itself. */
static void do_job(struct keeper *keeper, enum keeper_job job, bool wake) {
  int result = 0, room = 0;
  bool more = false;
  rdzv_error error = {0}, room_error = {0};
  if (job == KEEPER_COMMIT) result = keep_commit(keeper->keep, keeper->batch.changes, keeper->batch.count, &error);
  if (job == KEEPER_REST) more = keep_rest(keeper->keep);
  if (job != KEEPER_REST) room = keep_room(keeper->keep, &room_error);
  pthread_mutex_lock(&keeper->lock);
  keeper->result = result;
  keeper->room = room;
  if (job == KEEPER_REST) keeper->more = more; /* a look for room in between leaves it */
  if (result < 0) keeper->error = error;
  if (room < 0) keeper->room_error = room_error;
  keeper->job = KEEPER_NOTHING;
  keeper->is_done = true;
  if (wake) uv_async_send(&keeper->done); /* before another thread sees this one at rest and closes the handle */
  pthread_cond_signal(&keeper->answered);
  pthread_mutex_unlock(&keeper->lock);
}

static void *commit_thread(void *argument) {
  struct keeper *keeper = argument;
  for (;;) {
    pthread_mutex_lock(&keeper->lock);
    while (keeper->job == KEEPER_NOTHING) thread_cond_wait(&keeper->asked, &keeper->lock, INT64_MAX);
    const enum keeper_job job = keeper->job;
    pthread_mutex_unlock(&keeper->lock);
    if (job == KEEPER_END) return NULL;
    do_job(keeper, job, true);
  }
}

static void ask(struct keeper *keeper, enum keeper_job job) {
  pthread_mutex_lock(&keeper->lock);
  keeper->job = job;
  keeper->is_done = false;
  pthread_cond_signal(&keeper->asked);
  pthread_mutex_unlock(&keeper->lock);
}

static bool is_busy(struct keeper *keeper) {
  pthread_mutex_lock(&keeper->lock);
  const bool busy = keeper->job != KEEPER_NOTHING;
  pthread_mutex_unlock(&keeper->lock);
  return busy;
}

/* ---- commits -------------------------------------------------------------------------------------------------- */

static void charge(struct keeper *keeper) {
  struct budget *budget = &keeper->server->budget;
  const size_t held = batch_bytes(&keeper->batch);
  budget->used = budget->used - keeper->charged + held;
  keeper->charged = held;
}

static void on_again(uv_timer_t *timer);

static void later(struct keeper *keeper, uint64_t ms) {
  if (!keeper->server->stopping) uv_timer_start(&keeper->again, on_again, ms, 0);
}

static void job_done(struct keeper *keeper);

/* Would the loop have nothing else to do? All clients wait for this commit, and commits are quick here: then it saves
 * the way to the thread and back. */
static bool is_alone(const struct keeper *keeper) {
  enum { QUICK_NS = 2000000 };
  const uint64_t took_ns = keeper->ended_ns - keeper->began_ns;
  return !keep_waits(keeper->keep) && took_ns < QUICK_NS && keeper->held_count == keeper->server->conns_count;
}

static void begin(struct keeper *keeper) {
  if (!gather_batch(keeper)) {
    later(keeper, AGAIN_MS);
    return;
  }
  charge(keeper);
  keeper->in_flight = true;
  keeper->rested = false;
  const bool alone = is_alone(keeper);
  keeper->began_ns = uv_hrtime();
  if (!alone) {
    ask(keeper, KEEPER_COMMIT);
    return;
  }
  do_job(keeper, KEEPER_COMMIT, false);
  job_done(keeper);
}

/* Answers go, and their clients come back. */
static void committed(struct keeper *keeper) {
  keeper->failing = keeper->in_flight = false;
  keeper->committed++;
  keeper->server->sessions.issued_safe = keeper->issued;
  keeper->ended_ns = uv_hrtime();
  keeper->served = keeper->server->served;
  batch_clear(&keeper->batch);
  charge(keeper);
  hold_release(keeper);
}

/* For good: another server has the state, or it is damaged. Earlier answers are right, and no answer follows. */
static void give_up(struct keeper *keeper, const rdzv_error *error) {
  log_line(&keeper->server->log, RDZV_LOG_WARNING, "%s: stopped answering", error->message);
  keeper->refuses = true;
  keeper->why = *error;
  server_fail(keeper->server, error);
}

bool keeper_holds_place(struct keeper *keeper) { return keep_holds(keeper->keep); }

static bool is_given_up(const struct keeper *keeper) {
  return keeper->refuses && (keeper->why.code == RDZV_E_STALE || keeper->why.code == RDZV_E_CORRUPT);
}

/* Others may fill the place, or take it away, while nothing is committed. */
static void look_for_room(struct keeper *keeper) {
  if (keeper->in_flight || keeper->refuses || uv_now(&keeper->server->loop) < keeper->room_at || is_busy(keeper))
    return;
  keeper->room_at = uv_now(&keeper->server->loop) + ROOM_MS;
  ask(keeper, KEEPER_ROOM);
}

static void on_look(uv_timer_t *timer) {
  struct keeper *keeper = timer->data;
  rdzv_error error;
  if (is_given_up(keeper)) return;
  if (keeper_holds_place(keeper)) {
    look_for_room(keeper);
    return;
  }
  error_set(&error, RDZV_E_STALE, "no longer the active server");
  give_up(keeper, &error);
}

/* Until the cause is gone. */
static void refuse_writes(struct keeper *keeper, const rdzv_error *error) {
  if (!keeper->refuses || keeper->why.code != error->code)
    log_line(&keeper->server->log, RDZV_LOG_ERROR, "%s: writes are refused until it can be written", error->message);
  keeper->refuses = true;
  keeper->why = *error;
}

/* A place in etcd is back soon, or lost, which ends the wait, too. */
static void end_waits(struct keeper *keeper) {
  if (keep_waits(keeper->keep) || uv_now(&keeper->server->loop) - keeper->failing_at < PATIENCE_MS) return;
  hold_close(keeper, !keeper->nodes_told);
  keeper->nodes_told = true;
}

static void failed(struct keeper *keeper, const rdzv_error *error) {
  if (error->code == RDZV_E_STALE || error->code == RDZV_E_CORRUPT) {
    give_up(keeper, error);
    return;
  }
  if (!keeper->failing) {
    keeper->failing_at = uv_now(&keeper->server->loop);
    keeper->nodes_told = false;
  }
  keeper->failing = true;
  refuse_writes(keeper, error);
  end_waits(keeper);
  later(keeper, AGAIN_MS);
}

static void note_room(struct keeper *keeper, int room, const rdzv_error *error) {
  if (room == RDZV_E_STALE) {
    give_up(keeper, error);
  } else if (room < 0) {
    refuse_writes(keeper, error);
    later(keeper, ROOM_MS);
  } else if (keeper->refuses) {
    keeper->refuses = false;
    log_line(&keeper->server->log, RDZV_LOG_WARNING, "the state can be written again; accepting writes");
  }
}

/* Takes what the thread has done. False: nothing. */
static bool take_done(struct keeper *keeper) {
  pthread_mutex_lock(&keeper->lock);
  const bool is_done = keeper->is_done;
  const int result = keeper->result, room = keeper->room;
  keeper->is_done = false;
  pthread_mutex_unlock(&keeper->lock);
  if (!is_done) return false;
  if (keeper->in_flight && result < 0) {
    failed(keeper, &keeper->error);
    return true;
  }
  if (keeper->in_flight) committed(keeper);
  note_room(keeper, room, &keeper->room_error);
  return true;
}

static void job_done(struct keeper *keeper) {
  const bool was_commit = keeper->in_flight;
  if (!take_done(keeper) || keeper->server->stopping || keeper->in_flight || keeper->refuses) return;
  if (!keeper->rested && (was_commit || !uv_is_active((uv_handle_t *)&keeper->again))) later(keeper, REST_MS);
  if (keeper->rested && keeper->more) later(keeper, REST_AGAIN_MS);
}

static void on_done(uv_async_t *async) { job_done(async->data); }

/* A commit is repeated, room is looked for, or there is time to rest. */
static void on_again(uv_timer_t *timer) {
  struct keeper *keeper = timer->data;
  if (is_busy(keeper)) return;
  if (keeper->failing) {
    ask(keeper, KEEPER_COMMIT);
  } else if (keeper->refuses) {
    ask(keeper, KEEPER_ROOM);
  } else if (!keeper->in_flight && !gather_has_changes(keeper)) {
    keeper->rested = true;
    ask(keeper, KEEPER_REST);
  }
}

/* ---- the turn ------------------------------------------------------------------------------------------------- */

static void on_spin(uv_idle_t *idle) { (void)idle; }

/* Are clients of the last commit about to come back? */
static bool may_wait(const struct keeper *keeper) {
  enum { SHARE = 4, LONGEST_NS = 1000000 };
  if (keeper->server->served - keeper->served >= keeper->released || keeper->server->stopping) return false;
  const uint64_t took_ns = keeper->ended_ns - keeper->began_ns;
  const uint64_t most = took_ns / SHARE < LONGEST_NS ? took_ns / SHARE : LONGEST_NS;
  return uv_hrtime() - keeper->ended_ns < most;
}

static void on_turn(uv_prepare_t *prepare) {
  struct keeper *keeper = prepare->data;
  if (keeper->in_flight || !gather_has_changes(keeper)) return;
  if (may_wait(keeper)) {
    uv_idle_start(&keeper->spin, on_spin);
    return;
  }
  uv_idle_stop(&keeper->spin);
  if (!is_busy(keeper)) begin(keeper);
}

bool keeper_refuses(const struct rdzv_server *server, const rdzv_error **why) {
  if (!server->keeper || !server->keeper->refuses) return false;
  *why = &server->keeper->why;
  return true;
}

/* ---- life ----------------------------------------------------------------------------------------------------- */

static int init_handles(struct keeper *keeper, rdzv_error *error) {
  uv_loop_t *loop = &keeper->server->loop;
  int result = uv_prepare_init(loop, &keeper->turn);
  if (result == 0) result = uv_idle_init(loop, &keeper->spin);
  if (result == 0) result = uv_timer_init(loop, &keeper->again);
  if (result == 0) result = uv_async_init(loop, &keeper->done, on_done);
  if (result == 0) result = uv_prepare_start(&keeper->turn, on_turn);
  if (result == 0) result = uv_timer_init(loop, &keeper->look);
  const uint64_t pause = keeper->keep->ops->holds ? LOOK_MS : ROOM_MS;
  if (result == 0) result = uv_timer_start(&keeper->look, on_look, pause, pause);
  keeper->turn.data = keeper->again.data = keeper->done.data = keeper->look.data = keeper;
  return result == 0 ? 0 : error_errno(error, RDZV_E_IO, -result, "cannot create an event loop");
}

static int start_thread(struct keeper *keeper, rdzv_error *error) {
  const int failed = thread_start(&keeper->thread, commit_thread, keeper);
  if (failed) return error_errno(error, RDZV_E_NO_MEMORY, failed, "cannot start a thread to commit");
  keeper->has_thread = true;
  return 0;
}

/* The first commit has the instance, and serials for sessions: a client must not see them before they are durable. A
 * server that cannot write, but has a state, serves reads. */
static int commit_first(struct keeper *keeper, rdzv_error *error) {
  const bool is_fresh = keeper->is_fresh;
  sessions_reserve(&keeper->server->sessions);
  if (!gather_batch(keeper)) return error_no_memory(error);
  charge(keeper);
  keeper->in_flight = true;
  keeper->began_ns = uv_hrtime();
  rdzv_error own = {0};
  const int result = keep_commit(keeper->keep, keeper->batch.changes, keeper->batch.count, &own);
  if (result == 0) {
    committed(keeper);
  } else if (is_fresh || result == RDZV_E_STALE || result == RDZV_E_CORRUPT) {
    if (error) *error = own;
    return result;
  } else {
    failed(keeper, &own);
  }
  return 0;
}

static int set_up(struct keeper *keeper, const char *where, rdzv_error *error) {
  struct rdzv_server *server = keeper->server;
  ks_track(server->ks);
  sessions_track(&server->sessions);
  int result = gather_load(keeper, error);
  if (result == 0) result = init_handles(keeper, error);
  if (result == 0) result = commit_first(keeper, error);
  if (result == 0) result = start_thread(keeper, error);
  if (result == 0 && ks_count(server->ks) > 0)
    log_line(&server->log, RDZV_LOG_INFO, "%zu %s loaded from '%s'", ks_count(server->ks),
             ks_count(server->ks) == 1 ? "key is" : "keys are", where);
  return result;
}

int keeper_take(struct rdzv_server *server, struct keep *keep, const char *where, rdzv_error *error) {
  struct keeper *keeper = server->keeper = calloc(1, sizeof *keeper);
  if (!keeper) {
    keep_close(keep);
    return error_no_memory(error);
  }
  keeper->server = server;
  keeper->keep = keep;
  keeper->committed = 1; /* 0 is no batch */
  pthread_mutex_init(&keeper->lock, NULL);
  thread_cond_init(&keeper->asked);
  thread_cond_init(&keeper->answered);
  return set_up(keeper, where, error);
}

int keeper_open(struct rdzv_server *server, rdzv_error *error) {
  const char *folder = server->options.state_dir;
  struct keep *keep;
  const int result = folder ? keep_open_folder(folder, &keep, error) : 0;
  return result < 0 || !folder ? result : keeper_take(server, keep, folder, error);
}

/* Waits for the thread. False: the deadline has passed. */
static bool await_thread(struct keeper *keeper, deadline until) {
  bool in_time = true;
  pthread_mutex_lock(&keeper->lock);
  while (keeper->job != KEEPER_NOTHING && in_time) in_time = thread_cond_wait(&keeper->answered, &keeper->lock, until);
  pthread_mutex_unlock(&keeper->lock);
  return in_time;
}

void keeper_finish(struct rdzv_server *server) {
  struct keeper *keeper = server->keeper;
  if (!keeper || is_given_up(keeper) || !keeper_holds_place(keeper)) return;
  const deadline until = deadline_after(FINISH_MS);
  for (;;) {
    if (!await_thread(keeper, until)) break;
    take_done(keeper);
    if (keeper->failing) break;
    if (keeper->in_flight) continue;
    if (!gather_has_changes(keeper)) break;
    begin(keeper);
    if (!keeper->in_flight) break;
  }
  struct conn *conn;
  for (conn = server->conns; conn; conn = conn->next) outbox_flush(conn);
}

/* A child has neither the thread nor the lock of the folder: base/wait/fork.h. */
static void end_thread(struct keeper *keeper) {
  if (!keeper->has_thread || fork_crossed(keeper->server->born)) return;
  keep_cancel(keeper->keep);
  await_thread(keeper, INT64_MAX);
  ask(keeper, KEEPER_END);
  pthread_join(keeper->thread, NULL);
  keeper->has_thread = false;
}

/* Joins the thread before it closes the handle that the thread signals. */
void keeper_shut_down(struct rdzv_server *server, void (*close_handle)(void *handle)) {
  struct keeper *keeper = server->keeper;
  if (!keeper) return;
  end_thread(keeper);
  close_handle(&keeper->turn);
  close_handle(&keeper->spin);
  close_handle(&keeper->again);
  close_handle(&keeper->done);
  close_handle(&keeper->look);
}

void keeper_free(struct rdzv_server *server) {
  struct keeper *keeper = server->keeper;
  if (!keeper) return;
  end_thread(keeper);
  batch_free(&keeper->batch);
  kept_natives_free(keeper);
  if (!fork_crossed(server->born)) {
    keep_close(keeper->keep);
    pthread_cond_destroy(&keeper->asked);
    pthread_cond_destroy(&keeper->answered);
    pthread_mutex_destroy(&keeper->lock);
  }
  free(keeper);
  server->keeper = NULL;
}
