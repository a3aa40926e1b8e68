/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A worker of a job that is treated badly: over and over it opens the workers' store as a new connection, under the
 * names that PyTorch's workers use, signs the roll there and reads who else has. It writes a line whenever that
 * has changed, and ends when there is a file "end":
 *
 *   chaos_worker FOLDER          appends to FOLDER/notes: PID RANK WORLD_SIZE ATTEMPT MASTER ROLL
 *
 * The roll is PIDs with a comma behind each.
 */
#include <fcntl.h>
#include <poll.h>
#include <rdzv/store.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROLL = 4096, LOOK_MS = 40 };

static const char *variable(const char *name) { return getenv(name) ? getenv(name) : "?"; }

/* One write, so that lines of several workers do not mix. */
static void note(const char *folder, const char *roll) {
  char path[512], line[ROLL + 512];
  snprintf(path, sizeof path, "%s/notes", folder);
  const int len =
      snprintf(line, sizeof line, "%d %s %s %s %s:%s %s\n", (int)getpid(), variable("RANK"), variable("WORLD_SIZE"),
               variable("TORCHELASTIC_RESTART_COUNT"), variable("MASTER_ADDR"), variable("MASTER_PORT"), roll);
  const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0 || write(fd, line, (size_t)len) != len) _exit(9);
  close(fd);
}

/* Signs where it has not yet, and gives the roll. False: there is no store. */
static bool sign(bool *signed_, char *roll) {
  char endpoint[300], own[32];
  rdzv_store *base = NULL, *view = NULL;
  rdzv_value value = {0};
  const rdzv_tcp_options options = {.size = sizeof options, .timeout_ms = 300, .dialect = RDZV_DIALECT_V2};
  snprintf(endpoint, sizeof endpoint, "%s:%s", variable("MASTER_ADDR"), variable("MASTER_PORT"));
  snprintf(own, sizeof own, "worker/attempt_%s", variable("TORCHELASTIC_RESTART_COUNT"));
  int code = rdzv_store_open_tcp(endpoint, &options, &base, NULL);
  if (code == 0) code = rdzv_store_open_prefix(base, rdzv_str(own), &view, NULL);
  snprintf(own, sizeof own, "%d,", (int)getpid());
  if (code == 0 && !*signed_) {
    code = rdzv_store_append(view, rdzv_str("roll"), rdzv_str(own), NULL);
    *signed_ = code == 0;
  }
  if (code == 0) code = rdzv_store_get(view, rdzv_str("roll"), &value, NULL);
  if (code == 0) snprintf(roll, ROLL, "%s", value.data);
  rdzv_value_free(&value);
  rdzv_store_free(view);
  rdzv_store_free(base);
  return code == 0;
}

int main(int argc, char **argv) {
  char end[512], roll[ROLL] = "", before[ROLL] = "";
  bool has_signed = false;
  if (argc != 2) return 2;
  snprintf(end, sizeof end, "%s/end", argv[1]);
  note(argv[1], "-");
  while (access(end, F_OK) != 0) {
    if (sign(&has_signed, roll) && strcmp(roll, before) != 0) note(argv[1], roll);
    memcpy(before, roll, sizeof before);
    poll(NULL, 0, LOOK_MS);
  }
  return 0;
}
