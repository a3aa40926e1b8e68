/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/buf.h"
#include "base/error.h"
#include "base/log.h"
#include "handler/dynamic/swap/swap.h"
#include "state/pickle/read.h"
#include "state/pickle/write.h"

/* ---- the layout of the state ---------------------------------------------------------------------------------- */

static void set_layout(struct swap *swap, enum torch_layout layout, const char *because) {
  if (swap->layout_known && swap->layout == layout) return;
  pthread_mutex_lock(&swap->base.lock);
  swap->layout = layout;
  swap->layout_known = true;
  engine_set_redundancy_list(&swap->engine, torch_traits(layout)->redundancy_list);
  pthread_mutex_unlock(&swap->base.lock);
  log_line(swap->base.log, RDZV_LOG_INFO,
           "the state of the rendezvous is written for PyTorch %s%s, %s; PyTorch nodes whose state has another layout "
           "cannot take part",
           torch_traits(layout)->version,
           layout == TORCH_1_13     ? " or earlier"
           : layout == TORCH_NEWEST ? " or later"
                                    : "",
           because);
}

/* ---- states as bytes ------------------------------------------------------------------------------------------ */

/* Turns what the backend gave into a state; an empty value means no state. Frees it. */
static int decode(struct swap *swap, rdzv_value *bytes, uint64_t token, struct engine_event *event,
                  struct rendezvous_state *state, rdzv_error *error) {
  struct torch_layouts layouts;
  int result = 0;
  event->token = token;
  event->state = NULL;
  if (token != 0) {
    result = pickle_read(rdzv_value_bytes(bytes), state, &layouts, error);
    if (result == 0 && (result = state_check_round(state, error)) < 0) state_free(state);
    if (result == RDZV_E_CORRUPT)
      error_prefix(error, result, "the state of the rendezvous at %s is corrupt", driver_describe(&swap->base));
    if (result == 0) {
      event->state = state;
      set_layout(swap, torch_layout_choose(layouts, swap->layout), "as it was found");
    }
  }
  rdzv_value_free(bytes);
  return result;
}

static void set_store_error(struct engine_event *event, rdzv_error *error) {
  *event = (struct engine_event){.kind = ENGINE_EV_STORE_ERROR, .error = error};
}

/* A backend may be code of others: an error that it leaves empty gets a sentence. `error` was empty before the call. */
static int explain(const struct swap *swap, int result, rdzv_error *error) {
  if (result > 0)
    return error_set(error, RDZV_E_INVALID, "backend '%s' returned %d, which is not an error code",
                     swap->backend_ops.name, result);
  if (result < 0 && error->code == 0) error_prefix(error, result, "backend '%s'", swap->backend_ops.name);
  return result;
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

void cell_read(struct swap *swap, struct engine_event *event, struct rendezvous_state *state, rdzv_error *error) {
  rdzv_value bytes;
  uint64_t token = 0;
  *event = (struct engine_event){.kind = ENGINE_EV_STATE_READ};
  error->code = 0;
  int result = explain(swap, swap->backend_ops.get(swap->backend, &bytes, &token, error), error);
  if (result == 0) result = decode(swap, &bytes, token, event, state, error);
  if (result < 0) set_store_error(event, error);
}

static int encode(struct swap *swap, const struct rendezvous_state *state, struct buf *out, rdzv_error *error) {
  if (!swap->layout_known) set_layout(swap, swap->layout, "as option torch_version says");
  return pickle_write(state, swap->layout, out, error);
}

void cell_swap(struct swap *swap, const struct engine_update *update, struct engine_event *event,
               struct rendezvous_state *state, rdzv_error *error) {
  struct buf bytes = {0};
  rdzv_value now = {0};
  uint64_t token = update->token;
  bool written = false;
  int result = encode(swap, update->state, &bytes, error);
  if (result == 0) {
    error->code = 0;
    result = swap->backend_ops.set(swap->backend, (rdzv_bytes){bytes.data, bytes.len},
                                   update->urgent ? RDZV_BACKEND_URGENT : 0, &token, &written, &now, error);
    result = explain(swap, result, error);
  }
  buf_free(&bytes);
  *event = (struct engine_event){.kind = written ? ENGINE_EV_SWAP_WON : ENGINE_EV_SWAP_LOST, .token = token};
  if (result == 0 && !written)
    result = decode(swap, &now, token, event, state, error);
  else
    rdzv_value_free(&now);
  if (result < 0) set_store_error(event, error);
}

bool cell_await(struct swap *swap, uint64_t token, int64_t until_ms, struct engine_event *event,
                struct rendezvous_state *state, rdzv_error *error) {
  rdzv_value bytes;
  *event = (struct engine_event){.kind = ENGINE_EV_STATE_READ};
  error->code = 0;
  int result = swap->backend_ops.await_change(swap->backend, deadline_left(until_ms), &token, &bytes, error);
  result = explain(swap, result, error);
  if (result == RDZV_E_CANCELED) return false;
  if (result == 0) result = decode(swap, &bytes, token, event, state, error);
  if (result == RDZV_E_TIMEOUT)
    event->kind = ENGINE_EV_TIMER;
  else if (result < 0)
    set_store_error(event, error);
  return true;
}
