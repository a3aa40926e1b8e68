/* SPDX-License-Identifier: BSD-3-Clause */
/* Where rank 0 of a round can be reached: rank 0 says so in the round's store, under PyTorch's names. */
#include "base/buf.h"
#include "base/endpoint.h"
#include "base/error.h"
#include "base/log.h"
#include "handler/dynamic.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
  RESOLVE_MS = 5000,
  OLD_TORCH_MS = 1000, /* PyTorch before 2.4 publishes it above the rendezvous, if at all */
  TORCH_MS = 30000,
};

#define MASTER_ADDR rdzv_str("MASTER_ADDR")
#define MASTER_PORT rdzv_str("MASTER_PORT")

/* By which address the others reach us. */
static void own_address(struct dynamic *handler, char out[HOST_NAME_SIZE]) {
  struct endpoint endpoint;
  const bool known = endpoint_parse(handler->base.endpoint, RDZV_DEFAULT_PORT, &endpoint, NULL) == 0 &&
                     handler->base.endpoint[0] != '/';
  if (handler->base.local_addr)
    snprintf(out, HOST_NAME_SIZE, "%s", handler->base.local_addr);
  else
    host_own_address(known ? &endpoint : NULL, deadline_after(RESOLVE_MS), &handler->base.cancel, out);
}

static int publish(struct dynamic *handler, struct result *result, rdzv_error *error) {
  char addr[HOST_NAME_SIZE], text[16];
  int port;
  own_address(handler, addr);
  int outcome = host_reserve_port(&result->port_fd, &port, error);
  if (outcome < 0) return outcome;
  snprintf(text, sizeof text, "%d", port);
  const rdzv_bytes keys[] = {MASTER_ADDR, MASTER_PORT}, values[] = {rdzv_str(addr), rdzv_str(text)};
  outcome = rdzv_store_multi_set(result->base.store, keys, values, 2, error);
  if (outcome < 0) return error_prefix(error, outcome, "cannot publish the address of rank 0");
  return result_set_master(result, addr, port) ? 0 : error_no_memory(error);
}

static int take(struct result *result, const rdzv_value *addr, const rdzv_value *port, rdzv_error *error) {
  char *end;
  const long number = strtol(port->data, &end, 10);
  if (*end || number < 1 || number > 65535)
    return error_set(error, RDZV_E_CORRUPT, "rank 0 has published '%s' as its port",
                     bytes_quote(rdzv_value_bytes(port)).text);
  return result_set_master(result, addr->data, (int)number) ? 0 : error_no_memory(error);
}

/* The wait ends early if the round does: rank 0 may be the one that is gone. */
static int wait_for_it(struct dynamic *handler, struct result *result, int64_t timeout_ms, rdzv_error *error) {
  rdzv_store *store = result->base.store;
  const rdzv_bytes keys[] = {MASTER_ADDR, MASTER_PORT};
  struct cancel stop;
  int outcome = cancel_open_with(&stop, handler->changed.fd, error);
  if (outcome < 0) return outcome;
  struct store_call call = {timeout_ms, deadline_after(timeout_ms), &stop, error};
  outcome = cancel_raised(&stop) ? RDZV_E_CANCELED : store->ops->wait(store, keys, 2, &call);
  cancel_close(&stop);
  return outcome;
}

static int fetch(struct dynamic *handler, struct result *result, rdzv_error *error) {
  const bool old = handler->layout < TORCH_2_3;
  const rdzv_bytes keys[] = {MASTER_ADDR, MASTER_PORT};
  rdzv_value *values = NULL;
  int outcome = wait_for_it(handler, result, old ? OLD_TORCH_MS : TORCH_MS, error);
  if (outcome == RDZV_E_TIMEOUT || outcome == RDZV_E_CANCELED) {
    log_line(&handler->base.log, RDZV_LOG_WARNING, "rank 0, '%s', has not published where it can be reached",
             result->members[0].node);
    return 0;
  }
  if (outcome == 0) outcome = rdzv_store_multi_get(result->base.store, keys, 2, &values, error);
  if (outcome < 0) return error_prefix(error, outcome, "cannot get the address of rank 0");
  outcome = take(result, &values[0], &values[1], error);
  rdzv_values_free(values, 2);
  return outcome;
}

int dynamic_find_master(struct dynamic *handler, struct result *result, rdzv_error *error) {
  return result->base.rank == 0 ? publish(handler, result, error) : fetch(handler, result, error);
}
