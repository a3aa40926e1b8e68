/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/file/watch.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

enum { FIRST_PAUSE_MS = 10, MAX_PAUSE_MS = 250 };

/* Writers hold the lock of the file until they close it, so the close is the event to wait for. */
enum { CHANGES = IN_CLOSE_WRITE | IN_MOVED_TO };

/* Watches the directory: the file may not exist yet. */
static int add_watch(int fd, const char *path, const char *name) {
  if (name == path) return inotify_add_watch(fd, ".", CHANGES | IN_ONLYDIR);
  char *directory = strndup(path, (size_t)(name - path));
  if (!directory) return -1;
  const int watch = inotify_add_watch(fd, directory, CHANGES | IN_ONLYDIR);
  free(directory);
  return watch;
}

/* Reads the events that have come. Is one about the file? An event without a name is about the directory, or about lost
 * events, and counts, too. */
static bool is_about_file(const struct file_watch *watch) {
  char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
  bool about = false;
  ssize_t len;
  while ((len = read(watch->fd, events, sizeof events)) > 0) {
    for (const char *at = events; at < events + len;) {
      const struct inotify_event *event = (const void *)at;
      about = about || event->len == 0 || strcmp(event->name, watch->name) == 0;
      at += sizeof *event + event->len;
    }
  }
  return about;
}

void file_watch_start(struct file_watch *watch, const char *path) {
  const char *slash = strrchr(path, '/');
  watch->name = slash ? slash + 1 : path;
  watch->backoff = (struct backoff){FIRST_PAUSE_MS, MAX_PAUSE_MS};
  if (watch->fd < 0) watch->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (watch->fd < 0) return;
  is_about_file(watch); /* drop old events */
  watch->directory = add_watch(watch->fd, path, watch->name);
}

void file_watch_stop(struct file_watch *watch) {
  if (watch->directory >= 0) inotify_rm_watch(watch->fd, watch->directory);
  watch->directory = -1;
}

void file_watch_close(struct file_watch *watch) {
  if (watch->fd >= 0) close(watch->fd);
  *watch = FILE_WATCH_CLOSED;
}

int file_watch_wait(struct file_watch *watch, const struct flag *cancel, deadline until) {
  const deadline end = deadline_sooner(backoff_next(&watch->backoff), until);
  for (;;) {
    struct pollfd fds[2] = {{.fd = watch->fd, .events = POLLIN}};
    const int result = flag_poll(cancel, fds, 1, end);
    if (result < 0) return result == RDZV_E_TIMEOUT ? 0 : result;
    if (is_about_file(watch) || deadline_left(end) == 0) return 0; /* other files may change all the time */
  }
}
