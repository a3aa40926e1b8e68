/* SPDX-License-Identifier: BSD-3-Clause */
/* How rank 0 of a round says where it can be reached: under PyTorch's names in the round's store. */
#ifndef RDZV_HANDLER_MASTER_H
#define RDZV_HANDLER_MASTER_H

#include "base/host.h"
#include "handler/handler.h"
#include "handler/result.h"

#define MASTER_ADDR rdzv_str("MASTER_ADDR")
#define MASTER_PORT rdzv_str("MASTER_PORT")

/* By which address the others reach us. */
void master_own_address(const rdzv_handler *handler, int default_port, char out[HOST_NAME_SIZE]);

/* As rank 0: says so in the result's store, and in the result. */
int master_publish(struct result *result, const char *addr, int port, rdzv_error *error);

/* As another: takes what is in that store into the result. RDZV_E_TIMEOUT: there is nothing in time, or, where `addr`
 * is not NULL, it is of another address. RDZV_E_CORRUPT. */
int master_take(struct result *result, rdzv_store *store, const char *addr, rdzv_error *error);

#endif
