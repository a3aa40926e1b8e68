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
  bool in_memory;      /* no output goes there: a temporary base may be in memory */
  char base[PATH_MAX]; /* created by us if the user names none; "" before */
  bool own_base;
  char run[PATH_MAX]; /* of this run; "" before the first attempt */
};

/* `base` NULL: a temporary folder, made when the first file is needed: in TMPDIR; else in memory, if the workers'
 * output does not go there; else in /tmp. A folder is made in the base and removed: RDZV_E_IO names log_dir or TMPDIR.
 * RDZV_E_INVALID: it is not a folder. */
int log_dir_init(struct log_dir *dir, const char *base, bool output, rdzv_error *error);

/* Creates the folder of that worker and attempt. Files of an earlier round stay in it, except the error file. `path` is
 * "" if there are no files. Local rank 0 comes first. */
int log_dir_worker(struct log_dir *dir, const char *run_id, int64_t attempt, int64_t local_rank, char path[PATH_MAX],
                   rdzv_error *error);

/* A temporary folder that is useless without the agent, because it has no output; "" if there is none. */
const char *log_dir_useless(const struct log_dir *dir);

/* Ends the run: removes folders without files, and a temporary folder unless `keep`. `run` is "" if it is removed. */
void log_dir_end(struct log_dir *dir, bool keep);

#endif
