/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/dynamic.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
  GRACE_MS = RENDEZVOUS_ROLLBACK_MS + 2000, /* beyond its own deadline, for the thread to say that it has passed */
  ANSWER_MS = 2000,                         /* for an answer of the store that is there */
  LONGEST_MS = INT32_MAX,
  VIEW_MS = 1000, /* PyTorch, too, takes a state for known as long */
};

static struct dynamic *self(rdzv_handler *handler) { return (struct dynamic *)handler; }

static const struct rendezvous_settings *settings_of(const struct dynamic *handler) {
  return &handler->engine.config.settings;
}

/* ---- asking the thread ---------------------------------------------------------------------------------------- */

static void drop_joined(struct dynamic *handler) {
  if (handler->joined) rdzv_result_free(&handler->joined->base);
  handler->joined = NULL;
}

static void begin_ask(struct dynamic *handler, unsigned what) {
  pthread_mutex_lock(&handler->lock);
  drop_joined(handler);
  cancel_lower(&handler->done);
  handler->answering = what;
  if (what == DYNAMIC_JOIN || what == DYNAMIC_LEAVE) {
    handler->member = false;
    handler->change = (rdzv_change){0};
    cancel_lower(&handler->changed);
    cancel_lower(&handler->ended);
    handler->asks &= ~(unsigned)(DYNAMIC_JOIN | DYNAMIC_LEAVE);
  }
  dynamic_ask(handler, what);
  pthread_mutex_unlock(&handler->lock);
}

/* The sentence for a thread that has not answered: it waits for the store, which is silent. */
static int silent(struct dynamic *handler, const char *what, rdzv_error *error) {
  const double silence = (double)(clock_now_ms() - handler->answered_ms) / 1000;
  const char *where = handler->backend->ops->describe(handler->backend);
  if (handler->trouble.code != 0)
    return error_set(error, handler->trouble.code, "cannot %s: no answer for %.1f s from %s: %s", what, silence, where,
                     handler->trouble.message);
  return error_set(error, RDZV_E_TIMEOUT, "cannot %s: no answer for %.1f s from %s", what, silence, where);
}

/* Then the thread knows best when the time is over: that of a spare does not pass. */
static bool store_answers(struct dynamic *handler) {
  pthread_mutex_lock(&handler->lock);
  const int64_t silence = clock_now_ms() - handler->answered_ms;
  pthread_mutex_unlock(&handler->lock);
  return silence < settings_of(handler)->keep_alive_interval + ANSWER_MS;
}

/* Waits for the answer; `cancel` may be NULL. On failure what was asked is not waited for any more. */
static int end_ask(struct dynamic *handler, const char *what, deadline until, const struct cancel *cancel,
                   rdzv_error *error) {
  struct pollfd fds[2] = {{.fd = handler->done.fd, .events = POLLIN}};
  int result = cancel_poll(cancel, fds, 1, until);
  while (result == RDZV_E_TIMEOUT && store_answers(handler))
    result = cancel_poll(cancel, fds, 1, deadline_after(GRACE_MS));
  pthread_mutex_lock(&handler->lock);
  const bool answered = handler->answering == 0;
  handler->answering = 0;
  if (answered) {
    result = handler->outcome;
    if (result < 0 && error) *error = handler->error;
  } else if (result == RDZV_E_CANCELED) {
    error_set(error, result, "cannot %s: canceled", what);
  } else {
    result = silent(handler, what, error);
  }
  pthread_mutex_unlock(&handler->lock);
  return result;
}

static int ask(struct dynamic *handler, unsigned what, const char *name, rdzv_error *error) {
  pthread_mutex_lock(&handler->call);
  begin_ask(handler, what);
  const int result =
      end_ask(handler, name, deadline_after(settings_of(handler)->close_timeout + GRACE_MS), NULL, error);
  pthread_mutex_unlock(&handler->call);
  return result;
}

/* ---- joining -------------------------------------------------------------------------------------------------- */

/* Whatever the thread is still at, the node is to be out. */
static void give_up(struct dynamic *handler) {
  pthread_mutex_lock(&handler->lock);
  handler->asks &= ~(unsigned)DYNAMIC_JOIN;
  handler->member = false;
  drop_joined(handler);
  dynamic_ask(handler, DYNAMIC_LEAVE);
  pthread_mutex_unlock(&handler->lock);
}

static struct result *take_joined(struct dynamic *handler) {
  pthread_mutex_lock(&handler->lock);
  struct result *result = handler->joined;
  handler->joined = NULL;
  pthread_mutex_unlock(&handler->lock);
  return result;
}

static int complete_result(struct dynamic *handler, struct result *result, rdzv_error *error) {
  char *prefix;
  if (!handler->store) return 0;
  if (asprintf(&prefix, "torch.rendezvous.%s.%" PRId64, handler->base.run_id, result->base.round) < 0)
    return error_no_memory(error);
  int outcome = result_open_store(result, handler->store, prefix, error);
  free(prefix);
  if (outcome == 0) outcome = dynamic_find_master(handler, result, error);
  return outcome;
}

/* Where the reason for closing is, beside the state. NULL: no memory. */
static char *reason_key(const struct dynamic *handler) {
  char *key;
  return asprintf(&key, "torch.rendezvous.%s.reason", handler->base.run_id) < 0 ? NULL : key;
}

/* Gets the reason for closing, on a connection of its own: the thread may hold the handler's. */
static bool get_reason(struct dynamic *handler, const char *key, rdzv_value *out) {
  const rdzv_bytes bytes = rdzv_str(key);
  rdzv_store *store;
  bool there = false;
  if (!handler->store || rdzv_store_clone(handler->store, &store, NULL) < 0) return false;
  const bool found =
      rdzv_store_check(store, &bytes, 1, &there, NULL) == 0 && there && rdzv_store_get(store, bytes, out, NULL) == 0;
  rdzv_store_close(store);
  return found;
}

/* Puts the reason for closing, if there is one, behind the sentence. */
static void add_reason(struct dynamic *handler, rdzv_error *error) {
  char *key = reason_key(handler);
  rdzv_value reason;
  if (key && error && get_reason(handler, key, &reason)) {
    const size_t len = strlen(error->message);
    snprintf(error->message + len, sizeof error->message - len, ": %s", bytes_quote(rdzv_value_bytes(&reason)).text);
    rdzv_value_free(&reason);
  }
  free(key);
}

static int join(struct dynamic *handler, rdzv_result **out, rdzv_error *error) {
  const deadline until = deadline_after(settings_of(handler)->join_timeout + GRACE_MS);
  events_note(&handler->events, RDZV_NODE_INIT, -1, -1, "attempts to join the next round");
  events_flush(&handler->events);
  begin_ask(handler, DYNAMIC_JOIN);
  int result = end_ask(handler, "join the rendezvous", until, &handler->base.cancel, error);
  if (result == RDZV_E_CLOSED || result == RDZV_E_GRACEFUL_EXIT) add_reason(handler, error);
  if (result < 0) {
    give_up(handler);
    return result;
  }
  struct result *joined = take_joined(handler);
  result = complete_result(handler, joined, error);
  if (result < 0) {
    events_note(&handler->events, RDZV_NODE_FAILED, joined->base.round, joined->base.rank,
                "the store of the round cannot be used");
    events_flush(&handler->events);
    rdzv_result_free(&joined->base);
    give_up(handler);
    return result;
  }
  *out = &joined->base;
  return 0;
}

static int dynamic_next(rdzv_handler *base, rdzv_result **out, rdzv_error *error) {
  struct dynamic *handler = self(base);
  if (cancel_raised(&base->cancel)) return error_set(error, RDZV_E_CANCELED, "cannot join the rendezvous: canceled");
  pthread_mutex_lock(&handler->call);
  const int result = join(handler, out, error);
  pthread_mutex_unlock(&handler->call);
  return result;
}

/* ---- hearing of changes --------------------------------------------------------------------------------------- */

/* Takes what has happened. RDZV_E_TIMEOUT: nothing yet; *wake is when to look at the store's silence again. */
static int take_change(struct dynamic *handler, rdzv_change *out, int64_t *wake, rdzv_error *error) {
  int result = RDZV_E_TIMEOUT;
  pthread_mutex_lock(&handler->lock);
  *wake = handler->answered_ms + rendezvous_dead_time(settings_of(handler));
  if (handler->change.what) {
    *out = handler->change;
    handler->change = (rdzv_change){0};
    cancel_lower(&handler->changed);
    result = 0;
  } else if (!handler->member) {
    result = error_set(error, RDZV_E_INVALID, "this node is in no round");
  } else if (deadline_left(*wake) == 0) {
    result = silent(handler, "stay in the round", error);
    if (result == RDZV_E_TIMEOUT) { /* which is for the caller's own */
      if (error) error->code = RDZV_E_CONNECTION;
      result = RDZV_E_CONNECTION;
    }
  }
  pthread_mutex_unlock(&handler->lock);
  return result;
}

static int dynamic_wait_event(rdzv_handler *base, int64_t timeout_ms, rdzv_change *out, rdzv_error *error) {
  struct dynamic *handler = self(base);
  const deadline until = deadline_after(timeout_ms);
  for (;;) {
    int64_t wake;
    int result = take_change(handler, out, &wake, error);
    if (result != RDZV_E_TIMEOUT) return result;
    struct pollfd fds[2] = {{.fd = handler->changed.fd, .events = POLLIN}};
    result = cancel_poll(&base->cancel, fds, 1, wake < until ? wake : until);
    if (result == RDZV_E_CANCELED) return error_set(error, result, "waiting for changes of the round: canceled");
    if (result == RDZV_E_TIMEOUT && deadline_left(until) == 0)
      return error_set(error, result, "nothing happened in %" PRId64 " ms", timeout_ms);
  }
}

/* ---- looking -------------------------------------------------------------------------------------------------- */

/* Waits for the thread to show a state. `cancel` may be NULL. */
static int await_look(struct dynamic *handler, int64_t timeout_ms, const struct cancel *cancel) {
  struct pollfd fds[2] = {{.fd = handler->looked.fd, .events = POLLIN}};
  return cancel_poll(cancel, fds, 1, deadline_after(timeout_ms));
}

/* Asks the thread to read. */
static int look(struct dynamic *handler, int64_t wait_ms, const struct cancel *cancel, rdzv_error *error) {
  pthread_mutex_lock(&handler->lock);
  cancel_lower(&handler->looked);
  handler->look_known = handler->view_token;
  handler->look_until = deadline_after(wait_ms);
  dynamic_ask(handler, DYNAMIC_LOOK);
  pthread_mutex_unlock(&handler->lock);
  int result = await_look(handler, wait_ms + settings_of(handler)->close_timeout, cancel);
  pthread_mutex_lock(&handler->lock);
  const bool done = !(handler->asks & DYNAMIC_LOOK);
  handler->asks &= ~(unsigned)DYNAMIC_LOOK;
  if (done) {
    result = handler->look_outcome;
    if (result < 0 && error) *error = handler->look_error;
  } else if (result == RDZV_E_CANCELED) {
    error_set(error, result, "cannot look at the rendezvous: canceled");
  } else {
    result = silent(handler, "look at the rendezvous", error);
  }
  pthread_mutex_unlock(&handler->lock);
  return result;
}

/* A thread that is busy with a round reads all the time: so it only has to be overheard. Gives for how long the thread
 * is to be asked to wait: not at all, where it was busy. */
static int64_t overhear(struct dynamic *handler, int64_t wait_ms, const struct cancel *cancel) {
  pthread_mutex_lock(&handler->lock);
  const bool busy = handler->engine.member || handler->engine.wish != WISH_NOTHING;
  if (busy) {
    cancel_lower(&handler->looked);
    handler->look_known = handler->view_token;
    handler->watching = true;
  }
  pthread_mutex_unlock(&handler->lock);
  if (!busy) return wait_ms;
  await_look(handler, wait_ms, cancel);
  pthread_mutex_lock(&handler->lock);
  handler->watching = false;
  pthread_mutex_unlock(&handler->lock);
  return 0;
}

static int read_status(struct dynamic *handler, int64_t wait_ms, const struct cancel *cancel, rdzv_status **out,
                       rdzv_error *error) {
  pthread_mutex_lock(&handler->look);
  const int64_t left = wait_ms > 0 ? overhear(handler, wait_ms < LONGEST_MS ? wait_ms : LONGEST_MS, cancel) : 0;
  int result = look(handler, left, cancel, error);
  if (result == 0) {
    pthread_mutex_lock(&handler->lock);
    *out = dynamic_status(handler);
    pthread_mutex_unlock(&handler->lock);
    if (!*out) result = error_no_memory(error);
  }
  pthread_mutex_unlock(&handler->look);
  return result;
}

static int dynamic_status_read(rdzv_handler *base, int64_t wait_ms, rdzv_status **out, rdzv_error *error) {
  return read_status(self(base), wait_ms, &base->cancel, out, error);
}

/* What the thread knows, if it is not old; else asks. */
static int dynamic_facts(struct dynamic *handler, bool *closed, int64_t *waiting, rdzv_error *error) {
  const struct engine *engine = &handler->engine;
  pthread_mutex_lock(&handler->lock);
  const bool fresh = engine->known && clock_now_ms() - engine->read_ms < VIEW_MS;
  *closed = engine->state.closed;
  *waiting = (int64_t)engine->state.num_waiting;
  pthread_mutex_unlock(&handler->lock);
  if (fresh) return 0;
  rdzv_status *status = NULL;
  const int result = read_status(handler, 0, NULL, &status, error);
  if (result < 0 || !status) return result;
  *closed = status->closed;
  *waiting = (int64_t)status->waiting;
  rdzv_status_free(status);
  return 0;
}

static int dynamic_is_closed(rdzv_handler *base, bool *closed, rdzv_error *error) {
  bool now;
  int64_t waiting;
  const int result = dynamic_facts(self(base), &now, &waiting, error);
  if (result == 0) *closed = now;
  return result;
}

static int dynamic_num_waiting(rdzv_handler *base, int64_t *count, rdzv_error *error) {
  bool closed;
  int64_t now;
  const int result = dynamic_facts(self(base), &closed, &now, error);
  if (result == 0) *count = now;
  return result;
}

/* ---- saying farewell ------------------------------------------------------------------------------------------ */

/* Without the reason it is closed all the same. */
static void leave_reason(struct dynamic *handler, const char *reason) {
  char *key = reason_key(handler);
  rdzv_store *store = NULL;
  rdzv_error error = {0};
  int result = key ? rdzv_store_clone(handler->store, &store, &error) : error_no_memory(&error);
  if (result == 0 && key) result = rdzv_store_set(store, rdzv_str(key), rdzv_str(reason), &error);
  if (result < 0) log_line(&handler->base.log, RDZV_LOG_WARNING, "the reason for closing is lost: %s", error.message);
  rdzv_store_close(store);
  free(key);
}

static int dynamic_set_closed(rdzv_handler *base, const char *reason, rdzv_error *error) {
  if (reason && *reason && self(base)->store) leave_reason(self(base), reason);
  return ask(self(base), DYNAMIC_CLOSE, "close the rendezvous", error);
}

static int dynamic_leave(rdzv_handler *base, rdzv_error *error) {
  return ask(self(base), DYNAMIC_LEAVE, "leave the rendezvous", error);
}

static int dynamic_shutdown(rdzv_handler *base, rdzv_error *error) {
  struct dynamic *handler = self(base);
  const int result = dynamic_set_closed(base, NULL, error);
  pthread_mutex_lock(&handler->lock);
  handler->member = false;
  dynamic_ask(handler, DYNAMIC_STOP);
  pthread_mutex_unlock(&handler->lock);
  return result;
}

static const char *dynamic_describe(rdzv_handler *base) {
  return self(base)->backend->ops->describe(self(base)->backend);
}

static int dynamic_change_fd(const rdzv_handler *base) { return ((const struct dynamic *)base)->changed.fd; }

/* ---- opening and closing -------------------------------------------------------------------------------------- */

static void stop_thread(struct dynamic *handler) {
  if (!handler->started) return;
  pthread_mutex_lock(&handler->lock);
  handler->stopping = true;
  pthread_cond_signal(&handler->asked);
  pthread_mutex_unlock(&handler->lock);
  handler->backend->ops->cancel(handler->backend);
  pthread_join(handler->thread, NULL);
}

static void dynamic_close(rdzv_handler *base) {
  struct dynamic *handler = self(base);
  stop_thread(handler);
  drop_joined(handler);
  dynamic_forget_master(handler);
  engine_free(&handler->engine);
  state_free(&handler->view);
  rdzv_store_close(handler->store);
  handler->backend->ops->close(handler->backend);
  cancel_close(&handler->done);
  cancel_close(&handler->changed);
  cancel_close(&handler->ended);
  cancel_close(&handler->looked);
  pthread_mutex_destroy(&handler->call);
  pthread_mutex_destroy(&handler->look);
  pthread_mutex_destroy(&handler->lock);
  pthread_cond_destroy(&handler->asked);
  events_free(&handler->events);
  handler_deinit(base);
  free(handler);
}

static const struct handler_ops dynamic_ops = {
    .next = dynamic_next,
    .wait_event = dynamic_wait_event,
    .is_closed = dynamic_is_closed,
    .num_waiting = dynamic_num_waiting,
    .set_closed = dynamic_set_closed,
    .leave = dynamic_leave,
    .shutdown = dynamic_shutdown,
    .status_read = dynamic_status_read,
    .describe = dynamic_describe,
    .change_fd = dynamic_change_fd,
    .close = dynamic_close,
};

static int64_t next_local_id(void) {
  static atomic_int_fast64_t last = -1;
  return atomic_fetch_add(&last, 1) + 1;
}

static void trace(void *argument, const char *line) {
  log_line(&((struct dynamic *)argument)->base.log, RDZV_LOG_DEBUG, "%s", line);
}

static void init_engine(struct dynamic *handler, const rdzv_params *params, const struct conf *conf) {
  struct engine_config config = {.node = handler->node,
                                 .settings = RENDEZVOUS_SETTINGS_DEFAULT,
                                 .trace = log_on(&params->log, RDZV_LOG_DEBUG) ? trace : NULL,
                                 .argument = handler};
  config.settings.min_nodes = params->min_nodes;
  config.settings.max_nodes = params->max_nodes;
  config.settings.join_timeout = conf->join_timeout;
  config.settings.last_call_timeout = conf->last_call_timeout;
  config.settings.close_timeout = conf->close_timeout;
  config.settings.heartbeat_timeout = conf->heartbeat_timeout;
  config.settings.keep_alive_interval = conf->keep_alive_interval;
  config.settings.keep_alive_max_attempt = conf->keep_alive_max_attempt;
  config.settings.rank_order = (enum rank_order)conf->rank_order;
  handler->preferred = TORCH_NEWEST;
  if (conf->torch_version) torch_layout_parse(conf->torch_version, &handler->preferred, NULL);
  handler->layout = handler->preferred;
  config.settings.has_redundancy_list = torch_traits(handler->layout)->redundancy_list;
  if (getrandom(&config.seed, sizeof config.seed, GRND_NONBLOCK) < 0)
    config.seed = (uint64_t)clock_wall_us() ^ (uint64_t)getpid() << 32 ^ (uint64_t)handler->node.local_id;
  engine_init(&handler->engine, &config);
}

static void init_plain(struct dynamic *handler, const rdzv_params *params, rdzv_backend *backend, rdzv_store *store) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&handler->asked, &monotonic);
  pthread_condattr_destroy(&monotonic);
  pthread_mutex_init(&handler->call, NULL);
  pthread_mutex_init(&handler->look, NULL);
  pthread_mutex_init(&handler->lock, NULL);
  handler->base.cancel = handler->done = handler->changed = handler->ended = handler->looked = (struct cancel){-1, -1};
  handler->backend = backend;
  handler->store = store;
  handler->view = STATE_EMPTY;
  handler->master.port_fd = -1;
  handler->answered_ms = clock_now_ms();
  if (params->local_addr)
    snprintf(handler->addr, sizeof handler->addr, "%s", params->local_addr);
  else
    host_name(handler->addr);
  handler->node = (struct node_desc){handler->addr, getpid(), next_local_id()};
}

/* Signals are for the threads that the program knows of. */
static int start_thread(struct dynamic *handler, rdzv_error *error) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int errnum = pthread_create(&handler->thread, NULL, dynamic_run, handler);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (errnum) return error_errno(error, RDZV_E_IO, errnum, "cannot start the thread of the rendezvous");
  handler->started = true;
  return 0;
}

static int open_parts(struct dynamic *handler, const rdzv_params *params, rdzv_error *error) {
  int result = handler_init(&handler->base, &dynamic_ops, params, node_text(&handler->node).text, error);
  rdzv_params own = *params;
  own.run_id = handler->base.run_id;
  events_init(&handler->events, &own, handler->base.node ? handler->base.node : "", handler->node.local_id);
  if (result == 0) result = cancel_open(&handler->done, error);
  if (result == 0) result = cancel_open(&handler->changed, error);
  if (result == 0) result = cancel_open(&handler->ended, error);
  if (result == 0) result = cancel_open(&handler->looked, error);
  return result == 0 ? start_thread(handler, error) : result;
}

static void close_both(rdzv_backend *backend, rdzv_store *store) {
  rdzv_store_close(store);
  backend->ops->close(backend);
}

int dynamic_open(const rdzv_params *given, unsigned options, rdzv_backend *backend, rdzv_store *store,
                 rdzv_handler **out, rdzv_error *error) {
  rdzv_params params = {0};
  struct conf conf = {0};
  int result = params_check(given, &params, error);
  if (result == 0) result = conf_parse(params.conf, options, &conf, error);
  if (result < 0) {
    close_both(backend, store);
    return result;
  }
  struct dynamic *handler = calloc(1, sizeof *handler);
  if (!handler) {
    conf_free(&conf);
    close_both(backend, store);
    return error_no_memory(error);
  }
  init_plain(handler, &params, backend, store);
  init_engine(handler, &params, &conf);
  conf_free(&conf);
  result = open_parts(handler, &params, error);
  if (result < 0) {
    dynamic_close(&handler->base);
    return result;
  }
  events_note(&handler->events, RDZV_NODE_INIT, -1, -1, "opened rendezvous '%s' at %s", params.run_id,
              backend->ops->describe(backend));
  events_flush(&handler->events);
  *out = &handler->base;
  return 0;
}

int rdzv_open_dynamic(const rdzv_params *params, rdzv_backend *backend, rdzv_store *store, rdzv_handler **out,
                      rdzv_error *error) {
  return dynamic_open(params, CONF_DYNAMIC, backend, store, out, error);
}
