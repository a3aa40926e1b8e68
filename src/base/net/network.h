/* SPDX-License-Identifier: BSD-3-Clause */
/* Networks: "10.1.0.0/16", "fd00::/8", or one address; "loopback" is 127.0.0.0/8 and ::1. */
#ifndef RDZV_BASE_NET_NETWORK_H
#define RDZV_BASE_NET_NETWORK_H

#include <rdzv/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* IPv4 addresses are the IPv6 addresses that stand for them. */
struct network {
  uint8_t address[16];
  unsigned bits; /* that count */
};

enum { NETWORKS_MOST = 64 };

/* Reads a list, with commas between. RDZV_E_INVALID: the message has the invalid part. */
int networks_parse(const char *text, struct network out[NETWORKS_MOST], size_t *count, rdzv_error *error);

/* Is the address in one of them? */
bool networks_have(const struct network *networks, size_t count, const struct sockaddr *address);

#endif
