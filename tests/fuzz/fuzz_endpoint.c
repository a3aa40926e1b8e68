/* SPDX-License-Identifier: BSD-3-Clause */
/* What endpoint_parse takes is a host and a port that are still the same when they are formatted and parsed again. */
#include "base/net/endpoint.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  enum { DEFAULT_PORT = 29400 };
  char *text = malloc(len + 1);
  CHECK(text);
  if (len > 0) memcpy(text, data, len);
  text[len] = '\0';
  struct endpoint first = {.host = "untouched"}, second;
  rdzv_error error = {0};
  const int result = endpoint_parse(text, DEFAULT_PORT, &first, &error);
  if (result == 0) {
    char formatted[ENDPOINT_TEXT_SIZE];
    CHECK(memchr(first.host, '\0', sizeof first.host) && first.host[0] != '\0');
    CHECK(first.port >= 1 && first.port <= 65535);
    endpoint_format(first.host, first.port, formatted);
    CHECK(endpoint_parse(formatted, 1, &second, &error) == 0);
    CHECK(strcmp(first.host, second.host) == 0 && first.port == second.port);
  } else {
    CHECK(result == RDZV_E_INVALID && error.code == result && error.message[0] != '\0');
    CHECK(strcmp(first.host, "untouched") == 0);
    CHECK(endpoint_parse(text, DEFAULT_PORT, &first, NULL) == result);
  }
  free(text);
  return 0;
}
