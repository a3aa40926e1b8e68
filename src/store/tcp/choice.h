/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which of several servers a client connects to. "a:29400,b:29400" names servers of which one is active and the others
 * are standbys. A standby answers the greeting with the address of the active server, and the client follows. A server
 * that cannot be reached is passed over. Decides, and does nothing.
 */
#ifndef RDZV_STORE_TCP_CHOICE_H
#define RDZV_STORE_TCP_CHOICE_H

#include "base/net/endpoint.h"

#include <rdzv/bytes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { TCP_MOST_ENDPOINTS = 16 };

/* The servers that the caller has named. It does not change, and is shared by a handle and its clones. */
struct tcp_servers {
  atomic_int holds;
  size_t count;
  struct endpoint list[];
};

/* Reads one endpoint, or several. RDZV_E_INVALID: the text, or there are too many. RDZV_E_NO_MEMORY. */
int tcp_servers_parse(const char *text, struct tcp_servers **out, rdzv_error *error);

/* One more hold; and one less. NULL is ignored. */
struct tcp_servers *tcp_servers_share(struct tcp_servers *servers);
void tcp_servers_drop(struct tcp_servers *servers);

/* The choice of one connection. */
struct tcp_choice {
  struct tcp_servers *servers;
  size_t current;
  bool follows;             /* `endpoint` is one that a standby named, and is not in the list */
  struct endpoint endpoint; /* the server to connect to */
};

/* Takes over a hold on the servers. */
void tcp_choice_init(struct tcp_choice *choice, struct tcp_servers *servers);

/* Are there others to try, if the server does not answer? */
static inline bool tcp_choice_has_others(const struct tcp_choice *choice) {
  return choice->servers->count > 1 || choice->follows;
}

/* The server could not be used: the next one. */
void tcp_choice_next(struct tcp_choice *choice);

/* The server is a standby, and names the active one: that one is next. If the text is no address, the next in the list
 * is. */
void tcp_choice_follow(struct tcp_choice *choice, rdzv_bytes active);

#endif
