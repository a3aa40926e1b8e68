/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The process between us and etcd, which does nothing but watch both:
 *
 *   we --(line)-- watcher --> etcd
 *
 * The line is a pair of sockets. We end etcd by closing our end, which happens in whatever way we end; the watcher says
 * on its end that etcd has ended. So neither needs wait(2) to be ours, which a program may leave to others, nor asks
 * who its parent is, which changes at any time.
 */
#ifndef RDZV_ETCD_PROCESS_WATCH_H
#define RDZV_ETCD_PROCESS_WATCH_H

#include <rdzv/error.h>
#include <stdbool.h>
#include <sys/types.h>

/* What to run. All of it is borrowed for the call. */
struct watcher_job {
  char *const *argv; /* argv[0] is the path */
  char *const *env;
  const char *log_path; /* where its output goes; NULL: nowhere */
  int log_fd;           /* where stderr goes instead; -1: there, too */
  const char *own_dir;  /* removed behind it; NULL: none */
};

/* What is known of an end. */
struct watcher_note {
  int errnum; /* it could not be run: why */
  int status; /* else, as waitpid gives it */
};

struct watcher {
  pid_t pid; /* 0: none */
  int line;  /* our end, readable once etcd has ended; -1: none */
  bool ended;
  struct watcher_note note;
};

int watcher_start(const struct watcher_job *job, struct watcher *out, rdzv_error *error);

/* Has etcd ended? Then the note is there. */
bool watcher_has_ended(struct watcher *watcher);

/* Ends etcd, within 5 s, and the watcher. May be called again. */
void watcher_stop(struct watcher *watcher);

#endif
