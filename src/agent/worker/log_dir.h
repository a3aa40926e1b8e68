/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the files of a run are: <log_dir>/<run_id>_<random>/attempt_<n>/<local rank>/. */
#ifndef RDZV_AGENT_WORKER_LOG_DIR_H
#define RDZV_AGENT_WORKER_LOG_DIR_H

#include <limits.h>
#include <rdzv/error.h>
#include <stdbool.h>
#include <stdint.h>

struct log_dir {
  bool none;           /* there are no files */
  bool in_memory;      /* a temporary base may be in memory */
  char base[PATH_MAX]; /* made by us where the user names none; "" before */
  bool own_base;
  char run[PATH_MAX]; /* of this run; "" before the first attempt */
};

/* `base` NULL: a temporary folder, made when the first file is needed: in TMPDIR; else in memory, if the workers'
 * output does not go there; else in /tmp. RDZV_E_INVALID: it is not a folder. */
int log_dir_init(struct log_dir *dir, const char *base, bool output, rdzv_error *error);

/* Makes the folder of that worker and attempt. What is left in it of before stays, but for an error file. `path` is ""
 * where there are no files. */
int log_dir_worker(struct log_dir *dir, const char *run_id, int64_t attempt, int64_t local_rank, char path[PATH_MAX],
                   rdzv_error *error);

/* The run is over. A folder without any file is removed, and a temporary one unless `keep`. `run` is "" then. */
void log_dir_end(struct log_dir *dir, bool keep);

#endif
