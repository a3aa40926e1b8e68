/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/net/endpoint.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int fail_endpoint(rdzv_error *error, const char *text, const char *why) {
  return error_set(error, RDZV_E_INVALID, "invalid endpoint '%.300s': %s", text, why);
}

/* Only what can stand in a host name or an address; above all no blanks and no control characters. */
static bool host_char(unsigned char c) { return isalnum(c) || strchr("-._:%", c) != NULL; }

static bool is_ipv6(const char *host) {
  struct in6_addr address;
  char without_zone[sizeof((struct endpoint *)0)->host];
  snprintf(without_zone, sizeof without_zone, "%.*s", (int)strcspn(host, "%"), host);
  return inet_pton(AF_INET6, without_zone, &address) == 1;
}

/* Finds names that no resolver could resolve, so that no client waits for them. A dot at the end is valid. */
static const char *check_name(const char *host) {
  struct in_addr address;
  size_t len;
  bool is_number = false;
  if (strchr(host, ':')) return is_ipv6(host) ? NULL : "several colons make an IPv6 address, but it is not one";
  for (const char *label = host; *label; label += len + (label[len] == '.')) {
    len = strcspn(label, ".");
    if (len == 0) return "the host has an empty part between two dots";
    if (len > 63) return "the host has a part of more than 63 characters between two dots";
    is_number = strspn(label, "0123456789") == len;
  }
  return is_number && inet_aton(host, &address) == 0 ? "the host ends in a number, but is not an IPv4 address" : NULL;
}

static const char *check_host(const char *host, size_t len, struct endpoint *to) {
  if (len == 0) return "the host is empty";
  if (len >= sizeof to->host) return "the host is longer than 255 characters";
  for (size_t i = 0; i < len; i++)
    if (host[i] == '\0' || !host_char((unsigned char)host[i])) return "the host has a character that no host name has";
  memcpy(to->host, host, len);
  return check_name(to->host);
}

static const char *parse_port(const char *text, bool zero_too, int *port) {
  if (*text == '\0') return "the port is missing after the colon";
  int value = 0;
  for (; *text; text++) {
    if (*text < '0' || *text > '9') return "the port is not a number";
    value = value * 10 + (*text - '0');
    if (value > 65535) return "the port is above 65535";
  }
  if (value == 0 && !zero_too) return "the port is 0";
  *port = value;
  return NULL;
}

static int parse(const char *text, int default_port, bool zero_too, struct endpoint *out, rdzv_error *error) {
  const char *host = text, *end, *rest;
  if (strstr(text, "://")) return fail_endpoint(error, text, "it is a URL, where HOST:PORT is wanted");
  if (text[0] == '[') {
    host = text + 1;
    end = strchr(host, ']');
    if (!end) return fail_endpoint(error, text, "the bracket is not closed");
    rest = end + 1;
    if (*rest != '\0' && *rest != ':')
      return fail_endpoint(error, text, "only a colon and a port may follow the bracket");
  } else {
    /* One colon parts host and port; several make a bare IPv6 address. */
    const char *first = strchr(text, ':');
    const bool has_port = first && strchr(first + 1, ':') == NULL;
    end = has_port ? first : text + strlen(text);
    rest = end;
  }
  struct endpoint found = {.port = default_port};
  const char *why = check_host(host, (size_t)(end - host), &found);
  if (!why && *rest == ':') why = parse_port(rest + 1, zero_too, &found.port);
  if (why) return fail_endpoint(error, text, why);
  *out = found;
  return 0;
}

int endpoint_parse(const char *text, int default_port, struct endpoint *out, rdzv_error *error) {
  return parse(text, default_port, false, out, error);
}

int endpoint_parse_to_serve(const char *text, int default_port, struct endpoint *out, rdzv_error *error) {
  return parse(text, default_port, true, out, error);
}

void endpoint_format(const char *host, int port, char out[ENDPOINT_TEXT_SIZE]) {
  const bool brackets = strchr(host, ':') != NULL;
  snprintf(out, ENDPOINT_TEXT_SIZE, "%s%.255s%s:%d", brackets ? "[" : "", host, brackets ? "]" : "", port);
}
