/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands for all that uses etcd in a library that was built with RDZV_ETCD=OFF. */
#include "base/error.h"
#include "handler/handler.h"
#include "handler/runs/runs.h"

#include <rdzv/etcd.h>

static int fail_absent(rdzv_error *error) {
  return error_set(error, RDZV_E_UNSUPPORTED, "this librdzv was built without etcd (RDZV_ETCD=OFF)");
}

int gen1_create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error) {
  (void)user, (void)params, (void)out;
  return fail_absent(error);
}

int etcd_v2_create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error) {
  (void)user, (void)params, (void)out;
  return fail_absent(error);
}

int leased_create(void *user, const rdzv_params *params, rdzv_handler **out, rdzv_error *error) {
  (void)user, (void)params, (void)out;
  return fail_absent(error);
}

int runs_list_etcd(const rdzv_params *params, struct runs *out, rdzv_error *error) {
  (void)params, (void)out;
  return fail_absent(error);
}

int runs_remove_etcd(const rdzv_params *params, size_t *removed, rdzv_error *error) {
  (void)params, (void)removed;
  return fail_absent(error);
}

int rdzv_store_open_etcd(const char *prefix, const rdzv_etcd_store_options *options, rdzv_store **out,
                         rdzv_error *error) {
  (void)prefix, (void)options, (void)out;
  return fail_absent(error);
}

int rdzv_store_open_etcd3(const char *prefix, const rdzv_etcd3_store_options *options, rdzv_store **out,
                          rdzv_error *error) {
  (void)prefix, (void)options, (void)out;
  return fail_absent(error);
}

int rdzv_etcd_process_start(const rdzv_etcd_process_options *options, rdzv_etcd_process **out, rdzv_error *error) {
  (void)options, (void)out;
  return fail_absent(error);
}

/* No such object exists here, so none of these has anything to do. */
const char *rdzv_etcd_process_endpoint(const rdzv_etcd_process *process) {
  (void)process;
  return "";
}

int rdzv_etcd_process_port(const rdzv_etcd_process *process) {
  (void)process;
  return 0;
}

int64_t rdzv_etcd_process_pid(const rdzv_etcd_process *process) {
  (void)process;
  return 0;
}

int rdzv_etcd_process_wait(rdzv_etcd_process *process, int cancel_fd, int *status, rdzv_error *error) {
  (void)process, (void)cancel_fd, (void)status;
  return fail_absent(error);
}

void rdzv_etcd_process_free(rdzv_etcd_process *process) { (void)process; }
