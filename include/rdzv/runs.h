/* SPDX-License-Identifier: BSD-3-Clause */
/** \file
 * The runs that a store or an etcd cluster holds, of the backends c10d, etcd-v2, etcd-v3 and etcd.
 *
 * Both calls read backend, endpoint, conf, cancel_fd and log of `params`. They connect, do their work and disconnect;
 * they never serve the store. They return the errors of opening the store, and RDZV_E_UNSUPPORTED for another backend.
 * Threads: any. Effects on the process: none that outlive the call. */
#ifndef RDZV_RUNS_H
#define RDZV_RUNS_H

#include <rdzv/api.h>
#include <rdzv/bytes.h>
#include <rdzv/error.h>
#include <rdzv/params.h>
#include <stddef.h>

RDZV_BEGIN

/** Lists the run ids in alphabetical order. Free them with rdzv_values_free(*out, *count). A run that was queried but
 * never joined may be in the list. RDZV_E_UNSUPPORTED: a PyTorch server that cannot list its keys. */
RDZV_API int rdzv_runs_list(const rdzv_params *params, rdzv_value **out, size_t *count, rdzv_error *error);

/** Removes the run params->run_id and all its keys, so that a new run with this id begins with round 0. Sets *removed
 * to the number of keys. An open run is removed, too: its nodes lose their places. On a PyTorch server that cannot list
 * its keys, the keys of the rounds' stores stay. */
RDZV_API int rdzv_runs_remove(const rdzv_params *params, size_t *removed, rdzv_error *error);

RDZV_END

#endif
