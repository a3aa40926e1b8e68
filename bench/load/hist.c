/* SPDX-License-Identifier: BSD-3-Clause */
/* Buckets as in HdrHistogram: exact below 64 ns, then 32 for each doubling, up to 2^37 ns (over two minutes). */
#include "load.h"

enum { SUB_BITS = 5 };

static unsigned bucket_of(uint64_t ns) {
  if (ns < 2u << SUB_BITS) return (unsigned)ns;
  const unsigned shift = 63u - (unsigned)__builtin_clzll(ns) - SUB_BITS;
  const uint64_t bucket = ((uint64_t)shift << SUB_BITS) + (ns >> shift);
  return bucket < HIST_BUCKETS ? (unsigned)bucket : HIST_BUCKETS - 1;
}

static double middle_of(unsigned bucket) {
  if (bucket < 2u << SUB_BITS) return bucket;
  const unsigned shift = (bucket >> SUB_BITS) - 1;
  const uint64_t low = (uint64_t)(bucket - (shift << SUB_BITS)) << shift;
  return (double)low + (double)(1ull << shift) / 2;
}

void hist_add(struct hist *hist, int64_t ns, uint64_t times) {
  hist->buckets[bucket_of(ns > 0 ? (uint64_t)ns : 0)] += times;
  hist->total += times;
  if (ns > hist->longest) hist->longest = ns;
}

double hist_quantile(const struct hist *hist, double share) {
  const double rank = share * (double)hist->total;
  uint64_t seen = 0;
  for (unsigned i = 0; i < HIST_BUCKETS; i++) {
    seen += hist->buckets[i];
    if (seen > 0 && (double)seen >= rank) return middle_of(i) / 1000;
  }
  return 0;
}
