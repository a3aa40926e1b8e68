/* SPDX-License-Identifier: BSD-3-Clause */
#include "server/server.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os/descriptors.h"
#include "base/text/options.h"
#include "base/wait/thread.h"
#include "base/wait/waiting.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utlist.h>

static void fill_defaults(rdzv_server_options *options) {
#define DEFAULT(field, value) \
  if (!options->field) options->field = (value)
  DEFAULT(bind, "127.0.0.1");
  DEFAULT(port, RDZV_DEFAULT_PORT);
  DEFAULT(max_connections, 65536);
  DEFAULT(max_key_bytes, 8192);
  DEFAULT(max_value_bytes, 8u << 20);
  DEFAULT(max_keys, 131072);
  DEFAULT(max_memory, 1u << 30);
  DEFAULT(request_timeout_ms, 60000);
  DEFAULT(session_timeout_ms, 60000);
  DEFAULT(max_waits, 131072);
#undef DEFAULT
}

static int check_options(const rdzv_server_options *options, rdzv_error *error) {
  if (options->port != RDZV_ANY_PORT && (options->port < 1 || options->port > 65535))
    return error_set(error, RDZV_E_INVALID, "invalid port %d: expected 1 to 65535", options->port);
  if (options->request_timeout_ms < 0 || options->idle_timeout_ms < 0 || options->session_timeout_ms < 0 ||
      options->run_ttl_ms < 0)
    return error_set(error, RDZV_E_INVALID, "invalid timeout: it is negative");
  if (options->state_dir && options->state_etcd)
    return error_set(error, RDZV_E_INVALID, "the state is kept in a folder or in etcd, not in both");
  if (options->max_value_bytes > 1u << 30 || options->max_key_bytes > 1u << 30)
    return error_set(error, RDZV_E_INVALID, "invalid limit on a key or a value: more than 1 GiB");
  return 0;
}

/* A message has room for two values of the largest size, and is never longer than max_memory. */
static struct wire_limits limits_of(const rdzv_server_options *options) {
  const size_t least = 64u << 20;
  const size_t two_values = 2 * options->max_value_bytes + (1u << 20);
  size_t message = two_values > least ? two_values : least;
  if (message > options->max_memory) message = options->max_memory;
  return (struct wire_limits){options->max_key_bytes, options->max_value_bytes, options->max_keys, message};
}

rdzv_bytes *server_bytes(struct rdzv_server *server, size_t count) {
  server->bytes.len = 0;
  if (!buf_reserve(&server->bytes, count * sizeof(rdzv_bytes) + 1)) return NULL;
  return (rdzv_bytes *)(void *)server->bytes.data;
}

static void on_handle_closed(uv_handle_t *handle) { (void)handle; }

/* A handle that was not initialised has no loop. */
static void close_handle(void *handle) {
  if (((uv_handle_t *)handle)->loop && !uv_is_closing(handle)) uv_close(handle, on_handle_closed);
}

/* Another server is active now, or may be: this one is to stand by again. */
static bool is_deposed(const struct rdzv_server *server) {
  return server->standby && server->failure.code == RDZV_E_STALE && !atomic_load(&server->stop_asked);
}

static void close_socket(struct rdzv_server *server) {
  if (server->listen_fd >= 0) close(server->listen_fd);
  server->listen_fd = -1;
}

/* Closes every handle, so that the loop has nothing left to do and ends. */
static void shut_down(struct rdzv_server *server) {
  if (server->stopping) return;
  server->stopping = true;
  close_handle(&server->listener);
  if (!is_deposed(server)) close_socket(server); /* no client connects from here on */
  close_handle(&server->waker);
  close_handle(&server->tick);
  close_handle(&server->scheduler);
  natives_shut_down(server, close_handle);
  keeper_shut_down(server, close_handle);
  tenants_shut_down(server, close_handle);
  standby_shut_down(server, close_handle);
  struct conn *conn;
  const bool comes_back = server->keeper; /* or another one does: its clients are to connect again, and go on */
  DL_FOREACH(server->conns, conn)
  conn_doom(conn, comes_back ? RDZV_E_CONNECTION : RDZV_E_STOPPED, comes_back ? NULL : "the server is stopping");
  while (conn_reap(server, SIZE_MAX)) {
  }
}

void server_fail(struct rdzv_server *server, const rdzv_error *error) {
  if (server->failure.code == 0) server->failure = *error;
  flag_raise(&server->wake);
}

/* What is asked for is looked at after the flag is down, so nothing is missed. */
static void on_wake(uv_poll_t *waker, int status, int events) {
  struct rdzv_server *server = waker->data;
  (void)status, (void)events;
  flag_lower(&server->wake);
  if (atomic_exchange(&server->reload_asked, false)) cover_reload(server);
  if (!atomic_load(&server->stop_asked) && server->failure.code == 0) return;
  log_line(&server->log, RDZV_LOG_INFO, "stopping, with %zu client%s and %zu key%s", server->conns_count,
           server->conns_count == 1 ? "" : "s", ks_count(server->ks), ks_count(server->ks) == 1 ? "" : "s");
  keeper_finish(server);
  shut_down(server);
}

static int init_handles(struct rdzv_server *server) {
  int result = uv_poll_init(&server->loop, &server->waker, flag_fd(&server->wake));
  server->waker.data = server;
  if (result == 0) result = uv_poll_start(&server->waker, UV_READABLE, on_wake);
  if (result == 0) result = schedule_init(server);
  if (result == 0) result = timeouts_init(server);
  if (result == 0) result = natives_init(server);
  if (result == 0) result = tenants_init(server);
  return result;
}

void server_count(struct rdzv_server *server, int change) {
  server->conns_count += (size_t)change;
  pthread_mutex_lock(&server->clients_lock);
  server->clients = server->conns_count;
  if (server->clients == 0) pthread_cond_broadcast(&server->clients_gone);
  pthread_mutex_unlock(&server->clients_lock);
}

/* What the server knows of keys, runs and clients. */
static void free_state(struct rdzv_server *server) {
  keeper_free(server);
  blob_drop(server->listing.keys);
  server->listing = (struct listing){0};
  natives_free(server);
  ks_free(server->ks);
  server->ks = NULL;
  tenants_free(server);
  groups_free(server);
  sessions_free(&server->sessions);
  server->sessions = (struct sessions){0};
}

/* False: no memory, or no random numbers. */
static bool make_state(struct rdzv_server *server) {
  struct siphash_seed seeds[3];
  server->budget = (struct budget){.max = server->options.max_memory};
  server->ks = ks_new(&server->budget, &pending_events, server);
  if (!server->ks || !natives_new(server)) return false;
  if (getrandom(&server->instance, sizeof server->instance, 0) < 0 || getrandom(seeds, sizeof seeds, 0) < 0)
    return false;
  ks_seed(server->ks, seeds[0]);
  server->groups_seed = seeds[2];
  sessions_init(&server->sessions, &server->budget, seeds[1]);
  ks_defer(server->ks);
  server->instance |= 1; /* 0 means none */
  return true;
}

static void free_parts(struct rdzv_server *server) {
  pthread_cond_destroy(&server->clients_gone);
  pthread_mutex_destroy(&server->clients_lock);
  free_state(server);
  standby_free(server);
  cover_free(server);
  flag_close(&server->wake);
  buf_free(&server->answers.buf);
  buf_free(&server->aside.buf);
  buf_free(&server->bytes);
  if (server->reserve_fd >= 0) close(server->reserve_fd);
  free(server->read_buffer);
  free((char *)server->options.run_id);
  free((char *)server->options.state_dir);
  free(server);
}

/* Makes the server without its loop. */
static struct rdzv_server *server_new(const rdzv_server_options *options) {
  struct rdzv_server *server = calloc(1, sizeof *server);
  if (!server) return NULL;
  server->born = fork_mark_here();
  pthread_mutex_init(&server->clients_lock, NULL);
  thread_cond_init(&server->clients_gone);
  server->options = *options;
  server->log = *options->log;
  server->options.run_id = options->run_id ? strdup(options->run_id) : NULL;
  server->options.state_dir = options->state_dir ? strdup(options->state_dir) : NULL;
  server->listen_fd = server->reserve_fd = -1;
  server->limits = limits_of(options);
  server->read_buffer = malloc(READ_BYTES);
  const bool made = make_state(server) && server->read_buffer && (server->options.run_id || !options->run_id) &&
                    (server->options.state_dir || !options->state_dir);
  if (made) return server;
  free_parts(server);
  return NULL;
}

/* Makes the loop and its handles. On failure own->listen_fd is the descriptor that the caller still owns. */
static int set_up(struct rdzv_server *server, rdzv_server_options *own, rdzv_error *error) {
  int result = init_handles(server);
  if (result < 0)
    result = error_errno(error, RDZV_E_IO, -result, "cannot create an event loop");
  else
    result = keeper_open(server, error);
  if (!server->options.state_etcd) tenants_enforce(server); /* else when its state is loaded */
  if (result == 0) result = server_listen(server, error);
  if (result == 0) result = standby_open(server, error);
  own->listen_fd = server->options.listen_fd;
  return result;
}

/* Lowers max_connections to what the process may open, so that surplus clients are refused with a reason. */
static void fit_descriptors(rdzv_server_options *own) {
  enum { FOR_OTHERS = 32 };
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const size_t most = limit.rlim_cur > (rlim_t)2 * FOR_OTHERS ? (size_t)limit.rlim_cur - FOR_OTHERS : FOR_OTHERS;
  if (own->max_connections <= most) return;
  log_line(own->log, RDZV_LOG_INFO, "client limit: %zu (ulimit -n is %llu)", most, (unsigned long long)limit.rlim_cur);
  own->max_connections = most;
}

static int open_server(rdzv_server_options *own, rdzv_server **out, rdzv_error *error) {
  fill_defaults(own);
  fit_descriptors(own);
  int result = check_options(own, error);
  if (result < 0) return result;
  struct rdzv_server *server = server_new(own);
  if (!server) return error_no_memory(error);
  result = flag_open(&server->wake, error);
  if (result == 0) result = cover_open(server, error);
  if (result < 0) {
    free_parts(server);
    return result;
  }
  result = descriptors_for_loop(error);
  if (result == 0 && (result = uv_loop_init(&server->loop)) < 0)
    result = error_errno(error, RDZV_E_IO, -result, "cannot create an event loop");
  if (result < 0) {
    free_parts(server);
    return result;
  }
  result = set_up(server, own, error);
  if (result < 0)
    rdzv_server_free(server);
  else
    *out = server;
  return result;
}

int rdzv_server_open(const rdzv_server_options *options, rdzv_server **out, rdzv_error *error) {
  if (!out) return error_null(error, "open a server", "out");
  rdzv_server_options own;
  rdzv_log log;
  int result = options_take(&own, sizeof own, options, "rdzv_server_options", error);
  if (result == 0) result = log_take(&own.log, &log, error);
  if (result == 0) result = open_server(&own, out, error);
  if (result < 0 && own.listen_fd > 0) close(own.listen_fd);
  return result;
}

const char *rdzv_server_address(const rdzv_server *server) { return server->address; }
int rdzv_server_port(const rdzv_server *server) { return server->port; }

/* The loop has ended, with all connections and handles. The socket stays: clients that connect now are answered by the
 * standby. False: that is not possible, and `failure` says why. */
static bool step_back(struct rdzv_server *server) {
  rdzv_error error = {0};
  rdzv_server_options unused;
  int result = standby_again(server, &error);
  free_state(server);
  server->stopping = server->accept_rests = false;
  if (result == 0 && !make_state(server)) result = error_no_memory(&error);
  if (result == 0) result = set_up(server, &unused, &error);
  if (result == 0) result = standby_begin(server, &error);
  server->failure = error;
  if (result == 0) return true;
  shut_down(server);
  uv_run(&server->loop, UV_RUN_DEFAULT); /* for the close callbacks */
  return false;
}

/* Writing to a log whose reader is gone may raise SIGPIPE, which is blocked and discarded. */
static void serve(struct rdzv_server *server) {
  sigset_t pipe_signal, before;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  log_line(&server->log, RDZV_LOG_INFO, "listening on %s", server->address);
  atomic_store(&server->running, true);
  do uv_run(&server->loop, UV_RUN_DEFAULT);
  while (is_deposed(server) && step_back(server));
  close_socket(server); /* a stop may come while the server steps back */
  atomic_store(&server->running, false);
  keeper_free(server); /* another server may have the state from now on, whenever this one is freed */
  standby_free(server);
  const struct timespec at_once = {0};
  if (!sigismember(&before, SIGPIPE)) sigtimedwait(&pipe_signal, NULL, &at_once);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static int check_fresh(const rdzv_server *server, rdzv_error *error) {
  if (fork_crossed(server->born)) return fork_fail("the server", error);
  if (!server->threaded && !server->stopping) return 0;
  return error_set(error, RDZV_E_INVALID, "the server on %s has been started already", server->address);
}

int rdzv_server_run(rdzv_server *server, rdzv_error *error) {
  int result = check_fresh(server, error);
  if (result == 0) result = standby_begin(server, error);
  if (result < 0) return result;
  serve(server);
  const bool is_over = server->failure.code == RDZV_E_STALE && server->options.state_etcd; /* stopped while deposed */
  if (is_over) return 0;
  if (server->failure.code && error) *error = server->failure;
  return server->failure.code;
}

static void *serve_thread(void *arg) {
  serve(arg);
  return NULL;
}

int rdzv_server_start(rdzv_server *server, rdzv_error *error) {
  int result = check_fresh(server, error);
  if (result == 0) result = standby_begin(server, error);
  if (result < 0) return result;
  const int failed = thread_start(&server->thread, serve_thread, server);
  if (failed) return error_errno(error, RDZV_E_NO_MEMORY, failed, "cannot start a thread for the server");
  server->threaded = true;
  return 0;
}

/* For rdzv_server_stop and rdzv_server_reload: of any thread or signal handler. */
static void ask(rdzv_server *server, atomic_bool *what) {
  atomic_store(what, true);
  flag_raise(&server->wake);
}

void rdzv_server_stop(rdzv_server *server) {
  const int errnum = errno; /* of what a signal handler interrupted */
  if (!fork_crossed(server->born)) ask(server, &server->stop_asked);
  errno = errnum;
}

void rdzv_server_reload(rdzv_server *server) {
  const int errnum = errno;
  if (!fork_crossed(server->born)) ask(server, &server->reload_asked);
  errno = errnum;
}

void rdzv_server_drain(rdzv_server *server, int64_t timeout_ms) {
  if (fork_crossed(server->born)) return;
  const deadline until = deadline_after(timeout_ms);
  struct waiting waiting;
  waiting_begin(&waiting, &server->log, until);
  waiting_about(&waiting, "waiting for clients to disconnect from the store");
  pthread_mutex_lock(&server->clients_lock);
  while (server->clients > 0 && deadline_left(until) > 0) {
    thread_cond_wait(&server->clients_gone, &server->clients_lock, waiting_until(&waiting, until));
    if (server->clients > 0) waiting_tick(&waiting);
  }
  pthread_mutex_unlock(&server->clients_lock);
}

/* Closes a loop that no thread runs. */
static void end_loop(struct rdzv_server *server) {
  shut_down(server);
  uv_run(&server->loop, UV_RUN_DEFAULT); /* for the close callbacks */
  uv_loop_close(&server->loop);
  free_parts(server);
}

/* Frees the server in a forked child. The loop of a server that runs in the parent is in an unknown state here: only
 * the listening socket and the epoll descriptor are closed, so that the port is free when the parent closes it.
 */
static void abandon(struct rdzv_server *server) {
  if (!server->threaded && !atomic_load(&server->running)) {
    if (uv_loop_fork(&server->loop) == 0) end_loop(server); /* which gives the child its own epoll set */
    return;
  }
  close_socket(server);
  flag_close(&server->wake);
  close(uv_backend_fd(&server->loop));
}

void rdzv_server_free(rdzv_server *server) {
  if (!server) return;
  if (fork_crossed(server->born)) {
    abandon(server);
    return;
  }
  if (server->threaded) {
    rdzv_server_stop(server);
    pthread_join(server->thread, NULL);
  }
  end_loop(server);
}
