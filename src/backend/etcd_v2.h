/* SPDX-License-Identifier: BSD-3-Clause */
/* The cell as one key of etcd: PyTorch's EtcdRendezvousBackend. The key /torch/elastic/rendezvous/<run_id> holds the
 * state in base64 and lives for two hours after each write; the token is its modifiedIndex. */
#ifndef RDZV_BACKEND_ETCD_V2_H
#define RDZV_BACKEND_ETCD_V2_H

#include "etcd/client/client.h"

#include <rdzv/backend.h>

/* Takes the client over, also on failure. RDZV_E_INVALID: the run id is empty. */
int etcd_v2_cell_open(struct etcd_client *client, const char *run_id, rdzv_backend **out, rdzv_error *error);

#endif
