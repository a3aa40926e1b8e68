/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/siphash.h"

#include <endian.h>
#include <string.h>

static uint64_t rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static void rounds(uint64_t v[4], int count) {
  while (count-- > 0) {
    v[0] += v[1], v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0], v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1], v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2], v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
  }
}

static void absorb(uint64_t v[4], uint64_t word) {
  v[3] ^= word;
  rounds(v, 2);
  v[0] ^= word;
}

static uint64_t load(const unsigned char *data, size_t len) {
  uint64_t word = 0;
  memcpy(&word, data, len);
  return le64toh(word);
}

uint64_t siphash(const struct siphash_seed *seed, const void *data, size_t len) {
  uint64_t v[4] = {seed->key[0] ^ 0x736f6d6570736575, seed->key[1] ^ 0x646f72616e646f6d,
                   seed->key[0] ^ 0x6c7967656e657261, seed->key[1] ^ 0x7465646279746573};
  const unsigned char *at = data;
  size_t left = len;
  for (; left >= 8; left -= 8, at += 8) absorb(v, load(at, 8));
  absorb(v, (left > 0 ? load(at, left) : 0) | (uint64_t)len << 56);
  v[2] ^= 0xff;
  rounds(v, 4);
  return v[0] ^ v[1] ^ v[2] ^ v[3];
}
