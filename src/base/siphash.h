/* SPDX-License-Identifier: BSD-3-Clause */
/* SipHash-2-4 (Aumasson and Bernstein, 2012): a hash whose collisions nobody finds who does not know the seed. */
#ifndef RDZV_BASE_SIPHASH_H
#define RDZV_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct siphash_seed {
  uint64_t key[2];
};

uint64_t siphash(const struct siphash_seed *seed, const void *data, size_t len);

#endif
