/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The process between us and etcd, which does nothing but watch both:
 *
 *   we --(line)-- guard --> etcd
 *
 * The line is a pair of sockets. We end etcd by closing our end, which happens in whatever way we end; the guard says
 * on its end that etcd has ended. So neither needs wait(2) to be ours, which a program may leave to others, nor asks
 * who its parent is, which changes at any time.
 */
#ifndef RDZV_ETCD_PROCESS_GUARD_H
#define RDZV_ETCD_PROCESS_GUARD_H

#include <rdzv/error.h>
#include <stdbool.h>
#include <sys/types.h>

/* What to run. All of it is borrowed for the call. */
struct etcd_guard_job {
  char *const *argv; /* argv[0] is the path */
  char *const *env;
  const char *log_path; /* where its output goes; NULL: nowhere */
  int log_fd;           /* where stderr goes instead; -1: there, too */
  const char *own_dir;  /* removed behind it; NULL: none */
};

/* What is known of an end. */
struct etcd_guard_note {
  int errnum; /* it could not be run: why */
  int status; /* else, as waitpid gives it */
};

struct etcd_guard {
  pid_t pid; /* 0: none */
  int line;  /* our end, readable once etcd has ended; -1: none */
  bool ended;
  struct etcd_guard_note note;
};

int etcd_guard_start(const struct etcd_guard_job *job, struct etcd_guard *out, rdzv_error *error);

/* Has etcd ended? Then the note is there. */
bool etcd_guard_has_ended(struct etcd_guard *guard);

/* Ends etcd, within 5 s, and the guard. May be called again. */
void etcd_guard_stop(struct etcd_guard *guard);

#endif
