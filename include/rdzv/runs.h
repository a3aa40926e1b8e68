/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_RUNS_H
#define RDZV_RUNS_H

#include <rdzv/api.h>
#include <rdzv/bytes.h>
#include <rdzv/error.h>
#include <rdzv/params.h>
#include <stddef.h>

/*
 * The runs that a store or an etcd knows: rendezvous by their run ids, of the backends c10d, etcd-v2 and etcd. Of
 * `params` backend, endpoint, conf, cancel_fd and log are looked at; the store is never served by this process. Both
 * return what opening the store returns, and RDZV_E_UNSUPPORTED of another backend.
 */
RDZV_BEGIN

/* Gives the run ids in order, to be freed with rdzv_values_free(*out, *count). A run that was only asked for, and never
 * joined, may be among them. RDZV_E_UNSUPPORTED: a PyTorch server that cannot list its keys. */
RDZV_API int rdzv_runs_list(const rdzv_params *params, rdzv_value **out, size_t *count, rdzv_error *error);

/* Removes the run of params->run_id with all that it has left, so that its id can be used again, from round 0 on; tells
 * how many keys there were. Whether it is closed is not asked: nodes of one that is not lose their places. Rounds'
 * stores stay where a PyTorch server cannot list its keys. */
RDZV_API int rdzv_runs_remove(const rdzv_params *params, size_t *removed, rdzv_error *error);

RDZV_END

#endif
