/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * etcd's v2 API. Keys are paths, "/a/b". Every call gives 0; a code of etcd's, which is above 0, where etcd answered
 * no, with its sentence in the call's error; or a negative RDZV_E code. *result is to be freed after 0 only; its index
 * is there after a code of etcd's, too.
 */
#ifndef RDZV_ETCD_V2_V2_H
#define RDZV_ETCD_V2_V2_H

#include "etcd/client/client.h"
#include "etcd/v2/read.h"

/* etcd's codes. */
enum etcd_v2_code {
  ETCD_V2_NOT_FOUND = 100,
  ETCD_V2_COMPARE_FAILED = 101,
  ETCD_V2_NOT_A_FILE = 102,
  ETCD_V2_NOT_A_DIR = 104,
  ETCD_V2_EXISTS = 105,
  ETCD_V2_DIR_NOT_EMPTY = 108,
  ETCD_V2_WATCHER_CLEARED = 400,
  ETCD_V2_INDEX_CLEARED = 401,
};

/* Does etcd refuse a conditional write, or a write of a new key, with that code when another was faster? */
bool etcd_v2_is_lost_race(int code);

/* Sets the error for a code of etcd's that the caller did not expect. Returns a negative RDZV_E code. */
int etcd_v2_unexpected(int code);

enum etcd_get { ETCD_GET_RECURSIVE = 1 << 0, ETCD_GET_QUORUM = 1 << 1 };

int etcd_v2_get(struct etcd_client *client, const char *key, unsigned flags, const struct etcd_call *call,
                struct etcd_result *result);

enum etcd_exist { ETCD_EXIST_ANY, ETCD_EXIST_ABSENT, ETCD_EXIST_PRESENT };

struct etcd_put {
  const char *value; /* NULL: none */
  int64_t ttl;       /* seconds; 0: it does not expire */
  bool dir;
  bool refresh;           /* a new ttl, and else nothing; wakes no watcher */
  enum etcd_exist exist;  /* what there must be */
  const char *prev_value; /* NULL: any */
  uint64_t prev_index;    /* 0: any */
  bool unique;            /* no other client writes that value: the write was done if it is there */
  bool by_anybody;        /* the same value, written by another on the same condition, will do */
  bool resolved;          /* the caller finds out what became of it, so that no member is waited for for long */
};

/* Makes it a write over what was read at that index; 0: of a key that did not exist. */
static inline void etcd_put_over(struct etcd_put *put, uint64_t index) {
  put->prev_index = index;
  put->exist = index == 0 ? ETCD_EXIST_ABSENT : ETCD_EXIST_ANY;
}

/* A write on a condition whose answer got lost is repeated and looked after where the value is unique; where it has a
 * prev_index, it is repeated and found in etcd's history. RDZV_E_OUTCOME_UNKNOWN where neither is so, or the history of
 * the last 1000 changes does not go back that far. */
int etcd_v2_put(struct etcd_client *client, const char *key, const struct etcd_put *put, const struct etcd_call *call,
                struct etcd_result *result);

struct etcd_delete {
  bool dir, recursive;
  const char *prev_value; /* NULL: any */
  uint64_t prev_index;    /* 0: any */
};
int etcd_v2_delete(struct etcd_client *client, const char *key, const struct etcd_delete *what,
                   const struct etcd_call *call, struct etcd_result *result);

/* Waits for the first change of the key, or of what is below it, at that index or after. Where the answer is another,
 * read, and watch again from there: RDZV_E_TIMEOUT, also before the deadline, where etcd ended it, was lost, or said
 * nothing for about 8 s; ETCD_V2_INDEX_CLEARED and ETCD_V2_WATCHER_CLEARED. None of these comes without a pause. */
int etcd_v2_watch(struct etcd_client *client, const char *key, bool recursive, uint64_t from_index,
                  const struct etcd_call *call, struct etcd_result *result);

/* The same, for who reads the key then: 0 for every answer after which it is to be read. RDZV_E_TIMEOUT only by the
 * deadline. */
int etcd_v2_await(struct etcd_client *client, const char *key, bool recursive, uint64_t from_index,
                  const struct etcd_call *call);

#endif
