/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/roles.h"

#include "base/error.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORKERS = 1 << 20 };

static json_t *parse(rdzv_bytes text) { return json_loadb(text.data ? text.data : "", text.len, 0, NULL); }

char *role_info_write(const struct role_info *info) {
  json_t *object =
      json_pack("{s:s, s:I, s:I, s:{s:I}}", "role", info->role, "rank", (json_int_t)info->rank, "local_world_size",
                (json_int_t)info->local_world_size, "rdzv", "restart_count", (json_int_t)info->restart_count);
  char *text = object ? json_dumps(object, 0) : NULL;
  json_decref(object);
  return text;
}

int role_info_read(rdzv_bytes text, struct role_info *out, rdzv_error *error) {
  json_t *object = parse(text), *own = json_object_get(object, "rdzv");
  const char *role = json_string_value(json_object_get(object, "role"));
  const json_t *rank = json_object_get(object, "rank"), *size = json_object_get(object, "local_world_size");
  const json_int_t workers = json_integer_value(size);
  int result = 0;
  if (!role || strlen(role) >= sizeof out->role || !json_is_integer(rank) || !json_is_integer(size) || workers < 1 ||
      workers > MOST_WORKERS) {
    result = error_set(error, RDZV_E_CORRUPT, "an agent published '%.*s', which is not a role with a number of workers",
                       (int)(text.len < 200 ? text.len : 200), (const char *)text.data);
  } else {
    *out = (struct role_info){.rank = json_integer_value(rank),
                              .local_world_size = workers,
                              .restart_count = json_integer_value(json_object_get(own, "restart_count")),
                              .ours = own != NULL};
    snprintf(out->role, sizeof out->role, "%s", role);
  }
  json_decref(object);
  return result;
}

/* Those of one role together, each in the order of the agents, which stand behind each other in one array. */
static int by_role(const void *a, const void *b) {
  const struct role_info *one = *(const struct role_info *const *)a, *other = *(const struct role_info *const *)b;
  const int roles = strcmp(one->role, other->role);
  return roles ? roles : (one > other) - (one < other);
}

/* Of the agents of one role: from `first` to before `end`. */
static void assign_role(const struct role_info *infos, const struct role_info *const *first,
                        const struct role_info *const *end, struct worker_ranks *out) {
  int64_t workers = 0;
  for (const struct role_info *const *at = first; at < end; at++) {
    out[*at - infos].role_base = workers;
    workers += (*at)->local_world_size;
  }
  for (const struct role_info *const *at = first; at < end; at++) out[*at - infos].role_world_size = workers;
}

bool assign_ranks(const struct role_info *infos, size_t count, struct worker_ranks *out) {
  const struct role_info **sorted = calloc(count + 1, sizeof *sorted); /* NOLINT: of pointers */
  int64_t workers = 0;
  if (!sorted) return false;
  for (size_t i = 0; i < count; i++) {
    sorted[i] = &infos[i];
    out[i].base = workers;
    workers += infos[i].local_world_size;
  }
  for (size_t i = 0; i < count; i++) out[i].world_size = workers;
  qsort(sorted, count, sizeof *sorted, by_role); /* NOLINT: of pointers */
  for (size_t first = 0, end; first < count; first = end) {
    for (end = first + 1; end < count && strcmp(sorted[end]->role, sorted[first]->role) == 0;) end++;
    assign_role(infos, sorted + first, sorted + end, out);
  }
  free(sorted);
  return true;
}

char *worker_ranks_write(const struct worker_ranks *ranks) {
  char *text;
  const int printed = asprintf(&text, "[%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "]", ranks->base,
                               ranks->world_size, ranks->role_base, ranks->role_world_size);
  return printed < 0 ? NULL : text;
}

int worker_ranks_read(rdzv_bytes text, struct worker_ranks *out, rdzv_error *error) {
  json_t *list = parse(text);
  json_int_t base, world, role_base, role_world;
  const bool read = list && json_unpack(list, "[IIII!]", &base, &world, &role_base, &role_world) == 0;
  json_decref(list);
  if (!read || base < 0 || role_base < 0 || world < base || role_world < role_base || world > INT32_MAX ||
      role_world > INT32_MAX)
    return error_set(error, RDZV_E_CORRUPT, "the agent of rank 0 assigns '%.*s', which is not a list of ranks",
                     (int)(text.len < 200 ? text.len : 200), (const char *)text.data);
  *out = (struct worker_ranks){base, world, role_base, role_world};
  return 0;
}

char *round_terms_write(const struct round_terms *terms) {
  json_t *object = json_pack("{s:I, s:b, s:i}", "restart_count", (json_int_t)terms->restart_count, "agent_store",
                             (int)terms->agent_store, "master_port", terms->master_port);
  char *text = object ? json_dumps(object, 0) : NULL;
  json_decref(object);
  return text;
}

int round_terms_read(rdzv_bytes text, struct round_terms *out, rdzv_error *error) {
  json_t *object = parse(text);
  const json_t *count = json_object_get(object, "restart_count"), *agent = json_object_get(object, "agent_store");
  const json_int_t port = json_integer_value(json_object_get(object, "master_port")); /* 0 also where it is not there */
  const bool read = json_is_integer(count) && json_integer_value(count) >= 0 && json_is_boolean(agent) && port >= 0 &&
                    port <= UINT16_MAX;
  if (read)
    *out = (struct round_terms){
        .restart_count = json_integer_value(count), .agent_store = json_is_true(agent), .master_port = (int)port};
  json_decref(object);
  if (read) return 0;
  return error_set(error, RDZV_E_CORRUPT,
                   "the agent of rank 0 published '%.*s', which is not a description of the round",
                   (int)(text.len < 200 ? text.len : 200), (const char *)text.data);
}
