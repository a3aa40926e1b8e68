/* SPDX-License-Identifier: BSD-3-Clause */
/* `rdzv serve` as a process that can be stopped, killed and started again on its port. */
#ifndef RDZV_TESTS_CHAOS_SERVER_H
#define RDZV_TESTS_CHAOS_SERVER_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct server {
  const char *rdzv; /* the command */
  char port_file[64];
  char state_dir[64]; /* "": it forgets */
  pid_t pid;          /* 0: none */
  int port;
};

static inline bool server_read_port(struct server *server) {
  FILE *file = fopen(server->port_file, "re");
  if (!file) return false;
  const bool there = fscanf(file, "%d", &server->port) == 1;
  fclose(file);
  return there;
}

static inline void server_exec(const struct server *server) {
  char port[16];
  snprintf(port, sizeof port, "%d", server->port);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  dup2(nowhere, STDOUT_FILENO);
  execl(server->rdzv, "rdzv", "serve", "--port", port, "--port-file", server->port_file, "--log-level", "error",
        *server->state_dir ? "--state-dir" : (char *)NULL, server->state_dir, (char *)NULL);
  _exit(127);
}

/* Starts it, on a free port the first time, and waits until it listens. */
static inline bool server_start(struct server *server) {
  unlink(server->port_file);
  server->pid = fork();
  if (server->pid < 0) return false;
  if (server->pid == 0) server_exec(server);
  for (int tries = 0; tries < 5000; tries++) {
    if (server_read_port(server)) return true;
    if (waitpid(server->pid, NULL, WNOHANG) != 0) break;
    pause_ms(2);
  }
  fprintf(stderr, "chaos: '%s serve' did not start\n", server->rdzv);
  return false;
}

/* It must not have ended by itself. */
static inline void server_kill(struct server *server) {
  if (server->pid <= 0) return;
  if (waitpid(server->pid, NULL, WNOHANG) != 0) {
    fprintf(stderr, "chaos: '%s serve' has ended by itself\n", server->rdzv);
    unlink(server->port_file);
    exit(1);
  }
  kill(server->pid, SIGKILL);
  while (waitpid(server->pid, NULL, 0) < 0 && errno == EINTR) {
  }
  server->pid = 0;
  unlink(server->port_file);
}

#endif
