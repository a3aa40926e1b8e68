/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/rendezvous/rendezvous.h"

#include <rdzv/etcd.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const me = "rdzv etcd";

struct settings {
  const char *data_dir, *port_file, *log_file, *binary;
  int64_t port, timeout;
  int log_level;
};

static int parse(int argc, char **argv, struct settings *to) {
  const struct cli_flag flags[] = {
      {"data-dir", FLAG_TEXT, &to->data_dir, "DIR",
       "folder for the data of etcd (default: a temporary one, removed at the end)"},
      {"port", FLAG_NUMBER, &to->port, "N", "port for clients (default 0: a free port)"},
      {"port-file", FLAG_TEXT, &to->port_file, "PATH", "write the port to PATH when ready; removed at the end"},
      {"log", FLAG_TEXT, &to->log_file, "PATH",
       "append the output of etcd to PATH (default: shown only after a failure)"},
      {"binary", FLAG_TEXT, &to->binary, "PATH", "the etcd to run; see below for the default"},
      {"timeout", FLAG_SECONDS, &to->timeout, "S", "seconds until etcd must answer (default 60)"},
      LOG_LEVEL_FLAG(&to->log_level, "warning"),
      {0}};
  const struct command command = {
      me, "start", "Runs an etcd with one member on a loopback address. It stops with this process.", flags,
      "Prints the address of etcd once etcd answers. SIGTERM, SIGINT and SIGHUP stop etcd cleanly. 'start' may also "
      "come before the flags.\n\n"
      "The default of --binary is $RDZV_ETCD_BINARY, else $TORCHELASTIC_ETCD_BINARY_PATH, else the etcd of rdzv's "
      "libexec "
      "folder, else the etcd in PATH. Environment variables named ETCD_... are not passed on to etcd.\n\n"
      "exit codes: 0 stopped by a signal, 2 usage, 3 etcd exited before it answered, 4 timeout, 7 I/O or etcd exited "
      "later\n"};
  const int rest = flags_parse(&command, argc, argv);
  if (rest < 0) return rest;
  if (!check_port(me, to->port)) return -1;
  if (rest + 1 == argc && strcmp(argv[rest], "start") == 0) return rest;
  complain(me, "expected 'start', and no other argument (see 'rdzv etcd --help')");
  return -1;
}

static int serve(rdzv_etcd_process *process, const struct settings *settings) {
  rdzv_error error;
  int status = 0;
  if (settings->port_file && write_port_file(me, settings->port_file, rdzv_etcd_process_port(process)) < 0)
    return EXIT_IO;
  printf("rdzv: etcd is at %s\n", rdzv_etcd_process_endpoint(process));
  const int printed = finish_output(me, true); /* etcd runs all the same; the exit code tells */
  const int result = rdzv_etcd_process_wait(process, rendezvous_signal_fd(), &status, &error);
  if (settings->port_file) unlink(settings->port_file);
  if (result == RDZV_E_CANCELED) return printed;
  if (WIFSIGNALED(status))
    complain(me, "etcd was killed by signal %d", WTERMSIG(status));
  else
    complain(me, "etcd exited with status %d", WEXITSTATUS(status));
  return EXIT_IO;
}

/* "start" may stand before the flags. */
int cmd_etcd(int argc, char **argv) {
  struct settings settings = {.log_level = RDZV_LOG_WARNING};
  if (argc > 2 && strcmp(argv[1], "start") == 0) {
    memmove(&argv[1], &argv[2], (size_t)(argc - 2) * sizeof *argv);
    argv[argc - 1] = (char *)"start";
  }
  const int rest = parse(argc, argv, &settings);
  if (rest < 0) return rest == -2 ? EXIT_YES : EXIT_USAGE;
  const rdzv_etcd_process_options options = {.size = sizeof options,
                                             .binary = settings.binary,
                                             .data_dir = settings.data_dir,
                                             .log_path = settings.log_file,
                                             .port = (int)settings.port,
                                             .timeout_ms = settings.timeout,
                                             .log = stderr_log(me, settings.log_level)};
  rdzv_etcd_process *process;
  rdzv_error error;
  if (rdzv_etcd_process_start(&options, &process, &error) < 0) return complain_error(me, &error);
  /* Before, a signal ends us, and what we have started with us. */
  const int code = rendezvous_catch_signals(me) == EXIT_YES ? serve(process, &settings) : EXIT_IO;
  rdzv_etcd_process_free(process);
  return code;
}
