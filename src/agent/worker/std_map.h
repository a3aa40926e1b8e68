/* SPDX-License-Identifier: BSD-3-Clause */
/* The streams of local ranks, as torchrun's flags name them. Pure. */
#ifndef RDZV_AGENT_WORKER_STD_MAP_H
#define RDZV_AGENT_WORKER_STD_MAP_H

#include <rdzv/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STD_OUT = 1, STD_ERR = 2 };

/* "3", or "0:1,2:3". NULL and "" mean none. */
struct std_map {
  unsigned all;
  struct std_entry {
    int64_t local_rank;
    unsigned streams;
  } * entries;
  size_t count;
};

/* `option` is the name for errors. */
int std_map_parse(const char *option, const char *text, struct std_map *out, rdzv_error *error);
unsigned std_map_of(const struct std_map *map, int64_t local_rank);

/* Is any stream of any local rank in the map? */
bool std_map_any(const struct std_map *map);
void std_map_free(struct std_map *map);

/* "0,2" as a map whose entries have no streams. */
int rank_list_parse(const char *option, const char *text, struct std_map *out, rdzv_error *error);

/* All local ranks are in an empty list. */
bool rank_list_has(const struct std_map *list, int64_t local_rank);

#endif
