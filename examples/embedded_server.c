/* SPDX-License-Identifier: BSD-3-Clause */
/* A store server inside a program, on a free port, and a client of it in the same process: embedded_server */
#include <rdzv/rdzv.h>
#include <stdio.h>

static int fail(const char *what, const rdzv_error *error) {
  fprintf(stderr, "embedded_server: %s: %s\n", what, error->message);
  return 1;
}

static void print_line(void *user, rdzv_log_level level, const char *line) {
  fprintf(user, "%s: %s\n", rdzv_log_level_name(level), line);
}

int main(void) {
  const rdzv_log log = {.size = sizeof log, .write = print_line, .user = stderr, .level = RDZV_LOG_INFO};
  const rdzv_server_options options = {
      .size = sizeof options, .bind = "127.0.0.1", .port = RDZV_ANY_PORT, .max_memory = 64 << 20, .log = &log};
  rdzv_error error;
  rdzv_server *server;
  rdzv_store *store;
  if (rdzv_server_open(&options, &server, &error) < 0) return fail("open", &error);
  if (rdzv_server_start(server, &error) < 0) return fail("start", &error);
  if (rdzv_store_open_tcp(rdzv_server_address(server), NULL, &store, &error) < 0) return fail("connect", &error);

  int64_t sum = 0;
  const int result = rdzv_store_add(store, rdzv_str("visits"), 1, &sum, &error);
  if (result == 0) printf("visits: %lld\n", (long long)sum);
  rdzv_store_free(store);
  rdzv_server_free(server); /* stops it first */
  return result < 0 ? fail("add", &error) : 0;
}
