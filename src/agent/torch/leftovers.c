/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/torch/leftovers.h"

#include "base/log.h"
#include "base/net/endpoint.h"

#include <inttypes.h>
#include <rdzv/store.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUEST_MS = 3000, MOST_GAPS = 8, KEY_SIZE = 96 };

#define DEFAULT_GROUP "default_pg/0//" /* of init_process_group; a later group has its number behind it */

void leftovers_free(struct leftovers *leftovers) {
  free(leftovers->node);
  free(leftovers->addr);
  *leftovers = (struct leftovers){0};
}

void leftovers_note(struct leftovers *leftovers, const char *node, const char *addr, int port, int64_t workers) {
  const bool same = leftovers->node && strcmp(leftovers->node, node) == 0;
  const struct leftovers next = {strdup(node), strdup(addr), port,
                                 same && leftovers->workers > workers ? leftovers->workers : workers};
  leftovers_free(leftovers);
  if (next.node && next.addr) {
    *leftovers = next;
    return;
  }
  free(next.node);
  free(next.addr);
}

/* Deletes the keys that end with 0, 1 and so on: the first `least` ones, and up to one that is not there. */
static int delete_list(rdzv_store *store, const char *group, const char *name, int64_t least, int64_t *count,
                       rdzv_error *error) {
  bool deleted = true;
  int result = 0;
  for (int64_t i = 0; result == 0 && (deleted || i < least); i++) {
    char key[KEY_SIZE];
    snprintf(key, sizeof key, "%s%s%" PRId64, group, name, i);
    result = rdzv_store_delete_key(store, rdzv_str(key), &deleted, error);
    *count += deleted;
  }
  return result;
}

/* Gloo keeps the address of each rank, NCCL the identifier of each communicator. */
static int delete_group(rdzv_store *store, const char *group, int64_t workers, int64_t *count, rdzv_error *error) {
  int result = delete_list(store, group, "cpu//0/", workers, count, error);
  if (result == 0) result = delete_list(store, group, "cuda//", 0, count, error);
  return result;
}

static int delete_all(rdzv_store *store, int64_t workers, int64_t *count, rdzv_error *error) {
  int result = delete_group(store, DEFAULT_GROUP, workers, count, error);
  for (int number = 1, gaps = 0; result == 0 && gaps < MOST_GAPS; number++) {
    char group[KEY_SIZE / 2];
    const int64_t before = *count;
    snprintf(group, sizeof group, DEFAULT_GROUP "%d//", number);
    result = delete_group(store, group, 0, count, error);
    gaps = *count > before ? 0 : gaps + 1;
  }
  return result;
}

void leftovers_clear(const struct leftovers *leftovers, const char *node, int cancel_fd, const rdzv_log *log) {
  if (!leftovers->node || strcmp(leftovers->node, node) != 0) return;
  const rdzv_tcp_options options = {.size = sizeof options,
                                    .timeout_ms = REQUEST_MS,
                                    .cancel_fd = cancel_fd,
                                    .dialect = RDZV_DIALECT_V2,
                                    .secret_file = ""};
  char endpoint[ENDPOINT_TEXT_SIZE];
  rdzv_store *store = NULL;
  rdzv_error error;
  int64_t count = 0;
  endpoint_format(leftovers->addr, leftovers->port, endpoint);
  int result = rdzv_store_open_tcp(endpoint, &options, &store, &error);
  if (result == 0) result = delete_all(store, leftovers->workers, &count, &error);
  rdzv_store_free(store);
  if (result < 0)
    log_line(log, RDZV_LOG_WARNING, "cannot delete what workers left in the store of the PyTorch agent '%s': %s",
             leftovers->node, error.message);
  else if (count > 0)
    log_line(log, RDZV_LOG_INFO, "deleted %" PRId64 " key%s that workers left in the store of the PyTorch agent '%s'",
             count, count == 1 ? "" : "s", leftovers->node);
}
