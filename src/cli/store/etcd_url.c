/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/store/etcd_url.h"

#include "base/text/parse.h"

#include <stdlib.h>
#include <string.h>

/* Each host of a list may have the scheme before it, as etcd itself writes lists; it is the same then. */
static const char *take_scheme(char **one, bool first, struct etcd_url *url) {
  char *end = strstr(*one, "://");
  if (!end) return NULL;
  const bool https = strncmp(*one, "https://", 8) == 0;
  if (!https && strncmp(*one, "http://", 7) != 0) return "the scheme is neither http nor https";
  if (!first && https != url->https) return "http and https cannot be used together";
  url->https = https;
  *one = end + 3;
  return NULL;
}

static const char *take_user(char **one, bool first, struct etcd_url *url) {
  char *at = strrchr(*one, '@');
  if (!at) return NULL;
  if (!first) return "only the first host may have a user";
  *at = '\0';
  url->password = *one;
  url->user = strsep(&url->password, ":");
  *one = at + 1;
  if (!*url->user) return "the user is empty";
  if (!parse_percent(url->user) || (url->password && !parse_percent(url->password)))
    return "a percent sign in the user or password needs two hexadecimal digits after it";
  return NULL;
}

static const char *take_host(char *one, bool first, struct etcd_url *url) {
  char *path = strchr(one, '/');
  if (path && path[1]) return "a host has a path after it";
  if (path) *path = '\0';
  if (!*one) return "a host is missing";
  char *end = url->hosts + strlen(url->hosts); /* there is room: hosts are part of the text */
  if (!first) *end++ = ',';
  memcpy(end, one, strlen(one) + 1);
  return NULL;
}

const char *etcd_url_parse(const char *text, struct etcd_url *out) {
  *out = (struct etcd_url){.text = strdup(text), .hosts = calloc(1, strlen(text) + 1)};
  if (!out->text || !out->hosts) return "out of memory";
  const char *why = NULL;
  bool first = true;
  for (char *rest = out->text, *one; !why && (one = strsep(&rest, ",")); first = false) {
    why = take_scheme(&one, first, out);
    if (!why) why = take_user(&one, first, out);
    if (!why) why = take_host(one, first, out);
  }
  return why;
}

void etcd_url_free(struct etcd_url *url) {
  free(url->text);
  free(url->hosts);
}
