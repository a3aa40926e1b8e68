/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "handler/dynamic/driver.h"
#include "state/pickle/read.h"
#include "state/pickle/write.h"

/* ---- the layout of the state ---------------------------------------------------------------------------------- */

static void set_layout(struct driver *driver, enum torch_layout layout, const char *because) {
  if (driver->layout_known && driver->layout == layout) return;
  pthread_mutex_lock(&driver->lock);
  driver->layout = layout;
  driver->layout_known = true;
  engine_set_redundancy_list(&driver->engine, torch_traits(layout)->redundancy_list);
  pthread_mutex_unlock(&driver->lock);
  log_line(driver->log, RDZV_LOG_INFO,
           "the state of the rendezvous is written for PyTorch %s%s, %s; PyTorch nodes whose state has another layout "
           "cannot take part",
           torch_traits(layout)->version,
           layout == TORCH_1_13     ? " or earlier"
           : layout == TORCH_NEWEST ? " or later"
                                    : "",
           because);
}

/* ---- states as bytes ------------------------------------------------------------------------------------------ */

/* Turns what the backend gave into a state; an empty value is none. Frees it. */
static int decode(struct driver *driver, rdzv_value *bytes, uint64_t token, struct engine_event *event,
                  struct rendezvous_state *state, rdzv_error *error) {
  struct torch_layouts layouts;
  int result = 0;
  event->token = token;
  event->state = NULL;
  if (token != 0) {
    result = pickle_read(rdzv_value_bytes(bytes), state, &layouts, error);
    if (result == RDZV_E_CORRUPT)
      error_prefix(error, result, "the state of the rendezvous at %s is corrupt", driver_describe(driver));
    if (result == 0) {
      event->state = state;
      set_layout(driver, torch_layout_choose(layouts, driver->layout), "as it was found");
    }
  }
  rdzv_value_free(bytes);
  return result;
}

static void set_store_error(struct engine_event *event, rdzv_error *error) {
  *event = (struct engine_event){.kind = ENGINE_EV_STORE_ERROR, .error = error};
}

/* A backend may be code of others: an error that it leaves empty gets a sentence. `error` was empty before the call. */
static int explain(const struct driver *driver, int result, rdzv_error *error) {
  if (result > 0)
    return error_set(error, RDZV_E_INVALID, "backend '%s' returned %d, which is not an error code", driver->ops.name,
                     result);
  if (result < 0 && error->code == 0) error_prefix(error, result, "backend '%s'", driver->ops.name);
  return result;
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

void cell_read(struct driver *driver, struct engine_event *event, struct rendezvous_state *state, rdzv_error *error) {
  rdzv_value bytes;
  uint64_t token = 0;
  *event = (struct engine_event){.kind = ENGINE_EV_STATE_READ};
  error->code = 0;
  int result = explain(driver, driver->ops.get(driver->backend, &bytes, &token, error), error);
  if (result == 0) result = decode(driver, &bytes, token, event, state, error);
  if (result < 0) set_store_error(event, error);
}

static int encode(struct driver *driver, const struct rendezvous_state *state, struct buf *out, rdzv_error *error) {
  if (!driver->layout_known) set_layout(driver, driver->layout, "as option torch_version says");
  return pickle_write(state, driver->layout, out, error);
}

void cell_swap(struct driver *driver, const struct engine_update *update, struct engine_event *event,
               struct rendezvous_state *state, rdzv_error *error) {
  struct buf bytes = {0};
  rdzv_value now = {0};
  uint64_t token = update->token;
  bool written = false;
  int result = encode(driver, update->state, &bytes, error);
  if (result == 0) {
    error->code = 0;
    result = driver->ops.set(driver->backend, (rdzv_bytes){bytes.data, bytes.len},
                             update->urgent ? RDZV_BACKEND_URGENT : 0, &token, &written, &now, error);
    result = explain(driver, result, error);
  }
  buf_free(&bytes);
  *event = (struct engine_event){.kind = written ? ENGINE_EV_SWAP_WON : ENGINE_EV_SWAP_LOST, .token = token};
  if (result == 0 && !written)
    result = decode(driver, &now, token, event, state, error);
  else
    rdzv_value_free(&now);
  if (result < 0) set_store_error(event, error);
}

bool cell_await(struct driver *driver, uint64_t token, int64_t until_ms, struct engine_event *event,
                struct rendezvous_state *state, rdzv_error *error) {
  rdzv_value bytes;
  *event = (struct engine_event){.kind = ENGINE_EV_STATE_READ};
  error->code = 0;
  int result = driver->ops.await_change(driver->backend, deadline_left(until_ms), &token, &bytes, error);
  result = explain(driver, result, error);
  if (result == RDZV_E_CANCELED) return false;
  if (result == 0) result = decode(driver, &bytes, token, event, state, error);
  if (result == RDZV_E_TIMEOUT)
    event->kind = ENGINE_EV_TIMER;
  else if (result < 0)
    set_store_error(event, error);
  return true;
}
