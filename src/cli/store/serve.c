/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/protection.h"
#include "cli/store/serve_etcd.h"

#include <errno.h>
#include <fcntl.h>
#include <rdzv/server.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const me = "rdzv serve";

/* A limit of 0 is the library's default. */
struct settings {
  const char *bind, *port_file, *state_dir;
  int64_t port;
  int64_t max_connections, max_key_bytes, max_value_bytes, max_keys, max_waits, max_memory;
  int64_t max_runs, max_run_memory;
  int64_t request_timeout, idle_timeout, run_ttl;
  const char *tls_client_ca, *allow_plain;
  struct protection_flags protection;
  int log_level;
  bool json_log;
  struct serve_etcd etcd;
};

static bool check_limits(const struct cli_flag *flags, const bool *given) {
  for (size_t i = 0; flags[i].name; i++) {
    const bool is_limit = strncmp(flags[i].name, "max-", 4) == 0 || strcmp(flags[i].name, "request-timeout") == 0;
    if (!is_limit || !given[i] || *(const int64_t *)flags[i].target > 0) continue;
    complain(me, "invalid value for --%s: a limit must be greater than 0", flags[i].name);
    return false;
  }
  return true;
}

static int parse(int argc, char **argv, struct settings *to) {
  const struct cli_flag flags[] = {
      {"bind", FLAG_TEXT, &to->bind, "ADDR", "address or name to listen on (default 127.0.0.1; *: all)"},
      {"port", FLAG_NUMBER, &to->port, "N", "port (default 29400); 0 picks a free port"},
      {"port-file", FLAG_TEXT, &to->port_file, "PATH", "write the port to PATH when ready; removed at the end"},
      {"state-dir", FLAG_TEXT, &to->state_dir, "DIR", "keep the state in DIR, so that it survives a restart"},
      {"state-etcd", FLAG_TEXT, &to->etcd.url, "URL",
       "keep the state in etcd, shared by several servers of which one is active: "
       "[http[s]://][USER:PASSWORD@]HOST[:PORT],... (default $RDZV_STATE_ETCD)"},
      {"state-prefix", FLAG_TEXT, &to->etcd.prefix, "P", "path of the state in etcd (default /rdzv-server)"},
      {"state-lease", FLAG_SECONDS, &to->etcd.lease, "S",
       "seconds of silence before a standby takes over (default 5, at least 2)"},
      {"advertise", FLAG_TEXT, &to->etcd.advertise, "HOST[:PORT]",
       "where clients reach this server (default: where it listens)"},
      {"etcd-cacert", FLAG_TEXT, &to->etcd.ca_cert, "FILE",
       "certificate authority of etcd, PEM (default: the system's)"},
      {"etcd-cert", FLAG_TEXT, &to->etcd.cert, "FILE", "client certificate for etcd, PEM (default none)"},
      {"etcd-key", FLAG_TEXT, &to->etcd.key, "FILE", "private key of the client certificate, PEM"},
      {"max-connections", FLAG_NUMBER, &to->max_connections, "N", "maximum number of clients (default 65536)"},
      {"max-key-bytes", FLAG_BYTES, &to->max_key_bytes, "BYTES", "maximum length of a key (default 8K)"},
      {"max-value-bytes", FLAG_BYTES, &to->max_value_bytes, "BYTES", "maximum length of a value (default 8M)"},
      {"max-keys", FLAG_NUMBER, &to->max_keys, "N", "maximum number of keys in one request (default 131072)"},
      {"max-waits", FLAG_NUMBER, &to->max_waits, "N",
       "maximum number of keys that one client waits for or watches (default 131072)"},
      {"max-memory", FLAG_BYTES, &to->max_memory, "BYTES", "memory for all keys, values and buffers (default 1G)"},
      {"max-runs", FLAG_NUMBER, &to->max_runs, "N", "maximum number of runs (default: no limit)"},
      {"max-run-memory", FLAG_BYTES, &to->max_run_memory, "BYTES",
       "memory for the keys and values of one run (default: --max-memory)"},
      {"run-ttl", FLAG_SECONDS, &to->run_ttl, "S", "remove runs that were not used for S seconds (default 0: never)"},
      {"request-timeout", FLAG_SECONDS, &to->request_timeout, "S",
       "seconds to send a whole request, or to read an answer (default 60)"},
      {"idle-timeout", FLAG_SECONDS, &to->idle_timeout, "S",
       "close clients that were idle for S seconds (default 0: never)"},
      {"secret-file", FLAG_TEXT, &to->protection.secret_file, "FILE",
       "file with the secret that clients must know (default $RDZV_SECRET_FILE)"},
      {"tls-cert", FLAG_TEXT, &to->protection.tls_cert, "FILE", "certificate of the server, with its chain, PEM"},
      {"tls-key", FLAG_TEXT, &to->protection.tls_key, "FILE", "private key of --tls-cert, PEM"},
      {"tls-client-ca", FLAG_TEXT, &to->tls_client_ca, "FILE",
       "require a client certificate signed by this CA, PEM (default: none)"},
      {"allow-plain", FLAG_TEXT, &to->allow_plain, "ADDR/NET,...",
       "clients at these addresses need no secret and no TLS; loopback is 127.0.0.0/8 and ::1"},
      LOG_LEVEL_FLAG(&to->log_level, "warning"),
      {"json-log", FLAG_SWITCH, &to->json_log, NULL, "write log lines as JSON objects"},
      {0}};
  const struct command command = {
      me, "", "Serves a store over PyTorch's TCPStore protocol and rdzv's own, on one port.", flags,
      "Without --secret-file or --tls-client-ca there is no authentication: every client that can connect can read "
      "and "
      "change everything. SIGHUP makes the server read the files of these flags again.\n\n"
      "A listening socket passed by systemd (LISTEN_FDS) replaces --bind and --port. SIGTERM and SIGINT stop the "
      "server cleanly; the exit code is then 0.\n"};
  struct flag_extras extras = {0};
  const int rest = flags_parse_with(&command, &extras, argc, argv);
  if (rest < 0) return rest;
  return no_arguments(&command, rest, argc, argv) && check_port(me, to->port) && check_limits(flags, extras.given)
             ? rest
             : -1;
}

/* sd_listen_fds(3): the sockets are for us only if the process id says so, and begin at 3. */
static int inherited_socket(int *fd) {
  enum { FIRST = 3 };
  const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
  if (!pid || !count || strtol(pid, NULL, 10) != getpid()) return 0;
  if (strcmp(count, "1") != 0) {
    complain(me, "cannot serve the sockets of LISTEN_FDS='%s': expected one socket", count);
    return -1;
  }
  fcntl(FIRST, F_SETFD, FD_CLOEXEC);
  *fd = FIRST;
  return 0;
}

static rdzv_server *volatile running;
static volatile sig_atomic_t is_stopped;

static void stop(int number) {
  (void)number;
  is_stopped = 1;
  if (running) rdzv_server_stop(running);
}

static void reload(int number) {
  (void)number;
  rdzv_server_reload(running);
}

/* Also where the signal was ignored before: with nohup, the files can still be read again. */
static void on_hang_up(void (*handler)(int)) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(SIGHUP, &action, NULL);
}

static void on_signal(int number, void (*handler)(int)) {
  struct sigaction before, action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(number, &action, NULL);
}

/* By handlers and not by a thread: the system calls of a process without threads take less time. */
static void on_signals(void (*handler)(int)) {
  on_signal(SIGTERM, handler);
  on_signal(SIGINT, handler);
}

/* Serves until the server ends: 0, an exit code, or why. */
static int serve(rdzv_server *server, const struct settings *settings, rdzv_error *error) {
  if (settings->port_file && write_port_file(me, settings->port_file, rdzv_server_port(server)) < 0) return EXIT_IO;
  printf("rdzv: listening on %s\n", rdzv_server_address(server));
  const int printed = finish_output(me, true); /* the server serves all the same; the exit code tells */
  running = server;
  on_hang_up(reload);
  if (is_stopped) rdzv_server_stop(server);
  const int result = rdzv_server_run(server, error);
  on_hang_up(SIG_IGN);
  running = NULL;
  return result == 0 ? printed : result;
}

static rdzv_server_options options_of(const struct settings *settings) {
  return (rdzv_server_options){
      .size = sizeof(rdzv_server_options),
      .bind = settings->bind,
      .port = settings->port == 0 ? RDZV_ANY_PORT : (int)settings->port,
      .log = stderr_log(me, settings->log_level),
      .max_connections = (size_t)settings->max_connections,
      .max_key_bytes = (size_t)settings->max_key_bytes,
      .max_value_bytes = (size_t)settings->max_value_bytes,
      .max_keys = (size_t)settings->max_keys,
      .max_waits = (size_t)settings->max_waits,
      .max_memory = (size_t)settings->max_memory,
      .request_timeout_ms = settings->request_timeout,
      .idle_timeout_ms = settings->idle_timeout,
      .state_dir = settings->state_dir,
      .max_runs = (size_t)settings->max_runs,
      .max_run_memory = (size_t)settings->max_run_memory,
      .run_ttl_ms = settings->run_ttl,
      .secret_file = settings->protection.secret_file,
      .tls_cert = settings->protection.tls_cert,
      .tls_key = settings->protection.tls_key,
      .tls_client_ca = settings->tls_client_ca,
      .allow_plain = settings->allow_plain,
  };
}

/* A state folder can be in use, too. */
static int fail_open(int result, const rdzv_error *error) {
  const bool is_port = result == RDZV_E_IN_USE && !strstr(error->message, "state folder");
  complain(me, "%s%s", error->message, is_port ? " (is another server running? choose another --port)" : "");
  return exit_code_of(result);
}

static int open_and_serve(const rdzv_server_options *options, const struct settings *settings) {
  rdzv_server *server;
  rdzv_error error = {0};
  int result = rdzv_server_open(options, &server, &error);
  if (result < 0) return fail_open(result, &error);
  result = serve(server, settings, &error);
  rdzv_server_free(server);
  return result < 0 ? complain_error(me, &error) : result;
}

int cmd_serve(int argc, char **argv) {
  struct settings settings = {.port = RDZV_DEFAULT_PORT, .log_level = RDZV_LOG_WARNING};
  const int rest = parse(argc, argv, &settings);
  if (rest < 0) return rest == -2 ? EXIT_YES : EXIT_USAGE;
  if (settings.json_log) write_messages_as_json();
  rdzv_server_options options = options_of(&settings);
  if (inherited_socket(&options.listen_fd) < 0) return EXIT_USAGE;
  if (!serve_etcd_fill(me, &settings.etcd, settings.state_dir, &options)) {
    serve_etcd_free(&settings.etcd);
    return EXIT_USAGE;
  }
  on_hang_up(SIG_IGN); /* the clients stay when the terminal goes */
  protection_hide(&settings.protection, NULL);
  raise_descriptor_limit(); /* a descriptor for each client */
  on_signals(stop);
  const int code = open_and_serve(&options, &settings);
  on_signals(SIG_IGN); /* it ends anyway */
  if (settings.port_file) unlink(settings.port_file);
  serve_etcd_free(&settings.etcd);
  return code;
}
