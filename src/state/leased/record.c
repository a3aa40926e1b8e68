/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/leased/record.h"

#include "base/error.h"
#include "base/text/utf8.h"
#include "state/differences.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const orders[] = {"torch", "stable", "natural"};

/* ---- keys ----------------------------------------------------------------------------------------------------- */

struct leased_key leased_key(int64_t round, const struct node_desc *node, int64_t lease) {
  struct leased_key key;
  size_t len = (size_t)snprintf(key.text, sizeof key.text, "%" PRId64 "/nodes/", round);
  for (const char *at = node->addr; *at && len < sizeof key.text - 64; at++)
    len += (size_t)snprintf(key.text + len, 4, *at == '/' ? "%%2F" : "%c", *at);
  snprintf(key.text + len, sizeof key.text - len, "_%" PRId64 "_%" PRId64 ".%" PRIx64, node->pid, node->local_id,
           (uint64_t)lease);
  return key;
}

bool leased_key_parse(const char *key, int64_t *round, int64_t *lease) {
  const size_t digits = strspn(key, "0123456789");
  const char *dot = strrchr(key, '.');
  if (digits == 0 || digits > 18 || strncmp(key + digits, "/nodes/", 7) != 0 || !dot) return false;
  const size_t hex = strspn(dot + 1, "0123456789abcdef");
  if (hex == 0 || hex > 16 || dot[1 + hex]) return false;
  *round = strtoll(key, NULL, 10);
  *lease = (int64_t)strtoull(dot + 1, NULL, 16);
  return true;
}

/* ---- nodes ---------------------------------------------------------------------------------------------------- */

void leased_node_free(struct leased_node *node) {
  free((char *)node->desc.addr);
  free(node->master_addr);
  free(node->settings);
  *node = (struct leased_node){0};
}

char *leased_node_write(const struct leased_node *node, const struct rendezvous_settings *settings) {
  const struct node_text name = node_text(&node->desc);
  const struct differences_settings text_of = differences_settings(settings);
  json_t *json =
      json_pack("{s:s,s:s,s:I,s:I,s:I,s:I,s:f,s:s,s:s,s:s,s:I}", "node", name.text, "addr", node->desc.addr, "pid",
                (json_int_t)node->desc.pid, "local_id", (json_int_t)node->desc.local_id, "min",
                (json_int_t)settings->min_nodes, "max", (json_int_t)settings->max_nodes, "last_call",
                (double)settings->last_call_timeout / 1000, "rank_order", orders[settings->rank_order], "settings",
                text_of.text, "master_addr", node->master_addr, "master_port", (json_int_t)node->master_port);
  if (json && node->left) json_object_set_new(json, "left", json_true());
  char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
  json_decref(json);
  return text;
}

static int fail_corrupt(const char *what, rdzv_error *error) {
  return error_set(error, RDZV_E_CORRUPT, "the rendezvous in etcd is corrupt: %s", what);
}

static bool is_addr(const char *addr) { return addr && strlen(addr) <= STATE_MAX_ADDR; }
static bool is_port(json_int_t port) { return port >= 0 && port <= 65535; }

int leased_node_read(const char *text, struct leased_node *out, rdzv_error *error) {
  json_int_t pid, local_id, port;
  const char *addr = NULL, *master = NULL;
  json_t *json = json_loads(text, 0, NULL);
  const bool valid = json && json_unpack(json, "{s:s,s:I,s:I,s:s,s:I}", "addr", &addr, "pid", &pid, "local_id",
                                         &local_id, "master_addr", &master, "master_port", &port) == 0;
  if (!valid || !is_addr(addr) || !is_addr(master) || !is_port(port)) {
    json_decref(json);
    return fail_corrupt("a node", error);
  }
  const char *settings = json_string_value(json_object_get(json, "settings"));
  if (!settings || strlen(settings) >= DIFFERENCES_SETTINGS_SIZE) settings = "";
  *out = (struct leased_node){.desc = {strdup(addr), pid, local_id},
                              .master_addr = strdup(master),
                              .master_port = port,
                              .min_nodes = json_integer_value(json_object_get(json, "min")),
                              .max_nodes = json_integer_value(json_object_get(json, "max")),
                              .settings = strdup(settings),
                              .left = json_is_true(json_object_get(json, "left"))};
  json_decref(json);
  if (out->desc.addr && out->master_addr && out->settings) return 0;
  leased_node_free(out);
  return error_no_memory(error);
}

/* ---- worlds --------------------------------------------------------------------------------------------------- */

void leased_world_free(struct leased_world *world) {
  free(world->members);
  free(world->texts);
  *world = LEASED_WORLD_NONE;
}

static bool add_member(json_t *list, const struct leased_member *member) {
  char lease[17];
  snprintf(lease, sizeof lease, "%" PRIx64, (uint64_t)member->lease);
  json_t *item =
      json_pack("[s,I,I,s]", member->desc.addr, (json_int_t)member->desc.pid, (json_int_t)member->desc.local_id, lease);
  return json_array_append_new(list, item) == 0;
}

char *leased_world_write(const struct leased_world *world) {
  json_t *list = json_array();
  bool added = list != NULL;
  for (size_t i = 0; added && i < world->count; i++) added = add_member(list, &world->members[i]);
  json_t *json = json_pack("{s:I,s:I,s:s,s:I,s:o}", "round", (json_int_t)world->round, "size", (json_int_t)world->count,
                           "master_addr", world->master_addr ? world->master_addr : "", "master_port",
                           (json_int_t)world->master_port, "nodes", list);
  char *text = json && added ? json_dumps(json, JSON_COMPACT) : NULL;
  json_decref(json);
  return text;
}

/* Copies the text behind those that are there. */
static char *keep(char **room, const char *text) {
  char *copy = *room;
  *room = stpcpy(copy, text) + 1;
  return copy;
}

static bool read_member(json_t *item, char **room, struct leased_member *out) {
  json_int_t pid, local_id;
  const char *addr, *lease;
  if (json_unpack(item, "[s,I,I,s]", &addr, &pid, &local_id, &lease) != 0 || !is_addr(addr)) return false;
  *out = (struct leased_member){.desc = {keep(room, addr), pid, local_id}, .lease = (int64_t)strtoull(lease, NULL, 16)};
  return out->lease != 0;
}

static int read_members(const json_t *list, char *room, struct leased_world *out, rdzv_error *error) {
  json_t *item;
  size_t i;
  json_array_foreach(list, i, item) {
    if (!read_member(item, &room, &out->members[out->count++])) return fail_corrupt("a node of the world", error);
  }
  return 0;
}

int leased_world_read(const char *text, struct leased_world *out, rdzv_error *error) {
  json_int_t round = -1, port = 0;
  const char *master;
  json_t *list, *json = strlen(text) <= LEASED_MAX_VALUE ? json_loads(text, 0, NULL) : NULL;
  const bool valid = json && json_unpack(json, "{s:I,s:s,s:I,s:o}", "round", &round, "master_addr", &master,
                                         "master_port", &port, "nodes", &list) == 0;
  *out = LEASED_WORLD_NONE;
  if (!valid || round < 0 || round > INT64_MAX / 2 || !is_port(port) || json_array_size(list) > STATE_MAX_NODES) {
    json_decref(json);
    return fail_corrupt("the world", error);
  }
  out->round = round;
  out->master_port = port;
  out->members = calloc(json_array_size(list) + 1, sizeof *out->members);
  out->texts = malloc(strlen(text) + 2); /* texts in JSON are not shorter than what they stand for */
  if (!out->members || !out->texts) {
    json_decref(json);
    leased_world_free(out);
    return error_no_memory(error);
  }
  char *room = out->texts;
  out->master_addr = keep(&room, master);
  const int result = read_members(list, room, out, error);
  json_decref(json);
  if (result < 0) leased_world_free(out);
  return result;
}

int64_t leased_world_rank(const struct leased_world *world, int64_t lease) {
  for (size_t i = 0; i < world->count; i++)
    if (world->members[i].lease == lease) return (int64_t)i;
  return -1;
}

/* ---- the rest of the board ------------------------------------------------------------------------------------ */

char *leased_note_write(const char *name, const char *text) {
  json_t *json = json_pack("{s:s}", name, text);
  char *note = json ? json_dumps(json, JSON_COMPACT) : NULL;
  json_decref(json);
  return note;
}

char *leased_note_read(const char *note, const char *name) {
  json_t *json = json_loads(note, 0, NULL);
  const char *text = json_string_value(json_object_get(json, name));
  char *copy = strdup(text && strlen(text) <= LEASED_MAX_REASON ? text : "");
  json_decref(json);
  return copy;
}
