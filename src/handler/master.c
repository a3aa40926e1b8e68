/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/master.h"

#include "base/buf.h"
#include "base/error.h"
#include "handler/own_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESOLVE_MS = 5000 };

void master_own_address(const rdzv_handler *handler, int default_port, char out[HOST_NAME_SIZE]) {
  struct endpoint endpoint;
  char first[ENDPOINT_TEXT_SIZE];
  snprintf(first, sizeof first, "%s", handler->endpoint);
  first[strcspn(first, ",")] = '\0'; /* of a list */
  const bool known = first[0] != '/' && endpoint_parse_to_serve(first, default_port, &endpoint, NULL) == 0;
  if (handler->local_addr)
    snprintf(out, HOST_NAME_SIZE, "%s", handler->local_addr);
  else
    host_own_address(known ? &endpoint : NULL, deadline_after(RESOLVE_MS), &handler->cancel, out);
}

int master_publish(struct result *result, const char *addr, int port, rdzv_error *error) {
  char text[16];
  snprintf(text, sizeof text, "%d", port);
  const rdzv_bytes keys[] = {MASTER_ADDR, MASTER_PORT}, values[] = {rdzv_str(addr), rdzv_str(text)};
  const int outcome = own_keys_set(result->base.store, keys, values, 2, error);
  if (outcome < 0) return error_prefix(error, outcome, "cannot publish the address of rank 0");
  return result_set_master(result, addr, port) ? 0 : error_no_memory(error);
}

static int parse(struct result *result, const rdzv_value *addr, const rdzv_value *port, rdzv_error *error) {
  char *end;
  const long number = strtol(port->data, &end, 10);
  if (*end || number < 1 || number > 65535)
    return error_set(error, RDZV_E_CORRUPT, "rank 0 has published '%s' as its port",
                     bytes_quote(rdzv_value_bytes(port)).text);
  return result_set_master(result, addr->data, (int)number) ? 0 : error_no_memory(error);
}

int master_take(struct result *result, rdzv_store *store, const char *addr, rdzv_error *error) {
  const rdzv_bytes keys[] = {MASTER_ADDR, MASTER_PORT};
  rdzv_value *values = NULL;
  int outcome = rdzv_store_multi_get(store, keys, 2, &values, error);
  if (outcome < 0) return outcome;
  const bool other = addr && strcmp(values[0].data, addr) != 0;
  outcome = other ? RDZV_E_TIMEOUT : parse(result, &values[0], &values[1], error);
  rdzv_values_free(values, 2);
  return outcome;
}
