/* SPDX-License-Identifier: BSD-3-Clause */
/* N processes count themselves at a server, and all wait until the last one is there:
 *   counter HOST:PORT N */
#include <rdzv/rdzv.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const rdzv_error *error) {
  fprintf(stderr, "counter: %s\n", error->message);
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 3) return fprintf(stderr, "usage: counter HOST:PORT N\n"), 2;
  const long size = strtol(argv[2], NULL, 10);
  const rdzv_tcp_options options = {.size = sizeof options, .timeout_ms = 20000};
  rdzv_error error;
  rdzv_store *store;
  if (rdzv_store_open_tcp(argv[1], &options, &store, &error) < 0) return fail(&error);

  int64_t number;
  int result = rdzv_store_add(store, rdzv_str("arrived"), 1, &number, &error);
  if (result == 0 && number == size) result = rdzv_store_set(store, rdzv_str("go"), rdzv_str("now"), &error);

  rdzv_value word;
  if (result == 0) result = rdzv_store_get(store, rdzv_str("go"), &word, &error); /* blocks */
  if (result == 0) {
    printf("rank %lld of %ld: %s\n", (long long)number - 1, size, word.data);
    rdzv_value_free(&word);
  }
  rdzv_store_free(store);
  return result < 0 ? fail(&error) : 0;
}
