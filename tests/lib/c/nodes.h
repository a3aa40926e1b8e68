/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Nodes of a rendezvous in one process: each a handler that is known by a name of the test's, so that the test knows
 * the order of the nodes, and joins in a thread of its own.
 */
#ifndef RDZV_TESTS_NODES_H
#define RDZV_TESTS_NODES_H

#include "backend/c10d/cell.h"
#include "base/buf.h"
#include "live.h"
#include "state/pickle/read.h"
#include "state/pickle/write.h"

#include <dirent.h>
#include <rdzv/handler.h>
#include <rdzv/params.h>
#include <stdatomic.h>

/* A node that is gone is found dead within two seconds, and one that a busy machine holds up for less is not. */
#define LIVELY "keep_alive_interval=0.1,keep_alive_max_attempt=20"

/* A node that swaps the state, although the server would form the rounds for it. */
#define SWAPPING "mode=swap"

struct node {
  rdzv_handler *handler;
  rdzv_result *result; /* of the last join */
  int code;
  rdzv_error error;
  int64_t took_ms;
  pthread_t thread;
};

struct node_options {
  int64_t min, max; /* 1 and 1 */
  const char *conf, *run_id;
  int cancel_fd;
  rdzv_on_event *on_event;
  void *event_user;
  const rdzv_log *log;
  const rdzv_registry *registry;
  const char *backend;
};

static inline int node_try_open(struct node *node, const char *endpoint, const char *addr, struct node_options options,
                                rdzv_error *error) {
  const rdzv_params params = {.size = sizeof params,
                              .backend = options.backend,
                              .endpoint = endpoint,
                              .run_id = options.run_id ? options.run_id : "job",
                              .min_nodes = options.min,
                              .max_nodes = options.max,
                              .conf = options.conf,
                              .local_addr = addr,
                              .cancel_fd = options.cancel_fd,
                              .log = options.log,
                              .on_event = options.on_event,
                              .event_user = options.event_user,
                              .registry = options.registry};
  *node = (struct node){0};
  return rdzv_handler_open(&params, &node->handler, error);
}

static inline void node_open(struct node *node, const char *endpoint, const char *addr, struct node_options options) {
  rdzv_error error;
  if (node_try_open(node, endpoint, addr, options, &error) < 0) fail_msg("%s", error.message);
}

/* Frees what the last join gave. */
static inline void node_forget(struct node *node) {
  rdzv_result_free(node->result);
  node->result = NULL;
}

static inline void node_close(struct node *node) {
  node_forget(node);
  rdzv_handler_free(node->handler);
  node->handler = NULL;
}

/* ---- joining -------------------------------------------------------------------------------------------------- */

static inline void *node_join_run(void *arg) {
  struct node *node = arg;
  const int64_t began = live_now_ms();
  node_forget(node);
  node->code = rdzv_handler_next(node->handler, &node->result, &node->error);
  node->took_ms = live_now_ms() - began;
  return NULL;
}

static inline void join_start(struct node *node) {
  assert_int_equal(pthread_create(&node->thread, NULL, node_join_run, node), 0);
}

static inline int join_end(struct node *node) {
  pthread_join(node->thread, NULL);
  return node->code;
}

/* All join at once, and all must. */
static inline void join_all(struct node *nodes, size_t count) {
  for (size_t i = 0; i < count; i++) join_start(&nodes[i]);
  for (size_t i = 0; i < count; i++) join_end(&nodes[i]);
  for (size_t i = 0; i < count; i++)
    if (nodes[i].code < 0) fail_msg("node %zu: %s", i, nodes[i].error.message);
}

/* Opens them by the names "a", "b", … and joins them. */
static inline void open_and_join(struct node *nodes, size_t count, const char *endpoint, struct node_options options) {
  for (size_t i = 0; i < count; i++) node_open(&nodes[i], endpoint, (char[]){(char)('a' + i), '\0'}, options);
  join_all(nodes, count);
}

static inline void close_all(struct node *nodes, size_t count) {
  for (size_t i = 0; i < count; i++) node_close(&nodes[i]);
}

/* ---- hearing and looking -------------------------------------------------------------------------------------- */

/* Waits until it has heard of all that `what` says; other things may be among it. Gives the first `who`. */
static inline struct heard await_change(struct node *node, unsigned what) {
  struct heard all = {0};
  rdzv_error error;
  while ((all.what & what) != what) {
    struct heard change = {0};
    if (hear(node->handler, SOON_MS, &change, &error) < 0)
      fail_msg("heard %x, not %x: %s", all.what, what, error.message);
    assert_true(change.what != 0);
    all.what |= change.what;
    if (!all.who[0]) memcpy(all.who, change.who, sizeof all.who);
  }
  return all;
}

/* Waits until so many are there as what. */
static inline void await_counts(rdzv_handler *handler, size_t participants, size_t waiting, size_t spares) {
  for (const int64_t until = live_now_ms() + SOON_MS / 2;;) {
    rdzv_status *status;
    rdzv_error error;
    if (rdzv_handler_status(handler, 200, &status, &error) < 0) fail_msg("%s", error.message);
    const bool so = status->participants == participants && status->waiting == waiting && status->spares == spares;
    const size_t now[] = {status->participants, status->waiting, status->spares};
    rdzv_status_free(status);
    if (so) return;
    if (live_now_ms() > until)
      fail_msg("there are %zu, %zu, %zu, not %zu, %zu, %zu", now[0], now[1], now[2], participants, waiting, spares);
  }
}

static inline bool is_closed(struct node *node) {
  bool closed = false;
  rdzv_error error;
  if (rdzv_handler_is_closed(node->handler, &closed, &error) < 0) fail_msg("%s", error.message);
  return closed;
}

/* What a handler has read within the last second it does not ask for again. */
static inline void await_closed(struct node *node) {
  const struct timespec moment = {0, 1000000};
  for (const int64_t until = live_now_ms() + SOON_MS; !is_closed(node); nanosleep(&moment, NULL))
    assert_true(live_now_ms() < until);
}

/* ---- what others do to the state ------------------------------------------------------------------------------ */

typedef void state_change(struct rendezvous_state *state, const void *argument);

/* Changes the state of the run behind the back of its nodes, as a node that is not ours would. */
static inline void rewrite_state(const char *endpoint, const char *run_id, enum torch_layout layout,
                                 state_change *change, const void *argument) {
  rdzv_store *store = connect_to(endpoint);
  rdzv_backend *cell;
  rdzv_error error;
  bool written = false;
  assert_code(c10d_open(store, NULL, run_id, &(rdzv_log){0}, &cell, &error), 0);
  while (!written) {
    rdzv_value value;
    uint64_t token;
    struct rendezvous_state state = STATE_EMPTY;
    struct torch_layouts layouts;
    struct buf bytes = {0};
    assert_code(cell->ops->get(cell, &value, &token, &error), 0);
    if (token != 0) assert_code(pickle_read(rdzv_value_bytes(&value), &state, &layouts, &error), 0);
    rdzv_value_free(&value);
    change(&state, argument);
    assert_code(pickle_write(&state, layout, &bytes, &error), 0);
    state_free(&state);
    assert_code(cell->ops->set(cell, (rdzv_bytes){bytes.data, bytes.len}, 0, &token, &written, &value, &error), 0);
    buf_free(&bytes);
    rdzv_value_free(&value);
  }
  cell->ops->close(cell);
  rdzv_store_free(store);
}

/* Takes out the node that is printed so. */
static inline void take_out(struct rendezvous_state *state, const void *node) {
  for (size_t i = 0; i < state->count; i++)
    if (strcmp(node_text(&state->nodes[i].desc).text, node) == 0) {
      state_remove(state, &state->nodes[i]);
      return;
    }
}

/* Of this process. */
static inline int count_fds(void) {
  DIR *folder = opendir("/proc/self/fd");
  int count = -3; /* ., .. and the folder itself */
  while (readdir(folder)) count++;
  closedir(folder);
  return count;
}

#endif
