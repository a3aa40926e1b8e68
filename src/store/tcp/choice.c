/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/choice.h"

#include "base/error.h"

#include <rdzv/store.h>
#include <stdlib.h>
#include <string.h>

/* ---- servers -------------------------------------------------------------------------------------------------- */

static int parse_one(const char *text, size_t len, struct endpoint *out, rdzv_error *error) {
  char one[ENDPOINT_TEXT_SIZE];
  if (len >= sizeof one) return error_set(error, RDZV_E_INVALID, "invalid endpoint '%.300s': it is too long", text);
  memcpy(one, text, len);
  one[len] = '\0';
  return endpoint_parse(one, RDZV_DEFAULT_PORT, out, error);
}

static size_t count_of(const char *text) {
  size_t count = 1;
  for (; *text; text++) count += *text == ',';
  return count;
}

int tcp_servers_parse(const char *text, struct tcp_servers **out, rdzv_error *error) {
  const size_t count = count_of(text);
  if (count > TCP_MOST_ENDPOINTS)
    return error_set(error, RDZV_E_INVALID, "there are more than %d endpoints in '%.200s'", TCP_MOST_ENDPOINTS, text);
  struct tcp_servers *servers = calloc(1, sizeof *servers + count * sizeof servers->list[0]);
  if (!servers) return error_no_memory(error);
  atomic_init(&servers->holds, 1);
  servers->count = count;
  int result = count == 1 ? endpoint_parse(text, RDZV_DEFAULT_PORT, &servers->list[0], error) : 0;
  for (size_t i = 0; count > 1 && result == 0 && i < count; i++) {
    const size_t len = strcspn(text, ",");
    result = parse_one(text, len, &servers->list[i], error);
    text += len + 1;
  }
  if (result < 0)
    free(servers);
  else
    *out = servers;
  return result;
}

struct tcp_servers *tcp_servers_share(struct tcp_servers *servers) {
  atomic_fetch_add(&servers->holds, 1);
  return servers;
}

void tcp_servers_drop(struct tcp_servers *servers) {
  if (servers && atomic_fetch_sub(&servers->holds, 1) == 1) free(servers);
}

/* ---- the choice ----------------------------------------------------------------------------------------------- */

void tcp_choice_init(struct tcp_choice *choice, struct tcp_servers *servers) {
  *choice = (struct tcp_choice){.servers = servers, .endpoint = servers->list[0]};
}

void tcp_choice_next(struct tcp_choice *choice) {
  choice->follows = false;
  choice->current = (choice->current + 1) % choice->servers->count;
  choice->endpoint = choice->servers->list[choice->current];
}

static bool is_same(const struct endpoint *a, const struct endpoint *b) {
  return a->port == b->port && strcmp(a->host, b->host) == 0;
}

void tcp_choice_follow(struct tcp_choice *choice, rdzv_bytes active) {
  struct endpoint named = {0};
  const bool valid = active.len > 0 && active.len < ENDPOINT_TEXT_SIZE && !memchr(active.data, '\0', active.len) &&
                     parse_one(active.data, active.len, &named, NULL) == 0;
  if (!valid || is_same(&named, &choice->endpoint)) {
    tcp_choice_next(choice);
    return;
  }
  choice->follows = true;
  for (size_t i = 0; i < choice->servers->count; i++) {
    if (!is_same(&named, &choice->servers->list[i])) continue;
    choice->current = i;
    choice->follows = false;
  }
  choice->endpoint = named;
}
