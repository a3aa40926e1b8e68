/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Clients that use a few keys of one store all at once, by the public API, and write down what they did and what they
 * were told. What each does is decided by the seed; who is faster is not.
 */
#ifndef RDZV_TESTS_CHAOS_LOAD_H
#define RDZV_TESTS_CHAOS_LOAD_H

#include "history.h"
#include "random.h"

#include <rdzv/etcd.h>
#include <rdzv/store.h>
#include <stdatomic.h>

enum {
  MOST_WORKERS = 24, /* with those that take the place of one that was killed */
  MOST_OPS = 512,    /* of one worker */
  WINDOW_KEYS = 3,   /* that are used at the same time */
  WINDOW_OPS = 40 * WINDOW_KEYS,
};

enum store_type { STORE_HASH, STORE_FILE, STORE_TCP, STORE_ETCD, STORE_ETCD3 };

/* Where the store is, and how it is opened. */
struct place {
  enum store_type type;
  char endpoint[256]; /* or path */
  rdzv_dialect dialect;
  rdzv_store *hash;  /* of which each worker has a clone */
  unsigned features; /* beyond those, none are used */
  int64_t patience;  /* ms that a request may take; 0: what suits a store that answers at once */
};

enum key_kind { KEY_REGISTER, KEY_NUMBER, KEY_VERSIONS, KEY_QUEUE, KEY_KINDS };

struct log {
  atomic_int count;
  atomic_bool ended;
  struct op ops[MOST_OPS];
};

/* Seen by all workers, also where they are processes. */
struct book {
  atomic_int done; /* operations, by which the window moves on */
  atomic_bool stop;
  uint64_t seed;
  char prefix[64];     /* of this run's keys */
  unsigned kinds;      /* 1 << enum key_kind: that are used */
  int budget;          /* operations in all */
  int rest_ms;         /* between two operations of a client, at most */
  bool no_set, no_nan; /* what is left out: sets, adds to keys that may be texts */
  struct log logs[MOST_WORKERS + 2];
};

enum { LOG_OF_NEMESIS = MOST_WORKERS, LOG_OF_END };

int64_t now_us(void);
void pause_ms(int64_t ms);

int key_count(const struct book *book);
enum key_kind key_kind_of(const struct book *book, int key);

/* Opens the store; NULL: it cannot be reached, and *code says why. */
rdzv_store *place_open(const struct place *place, int *code);
/* While no fault is made: only a busy machine can keep it waiting, and is given the time. */
rdzv_store *place_open_unharmed(const struct place *place, int *code);

/* Until the budget is used up. */
void worker_run(struct book *book, const struct place *place, int worker);

/* Reads every key at the end, when nobody else does anything. False: not all of them could be read. */
bool read_all(struct book *book, const struct place *place);

/* Writes down a restart of a server that forgets, for every key. */
void note_wipe(struct book *book, int64_t from_us, int64_t to_us);

/* A code that no fault of ours may lead to. */
bool is_unexpected(int code, bool restarts);

#endif
