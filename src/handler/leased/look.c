/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/leased/look.h"

#include "base/error.h"
#include "etcd/path.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void look_free(struct look *look) {
  for (size_t i = 0; i < look->count; i++) leased_node_free(&look->seats[i].node);
  free(look->seats);
  free(look->reason);
  buf_free(&look->text);
  leased_world_free(&look->world);
}

static int take_board(struct look *look, const char *key, const struct etcd3_kv *kv, rdzv_error *error) {
  if (strcmp(key, LEASED_WORLD) == 0) {
    leased_world_free(&look->world); /* a server that lies can have it twice */
    look->world = LEASED_WORLD_NONE;
    look->world_mod = kv->mod_revision;
    return leased_world_read(kv->value.data, &look->world, error);
  }
  if (strcmp(key, LEASED_CLOSED) != 0) return 0;
  look->closed = true;
  free(look->reason);
  look->reason = leased_note_read(kv->value.data, "reason");
  return look->reason ? 0 : error_no_memory(error);
}

static int take_key(struct look *look, const char *key, const struct etcd3_kv *kv, rdzv_error *error) {
  int64_t round, lease;
  struct seat *seat = &look->seats[look->count];
  if (!leased_key_parse(key, &round, &lease)) return take_board(look, key, kv, error);
  const int result = leased_node_read(kv->value.data, &seat->node, error);
  if (result < 0) return result == RDZV_E_CORRUPT ? 0 : result;
  seat->round = round;
  seat->lease = lease;
  seat->create = kv->create_revision;
  look->count++;
  return 0;
}

int look_take(struct look *look, const char *root, const struct etcd3_result *found, rdzv_error *error) {
  int result = 0;
  look->seats = calloc(found->kv_count + 1, sizeof *look->seats);
  if (!look->seats) return error_no_memory(error);
  for (size_t i = 0; i < found->kv_count && result == 0; i++) {
    const struct etcd3_kv *kv = &found->kvs[i];
    rdzv_bytes rest;
    char line[64];
    if (!etcd_path_below(rdzv_value_bytes(&kv->key), root, &rest)) continue;
    const char *key = rest.data;       /* a key ends with a byte 0 */
    if (strstr(key, "/kv/")) continue; /* of a round's store */
    look->exists = true;
    snprintf(line, sizeof line, "%" PRId64 " %" PRId64 "\n", kv->create_revision, kv->mod_revision);
    if (!buf_append(&look->text, line, strlen(line))) return error_no_memory(error);
    result = take_key(look, key, kv, error);
  }
  return result;
}
