/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/master.h"

#include "base/buf.h"
#include "base/error.h"
#include "base/text/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  RESOLVE_MS = 5000,
  FIRST_PAUSE_MS = 10, /* between two looks at a key that is of another node */
  LONGEST_PAUSE_MS = 500,
  OF_ANOTHER = 1,
};

#define NAMED_MASTER rdzv_str("rdzv/master")

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

int master_publish(struct round_result *result, const char *node, const char *addr, int port, rdzv_error *error) {
  char text[16], *named = NULL;
  snprintf(text, sizeof text, "%d", port);
  if (node && asprintf(&named, "%s %s %s", node, addr, text) < 0) return error_no_memory(error);
  const rdzv_bytes keys[] = {MASTER_ADDR, MASTER_PORT, NAMED_MASTER};
  const rdzv_bytes values[] = {rdzv_str(addr), rdzv_str(text), rdzv_str(node ? named : "")};
  const int outcome = rdzv_store_publish(result->base.store, keys, values, node ? 3 : 2, error);
  free(named);
  if (outcome < 0) return error_prefix(error, outcome, "cannot publish the address of rank 0");
  return result_set_master(result, addr, port) ? 0 : error_no_memory(error);
}

int master_remove(rdzv_store *store, rdzv_error *error) {
  const rdzv_bytes keys[] = {NAMED_MASTER, MASTER_ADDR, MASTER_PORT};
  int outcome = 0;
  for (size_t i = 0; i < sizeof keys / sizeof *keys && outcome == 0; i++)
    outcome = rdzv_store_delete_key(store, keys[i], NULL, error);
  return outcome;
}

static int parse(struct round_result *result, const char *addr, rdzv_bytes port, rdzv_error *error) {
  int64_t number;
  if (!parse_number(port.data, 1, 65535, &number))
    return error_set(error, RDZV_E_CORRUPT, "rank 0 has published '%s' as its port", bytes_quote(port).text);
  return result_set_master(result, addr, (int)number) ? 0 : error_no_memory(error);
}

int master_take(struct round_result *result, rdzv_store *store, const char *addr, rdzv_error *error) {
  const rdzv_bytes keys[] = {MASTER_ADDR, MASTER_PORT};
  rdzv_value *values = NULL;
  int outcome = rdzv_store_multi_get(store, keys, 2, &values, error);
  if (outcome < 0) return outcome;
  const bool other = addr && strcmp(values[0].data, addr) != 0;
  outcome = other ? RDZV_E_TIMEOUT : parse(result, values[0].data, rdzv_value_bytes(&values[1]), error);
  rdzv_values_free(values, 2);
  return outcome;
}

/* ---- with the name of rank 0 ---------------------------------------------------------------------------------- */

static int take_named(struct round_result *result, char *text, rdzv_error *error) {
  const char *node = result->rank0;
  const size_t len = strlen(node);
  if (strncmp(text, node, len) != 0 || text[len] != ' ') return OF_ANOTHER;
  char *addr = text + len + 1, *port = strrchr(addr, ' ');
  if (!port)
    return error_set(error, RDZV_E_CORRUPT, "rank 0 has published '%s' as its address and port",
                     bytes_quote(rdzv_str(addr)).text);
  *port++ = '\0';
  return parse(result, addr, rdzv_str(port), error);
}

static int pause_before_look(struct backoff *backoff, struct store_call *call) {
  const rdzv_bytes key = NAMED_MASTER;
  const deadline next = backoff_next(backoff);
  const int outcome = next >= call->until ? RDZV_E_TIMEOUT : flag_pause(call->cancel, next);
  return outcome < 0 ? store_fail_wait(call, outcome, "wait for", &key, 1) : 0;
}

int master_await_named(struct round_result *result, struct store_call *call) {
  rdzv_store *store = result->base.store;
  const bool versions = rdzv_store_features(store) & RDZV_FEATURE_VERSIONS;
  struct backoff backoff = {FIRST_PAUSE_MS, LONGEST_PAUSE_MS};
  uint64_t known = 0;
  for (;;) {
    rdzv_value value;
    int outcome = versions ? store->ops->wait_changed(store, NAMED_MASTER, known, &value, &known, call)
                           : store->ops->get(store, NAMED_MASTER, &value, call);
    if (outcome < 0) return outcome;
    outcome = take_named(result, value.data, call->error);
    rdzv_value_free(&value);
    if (outcome != OF_ANOTHER) return outcome;
    outcome = versions ? 0 : pause_before_look(&backoff, call);
    if (outcome < 0) return outcome;
  }
}
