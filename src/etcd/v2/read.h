/* SPDX-License-Identifier: BSD-3-Clause */
/* The answers of etcd's v2 API, read. Pure. */
#ifndef RDZV_ETCD_V2_READ_H
#define RDZV_ETCD_V2_READ_H

#include <rdzv/bytes.h>
#include <rdzv/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ETCD_MAX_DEPTH = 64 };

/* A key, or a directory with what is in it. */
struct etcd_node {
  char *key;
  char *value; /* never NULL; of a directory "" */
  bool dir;
  uint64_t created, modified; /* indexes */
  int64_t ttl;                /* seconds; -1: it does not expire */
  struct etcd_node *nodes;
  size_t count;
};

struct etcd_result {
  char action[24]; /* "get", "set", "expire" … */
  struct etcd_node node;
  uint64_t index; /* of etcd as a whole: watch from the next one */
};

/* Frees what it holds; one that is all zero is fine. */
void etcd_result_free(struct etcd_result *result);

/* Reads the body of an answer with status 200 or 201. RDZV_E_PROTOCOL: it is not such an answer; the sentence says why.
 * RDZV_E_NO_MEMORY. Then *out is empty. */
int etcd_v2_read(rdzv_bytes body, struct etcd_result *out, rdzv_error *error);

/* Reads the body of an error: etcd's code, and its sentence into *error. RDZV_E_PROTOCOL: it is not such a body. */
int etcd_v2_read_error(rdzv_bytes body, int *code, uint64_t *index, rdzv_error *error);

#endif
