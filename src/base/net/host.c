/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/net/host.h"

#include "base/error.h"
#include "base/net/net.h"
#include "base/net/resolve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void host_name(char out[HOST_NAME_SIZE]) {
  if (gethostname(out, HOST_NAME_SIZE) < 0 || !out[0]) snprintf(out, HOST_NAME_SIZE, "localhost");
  out[HOST_NAME_SIZE - 1] = '\0';
}

/* ---- addresses ------------------------------------------------------------------------------------------------ */

static const struct in_addr *ip4(const struct sockaddr *address) {
  return &((const struct sockaddr_in *)(const void *)address)->sin_addr;
}

static const struct in6_addr *ip6(const struct sockaddr *address) {
  return &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
}

static bool is_ip(const struct sockaddr *address) {
  return address && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

static bool is_loopback(const struct sockaddr *address) {
  if (address->sa_family == AF_INET) return ntohl(ip4(address)->s_addr) >> 24 == IN_LOOPBACKNET;
  return IN6_IS_ADDR_LOOPBACK(ip6(address)) ||
         (IN6_IS_ADDR_V4MAPPED(ip6(address)) && ip6(address)->s6_addr[12] == IN_LOOPBACKNET);
}

static bool same_ip(const struct sockaddr *a, const struct sockaddr *b) {
  if (a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) return ip4(a)->s_addr == ip4(b)->s_addr;
  return IN6_ARE_ADDR_EQUAL(ip6(a), ip6(b));
}

static void format_ip(const struct sockaddr *address, char out[HOST_NAME_SIZE]) {
  const void *ip = address->sa_family == AF_INET ? (const void *)ip4(address) : (const void *)ip6(address);
  if (!inet_ntop(address->sa_family, ip, out, HOST_NAME_SIZE)) out[0] = '\0';
}

/* ---- is it us? ------------------------------------------------------------------------------------------------ */

static bool same_word(const char *a, const char *b) { return strcasecmp(a, b) == 0; }

static const struct ifaddrs *interface_with(const struct ifaddrs *interfaces, const struct sockaddr *address) {
  for (const struct ifaddrs *at = interfaces; at; at = at->ifa_next)
    if (is_ip(at->ifa_addr) && same_ip(at->ifa_addr, address)) return at;
  return NULL;
}

/* Fills in what one of the endpoint's addresses tells; false: nothing. */
static bool match_address(struct host_match *match, const char *host, const struct sockaddr *address,
                          const struct ifaddrs *interfaces) {
  char text[HOST_NAME_SIZE];
  format_ip(address, text);
  const struct ifaddrs *interface = interface_with(interfaces, address);
  match->ours = interface || is_loopback(address);
  if (is_loopback(address))
    snprintf(match->why, sizeof match->why, "'%s' is the loopback address %s", host, text);
  else if (interface)
    snprintf(match->why, sizeof match->why, "'%s' is %s, an address of this machine's %s", host, text,
             interface->ifa_name);
  else
    snprintf(match->why, sizeof match->why, "'%s' is %s, which is not an address of this machine", host, text);
  return match->ours;
}

static void match_addresses(struct host_match *match, const char *host, const struct addrinfo *list) {
  struct ifaddrs *interfaces = NULL;
  if (getifaddrs(&interfaces) < 0) interfaces = NULL;
  for (const struct addrinfo *at = list; at; at = at->ai_next)
    if (is_ip(at->ai_addr) && match_address(match, host, at->ai_addr, interfaces)) break;
  freeifaddrs(interfaces);
}

static bool is_loopback_literal(const char *host) {
  struct in_addr v4;
  struct in6_addr v6;
  if (inet_pton(AF_INET, host, &v4) == 1) return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
  return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool host_is_loopback(const char *host) { return same_word(host, "localhost") || is_loopback_literal(host); }

struct host_match host_match(const struct endpoint *endpoint, deadline until, const struct flag *cancel) {
  struct host_match match = {0};
  char own[HOST_NAME_SIZE];
  host_name(own);
  const bool loopback = host_is_loopback(endpoint->host);
  match.ours = loopback || same_word(endpoint->host, own);
  if (match.ours) {
    snprintf(match.why, sizeof match.why, "'%s' is %s", endpoint->host,
             loopback ? "a loopback address" : "this machine's host name");
    return match;
  }
  struct addrinfo *list;
  rdzv_error error;
  if (resolve(endpoint, until, cancel, &list, &error) < 0) {
    snprintf(match.why, sizeof match.why, "%.300s", error.message);
    return match;
  }
  match_addresses(&match, endpoint->host, list);
  freeaddrinfo(list);
  return match;
}

/* ---- where to listen ------------------------------------------------------------------------------------------ */

static bool is_any(const char *host) { return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0; }

/* Counts the addresses of the list that are those of our interfaces, and writes the first one. */
static size_t count_own(const struct addrinfo *list, char first[HOST_NAME_SIZE]) {
  struct ifaddrs *interfaces = NULL;
  char text[HOST_NAME_SIZE];
  size_t count = 0;
  if (getifaddrs(&interfaces) < 0) return 0;
  for (const struct addrinfo *at = list; at; at = at->ai_next) {
    if (!is_ip(at->ai_addr) || is_loopback(at->ai_addr) || !interface_with(interfaces, at->ai_addr)) continue;
    format_ip(at->ai_addr, text);
    if (count > 0 && strcmp(text, first) == 0) continue;
    if (count == 0) snprintf(first, HOST_NAME_SIZE, "%s", text);
    count++;
  }
  freeifaddrs(interfaces);
  return count;
}

void host_bind(const struct endpoint *endpoint, deadline until, const struct flag *cancel, struct host_bind *out) {
  const char *host = endpoint->host;
  struct addrinfo *list = NULL;
  *out = (struct host_bind){.why = NULL};
  if (host_is_loopback(host) || is_any(host)) {
    snprintf(out->address, sizeof out->address, "%s", same_word(host, "localhost") ? "127.0.0.1" : host);
    return;
  }
  if (resolve(endpoint, until, cancel, &list, NULL) < 0) list = NULL;
  const size_t count = count_own(list, out->address);
  if (list) freeaddrinfo(list);
  if (count == 1) return;
  snprintf(out->address, sizeof out->address, "*");
  out->why = count == 0 ? "no address of the endpoint's host is one of an interface of this machine"
                        : "the endpoint's host has several addresses of this machine";
}

/* ---- our own address ------------------------------------------------------------------------------------------ */

/* Where a datagram to that address would come from; nothing is sent. */
static bool route_from(const struct addrinfo *to, char out[HOST_NAME_SIZE], bool *loopback) {
  struct sockaddr_storage from = {0};
  socklen_t len = sizeof from;
  const int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool found =
      connect(fd, to->ai_addr, to->ai_addrlen) == 0 && getsockname(fd, (struct sockaddr *)&from, &len) == 0;
  close(fd);
  if (!found || !is_ip((struct sockaddr *)&from)) return false;
  *loopback = is_loopback((struct sockaddr *)&from);
  format_ip((struct sockaddr *)&from, out);
  return true;
}

static bool is_usable(const struct ifaddrs *interface, int family) {
  const unsigned flags = interface->ifa_flags;
  if (!is_ip(interface->ifa_addr) || interface->ifa_addr->sa_family != family) return false;
  if (!(flags & IFF_UP) || (flags & IFF_LOOPBACK)) return false;
  return family == AF_INET || !IN6_IS_ADDR_LINKLOCAL(ip6(interface->ifa_addr));
}

static bool first_interface(char out[HOST_NAME_SIZE]) {
  struct ifaddrs *interfaces;
  if (getifaddrs(&interfaces) < 0) return false;
  static const int families[] = {AF_INET, AF_INET6};
  bool found = false;
  for (int i = 0; i < 2; i++)
    for (const struct ifaddrs *at = interfaces; at && !found; at = at->ifa_next)
      if (is_usable(at, families[i])) {
        format_ip(at->ifa_addr, out);
        found = true;
      }
  freeifaddrs(interfaces);
  return found;
}

void host_own_address(const struct endpoint *endpoint, deadline until, const struct flag *cancel,
                      char out[HOST_NAME_SIZE]) {
  struct addrinfo *list = NULL;
  bool found = false, loopback = false;
  const bool wants_loopback = endpoint && host_is_loopback(endpoint->host);
  if (endpoint && resolve(endpoint, until, cancel, &list, NULL) < 0) list = NULL;
  for (const struct addrinfo *at = list; at && !found; at = at->ai_next) found = route_from(at, out, &loopback);
  if (list) freeaddrinfo(list);
  if (found && (!loopback || wants_loopback)) return;
  if (!first_interface(out)) snprintf(out, HOST_NAME_SIZE, "127.0.0.1");
}

int host_reserve_port(int *fd, int *port, rdzv_error *error) {
  struct sockaddr_in6 any6 = {.sin6_family = AF_INET6};
  struct sockaddr_in any4 = {.sin_family = AF_INET};
  struct sockaddr_storage bound = {0};
  socklen_t len = sizeof bound;
  const int on = 1;
  *fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool v6 = *fd >= 0;
  if (!v6) *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const struct sockaddr *any = v6 ? (struct sockaddr *)&any6 : (struct sockaddr *)&any4;
  if (*fd >= 0 && setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
      bind(*fd, any, v6 ? sizeof any6 : sizeof any4) == 0 && getsockname(*fd, (struct sockaddr *)&bound, &len) == 0) {
    *port = net_port((struct sockaddr *)&bound);
    return 0;
  }
  const int errnum = errno;
  if (*fd >= 0) close(*fd);
  *fd = -1;
  return error_errno(error, RDZV_E_IO, errnum, "cannot reserve a free port");
}

int host_renew_port(int *fd, int *port, rdzv_error *error) {
  int fresh;
  const int result = host_reserve_port(&fresh, port, error);
  if (result < 0) return result;
  if (*fd >= 0) close(*fd);
  *fd = fresh;
  return 0;
}
