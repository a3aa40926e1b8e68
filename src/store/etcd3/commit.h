/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A write, done exactly once. Each handle has a key of its own in etcd, its writer, with the number of its last write.
 * A write is a transaction that also raises that number, on the condition that the writer is as this handle left it:
 * so it can be repeated when its answer is lost, is never done late, over what was written since, and is found out by
 * the number. A write that is refused after such a repetition raises the number, too, for the same reason. The writer
 * has a lease: it expires when the handle has not written for a while, and is created again.
 */
#ifndef RDZV_STORE_ETCD3_COMMIT_H
#define RDZV_STORE_ETCD3_COMMIT_H

#include "etcd/v3/v3.h"

#include <pthread.h>
#include <rdzv/store.h>

struct etcd3_writer {
  pthread_mutex_t lock; /* held by the write under way; guards the rest */
  rdzv_value key;       /* empty: none yet */
  int64_t revision;     /* that changed it last; 0: it is not there */
  uint64_t number;      /* of the last write */
  bool unsure;          /* of the last write it is not known whether it was done */
  int64_t lease;        /* its own; 0: none, or that of the store */
  deadline renew;       /* that lease */
};

/* At most so many operations a write, beside the one of the writer. */
enum { ETCD3_COMMIT_OPS = ETCD3_MAX_OPS - 1 };

struct etcd3_commit {
  const struct etcd3_compare *compares;
  size_t compare_count;
  struct etcd3_op *then; /* puts get the lease of the store */
  size_t count;
  const struct etcd3_op *look; /* what is read where the compares do not hold; NULL: nothing */
};

/* 0: done, and *revision, which may be NULL, is when. 1: the compares do not hold, and *found, which may be NULL, is
 * what was read, to be freed. Else an RDZV_E code. */
int etcd3_store_commit(rdzv_store *store, const struct etcd3_commit *commit, const struct etcd_call *call,
                       int64_t *revision, struct etcd3_reply *found);

void etcd3_writer_open(struct etcd3_writer *writer);

/* Ends the writer's lease, and with it the writer, if etcd answers soon; else it ends by itself. */
void etcd3_writer_end(struct etcd3_writer *writer, struct etcd3 *etcd, const struct flag *cancel);
void etcd3_writer_close(struct etcd3_writer *writer);

#endif
