/* SPDX-License-Identifier: BSD-3-Clause */
/* The library names its options; the user has given flags. */
#include "cli/run/run.h"

#include <stdio.h>
#include <string.h>

static const struct {
  const char *option, *flag;
} names[] = {
    {" for max_restarts:", " for --max-restarts:"},
    {" for nproc_per_node:", " for --nproc-per-node:"},
    {" for role:", " for --role:"},
    {" for redirects:", " for --redirects:"},
    {" for tee:", " for --tee:"},
    {" for local_ranks_filter:", " for --local-ranks-filter:"},
    {"option 'log_dir'", "--log-dir"},
    {"option 'rank' is '", "--node-rank is '"}, /* the last two: of --node-rank */
    {" for option 'rank':", " for --node-rank:"},
};

enum { NAMES = sizeof names / sizeof names[0], OF_NODE_RANK = 2 };

struct shown with_flags(const char *message, bool node_rank) {
  struct shown out;
  snprintf(out.text, sizeof out.text, "%s", message);
  for (int i = 0; i < NAMES - (node_rank ? 0 : OF_NODE_RANK); i++) {
    const char *at = strstr(message, names[i].option);
    if (!at) continue;
    snprintf(out.text, sizeof out.text, "%.*s%s%s", (int)(at - message), message, names[i].flag,
             at + strlen(names[i].option));
    break;
  }
  return out;
}
