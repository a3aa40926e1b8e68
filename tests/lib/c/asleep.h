/* SPDX-License-Identifier: BSD-3-Clause */
/* A call that blocks is a thread that sleeps in the kernel: so a test knows that it waits. */
#ifndef RDZV_TESTS_ASLEEP_H
#define RDZV_TESTS_ASLEEP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

/* Of a thread of any process, as ps(1) shows it: 'R', 'S', 'T' …; '\0': there is none. */
static inline char thread_state(pid_t thread) {
  char path[64], stat[512];
  snprintf(path, sizeof path, "/proc/%ld/stat", (long)thread);
  FILE *file = fopen(path, "re");
  if (!file) return '\0';
  const char *line = fgets(stat, sizeof stat, file);
  fclose(file);
  const char *name_end = line ? strrchr(line, ')') : NULL;
  return name_end && name_end[1] ? name_end[2] : '\0';
}

static inline bool is_asleep(pid_t thread) { return thread_state(thread) == 'S'; }

/* Waits for that, for at most a minute, also if the thread has yet to tell its id. */
static inline bool await_asleep(const atomic_int *thread) {
  const struct timespec moment = {0, 1000000};
  for (int left = 60000; left > 0; left--) {
    const pid_t id = atomic_load(thread);
    if (id != 0 && is_asleep(id)) return true;
    nanosleep(&moment, NULL);
  }
  return false;
}

#endif
