/* SPDX-License-Identifier: BSD-3-Clause */
/* SipHash (Aumasson and Bernstein, 2012): a hash whose collisions cannot be found without its seed. */
#ifndef RDZV_BASE_SIPHASH_H
#define RDZV_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct siphash_seed {
  uint64_t key[2];
};

/* SipHash-2-4, for what must not be forged. */
uint64_t siphash(const struct siphash_seed *seed, const void *data, size_t len);

/* SipHash-1-3, for hash tables: half the rounds. Its values never leave the process, and the tables of Rust, Python
 * and Ruby use it for keys from strangers. */
uint64_t siphash_short(const struct siphash_seed *seed, const void *data, size_t len);

#endif
