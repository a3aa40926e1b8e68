/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_HANDLER_RUNS_RUNS_H
#define RDZV_HANDLER_RUNS_RUNS_H

#include <rdzv/runs.h>
#include <rdzv/store.h>
#include <stdbool.h>

struct runs {
  rdzv_value *ids;
  size_t count;
};

/* Copies the id. False: no memory. */
bool runs_add(struct runs *runs, const char *id, size_t len);

/* Adds to *removed. */
int runs_remove_store(rdzv_store *store, const char *run_id, size_t *removed, rdzv_error *error);

/* Lists runs, and removes one as above, for the backends etcd-v2 and etcd. */
int runs_list_etcd(const rdzv_params *params, struct runs *out, rdzv_error *error);
int runs_remove_etcd(const rdzv_params *params, size_t *removed, rdzv_error *error);

/* The same for etcd-v3: handler/leased/runs.c. */
int runs_list_etcd3(const rdzv_params *params, struct runs *out, rdzv_error *error);
int runs_remove_etcd3(const rdzv_params *params, size_t *removed, rdzv_error *error);

#endif
