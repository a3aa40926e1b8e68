/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/cli.h"

#include <fcntl.h>
#include <rdzv/version.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *summary;
  bool answers; /* the output is the purpose: a closed stdout is an error */
} commands[] = {
    {"run", cmd_run, "launch and supervise the workers of an elastic job, as torchrun does", false},
    {"join", cmd_join, "join a rendezvous, and print each round or run a command in it", false},
    {"status", cmd_status, "show the nodes of a rendezvous", true},
    {"close", cmd_close, "close a rendezvous for all nodes", false},
    {"list", cmd_list, "list the runs of a store", true},
    {"reset", cmd_reset, "remove a closed run from its store", false},
    {"etcd", cmd_etcd, "run an etcd that stops with its parent", false},
    {"serve", cmd_serve, "serve a store to PyTorch and rdzv clients", false},
    {"store", cmd_store, "read and write a store from the shell", true},
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static int help(bool asked) {
  if (asked) need_stdout();
  FILE *to = asked ? stdout : stderr;
  print_wrapped(
      to,
      "usage: rdzv COMMAND [FLAG...]\n\nElastic rendezvous: the nodes of a distributed job find each other and "
      "agree on ranks.\n\ncommands:\n");
  for (int i = 0; i < COMMANDS; i++) fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].summary);
  print_wrapped(to,
                "\n'rdzv COMMAND --help' and 'man rdzv-COMMAND' describe a command.\n'rdzv --version' prints the "
                "version.\n");
  return asked ? EXIT_YES : EXIT_USAGE;
}

/* A new descriptor must not become stdin, stdout or stderr because they were closed. */
static void fill_standard_streams(void) {
  int fd;
  note_closed_stdout();
  do fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd > STDERR_FILENO) close(fd);
}

static int fail_unknown(const char *name) {
  const char *names[COMMANDS];
  for (int i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
  complain("rdzv", "unknown command '%s'%s", name, did_you_mean("rdzv", "", name, names, COMMANDS).text);
  return EXIT_USAGE;
}

static int run(int argc, char **argv) {
  static char flag[] = "--help";
  if (argc < 2) return help(false);
  if (argc == 3 && strcmp(argv[1], "help") == 0) { /* 'rdzv help run' is 'rdzv run --help' */
    argv[1] = argv[2];
    argv[2] = flag;
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) return help(true);
  if (strcmp(argv[1], "--version") == 0) {
    need_stdout();
    printf("rdzv %s\n", rdzv_version());
    return EXIT_YES;
  }
  for (int i = 0; i < COMMANDS; i++) {
    if (strcmp(argv[1], commands[i].name) != 0) continue;
    if (commands[i].answers) need_stdout();
    return commands[i].run(argc - 1, argv + 1);
  }
  return fail_unknown(argv[1]);
}

int main(int argc, char **argv) {
  fill_standard_streams();
  const int code = run(argc, argv);
  return code == EXIT_YES ? finish_output("rdzv", true) : code; /* a help, a version */
}
