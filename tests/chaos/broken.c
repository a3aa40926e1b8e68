/* SPDX-License-Identifier: BSD-3-Clause */
/* The command with a deliberate mistake: its server answers before a commit is durable. The checker must notice. The
 * disk is a slow one, so that most kills come between the answer and the commit, whatever the disk of this machine. */
#include "server/server.h"

#include <time.h>

uint64_t __wrap_keeper_need_of(const struct keeper *keeper);
int __wrap_keep_open_folder(const char *path, struct keep **out, rdzv_error *error);
int __real_keep_open_folder(const char *path, struct keep **out, rdzv_error *error);

uint64_t __wrap_keeper_need_of(const struct keeper *keeper) {
  (void)keeper;
  return 0;
}

static const struct keep_ops *real_ops;
static struct keep_ops slow_ops;

static int commit_slowly(struct keep *keep, const struct keep_change *changes, size_t count, rdzv_error *error) {
  nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  return real_ops->commit(keep, changes, count, error);
}

int __wrap_keep_open_folder(const char *path, struct keep **out, rdzv_error *error) {
  const int result = __real_keep_open_folder(path, out, error);
  if (result < 0) return result;
  real_ops = (*out)->ops;
  slow_ops = *real_ops;
  slow_ops.commit = commit_slowly;
  (*out)->ops = &slow_ops;
  return 0;
}
