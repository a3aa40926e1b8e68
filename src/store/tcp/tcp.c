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

/* What a handle begins with. */
struct opening {
  struct tcp_servers *servers;
  const rdzv_tcp_options *options;
  enum wire_dialect known;   /* the dialect of the server, if it was found before */
  const struct flag *cancel; /* ends the opening; NULL: the handle's own flag does */
  struct waiting *waiting;
  bool asks_native;
  struct tls_client *guard; /* what protects the connection; borrowed */
};

static int open_handle(const struct opening *opening, rdzv_store **out, rdzv_error *error);

static int tcp_clone(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error) {
  rdzv_tcp_options options = self(store)->options;
  options.announce_worker = false; /* it is the same worker */
  options.timeout_ms = store_request_time(store, options.timeout_ms);
  options.cancel_fd = cancel_fd;
  const struct opening opening = {.servers = self(store)->conn.choice.servers,
                                  .options = &options,
                                  .known = tcp_dialect(self(store)),
                                  .guard = self(store)->conn.guard,
                                  .cancel = cancel_fd == store->cancel_fd ? &store->cancel : NULL};
  return open_handle(&opening, out, error);
}

static const struct store_ops tcp_ops = {.name = "tcp",
                                         .makes_flag_fd = true,
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

static int make_handle(const struct opening *opening, struct tcp_store **out, rdzv_error *error) {
  const rdzv_tcp_options *options = opening->options;
  rdzv_store *store;
  const int result = store_new(sizeof(struct tcp_store), &tcp_ops, options->timeout_ms, options->cancel_fd,
                               options->log, &store, error);
  if (result < 0) return result;
  struct tcp_store *tcp = self(store);
  tcp->options = *options;
  tcp->options.log = &tcp->base.log;
  tcp->options.timeout_ms = rdzv_store_get_timeout(&tcp->base);
  tcp_conn_init(&tcp->conn, tcp_servers_share(opening->servers), options->dialect, &tcp->base.log);
  tcp->conn.guard = tls_client_hold(opening->guard);
  tcp->options.secret_file = tcp->options.tls_ca = tcp->options.tls_cert = tcp->options.tls_key = NULL;
  tcp->options.tls_host = NULL;
  tcp->options.run_id = tcp->conn.run_id = options->run_id ? strdup(options->run_id) : NULL;
  tcp->conn.dialect = tcp->facts.dialect = opening->known;
  tcp->conn.asks_native = opening->asks_native;
  thread_cond_init(&tcp->not_busy);
  pthread_mutex_init(&tcp->lock, NULL);
  draw_never(tcp);
  if (options->run_id && !tcp->conn.run_id) {
    tcp_close(&tcp->base);
    return error_no_memory(error);
  }
  *out = tcp;
  return 0;
}

static int open_handle(const struct opening *opening, rdzv_store **out, rdzv_error *error) {
  struct tcp_store *tcp = NULL;
  int result = make_handle(opening, &tcp, error);
  if (result < 0 || !tcp) return result;
  const struct flag telling = flag_with(opening->cancel ? opening->cancel : &tcp->base.cancel, opening->waiting);
  struct store_call call = {tcp->options.timeout_ms, deadline_after(tcp->options.timeout_ms), &telling, error};
  const struct tcp_op *op = tcp->options.announce_worker ? &announce_op : &open_op;
  result = tcp_run(&tcp->base, op, &(struct tcp_args){0}, &call);
  if (result < 0)
    tcp_close(&tcp->base);
  else
    *out = &tcp->base;
  return result;
}

static int open_guard(const rdzv_tcp_options *options, struct tls_client **out, rdzv_error *error) {
  struct tls_names names = {.secret = options->secret_file,
                            .ca = options->tls_ca,
                            .cert = options->tls_cert,
                            .key = options->tls_key,
                            .host = options->tls_host};
  tls_names_settle(&names);
  const int result = tls_client_open(&names, out, error);
  return result < 0 ? error_prefix(error, result, "cannot protect the connection") : 0;
}

int store_open_tcp(const char *endpoint, const rdzv_tcp_options *options, bool asks_native, struct waiting *waiting,
                   rdzv_store **out, rdzv_error *error) {
  if (!out) return error_null(error, "open a store", "out");
  rdzv_tcp_options own;
  struct tcp_servers *servers = NULL;
  int result = options_take(&own, sizeof own, options, "rdzv_tcp_options", error);
  if (result == 0 && (own.dialect < RDZV_DIALECT_AUTO || own.dialect > RDZV_DIALECT_RDZV))
    result = error_set(error, RDZV_E_INVALID, "invalid dialect %d", (int)own.dialect);
  if (result == 0) result = tcp_servers_parse(endpoint, &servers, error);
  if (result < 0 || !servers) return result;
  struct opening opening = {.servers = servers, .options = &own, .waiting = waiting, .asks_native = asks_native};
  if (servers->count > 1 && (own.dialect == RDZV_DIALECT_V1 || own.dialect == RDZV_DIALECT_V2))
    result = error_set(error, RDZV_E_INVALID,
                       "dialects v1 and v2 take one endpoint (a list of endpoints needs rdzv servers)");
  if (result == 0) result = open_guard(&own, &opening.guard, error);
  if (result == 0) result = open_handle(&opening, out, error);
  tls_client_drop(opening.guard);
  tcp_servers_drop(servers);
  return result;
}

bool store_is_native(rdzv_store *store) { return store->ops == &tcp_ops && self(store)->conn.native; }

bool tcp_store_split(rdzv_store *store, struct tcp_conn *to) {
  struct tcp_store *tcp = self(store);
  struct tcp_conn *from = &tcp->conn;
  char *run_id = from->run_id ? strdup(from->run_id) : NULL;
  if (from->run_id && !run_id) return false;
  *to = *from;
  to->run_id = run_id;
  tls_client_hold(to->guard);
  tcp_servers_share(to->choice.servers);
  to->session = (struct tcp_session){0};
  to->has_offer = false;
  tcp_session_forget(&from->session);
  from->fd = -1;
  from->tls = NULL;
  from->in = to->out.buf = (struct buf){0};
  return true;
}

int tcp_store_clone_idle(rdzv_store *store, uint64_t instance, rdzv_store **out, rdzv_error *error) {
  struct tcp_store *tcp = self(store), *copy = NULL;
  rdzv_tcp_options options = tcp->options;
  options.announce_worker = false;
  options.cancel_fd = 0;
  const struct opening opening = {
      .servers = tcp->conn.choice.servers, .options = &options, .known = tcp_dialect(tcp), .guard = tcp->conn.guard};
  const int result = make_handle(&opening, &copy, error);
  if (result < 0 || !copy) return result;
  copy->conn.known_instance = instance;
  pthread_mutex_lock(&tcp->lock);
  memcpy(copy->facts.peer, tcp->facts.peer, sizeof copy->facts.peer);
  pthread_mutex_unlock(&tcp->lock);
  atomic_store(&copy->base.timeout_ms, rdzv_store_get_timeout(store));
  *out = &copy->base;
  return 0;
}

int rdzv_store_open_tcp(const char *endpoint, const rdzv_tcp_options *options, rdzv_store **out, rdzv_error *error) {
  return store_open_tcp(endpoint, options, false, NULL, out, error);
}
