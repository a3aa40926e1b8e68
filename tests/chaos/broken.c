/* SPDX-License-Identifier: BSD-3-Clause */
/* The command with a deliberate mistake: its server answers before a commit is durable. The checker must notice. */
#include "server/server.h"

uint64_t __wrap_keeper_need_of(const struct keeper *keeper);

uint64_t __wrap_keeper_need_of(const struct keeper *keeper) {
  (void)keeper;
  return 0;
}
