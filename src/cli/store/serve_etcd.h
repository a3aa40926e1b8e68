/* SPDX-License-Identifier: BSD-3-Clause */
/* The flags of a server that keeps its state in etcd. */
#ifndef RDZV_CLI_STORE_SERVE_ETCD_H
#define RDZV_CLI_STORE_SERVE_ETCD_H

#include "cli/store/etcd_url.h"

#include <rdzv/etcd.h>
#include <rdzv/server.h>

struct serve_etcd {
  const char *url, *prefix, *advertise, *ca_cert, *cert, *key; /* NULL: not given */
  int64_t lease;                                               /* ms; 0: not given */
  struct etcd_url parsed;
  rdzv_etcd_options options;
};

/* Puts them into the options, which point to *etcd then. False: they make no sense, and it has complained. */
bool serve_etcd_fill(const char *me, struct serve_etcd *etcd, const char *state_dir, rdzv_server_options *options);
void serve_etcd_free(struct serve_etcd *etcd);

#endif
