/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/net/network.h"

#include "base/error.h"
#include "base/text/parse.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

enum { MAPPED_BITS = 96, ALL_BITS = 128 };

static bool parse_address(const char *text, struct network *out, unsigned *most) {
  if (inet_pton(AF_INET, text, out->address + sizeof mapped) == 1) {
    memcpy(out->address, mapped, sizeof mapped);
    *most = ALL_BITS - MAPPED_BITS;
    return true;
  }
  *most = ALL_BITS;
  return inet_pton(AF_INET6, text, out->address) == 1;
}

static bool parse_one(char *text, struct network *out) {
  char *slash = strchr(text, '/');
  unsigned most;
  int64_t bits;
  if (slash) *slash++ = '\0';
  if (!parse_address(text, out, &most)) return false;
  if (!slash)
    bits = most;
  else if (!parse_number(slash, 0, most, &bits))
    return false;
  out->bits = (unsigned)bits + (ALL_BITS - most);
  return true;
}

static int add(const char *part, size_t len, struct network out[NETWORKS_MOST], size_t *count, rdzv_error *error) {
  char text[64];
  const bool fits = len > 0 && len < sizeof text;
  snprintf(text, sizeof text, "%.*s", fits ? (int)len : 0, part);
  if (*count == NETWORKS_MOST)
    return error_set(error, RDZV_E_INVALID, "invalid networks: there are more than %d", NETWORKS_MOST);
  if (fits && parse_one(text, &out[*count])) {
    (*count)++;
    return 0;
  }
  return error_set(error, RDZV_E_INVALID,
                   "invalid network '%.*s': expected ADDRESS, ADDRESS/BITS or loopback, with commas between",
                   len < sizeof text ? (int)len : (int)sizeof text, part);
}

int networks_parse(const char *text, struct network out[NETWORKS_MOST], size_t *count, rdzv_error *error) {
  int result = 0;
  *count = 0;
  for (const char *at = text; result == 0;) {
    const size_t len = strcspn(at, ",");
    if (len == strlen("loopback") && strncmp(at, "loopback", len) == 0) {
      result = add("127.0.0.0/8", strlen("127.0.0.0/8"), out, count, error);
      if (result == 0) result = add("::1", strlen("::1"), out, count, error);
    } else {
      result = add(at, len, out, count, error);
    }
    if (at[len] == '\0') break;
    at += len + 1;
  }
  return result;
}

static bool is_in(const struct network *network, const uint8_t address[16]) {
  const unsigned whole = network->bits / 8, rest = network->bits % 8;
  if (memcmp(network->address, address, whole) != 0) return false;
  return rest == 0 || (network->address[whole] ^ address[whole]) >> (8 - rest) == 0;
}

bool networks_have(const struct network *networks, size_t count, const struct sockaddr *address) {
  uint8_t bytes[16];
  if (address->sa_family == AF_INET) {
    memcpy(bytes, mapped, sizeof mapped);
    memcpy(bytes + sizeof mapped, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
  } else if (address->sa_family == AF_INET6) {
    memcpy(bytes, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, sizeof bytes);
  } else {
    return false;
  }
  for (size_t i = 0; i < count; i++)
    if (is_in(&networks[i], bytes)) return true;
  return false;
}
