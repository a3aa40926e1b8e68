/* SPDX-License-Identifier: BSD-3-Clause */
/* An etcd that lives as long as this program, and a store in it: sidecar */
#include <rdzv/rdzv.h>
#include <stdio.h>

static int fail(const char *what, const rdzv_error *error) {
  fprintf(stderr, "sidecar: %s: %s\n", what, error->message);
  return 1;
}

int main(void) {
  rdzv_error error;
  rdzv_etcd_process *etcd;
  rdzv_store *store;
  if (rdzv_etcd_process_start(NULL, &etcd, &error) < 0) return fail("start", &error);
  printf("etcd listens on %s\n", rdzv_etcd_process_endpoint(etcd));

  const rdzv_etcd_options where = {.size = sizeof where, .endpoints = rdzv_etcd_process_endpoint(etcd)};
  const rdzv_etcd_store_options options = {.size = sizeof options, .etcd = &where};
  rdzv_value value;
  int result = rdzv_store_open_etcd("/example", &options, &store, &error);
  if (result == 0) {
    result = rdzv_store_set(store, rdzv_str("k"), rdzv_str("kept in etcd"), &error);
    if (result == 0) result = rdzv_store_get(store, rdzv_str("k"), &value, &error);
    if (result == 0) {
      printf("k: %s\n", value.data);
      rdzv_value_free(&value);
    }
    rdzv_store_free(store);
  }
  rdzv_etcd_process_free(etcd); /* ends it, and removes its data */
  return result < 0 ? fail("store", &error) : 0;
}
