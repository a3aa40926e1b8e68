/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A relay between clients and a server that treats each connection badly in ways that a seed decides: which fault comes
 * after how many bytes of which direction, into which pieces the bytes are cut, how late they come. What does not
 * depend on the seed is who connects when.
 */
#ifndef RDZV_TESTS_CHAOS_PROXY_H
#define RDZV_TESTS_CHAOS_PROXY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct proxy;

struct proxy_options {
  uint64_t seed;
  int port;        /* to listen on; 0: a free one */
  int target_port; /* of the server, on loopback */
  int mean_bytes;  /* of one direction before a fault comes */
  bool resets;     /* connections end with a reset only: a peer that takes half an answer for a whole one sees none */
  int late_ms;     /* the longest that bytes are held, or a connection stalls */
  FILE *trace;     /* what was done to which connection; NULL: nowhere */
};

struct proxy_counts {
  unsigned connections, faults, late; /* late: bytes that reached the server after their client had gone */
};

/* Listens on a loopback port; it relays when it runs. NULL: no port. */
struct proxy *proxy_open(const struct proxy_options *options);
int proxy_port(const struct proxy *proxy);

/* Relays in this thread until proxy_end, or in a thread of its own. */
void proxy_run(struct proxy *proxy);
bool proxy_start(struct proxy *proxy);

/* From any thread. Without faults, bytes pass as they come; what is held or stalled goes on as was decided. */
void proxy_set_faults(struct proxy *proxy, bool on);
void proxy_set_target(struct proxy *proxy, int port);
void proxy_cut_all(struct proxy *proxy);
void proxy_set_silent(struct proxy *proxy, bool on); /* no byte passes at all */

/* Are there bytes that are held? */
bool proxy_is_idle(struct proxy *proxy);
struct proxy_counts proxy_counts(struct proxy *proxy);

/* Ends and frees it, and whatever it holds is lost. */
void proxy_end(struct proxy *proxy);

#endif
