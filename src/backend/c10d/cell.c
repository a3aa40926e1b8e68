/* SPDX-License-Identifier: BSD-3-Clause */
#include "backend/c10d/cell.h"

#include "backend/c10d/permit.h"
#include "base/error.h"
#include "base/log.h"
#include "base/net/endpoint.h"
#include "base/text/base64.h"
#include "base/wait/fork.h"
#include "store/run_keys.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  PUSHED_BYTES = 4096, /* a state up to that is pushed to all watchers with each change */
  LOOK_MS = 1000,      /* between two looks at one that is not, at least; more for one that is large */
  LOOK_BYTES_PER_MS = 40,
  FIRST_POLL_MS = 1,
  LAST_POLL_MS = 1000,
  POLL_SHARE = 4, /* a look that took long is followed by a pause of so many times that */
};

struct c10d {
  rdzv_backend base;
  rdzv_backend_ops ops;
  fork_mark born;
  rdzv_store *store;
  rdzv_server *server;
  rdzv_log log;
  struct flag wake;
  char *key, *bell;
  struct permit permit;
  char text[3 * ENDPOINT_TEXT_SIZE + 64]; /* of describe */
  bool versions;
  size_t len; /* of what is in the cell, as far as we know */

  /* With versions, tokens are versions. */
  uint64_t blank; /* that of the sentinel */
  uint64_t rung;  /* that of the bell */

  /* Without: a number for the text that was seen last. */
  uint64_t token;
  rdzv_value seen;
  int64_t poll_ms;
};

static struct c10d *self(rdzv_backend *backend) { return (struct c10d *)backend; }
static rdzv_bytes key_of(const struct c10d *cell) { return rdzv_str(cell->key); }

static bool is_sentinel(rdzv_bytes text) { return bytes_equal(text, rdzv_str(C10D_SENTINEL)); }

/* ---- text and state ------------------------------------------------------------------------------------------- */

/* The text of a cell as the state that it stands for; the sentinel means no state. */
static int decode(struct c10d *cell, rdzv_bytes text, rdzv_value *out, rdzv_error *error) {
  bool valid;
  cell->len = text.len;
  if (!base64_decode_value(is_sentinel(text) ? (rdzv_bytes){0} : text, out, &valid)) return error_no_memory(error);
  if (valid) return 0;
  return error_set(error, RDZV_E_CORRUPT, "the state of the rendezvous under '%s' is corrupt: it is not base64",
                   cell->key);
}

static int encode(rdzv_bytes state, struct buf *text, rdzv_error *error) {
  return base64_encode(state, text) ? 0 : error_no_memory(error);
}

/* A look that timed out, while a change is waited for: the store did not answer, which is not the end of the wait. */
static int fail_look(int result, rdzv_error *error) {
  if (result != RDZV_E_TIMEOUT) return result;
  if (error) error->code = RDZV_E_CONNECTION;
  return RDZV_E_CONNECTION;
}

/* ---- with versions -------------------------------------------------------------------------------------------- */

static int take_version(struct c10d *cell, rdzv_value *text, uint64_t version, rdzv_value *out, uint64_t *token,
                        rdzv_error *error) {
  const rdzv_bytes bytes = rdzv_value_bytes(text);
  const bool none = version == 0 || is_sentinel(bytes);
  const int result = none ? decode(cell, rdzv_str(C10D_SENTINEL), out, error) : decode(cell, bytes, out, error);
  rdzv_value_free(text);
  if (result < 0) return result;
  if (none) cell->blank = version;
  *token = none ? 0 : version;
  return 0;
}

static int get_by_version(struct c10d *cell, rdzv_value *out, uint64_t *token, rdzv_error *error) {
  rdzv_value text;
  uint64_t version = 0;
  const int result = rdzv_store_get_version(cell->store, key_of(cell), &text, &version, error);
  return result < 0 ? result : take_version(cell, &text, version, out, token, error);
}

/* A node that does not hear the bell looks after a while. */
static void ring(struct c10d *cell) {
  int64_t count;
  rdzv_error error;
  if (rdzv_store_add(cell->store, rdzv_str(cell->bell), 1, &count, &error) < 0)
    log_line(&cell->log, RDZV_LOG_INFO, "cannot notify the other nodes of a change: %s", error.message);
}

/* One try. *again: a sentinel that we did not know is there, which is not a state. */
static int try_set(struct c10d *cell, rdzv_bytes text, uint64_t *token, bool *written, rdzv_value *out, bool *again,
                   rdzv_error *error) {
  const bool blank = *token == 0;
  const uint64_t expected = blank ? cell->blank : *token;
  rdzv_value now = {0};
  uint64_t version = 0;
  const int result =
      rdzv_store_compare_set_version(cell->store, key_of(cell), expected, text, written, &now, &version, error);
  if (result < 0) return result;
  if (!*written) {
    *again = blank && expected != version && (version == 0 || is_sentinel(rdzv_value_bytes(&now)));
    return take_version(cell, &now, version, out, token, error);
  }
  *token = version;
  *out = now; /* empty */
  cell->len = text.len;
  return 0;
}

static int set_by_version(struct c10d *cell, rdzv_bytes state, unsigned flags, uint64_t *token, bool *written,
                          rdzv_value *out, rdzv_error *error) {
  struct buf text = {0};
  bool again = false;
  int result = encode(state, &text, error);
  const rdzv_bytes bytes = {text.data, text.len};
  if (result == 0) result = try_set(cell, bytes, token, written, out, &again, error);
  if (result == 0 && again) {
    rdzv_value_free(out);
    result = try_set(cell, bytes, token, written, out, &again, error);
  }
  buf_free(&text);
  if (result == 0 && *written && (flags & RDZV_BACKEND_URGENT) && cell->len > PUSHED_BYTES) ring(cell);
  return result;
}

/* Waits for a key of the cell to change, or to be woken. */
static int wait_changed(struct c10d *cell, const char *key, uint64_t known, int64_t timeout_ms, rdzv_value *out,
                        uint64_t *version, rdzv_error *error) {
  struct store_call call = {timeout_ms, deadline_after(timeout_ms), &cell->wake, error};
  return cell->store->ops->wait_changed(cell->store, rdzv_str(key), known, out, version, &call);
}

static int await_push(struct c10d *cell, int64_t timeout_ms, uint64_t *token, rdzv_value *out, rdzv_error *error) {
  rdzv_value text;
  uint64_t version = 0;
  const int result = wait_changed(cell, cell->key, *token ? *token : cell->blank, timeout_ms, &text, &version, error);
  return result < 0 ? result : take_version(cell, &text, version, out, token, error);
}

/* Waits for the bell, or until it is time to look without it. */
static int await_bell(struct c10d *cell, int64_t timeout_ms, rdzv_error *error) {
  const int64_t look = LOOK_MS + jitter((int64_t)cell->len / LOOK_BYTES_PER_MS);
  rdzv_value count;
  const int result =
      wait_changed(cell, cell->bell, cell->rung, timeout_ms < look ? timeout_ms : look, &count, &cell->rung, error);
  if (result == 0) rdzv_value_free(&count);
  return result == RDZV_E_TIMEOUT ? 0 : result;
}

static int await_by_version(struct c10d *cell, int64_t timeout_ms, uint64_t *token, rdzv_value *out,
                            rdzv_error *error) {
  const deadline until = deadline_after(timeout_ms);
  const uint64_t known = *token;
  if (cell->len <= PUSHED_BYTES) return await_push(cell, timeout_ms, token, out, error);
  do {
    int result = await_bell(cell, deadline_left(until), error);
    if (result == 0) result = fail_look(get_by_version(cell, out, token, error), error);
    if (result < 0 || *token != known) return result;
    rdzv_value_free(out);
  } while (deadline_left(until) > 0);
  return error_set(error, RDZV_E_TIMEOUT, "nothing changed in %lld ms", (long long)timeout_ms);
}

/* ---- without -------------------------------------------------------------------------------------------------- */

/* Remembers a text, which is taken over, and names it. */
static void remember(struct c10d *cell, rdzv_value *text) {
  if (bytes_equal(rdzv_value_bytes(text), rdzv_value_bytes(&cell->seen))) {
    rdzv_value_free(text);
    return;
  }
  rdzv_value_free(&cell->seen);
  cell->seen = *text;
  cell->token++;
  cell->poll_ms = FIRST_POLL_MS;
}

static int take_text(struct c10d *cell, rdzv_value *text, rdzv_value *out, uint64_t *token, rdzv_error *error) {
  const int result = decode(cell, rdzv_value_bytes(text), out, error);
  if (result < 0) {
    rdzv_value_free(text);
    return result;
  }
  remember(cell, text);
  *token = is_sentinel(rdzv_value_bytes(&cell->seen)) ? 0 : cell->token;
  return 0;
}

/* A swap of nothing for the sentinel reads without blocking, and puts it there if the store has forgotten. */
static int read_text(struct c10d *cell, rdzv_value *text, rdzv_error *error) {
  return rdzv_store_compare_set(cell->store, key_of(cell), rdzv_str(""), rdzv_str(C10D_SENTINEL), text, error);
}

static int get_by_text(struct c10d *cell, rdzv_value *out, uint64_t *token, rdzv_error *error) {
  rdzv_value text;
  const int result = read_text(cell, &text, error);
  return result < 0 ? result : take_text(cell, &text, out, token, error);
}

/* What a swap left there; was it ours? */
static int after_swap(struct c10d *cell, rdzv_value *now, rdzv_bytes ours, bool stale, uint64_t *token, bool *written,
                      rdzv_value *out, rdzv_error *error) {
  const bool unchanged = bytes_equal(rdzv_value_bytes(now), rdzv_value_bytes(&cell->seen));
  *written = !stale && bytes_equal(rdzv_value_bytes(now), ours);
  if (*written) {
    cell->len = now->len;
    remember(cell, now);
    *token = cell->token;
    return value_copy(out, NULL, 0) ? 0 : error_no_memory(error);
  }
  if (unchanged && !stale) { /* an absent key gives back what we expected: it has been forgotten */
    rdzv_value_free(now);
    return get_by_text(cell, out, token, error);
  }
  return take_text(cell, now, out, token, error);
}

static int set_by_text(struct c10d *cell, rdzv_bytes state, uint64_t *token, bool *written, rdzv_value *out,
                       rdzv_error *error) {
  const bool stale = *token != 0 && *token != cell->token; /* of a text that we have seen replaced */
  const rdzv_bytes expected = *token ? rdzv_value_bytes(&cell->seen) : rdzv_str(C10D_SENTINEL);
  struct buf text = {0};
  rdzv_value now = {0};
  int result = encode(state, &text, error);
  const rdzv_bytes ours = {text.data, text.len};
  if (result == 0)
    result = stale ? read_text(cell, &now, error)
                   : rdzv_store_compare_set(cell->store, key_of(cell), expected, ours, &now, error);
  if (result == 0) result = after_swap(cell, &now, ours, stale, token, written, out, error);
  buf_free(&text);
  return result;
}

/* Looks again and again, after pauses that grow as long as nothing changes. */
static int await_by_text(struct c10d *cell, int64_t timeout_ms, uint64_t *token, rdzv_value *out, rdzv_error *error) {
  const deadline until = deadline_after(timeout_ms);
  const uint64_t known = *token;
  while (deadline_left(until) > 0) {
    const int64_t pause = jitter(cell->poll_ms);
    const deadline next = deadline_after(pause < deadline_left(until) ? pause : deadline_left(until));
    if (flag_pause(&cell->wake, next) < 0) return error_set(error, RDZV_E_CANCELED, "woken");
    const int64_t began = clock_now_ms();
    const int result = fail_look(get_by_text(cell, out, token, error), error);
    if (result < 0 || *token != known) return result;
    rdzv_value_free(out);
    const int64_t longer = cell->poll_ms * 2, took = POLL_SHARE * (clock_now_ms() - began);
    cell->poll_ms = longer > took ? longer : took;
    if (cell->poll_ms > LAST_POLL_MS) cell->poll_ms = LAST_POLL_MS;
  }
  return error_set(error, RDZV_E_TIMEOUT, "nothing changed in %lld ms", (long long)timeout_ms);
}

/* ---- the cell ------------------------------------------------------------------------------------------------- */

/* The store's own flag is up for good. */
static bool is_canceled(const struct c10d *cell) { return flag_raised(&cell->store->cancel); }

static int c10d_take_permit(rdzv_backend *backend, int64_t timeout_ms, rdzv_error *error) {
  struct c10d *cell = self(backend);
  if (is_canceled(cell)) return error_set(error, RDZV_E_CANCELED, "waiting for the permit to write: canceled");
  const int result = permit_take(&cell->permit, timeout_ms, error);
  if (result == RDZV_E_CANCELED) flag_lower(&cell->wake);
  return result;
}

static void c10d_give_permit(rdzv_backend *backend) { permit_give(&self(backend)->permit); }

static int c10d_get(rdzv_backend *backend, rdzv_value *out, uint64_t *token, rdzv_error *error) {
  struct c10d *cell = self(backend);
  return cell->versions ? get_by_version(cell, out, token, error) : get_by_text(cell, out, token, error);
}

static int c10d_set(rdzv_backend *backend, rdzv_bytes state, unsigned flags, uint64_t *token, bool *written,
                    rdzv_value *out, rdzv_error *error) {
  struct c10d *cell = self(backend);
  if (cell->versions) return set_by_version(cell, state, flags, token, written, out, error);
  return set_by_text(cell, state, token, written, out, error);
}

static int c10d_await_change(rdzv_backend *backend, int64_t timeout_ms, uint64_t *token, rdzv_value *out,
                             rdzv_error *error) {
  struct c10d *cell = self(backend);
  if (is_canceled(cell)) return error_set(error, RDZV_E_CANCELED, "waiting for a change of the state: canceled");
  const int result = cell->versions ? await_by_version(cell, timeout_ms, token, out, error)
                                    : await_by_text(cell, timeout_ms, token, out, error);
  if (result == RDZV_E_CANCELED) flag_lower(&cell->wake);
  return result;
}

static void c10d_wake(rdzv_backend *backend) { flag_raise(&self(backend)->wake); }

static void c10d_cancel(rdzv_backend *backend) {
  rdzv_store_cancel(self(backend)->store);
  c10d_wake(backend);
}

static const char *c10d_describe(rdzv_backend *backend) { return self(backend)->text; }

static void c10d_close(rdzv_backend *backend) {
  struct c10d *cell = self(backend);
  rdzv_server_free(cell->server);
  flag_close(&cell->wake);
  if (!fork_crossed(cell->born)) rdzv_value_free(&cell->seen); /* a thread may be changing it */
  free(cell->key);
  free(cell->bell);
  permit_free(&cell->permit);
  free(cell);
}

static const rdzv_backend_ops c10d_ops = {
    .size = sizeof(rdzv_backend_ops),
    .name = "c10d",
    .describe = c10d_describe,
    .get = c10d_get,
    .set = c10d_set,
    .await_change = c10d_await_change,
    .wake = c10d_wake,
    .cancel = c10d_cancel,
    .close = c10d_close,
};

/* Puts the sentinel there, as PyTorch does, so that no read blocks; the node that does so puts the permit there. */
static int try_sentinel(struct c10d *cell, rdzv_error *error) {
  rdzv_value text;
  bool first = false;
  uint64_t version = 0;
  const int result = cell->versions
                         ? rdzv_store_compare_set_version(cell->store, key_of(cell), 0, rdzv_str(C10D_SENTINEL), &first,
                                                          &text, &version, error)
                         : read_text(cell, &text, error);
  if (result < 0) return result;
  if (cell->versions && (first || is_sentinel(rdzv_value_bytes(&text)))) cell->blank = version;
  rdzv_value_free(&text);
  if (first) c10d_give_permit(&cell->base);
  return 0;
}

/* A server that is restarted meanwhile takes nothing from a node that has seen nothing. */
static int put_sentinel(struct c10d *cell, rdzv_error *error) {
  const deadline until = deadline_after(rdzv_store_get_timeout(cell->store));
  int result;
  do {
    result = try_sentinel(cell, error);
  } while (store_try_again(cell->store, result, until));
  return result;
}

int c10d_open(rdzv_store *store, rdzv_server *server, const char *run_id, const rdzv_log *log, rdzv_backend **out,
              rdzv_error *error) {
  struct c10d *cell = calloc(1, sizeof *cell);
  if (!cell) {
    rdzv_server_free(server);
    return error_no_memory(error);
  }
  const unsigned needed = RDZV_FEATURE_VERSIONS | RDZV_FEATURE_QUEUES;
  cell->versions = (rdzv_store_features(store) & needed) == needed;
  cell->ops = c10d_ops;
  if (cell->versions) {
    cell->ops.take_permit = c10d_take_permit;
    cell->ops.give_permit = c10d_give_permit;
  }
  cell->base.ops = &cell->ops;
  cell->born = fork_mark_here();
  cell->store = store;
  cell->server = server;
  cell->log = *log;
  cell->permit = (struct permit){.store = store, .wake = &cell->wake, .log = &cell->log};
  cell->wake = FLAG_NONE;
  cell->poll_ms = FIRST_POLL_MS;
  snprintf(cell->text, sizeof cell->text, "c10d %s%s", rdzv_store_describe(store),
           server ? ", served by this process" : "");
  int result = *run_id ? 0 : error_set(error, RDZV_E_INVALID, "the run id is empty");
  cell->key = run_key(run_id, RUN_PART_STATE);
  cell->bell = run_key(run_id, RUN_PART_BELL);
  if (result == 0 && (!cell->key || !cell->bell)) result = error_no_memory(error);
  if (result == 0) result = permit_init(&cell->permit, run_id, error);
  if (result == 0) result = flag_open(&cell->wake, error);
  if (result == 0) result = put_sentinel(cell, error);
  if (result < 0)
    c10d_close(&cell->base);
  else
    *out = &cell->base;
  return result;
}
