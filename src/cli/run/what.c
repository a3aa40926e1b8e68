/* SPDX-License-Identifier: BSD-3-Clause */
/* What --tee, --redirects and --local-ranks-filter name. A value that is not valid names nothing: the agent refuses it.
 */
#include "cli/run/run.h"

#include <stdlib.h>
#include <string.h>

static const char *next_item(const char *at) {
  at += strcspn(at, ",");
  return *at ? at + 1 : NULL;
}

bool what_names_stream(const char *what, int stream) {
  for (const char *at = what && *what ? what : NULL; at; at = next_item(at)) {
    const char *colon = strpbrk(at, ":,");
    if (strtol(colon && *colon == ':' ? colon + 1 : at, NULL, 10) & stream) return true;
  }
  return false;
}

int64_t what_rank_beyond(const char *list, bool is_map, int64_t workers) {
  for (const char *at = workers > 0 && list && *list ? list : NULL; at; at = next_item(at)) {
    const char *end = strpbrk(at, ":,");
    const int64_t rank = strtoll(at, NULL, 10);
    if ((!is_map || (end && *end == ':')) && rank >= workers) return rank;
  }
  return -1;
}
