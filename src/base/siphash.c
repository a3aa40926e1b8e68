/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/siphash.h"

#include <endian.h>
#include <string.h>

/* In a struct that is passed by value, so that it stays in registers. */
struct state {
  uint64_t a, b, c, d;
};

static inline uint64_t rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static inline struct state sip_round(struct state s) {
  s.a += s.b, s.c += s.d;
  s.b = rotate(s.b, 13) ^ s.a, s.d = rotate(s.d, 16) ^ s.c;
  s.a = rotate(s.a, 32);
  s.c += s.b, s.a += s.d;
  s.b = rotate(s.b, 17) ^ s.c, s.d = rotate(s.d, 21) ^ s.a;
  s.c = rotate(s.c, 32);
  return s;
}

static inline struct state absorb(struct state s, uint64_t word, int rounds) {
  s.d ^= word;
  for (int i = 0; i < rounds; i++) s = sip_round(s);
  s.a ^= word;
  return s;
}

static inline uint64_t load(const unsigned char *data) {
  uint64_t word;
  memcpy(&word, data, sizeof word);
  return le64toh(word);
}

/* The last len % 8 bytes of the data: the end of its last 8, if it has 8. */
static inline uint64_t load_tail(const unsigned char *data, size_t len) {
  const size_t tail = len % 8;
  uint64_t word = 0;
  if (tail == 0) return 0;
  if (len >= 8) return load(data + len - 8) >> (64 - 8 * tail);
  for (size_t i = 0; i < tail; i++) word |= (uint64_t)data[i] << (8 * i);
  return word;
}

static inline uint64_t hash(const struct siphash_seed *seed, const void *data, size_t len, int rounds, int last) {
  struct state s = {seed->key[0] ^ 0x736f6d6570736575, seed->key[1] ^ 0x646f72616e646f6d,
                    seed->key[0] ^ 0x6c7967656e657261, seed->key[1] ^ 0x7465646279746573};
  const unsigned char *bytes = data;
  for (size_t at = 0; at + 8 <= len; at += 8) s = absorb(s, load(bytes + at), rounds);
  s = absorb(s, load_tail(bytes, len) | (uint64_t)len << 56, rounds);
  s.c ^= 0xff;
  for (int i = 0; i < last; i++) s = sip_round(s);
  return s.a ^ s.b ^ s.c ^ s.d;
}

uint64_t siphash(const struct siphash_seed *seed, const void *data, size_t len) { return hash(seed, data, len, 2, 4); }

uint64_t siphash_short(const struct siphash_seed *seed, const void *data, size_t len) {
  return hash(seed, data, len, 1, 3);
}
