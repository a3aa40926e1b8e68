/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/wait/fork.h"

#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>

static atomic_uint forks;

static void in_child(void) { atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed); }

static void count_forks(void) { pthread_atfork(NULL, NULL, in_child); }

fork_mark fork_mark_here(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, count_forks);
  return atomic_load_explicit(&forks, memory_order_relaxed);
}

bool fork_crossed(fork_mark mark) { return mark != atomic_load_explicit(&forks, memory_order_relaxed); }

int fork_fail(const char *what, rdzv_error *error) {
  return error_set(error, RDZV_E_INVALID,
                   "%s was opened before this process was forked and belongs to the parent (open another one here)",
                   what);
}
