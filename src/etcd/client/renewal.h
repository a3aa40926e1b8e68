/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When a lease is renewed next. Pure.
 *
 * etcd counts a lease from when it gets a renewal. The owner knows only when it sent one, so it counts from there, and
 * so does the time of the next one: a renewal whose answer took long has used up the lease meanwhile, and the next one
 * is sent at once. Otherwise stalls of etcd that follow each other would end the lease of an owner that had the time to
 * renew it between them.
 */
#ifndef RDZV_ETCD_CLIENT_RENEWAL_H
#define RDZV_ETCD_CLIENT_RENEWAL_H

#include <stdbool.h>
#include <stdint.h>

struct renewal {
  int64_t every_ms; /* after one that was answered was sent */
  int64_t again_ms; /* after one failed */
};

/* The time of the next renewal, after one that was sent then and has ended now. */
int64_t renewal_next(const struct renewal *renewal, int64_t sent_ms, int64_t now_ms, bool done);

#endif
