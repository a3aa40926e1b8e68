/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <rdzv/version.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
  const char *name;
  int (*run)(int argc, char **argv);
  const char *summary;
} commands[] = {
    {"run", cmd_run, "launch and supervise the workers of an elastic job, as torchrun does"},
    {"join", cmd_join, "join a rendezvous, and print each round or run a command in it"},
    {"status", cmd_status, "show the nodes of a rendezvous"},
    {"close", cmd_close, "close a rendezvous for all nodes"},
    {"list", cmd_list, "list the runs of a store"},
    {"reset", cmd_reset, "remove a closed run from its store"},
    {"etcd", cmd_etcd, "run an etcd that stops with its parent"},
    {"serve", cmd_serve, "serve a store to PyTorch and rdzv clients"},
    {"store", cmd_store, "read and write a store from the shell"},
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

static int help(FILE *to) {
  print_wrapped(
      to,
      "usage: rdzv COMMAND [FLAG...]\n\nElastic rendezvous: the nodes of a distributed job find each other and "
      "agree on ranks.\n\ncommands:\n");
  for (int i = 0; i < COMMANDS; i++) fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].summary);
  print_wrapped(to,
                "\n'rdzv COMMAND --help' and 'man rdzv-COMMAND' describe a command.\n'rdzv --version' prints the "
                "version.\n");
  return to == stdout ? EXIT_YES : EXIT_USAGE;
}

/* No other descriptor may become stdin, stdout or stderr because they were closed. */
static void fill_standard_streams(void) {
  int fd;
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
  if (argc < 2) return help(stderr);
  if (argc == 3 && strcmp(argv[1], "help") == 0) { /* 'rdzv help run' is 'rdzv run --help' */
    argv[1] = argv[2];
    argv[2] = flag;
  }
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) return help(stdout);
  if (strcmp(argv[1], "--version") == 0) {
    printf("rdzv %s\n", rdzv_version());
    return EXIT_YES;
  }
  for (int i = 0; i < COMMANDS; i++)
    if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
  return fail_unknown(argv[1]);
}

int main(int argc, char **argv) {
  fill_standard_streams();
  const int code = run(argc, argv);
  if (code != EXIT_YES || (fflush(stdout) == 0 && !ferror(stdout)))
    return code; /* what was printed and not looked after: a help, a version */
  complain("rdzv", "cannot write to stdout: %s", strerror(errno));
  return EXIT_IO;
}
