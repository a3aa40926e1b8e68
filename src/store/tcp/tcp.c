/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles of tcp stores: opening, cloning, freeing, describing. ops/ has their operations. */
#include "base/error.h"
#include "base/text/options.h"
#include "base/wait/thread.h"
#include "store/tcp/call.h"
#include "store/tcp/message.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static struct tcp_store *self(rdzv_store *store) { return (struct tcp_store *)store; }

enum wire_dialect tcp_dialect(struct tcp_store *tcp) {
  pthread_mutex_lock(&tcp->lock);
  const enum wire_dialect dialect = tcp->facts.dialect;
  pthread_mutex_unlock(&tcp->lock);
  return dialect;
}

static void tcp_close(rdzv_store *store) {
  struct tcp_store *tcp = self(store);
  tcp_conn_free(&tcp->conn);
  pthread_mutex_destroy(&tcp->lock);
  pthread_cond_destroy(&tcp->not_busy);
  store_deinit(store);
  free(tcp);
}

/* If another thread was in the middle of a call, the buffers are left as they are. */
static void tcp_abandon(rdzv_store *store) {
  struct tcp_store *tcp = self(store);
  const bool quiet = pthread_mutex_trylock(&tcp->lock) == 0 && !tcp->busy;
  if (quiet)
    tcp_conn_free(&tcp->conn);
  else if (tcp->conn.fd >= 0)
    close(tcp->conn.fd);
  store_deinit(store);
  free(tcp);
}

static unsigned tcp_features(rdzv_store *store) {
  const unsigned all = RDZV_FEATURE_APPEND | RDZV_FEATURE_QUEUES | RDZV_FEATURE_LIST_KEYS | RDZV_FEATURE_VERSIONS;
  const enum wire_dialect dialect = tcp_dialect(self(store));
  return dialect == WIRE_DIALECT_RDZV ? all : dialect == WIRE_DIALECT_V2 ? RDZV_FEATURE_APPEND : 0;
}

static const char *tcp_describe(rdzv_store *store) {
  static const char *const names[] = {"not connected", "PyTorch 1.x", "PyTorch 2.x", "rdzv"};
  struct tcp_store *tcp = self(store);
  char text[3 * ENDPOINT_TEXT_SIZE];
  pthread_mutex_lock(&tcp->lock);
  const char *peer = tcp->facts.peer, *dialect = names[tcp->facts.dialect];
  if (strcmp(peer, tcp->conn.name) == 0) peer = "";
  snprintf(text, sizeof text, "tcp %s (%s%s%s)", tcp->conn.name, peer, *peer ? ", " : "", dialect);
  pthread_mutex_unlock(&tcp->lock);
  return store_text(store, text);
}

/* The key under which PyTorch's clients count themselves has no slash before it. */
static int try_announce(struct tcp_store *tcp, struct tcp_args *args) {
  tcp_put_op(tcp, WIRE_OP_ADD);
  tcp_put_value(tcp, rdzv_str("init/"));
  tcp_put_number(tcp, 1);
  return tcp_ask_number(tcp, "n", &args->number_out);
}

static int try_nothing(struct tcp_store *tcp, struct tcp_args *args) {
  (void)tcp, (void)args;
  return 0;
}

static const struct tcp_op announce_op = {"open the store", TCP_ONCE, try_announce};
static const struct tcp_op open_op = {"open the store", TCP_REPEATABLE, try_nothing};

static int open_handle(const struct endpoint *endpoint, enum wire_dialect known, const rdzv_tcp_options *options,
                       const struct flag *cancel, struct waiting *waiting, rdzv_store **out, rdzv_error *error);

static int tcp_clone(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error) {
  rdzv_tcp_options options = self(store)->options;
  options.announce_worker = false; /* it is the same worker */
  options.timeout_ms = store_request_time(store, options.timeout_ms);
  options.cancel_fd = cancel_fd;
  const struct flag *cancel = cancel_fd == store->cancel_fd ? &store->cancel : NULL;
  return open_handle(&self(store)->conn.endpoint, tcp_dialect(self(store)), &options, cancel, NULL, out, error);
}

static const struct store_ops tcp_ops = {.name = "tcp",
                                         .close = tcp_close,
                                         .abandon = tcp_abandon,
                                         .clone = tcp_clone,
                                         .features = tcp_features,
                                         .describe = tcp_describe,
                                         STORE_BASIC_OPS(STORE_OP_ROW, tcp) STORE_QUEUE_OPS(STORE_OP_ROW, tcp)
                                             STORE_VERSION_OPS(STORE_OP_ROW, tcp)};

/* Right after boot the kernel may have no randomness yet; then the clock must do. */
static void draw_never(struct tcp_store *tcp) {
  const int64_t now = clock_now_ms();
  if (getrandom(tcp->never, sizeof tcp->never, GRND_NONBLOCK) < 0) memcpy(tcp->never, &now, sizeof now);
}

/* `known` is the dialect of the server, if it was found before. `cancel` ends the opening; NULL: the new handle's own
 * flag does. */
static int open_handle(const struct endpoint *endpoint, enum wire_dialect known, const rdzv_tcp_options *options,
                       const struct flag *cancel, struct waiting *waiting, rdzv_store **out, rdzv_error *error) {
  rdzv_store *store;
  int result = store_new(sizeof(struct tcp_store), &tcp_ops, options->timeout_ms, options->cancel_fd, options->log,
                         &store, error);
  if (result < 0) return result;
  struct tcp_store *tcp = self(store);
  tcp->options = *options;
  tcp->options.log = &tcp->base.log;
  tcp->options.timeout_ms = rdzv_store_get_timeout(&tcp->base);
  tcp_conn_init(&tcp->conn, endpoint, options->dialect, &tcp->base.log);
  tcp->options.run_id = tcp->conn.run_id = options->run_id ? strdup(options->run_id) : NULL;
  tcp->conn.dialect = known;
  thread_cond_init(&tcp->not_busy);
  pthread_mutex_init(&tcp->lock, NULL);
  draw_never(tcp);
  const struct flag telling = flag_with(cancel ? cancel : &tcp->base.cancel, waiting);
  struct store_call call = {tcp->options.timeout_ms, deadline_after(tcp->options.timeout_ms), &telling, error};
  if (options->run_id && !tcp->conn.run_id)
    result = error_no_memory(error);
  else
    result = tcp_run(&tcp->base, options->announce_worker ? &announce_op : &open_op, &(struct tcp_args){0}, &call);
  if (result < 0)
    tcp_close(&tcp->base);
  else
    *out = &tcp->base;
  return result;
}

int store_open_tcp(const char *endpoint, const rdzv_tcp_options *options, struct waiting *waiting, rdzv_store **out,
                   rdzv_error *error) {
  if (!out) return error_null(error, "open a store", "out");
  rdzv_tcp_options own;
  struct endpoint parsed;
  int result = options_take(&own, sizeof own, options, "rdzv_tcp_options", error);
  if (result == 0) result = endpoint_parse(endpoint, RDZV_DEFAULT_PORT, &parsed, error);
  if (result == 0 && (own.dialect < RDZV_DIALECT_AUTO || own.dialect > RDZV_DIALECT_RDZV))
    result = error_set(error, RDZV_E_INVALID, "invalid dialect %d", (int)own.dialect);
  return result < 0 ? result : open_handle(&parsed, WIRE_DIALECT_UNKNOWN, &own, NULL, waiting, out, error);
}

int rdzv_store_open_tcp(const char *endpoint, const rdzv_tcp_options *options, rdzv_store **out, rdzv_error *error) {
  return store_open_tcp(endpoint, options, NULL, out, error);
}
