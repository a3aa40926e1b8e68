/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How rank 0 of a round says where it can be reached: under PyTorch's names in the round's store; and, where rdzv
 * nodes know each other, in rdzv's own key, "<node> <address> <port>". A store may still have the keys of an earlier
 * round of that number: of a run before that has the same id, or whose state was lost with all its nodes. The node's
 * name tells whose they are. Keys of a node with the same host name and process id, as in containers, look alike:
 * `rdzv reset` removes them.
 */
#ifndef RDZV_HANDLER_MASTER_H
#define RDZV_HANDLER_MASTER_H

#include "base/net/host.h"
#include "handler/handler.h"
#include "handler/result.h"
#include "store/store.h"

#define MASTER_ADDR rdzv_str("MASTER_ADDR")
#define MASTER_PORT rdzv_str("MASTER_PORT")

/* By which address the others reach us. */
void master_own_address(const rdzv_handler *handler, int default_port, char out[HOST_NAME_SIZE]);

/* As rank 0: says so in the result's store, and in the result. `node` is its name for rdzv's key; NULL: none. */
int master_publish(struct round_result *result, const char *node, const char *addr, int port, rdzv_error *error);

/* Removes what master_publish has written to that store. */
int master_remove(rdzv_store *store, rdzv_error *error);

/* As another: takes what is in that store into the result. RDZV_E_TIMEOUT: there is nothing in time, or, where `addr`
 * is not NULL, it is of another address. RDZV_E_CORRUPT. */
int master_take(struct round_result *result, rdzv_store *store, const char *addr, rdzv_error *error);

/* As another, where rank 0 is an rdzv node: waits until rdzv's key is of that node, and takes it into the
 * result. RDZV_E_TIMEOUT, RDZV_E_CORRUPT. */
int master_await_named(struct round_result *result, struct store_call *call);

#endif
