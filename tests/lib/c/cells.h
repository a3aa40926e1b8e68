/* SPDX-License-Identifier: BSD-3-Clause */
/* Two cells of one rendezvous over each kind of store, as two nodes have them, and a handle beside them for what
 * PyTorch, or somebody who does harm, does to the key. */
#ifndef RDZV_TESTS_CELLS_H
#define RDZV_TESTS_CELLS_H

#include "backend/c10d/cell.h"
#include "live.h"

#include <stdatomic.h>

enum store_kind { KIND_HASH, KIND_TCP, KIND_V1, KIND_V2, KIND_FILE, KINDS };
static const char *const kind_names[] = {"hash", "tcp", "tcp v1", "tcp v2", "file"};

#define RUN_ID "job 1/é"
#define RUN_KEY "torch.rendezvous.job 1/é"

struct cells {
  enum store_kind kind;
  rdzv_server *server;
  char path[64];
  rdzv_store *store, *other_store, *raw;
  rdzv_backend *cell, *other;
  atomic_int lost; /* permits that were replaced, as the log says */
};

/* Hash stores and our own server in our own dialect. */
static inline bool has_versions(enum store_kind kind) { return kind == KIND_HASH || kind == KIND_TCP; }

static inline void count_lost(void *user, rdzv_log_level level, const char *line) {
  struct cells *cells = user;
  (void)level;
  if (strstr(line, "got lost")) atomic_fetch_add(&cells->lost, 1);
}

static inline rdzv_backend *cell_in(struct cells *cells, rdzv_store *store) {
  const rdzv_log log = {sizeof log, count_lost, cells, RDZV_LOG_DEBUG};
  rdzv_backend *cell;
  rdzv_error error;
  if (c10d_open(store, NULL, RUN_ID, &log, &cell, &error) < 0) fail_msg("%s", error.message);
  return cell;
}

static inline rdzv_store *another(rdzv_store *store) {
  rdzv_store *clone;
  rdzv_error error;
  if (rdzv_store_clone(store, &clone, &error) < 0) fail_msg("%s", error.message);
  return clone;
}

static inline rdzv_store *first_store(struct cells *cells) {
  rdzv_store *store;
  rdzv_error error;
  if (cells->kind == KIND_HASH) {
    const rdzv_hash_options options = {.size = sizeof options, .timeout_ms = SOON_MS};
    assert_code(rdzv_store_open_hash(&options, &store, &error), 0);
    return store;
  }
  if (cells->kind == KIND_FILE) {
    const rdzv_file_options options = {.size = sizeof options, .timeout_ms = SOON_MS};
    snprintf(cells->path, sizeof cells->path, "/tmp/rdzv-cells-XXXXXX");
    const int fd = mkstemp(cells->path);
    assert_true(fd >= 0);
    close(fd);
    assert_code(rdzv_store_open_file(cells->path, &options, &store, &error), 0);
    return store;
  }
  static const rdzv_dialect dialects[] = {
      [KIND_TCP] = RDZV_DIALECT_AUTO, [KIND_V1] = RDZV_DIALECT_V1, [KIND_V2] = RDZV_DIALECT_V2};
  cells->server = serve();
  return connect_with(rdzv_server_address(cells->server), (rdzv_tcp_options){.dialect = dialects[cells->kind]});
}

static inline struct cells *cells_open(enum store_kind kind) {
  struct cells *cells = calloc(1, sizeof *cells);
  assert_non_null(cells);
  cells->kind = kind;
  cells->store = first_store(cells);
  cells->other_store = another(cells->store);
  cells->raw = another(cells->store);
  cells->cell = cell_in(cells, cells->store);
  cells->other = cell_in(cells, cells->other_store);
  return cells;
}

static inline void close_cell(rdzv_backend **cell) {
  if (*cell) (*cell)->ops->close(*cell);
  *cell = NULL;
}

static inline void cells_close(struct cells *cells) {
  close_cell(&cells->cell);
  close_cell(&cells->other);
  rdzv_store_free(cells->store);
  rdzv_store_free(cells->other_store);
  rdzv_store_free(cells->raw);
  rdzv_server_free(cells->server);
  if (cells->path[0]) unlink(cells->path);
  free(cells);
}

/* ---- what is in a cell ---------------------------------------------------------------------------------------- */

#define assert_cell(cell, token, expected)                                                       \
  do {                                                                                           \
    rdzv_error error_;                                                                           \
    rdzv_value value_;                                                                           \
    if ((cell)->ops->get((cell), &value_, (token), &error_) < 0) fail_msg("%s", error_.message); \
    assert_bytes(rdzv_value_bytes(&value_), expected);                                           \
    assert_true((*(token) == 0) == (sizeof(expected) == 1));                                     \
    rdzv_value_free(&value_);                                                                    \
  } while (0)

/* Writes; tells whether it was written, and if not asserts what is there instead. */
#define assert_set(cell, state, token, is_written, instead)                                  \
  do {                                                                                       \
    rdzv_error error_;                                                                       \
    rdzv_value value_;                                                                       \
    bool written_ = !(is_written);                                                           \
    if ((cell)->ops->set((cell), BYTES(state), 0, (token), &written_, &value_, &error_) < 0) \
      fail_msg("%s", error_.message);                                                        \
    assert_int_equal(written_, (is_written));                                                \
    assert_bytes(rdzv_value_bytes(&value_), instead);                                        \
    rdzv_value_free(&value_);                                                                \
    if (is_written) assert_true(*(token) != 0);                                              \
  } while (0)

/* ---- calls in a thread ---------------------------------------------------------------------------------------- */

struct cell_call {
  rdzv_backend *cell;
  bool permit; /* take_permit instead of await_change */
  int64_t timeout_ms;
  uint64_t token;
  rdzv_value value;
  rdzv_error error;
  int result;
  int64_t took_ms;
  pthread_t thread;
};

static inline void *cell_call_run(void *arg) {
  struct cell_call *call = arg;
  const int64_t began = live_now_ms();
  const rdzv_backend_ops *ops = call->cell->ops;
  call->result = call->permit
                     ? ops->take_permit(call->cell, call->timeout_ms, &call->error)
                     : ops->await_change(call->cell, call->timeout_ms, &call->token, &call->value, &call->error);
  call->took_ms = live_now_ms() - began;
  return NULL;
}

static inline void cell_call_start(struct cell_call *call) {
  assert_int_equal(pthread_create(&call->thread, NULL, cell_call_run, call), 0);
}

static inline void cell_call_end(struct cell_call *call) { pthread_join(call->thread, NULL); }

#endif
