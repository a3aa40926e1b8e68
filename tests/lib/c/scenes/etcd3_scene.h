/* SPDX-License-Identifier: BSD-3-Clause */
/* An etcd for the tests of a program, which ends with it, and a user of its v3 API beside the code under test. */
#ifndef RDZV_TESTS_ETCD3_SCENE_H
#define RDZV_TESTS_ETCD3_SCENE_H

#include "etcd/v3/v3.h"
#include "no_sync.h"
#include "unit.h"

#include <rdzv/etcd.h>
#include <stdlib.h>

static rdzv_etcd_process *process;
static struct etcd3 *etcd;

/* One more user. */
static inline struct etcd3 *open_etcd(void) {
  const rdzv_etcd_options where = {.size = sizeof where, .endpoints = rdzv_etcd_process_endpoint(process)};
  struct etcd_client *client;
  struct etcd3 *out = NULL;
  rdzv_error why;
  if (etcd_open(&where, &client, &why) < 0 || etcd3_open(client, &out, &why) < 0) fail_msg("%s", why.message);
  return out;
}

/* The etcd of this machine, or the one that TEST_ETCD names. */
static inline int start_etcd(void **state) {
  (void)state;
  const rdzv_etcd_process_options options = {.size = sizeof options, .binary = getenv("TEST_ETCD")};
  rdzv_error why;
  no_sync();
  if (rdzv_etcd_process_start(&options, &process, &why) < 0) return print_error("%s\n", why.message), -1;
  etcd = open_etcd();
  return 0;
}

static inline int stop_etcd(void **state) {
  (void)state;
  etcd3_close(etcd);
  rdzv_etcd_process_free(process);
  return 0;
}

#endif
