/* SPDX-License-Identifier: BSD-3-Clause */
/* What is asked of etcd's v3 API, and what it answers. Plain data. Keys and values are bytes. */
#ifndef RDZV_ETCD_V3_TYPES_H
#define RDZV_ETCD_V3_TYPES_H

#include <rdzv/bytes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- what is asked; all of it is borrowed ---- */

/* One key, or those from `key` on, below `end`. */
struct etcd3_keys {
  rdzv_bytes key;
  rdzv_bytes end; /* empty: the key alone. etcd3_prefix makes it */
};

enum etcd3_order { ETCD3_ORDER_KEY, ETCD3_ORDER_CREATE, ETCD3_ORDER_MOD };

struct etcd3_range {
  struct etcd3_keys keys;
  int64_t revision;       /* as of then; 0: now */
  int64_t limit;          /* 0: none */
  enum etcd3_order order; /* by key, or by the revision that created or last changed it */
  bool newest_first;      /* the order turned round */
  bool keys_only, count_only;
};

struct etcd3_put {
  rdzv_bytes key, value;
  int64_t lease;   /* 0: none */
  bool keep_lease; /* the one that the key has; it must exist */
};

struct etcd3_delete {
  struct etcd3_keys keys;
  bool prev; /* give what was deleted */
};

enum etcd3_target {
  ETCD3_TARGET_VERSION,
  ETCD3_TARGET_CREATE,
  ETCD3_TARGET_MOD,
  ETCD3_TARGET_VALUE,
  ETCD3_TARGET_LEASE
};
enum etcd3_relation { ETCD3_EQUAL, ETCD3_GREATER, ETCD3_LESS, ETCD3_NOT_EQUAL };

/* "<target> of <keys> is <relation> <number or value>". All numbers of a key that does not exist are 0; its value
 * compares false. With an `end`: of each key in the range. */
struct etcd3_compare {
  struct etcd3_keys keys;
  enum etcd3_target target;
  enum etcd3_relation relation;
  int64_t number;   /* of each target but the value */
  rdzv_bytes value; /* of that one */
};

enum etcd3_op_kind { ETCD3_OP_RANGE, ETCD3_OP_PUT, ETCD3_OP_DELETE };

struct etcd3_op {
  enum etcd3_op_kind kind;
  union {
    struct etcd3_range range;
    struct etcd3_put put;
    struct etcd3_delete remove;
  };
};

/* May a transaction be sent again that may have been done, its answer having got lost? */
enum etcd3_repeat {
  ETCD3_REPEAT_NEVER,  /* no: RDZV_E_OUTCOME_UNKNOWN */
  ETCD3_REPEAT_FENCED, /* once it is done its compares never hold again, so that it is done once: see etcd3_txn */
  ETCD3_REPEAT_FREELY, /* it does no harm to do it twice, also late: it only reads */
};

enum { ETCD3_MAX_OPS = 128 }; /* etcd's own limit, of each list of a transaction */

/* If all compares hold, `then` is done, else `otherwise`; in one step, at one revision. */
struct etcd3_txn {
  const struct etcd3_compare *compares;
  size_t compare_count;
  const struct etcd3_op *then;
  size_t then_count;
  const struct etcd3_op *otherwise;
  size_t otherwise_count;
  enum etcd3_repeat repeat;
};

/* ---- what is answered; to be freed with the function beside it ---- */

struct etcd3_kv {
  rdzv_value key, value; /* with a byte 0 behind each */
  int64_t create_revision, mod_revision;
  int64_t version; /* 1: as it was created; one more by each put */
  int64_t lease;   /* 0: none */
};

/* Of one range, put or delete. */
struct etcd3_result {
  enum etcd3_op_kind kind;
  struct etcd3_kv *kvs; /* what was found, or deleted, if that was asked for */
  size_t kv_count;
  int64_t count; /* of a range: the keys in it, whatever the limit; of a delete: those deleted */
  bool more;     /* of a range: the limit left some out */
};

struct etcd3_reply {
  int64_t revision; /* of the store when it was done: watch from the next one */
  bool succeeded;   /* the compares held; true where there were none */
  bool unsure;      /* see etcd3_txn */
  struct etcd3_result *results;
  size_t count;
};
void etcd3_reply_free(struct etcd3_reply *reply);

struct etcd3_lease {
  int64_t id;
  int64_t ttl_s;     /* what etcd gives, which may be more than what was asked for; left, if it is looked at */
  int64_t granted_s; /* only if it is looked at */
};

struct etcd3_event {
  size_t watched;     /* which of those watched */
  bool deleted;       /* also by the end of its lease: then kv has the key and mod_revision only, and, where that is
                         asked for and etcd still knows it, what the key was before */
  struct etcd3_kv kv; /* as it is now */
};

/* Changes in the order in which they happened. Those of one revision are never torn apart, for each one watched. */
struct etcd3_events {
  int64_t revision; /* of the store when they were reported */
  struct etcd3_event *list;
  size_t count;
};
void etcd3_events_free(struct etcd3_events *events);

struct etcd3_status {
  char version[32];       /* of the member that answered: "3.5.16" */
  uint64_t leader;        /* 0: there is none */
  int64_t revision;       /* of the store */
  int64_t db_size;        /* bytes */
  bool no_space, corrupt; /* alarms */
};

/* ---- ranges ---- */

/* All keys that begin with `prefix`. `end`: room for the bytes of the prefix, which must live as long. */
struct etcd3_keys etcd3_prefix(rdzv_bytes prefix, char *end);

#endif
