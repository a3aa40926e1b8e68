/* SPDX-License-Identifier: BSD-3-Clause */
/** \file
 * Where the state of a dynamic rendezvous is kept, for programs that bring a place of their own. */
#ifndef RDZV_BACKEND_H
#define RDZV_BACKEND_H

#include <rdzv/api.h>
#include <rdzv/bytes.h>
#include <rdzv/error.h>
#include <rdzv/params.h>
#include <rdzv/store.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * A fenced cell that all nodes of a rendezvous share: PyTorch's RendezvousBackend. It holds bytes. Each version of them
 * has a token, a number that this object chooses; token 0 means that the cell is empty.
 *
 * To bring a backend, put this struct first in a struct of your own, and pass it to rdzv_handler_open_dynamic in an
 * rdzv_creator.
 *
 * Threads: the handler calls from its own thread and from those that use it, one call at a time; `wake` and `cancel`
 * come from any thread at any time. Signals are blocked in the thread of the handler. Forks: in a child process the
 * handler calls nothing but `close`.
 */
typedef struct rdzv_backend rdzv_backend;

/** Flags for rdzv_backend_ops.set. */
enum {
  RDZV_BACKEND_URGENT = 1 << 0 /**< A hint: other nodes wait for this state. */
};

/** The calls of a backend. Each returns 0 or a negative code (RDZV_E_…). An error that a call leaves empty gets the
 * general text of the code. All calls are required but take_permit and give_permit. */
typedef struct rdzv_backend_ops {
  size_t size; /**< sizeof(rdzv_backend_ops). */

  /** A name for messages. */
  const char *name;

  /** Returns one line that says where the cell is. Owned by the backend. */
  const char *(*describe)(rdzv_backend *backend);

  /** Reads the cell without waiting. An empty cell: *token is 0 and *out is an empty value. */
  int (*get)(rdzv_backend *backend, rdzv_value *out, uint64_t *token, rdzv_error *error);

  /** Writes `state` if the cell still has the version of *token, and sets *written. If so, *token is the new token and
   * *out is empty; else they are those of the current version. RDZV_E_OUTCOME_UNKNOWN: the state may have been written.
   */
  int (*set)(rdzv_backend *backend, rdzv_bytes state, unsigned flags, uint64_t *token, bool *written, rdzv_value *out,
             rdzv_error *error);

  /** Waits until the cell has another version than that of *token, and reads it. RDZV_E_TIMEOUT. RDZV_E_CANCELED:
   * woken. */
  int (*await_change)(rdzv_backend *backend, int64_t timeout_ms, uint64_t *token, rdzv_value *out, rdzv_error *error);

  /** Waits at most timeout_ms for the permit to write, of which there is one for all nodes. NULL: there are no permits.
   * Permits only save lost swaps: a node may write without one. RDZV_E_TIMEOUT: another node has the permit; the
   * handler calls again, or writes without. RDZV_E_CANCELED: woken. */
  int (*take_permit)(rdzv_backend *backend, int64_t timeout_ms, rdzv_error *error);

  /** Gives the permit back after the write. NULL if take_permit is. */
  void (*give_permit)(rdzv_backend *backend);

  /** Makes the running await_change or take_permit, or the next one if none runs, return RDZV_E_CANCELED. */
  void (*wake)(rdzv_backend *backend);

  /** Makes the running call and all later ones return RDZV_E_CANCELED. */
  void (*cancel)(rdzv_backend *backend);

  /** Frees the backend. In a child of the process that opened it, it must only free memory and close descriptors, and
   * must not touch what the parent uses. */
  void (*close)(rdzv_backend *backend);
} rdzv_backend_ops;

/** The first member of the struct of a backend. */
struct rdzv_backend {
  const rdzv_backend_ops *ops; /**< Copied when the handler is opened. */
};

RDZV_BEGIN

/**
 * Opens a dynamic rendezvous over a backend: PyTorch's DynamicRendezvousHandler. `store` is for the rounds; if it is
 * NULL, results have no store.
 *
 * The handler takes `backend` and `store` over, and frees them also when this call fails. RDZV_E_INVALID: params; or
 * `ops`, which lack a call or have a call that this version does not know. In the latter case the backend is not freed.
 */
RDZV_API int rdzv_handler_open_dynamic(const rdzv_params *params, rdzv_backend *backend, rdzv_store *store,
                                       rdzv_handler **out, rdzv_error *error);

RDZV_END

#endif
