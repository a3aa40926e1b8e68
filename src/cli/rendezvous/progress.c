/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/rendezvous/rendezvous.h"
#include "cli/terminal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 250, WIDEST = 512, MOST_SEEN = 256, FEW = 64 };

/* Nodes that were there in this process's life, and in which round last, used by one progress at a time. Those of the
 * round before that are not there are missing; those that were gone by then are not. */
static struct {
  char *names[MOST_SEEN];
  int64_t rounds[MOST_SEEN];
  size_t count;
} seen;

struct progress {
  rdzv_handler *handler;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool over;
  struct timespec began;
};

static size_t width(void) {
  struct winsize size;
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 10;
  const size_t columns = known ? size.ws_col : 80;
  return columns < WIDEST ? columns - 1 : WIDEST - 1;
}

static void add(char *line, size_t room, const char *text) {
  const size_t len = strlen(line);
  if (len < room) snprintf(line + len, room - len, "%s", shown(text).text);
}

static bool is_there(const rdzv_status *status, const char *node) {
  for (size_t i = 0; i < rdzv_status_node_count(status); i++)
    if (strcmp(rdzv_status_node(status, i)->node, node) == 0) return true;
  return false;
}

static void remember(const char *node, int64_t round) {
  size_t at = 0;
  while (at < seen.count && strcmp(seen.names[at], node) != 0) at++;
  if (at == MOST_SEEN) return;
  if (at == seen.count && (seen.names[at] = strdup(node)) != NULL) seen.count++;
  if (at < seen.count) seen.rounds[at] = round;
}

static void remember_participants(const rdzv_status *status) {
  for (size_t i = 0; i < status->participants; i++) remember(rdzv_status_node(status, i)->node, status->round);
}

static void remember_result(const rdzv_result *round) {
  const rdzv_participant *participant;
  if (round->world_size > FEW) return; /* the server would have to send them */
  for (int64_t rank = 0; (participant = rdzv_result_participant(round, rank)); rank++)
    remember(participant->node, round->round);
}

static void add_missing(const rdzv_status *status, char *line, size_t room) {
  const char *before = "; missing: ";
  for (size_t i = 0; i < seen.count; i++) {
    if (seen.rounds[i] + 1 < status->round || is_there(status, seen.names[i])) continue;
    add(line, room, before);
    add(line, room, seen.names[i]);
    before = ", ";
  }
}

static void draw(const rdzv_status *status, long long seconds) {
  char line[WIDEST] = "", part[128];
  const size_t room = width();
  const long long more = (long long)status->min_nodes - (long long)status->participants;
  snprintf(line, sizeof line, "round %lld %s for %lld s: %zu joined", (long long)status->round, status->phase, seconds,
           status->participants);
  if (status->min_nodes > 0) {
    snprintf(part, sizeof part, ", min %lld, max %lld", (long long)status->min_nodes, (long long)status->max_nodes);
    add(line, room, part);
  }
  if (more > 0) {
    snprintf(part, sizeof part, ", %lld more needed", more);
    add(line, room, part);
  }
  if (status->deadline_left_ms >= 0) {
    snprintf(part, sizeof part, ", last call %lld s", (long long)(status->deadline_left_ms + 999) / 1000);
    add(line, room, part);
  }
  if (status->waiting > 0) {
    snprintf(part, sizeof part, ", %zu wait", status->waiting);
    add(line, room, part);
  }
  for (size_t i = 0; i < status->participants; i++) {
    add(line, room, i == 0 ? ": " : ", ");
    add(line, room, rdzv_status_node(status, i)->node);
  }
  add_missing(status, line, room);
  show_open_line(true);
  fprintf(stderr, "\r\033[K%.*s", (int)room, line);
  fflush(stderr);
}

/* False: it is over. */
static bool tick(struct progress *progress) {
  struct timespec at;
  clock_gettime(CLOCK_REALTIME, &at);
  at.tv_nsec += TICK_MS * 1000000L;
  at.tv_sec += at.tv_nsec / 1000000000;
  at.tv_nsec %= 1000000000;
  pthread_mutex_lock(&progress->lock);
  if (!progress->over) pthread_cond_timedwait(&progress->changed, &progress->lock, &at);
  const bool over = progress->over;
  pthread_mutex_unlock(&progress->lock);
  return !over;
}

static void *run(void *argument) {
  struct progress *progress = argument;
  rdzv_status *status;
  struct timespec now;
  while (tick(progress)) {
    if (rdzv_handler_status(progress->handler, 0, &status, NULL) < 0) continue;
    remember_participants(status);
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (status->exists && !status->complete) draw(status, (long long)(now.tv_sec - progress->began.tv_sec));
    rdzv_status_free(status);
  }
  show_open_line(false);
  fprintf(stderr, "\r\033[K");
  fflush(stderr);
  return NULL;
}

struct progress *progress_begin(rdzv_handler *handler) {
  if (!stderr_takes_codes()) return NULL;
  struct progress *progress = calloc(1, sizeof *progress);
  if (!progress) return NULL;
  progress->handler = handler;
  clock_gettime(CLOCK_MONOTONIC, &progress->began);
  pthread_mutex_init(&progress->lock, NULL);
  pthread_cond_init(&progress->changed, NULL);
  if (pthread_create(&progress->thread, NULL, run, progress) == 0) return progress;
  free(progress);
  return NULL;
}

void progress_end(struct progress *progress, const rdzv_result *round) {
  if (!progress) return;
  pthread_mutex_lock(&progress->lock);
  progress->over = true;
  pthread_cond_signal(&progress->changed);
  pthread_mutex_unlock(&progress->lock);
  pthread_join(progress->thread, NULL);
  if (round) remember_result(round);
  pthread_mutex_destroy(&progress->lock);
  pthread_cond_destroy(&progress->changed);
  free(progress);
}
