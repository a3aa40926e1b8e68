/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_BACKEND_H
#define RDZV_BACKEND_H

#include <rdzv/api.h>
#include <rdzv/bytes.h>
#include <rdzv/error.h>
#include <rdzv/params.h>
#include <rdzv/store.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * One fenced cell that all nodes of a rendezvous share: PyTorch's RendezvousBackend. It holds bytes, and each version
 * of them has a token that is not 0; 0 stands for there being none yet. Tokens are this object's own names.
 *
 * To bring another one, put this first in a struct of your own, and pass it to rdzv_handler_open_dynamic in a creator
 * (rdzv_registry_add). The handler calls it from one thread at a time, but for wake and cancel.
 */
typedef struct rdzv_backend rdzv_backend;

/* A hint for set: others will want to hear of this soon. */
enum { RDZV_BACKEND_URGENT = 1 << 0 };

typedef struct rdzv_backend_ops {
  size_t size; /* sizeof(rdzv_backend_ops); calls that a smaller one does not have are NULL */
  const char *name;

  /* One line for people: where the cell is. Owned by the backend. */
  const char *(*describe)(rdzv_backend *backend);

  /* Gives what is there, without waiting; *token 0 and an empty value: nothing is. */
  int (*get)(rdzv_backend *backend, rdzv_value *out, uint64_t *token, rdzv_error *error);

  /* Writes `state` if the version is still that of `token`; *written tells. If so *token is its new token and *out is
   * empty; else they are what is there now. RDZV_E_OUTCOME_UNKNOWN: it may or may not have been written. */
  int (*set)(rdzv_backend *backend, rdzv_bytes state, unsigned flags, uint64_t *token, bool *written, rdzv_value *out,
             rdzv_error *error);

  /* Waits until the version is another than that of *token, and gives it. RDZV_E_TIMEOUT; RDZV_E_CANCELED: woken. */
  int (*await_change)(rdzv_backend *backend, int64_t timeout_ms, uint64_t *token, rdzv_value *out, rdzv_error *error);

  /* Both may be NULL. Waits at most timeout_ms for the permit to write, of which there is one for all nodes, and gives
   * it back after the write. Permits only save lost swaps: a node may write without one. RDZV_E_TIMEOUT: the store has
   * answered, and another node has the permit; the handler calls again, or writes without. RDZV_E_CANCELED: woken. */
  int (*take_permit)(rdzv_backend *backend, int64_t timeout_ms, rdzv_error *error);
  void (*give_permit)(rdzv_backend *backend);

  /* Makes the await_change or take_permit that is under way, or the next one if none is, return RDZV_E_CANCELED. From
   * any thread. */
  void (*wake)(rdzv_backend *backend);

  /* Makes the call under way, and later ones, return RDZV_E_CANCELED. From any thread. */
  void (*cancel)(rdzv_backend *backend);

  /* Also from rdzv_handler_free in a child process of the one that opened it: it must then free memory and descriptors,
   * and touch nothing that the parent shares. */
  void (*close)(rdzv_backend *backend);
} rdzv_backend_ops;

struct rdzv_backend {
  const rdzv_backend_ops *ops;
};

RDZV_BEGIN

/*
 * PyTorch's DynamicRendezvousHandler over a cell, with a store for the rounds, both of which the handler closes, also
 * if this fails; `store` may be NULL: results have none then. RDZV_E_INVALID: an option; or `ops`, which lack a call or
 * have one that this version does not have: then the backend is not closed, and the store is.
 */
RDZV_API int rdzv_handler_open_dynamic(const rdzv_params *params, rdzv_backend *backend, rdzv_store *store,
                                       rdzv_handler **out, rdzv_error *error);

RDZV_END

#endif
