/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_HANDLER_RUNS_ETCD_KEYS_H
#define RDZV_HANDLER_RUNS_ETCD_KEYS_H

#include "etcd/v2/read.h"
#include "etcd/v3/types.h"
#include "handler/runs/runs.h"

#define RUNS_V1_NAME "run_" /* before the id, in the name of a folder of backend etcd */

/* Add the runs of the backends etcd, etcd-v2 and etcd-v3, whose keys were listed below `folder`. Keys that are not
 * below it are left out. False: no memory. */
bool runs_take_v1(struct runs *out, const struct etcd_node *node, const char *folder);
bool runs_take_v2(struct runs *out, const struct etcd_node *node, const char *folder);
bool runs_take_v3(struct runs *out, const struct etcd3_result *found, const char *folder);

#endif
