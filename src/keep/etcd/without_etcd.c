/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands for the engine in a library that was built with RDZV_ETCD=OFF. */
#include "base/error.h"
#include "keep/keep.h"

static int fail_absent(rdzv_error *error) {
  return error_set(error, RDZV_E_UNSUPPORTED, "this librdzv was built without etcd (RDZV_ETCD=OFF)");
}

int keep_new_etcd(const struct keep_etcd_options *options, struct keep **out, rdzv_error *error) {
  (void)options, (void)out;
  return fail_absent(error);
}

int keep_again_etcd(struct keep *keep, struct keep **out, rdzv_error *error) {
  (void)keep, (void)out;
  return fail_absent(error);
}

int keep_enter_etcd(struct keep *keep, rdzv_error *error) {
  (void)keep;
  return fail_absent(error);
}
