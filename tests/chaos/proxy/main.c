/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The proxy as a program, for tests that have processes on both sides.
 *
 *   chaos_proxy --target PORT [--port P] [--seed S] [--mean BYTES] [--late MS] [--resets] [--trace]
 *
 * It prints its port. There are no faults until it is told so. Lines on its stdin tell it what to do, one of
 *   faults on | faults off | cut | silent on | silent off | target PORT
 * and it answers each with a line. The end of stdin is its end.
 */
#include "proxy.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static bool read_options(struct proxy_options *options, int argc, char **argv) {
  static const struct option names[] = {
      {"target", required_argument, NULL, 't'}, {"port", required_argument, NULL, 'p'},
      {"seed", required_argument, NULL, 's'},   {"mean", required_argument, NULL, 'm'},
      {"late", required_argument, NULL, 'l'},   {"resets", no_argument, NULL, 'r'},
      {"trace", no_argument, NULL, 'v'},        {NULL, 0, NULL, 0}};
  int option;
  while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
    switch (option) {
      case 't': options->target_port = atoi(optarg); break;
      case 'p': options->port = atoi(optarg); break;
      case 's': options->seed = strtoull(optarg, NULL, 10); break;
      case 'm': options->mean_bytes = atoi(optarg); break;
      case 'l': options->late_ms = atoi(optarg); break;
      case 'r': options->resets = true; break;
      case 'v': options->trace = stderr; break;
      default: return false;
    }
  }
  return optind == argc && options->target_port > 0;
}

static bool obey(struct proxy *proxy, const char *line) {
  if (strcmp(line, "faults on\n") == 0)
    proxy_set_faults(proxy, true);
  else if (strcmp(line, "faults off\n") == 0)
    proxy_set_faults(proxy, false);
  else if (strcmp(line, "silent on\n") == 0)
    proxy_set_silent(proxy, true);
  else if (strcmp(line, "silent off\n") == 0)
    proxy_set_silent(proxy, false);
  else if (strcmp(line, "cut\n") == 0)
    proxy_cut_all(proxy);
  else if (strncmp(line, "target ", 7) == 0)
    proxy_set_target(proxy, atoi(line + 7));
  else
    return false;
  return true;
}

int main(int argc, char **argv) {
  struct proxy_options options = {.mean_bytes = 4000, .late_ms = 200};
  char line[256];
  if (!read_options(&options, argc, argv)) return fputs("usage: see tests/chaos/proxy/main.c\n", stderr), 2;
  struct proxy *proxy = proxy_open(&options);
  if (!proxy) return perror("chaos_proxy"), 1;
  proxy_set_faults(proxy, false);
  if (!proxy_start(proxy)) return 1;
  setvbuf(stdout, NULL, _IOLBF, 0);
  printf("%d\n", proxy_port(proxy));
  while (fgets(line, sizeof line, stdin)) puts(obey(proxy, line) ? "done" : "what?");
  proxy_end(proxy);
  return 0;
}
