/* SPDX-License-Identifier: BSD-3-Clause */
/* The load generator's command line; load.h says how it is built. */
#include "load.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *const mode_names[] = {"run", "connect", "waiters", "idle", "barrier", NULL};
const char *const dialect_names[] = {"echo", "v1", "v2", NULL};
const char *const op_names[] = {"set", "get", "add", "compare_set", "check", "wait", "barrier", NULL};

static const char usage[] =
    "usage: load --port P [--dialect echo|v1|v2] [--json] [--mode run] [--op set|get|add|compare_set|check|wait]\n"
    "            [--connections N] [--pipeline D] [--period S] [--seconds S] [--warmup S] [--server-pid PID]\n"
    "       load --port P [--dialect …] [--json] --mode connect|waiters|idle [--connections N]\n"
    "       load --port P [--dialect …] [--json] --mode barrier --op barrier|add [--connections N]\n"
    "\n"
    "Drives a TCPStore (or an echo server, with the same bytes) on 127.0.0.1 and checks every answer.\n"
    "  run      operations per second and latency; N connections with D requests in flight each\n"
    "  connect  time until N connections, begun at once, have had one ADD answered each\n"
    "  waiters  time from a SET until the last of N connections that wait for its key is woken\n"
    "  idle     opens N connections, one answered request on each, prints 'ready', stays until stdin closes\n"
    "  barrier  time from the first request until all of N open connections are through a barrier: one BARRIER each, "
    "or\n"
    "           as PyTorch does it, an ADD, a SET by the last to be counted, and a WAIT for what that one sets\n"
    "With --period, each connection has a request to send every S seconds, and a latency counts from when it was due:\n"
    "what a server that stands still holds up is counted, too.\n"
    "With --secret-file, connections are protected by TLS with the secret in that file.\n"
    "With --server-pid, run tells the processor time that the server spent on an operation, too.\n"
    "SET has no answer in PyTorch's protocol: one operation of 'set' is a SET and a CHECK of its key in one write.\n";

void die(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fflush(stdout);
  fputs("load: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  exit(1);
}

int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int named(const char *what, const char *text, const char *const *names) {
  for (int i = 0; names[i]; i++)
    if (strcmp(text, names[i]) == 0) return i;
  die("there is no %s '%s'", what, text);
}

static unsigned whole(const char *what, const char *text, unsigned most) {
  char *end;
  errno = 0;
  const long number = strtol(text, &end, 10);
  if (end == text || *end || errno || number < 1 || number > (long)most)
    die("%s takes a number from 1 to %u, not '%s'", what, most, text);
  return (unsigned)number;
}

static double seconds_in(const char *what, const char *text, double least) {
  char *end;
  const double number = strtod(text, &end);
  if (end == text || *end || !(number >= least && number <= 3600))
    die("%s takes seconds from %g to 3600, not '%s'", what, least, text);
  return number;
}

static const struct option long_options[] = {
    {"mode", required_argument, NULL, 'm'},
    {"dialect", required_argument, NULL, 'd'},
    {"op", required_argument, NULL, 'o'},
    {"port", required_argument, NULL, 'p'},
    {"connections", required_argument, NULL, 'c'},
    {"pipeline", required_argument, NULL, 'D'},
    {"seconds", required_argument, NULL, 's'},
    {"warmup", required_argument, NULL, 'w'},
    {"period", required_argument, NULL, 'e'},
    {"server-pid", required_argument, NULL, 'P'},
    {"secret-file", required_argument, NULL, 'S'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static void take_option(struct options *o, int option) {
  switch (option) {
    case 'm': o->mode = (enum mode)named("mode", optarg, mode_names); break;
    case 'd': o->dialect = (enum dialect)named("dialect", optarg, dialect_names); break;
    case 'o': o->op = (enum op)named("operation", optarg, op_names); break;
    case 'p': o->port = (uint16_t)whole("--port", optarg, UINT16_MAX); break;
    case 'c': o->connections = whole("--connections", optarg, 100000); break;
    case 'D': o->pipeline = whole("--pipeline", optarg, 1024); break;
    case 's': o->seconds = seconds_in("--seconds", optarg, 0.01); break;
    case 'w': o->warmup = seconds_in("--warmup", optarg, 0); break;
    case 'e': o->period = seconds_in("--period", optarg, 0.001); break;
    case 'P': o->server = (pid_t)whole("--server-pid", optarg, INT_MAX); break;
    case 'S': o->secret_file = optarg; break;
    case 'j': o->json = true; break;
    case 'h': fputs(usage, stdout); exit(0);
    default: fputs(usage, stderr); exit(2);
  }
}

int main(int argc, char **argv) {
  struct options o = {.dialect = DIALECT_V2, .connections = 64, .pipeline = 1, .seconds = 1, .warmup = 0.2};
  static void (*const modes[])(const struct options *) = {[MODE_RUN] = load_run,
                                                          [MODE_CONNECT] = load_connect,
                                                          [MODE_WAITERS] = load_waiters,
                                                          [MODE_IDLE] = load_idle,
                                                          [MODE_BARRIER] = load_barrier};
  int option;
  while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) take_option(&o, option);
  if (optind < argc || o.port == 0) {
    fputs(usage, stderr);
    return 2;
  }
  if (o.secret_file) loop_protect(o.secret_file);
  modes[o.mode](&o);
  return 0;
}
