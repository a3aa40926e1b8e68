/* SPDX-License-Identifier: BSD-3-Clause */
/* The answers of etcd's v3 API, as its gateway gives them in JSON. Pure. Each function gives 0, RDZV_E_PROTOCOL with a
 * sentence that says why it is no such answer, or RDZV_E_NO_MEMORY; then what it fills is empty. */
#ifndef RDZV_ETCD_V3_READ_H
#define RDZV_ETCD_V3_READ_H

#include "etcd/v3/types.h"

#include <rdzv/error.h>

/* ---- keys ---- */

/* Of a range or a delete, or of a put: one result. `kind` says which was asked for. */
int etcd3_read_result(rdzv_bytes body, enum etcd3_op_kind kind, struct etcd3_reply *reply, rdzv_error *error);
int etcd3_read_txn(rdzv_bytes body, struct etcd3_reply *reply, rdzv_error *error);

/* ---- leases ---- */

/* Of grant, keep-alive (a stream of one) and time-to-live. A lease that is gone has a time of 0 or less. */
int etcd3_read_lease(rdzv_bytes body, struct etcd3_lease *lease, rdzv_error *error);

/* ---- watches ---- */

/* One message of a stream. */
struct etcd3_message {
  int64_t id;       /* of the watch that it is for; negative: of all */
  int64_t revision; /* of the member that sends it, which may be behind others */
  bool created;
  bool canceled;
  int64_t compacted; /* of a canceled one: the oldest revision that is left; 0: canceled for another reason */
  char reason[200];  /* that one */
  struct etcd3_events events;
};
void etcd3_message_free(struct etcd3_message *message);
int etcd3_read_message(rdzv_bytes line, struct etcd3_message *message, rdzv_error *error);

/* ---- the cluster ---- */
int etcd3_read_status(rdzv_bytes body, struct etcd3_status *status, rdzv_error *error);

/* Where the members serve clients: "http://a:2379,http://b:2379". To be freed. */
int etcd3_read_members(rdzv_bytes body, char **list, rdzv_error *error);
enum { ETCD3_TOKEN_SIZE = 4096 };
int etcd3_read_token(rdzv_bytes body, char token[ETCD3_TOKEN_SIZE], rdzv_error *error);

/* The cluster's id that an answer names; 0: none. */
uint64_t etcd3_read_cluster(rdzv_bytes body);

/* ---- errors ---- */

/* The refusals of etcd that the caller handles. */
enum etcd3_refusal {
  ETCD3_REFUSAL_OTHER,
  ETCD3_REFUSAL_COMPACTED,
  ETCD3_REFUSAL_FUTURE,        /* a revision that is not there yet */
  ETCD3_REFUSAL_LEASE_GONE,    /* no such lease */
  ETCD3_REFUSAL_LEASE_EXISTS,  /* a lease of that id */
  ETCD3_REFUSAL_NO_SPACE,      /* the space alarm */
  ETCD3_REFUSAL_CORRUPT,       /* the alarm of corruption */
  ETCD3_REFUSAL_TOO_LARGE,     /* the request, or too many operations */
  ETCD3_REFUSAL_NO_PERMISSION, /* of this user */
  ETCD3_REFUSAL_NO_USER,       /* one is required, and the request had none */
  ETCD3_REFUSAL_LOGIN,         /* wrong user or password */
  ETCD3_REFUSAL_NO_AUTH,       /* authentication is not enabled */
  ETCD3_REFUSAL_TOKEN,         /* the token is invalid or has expired */
  ETCD3_REFUSAL_BUSY,          /* too many requests */
};

struct etcd3_error {
  enum etcd3_refusal refusal;
  char text[300]; /* etcd's own */
};

/* The body of an answer of another status than 200, or a message of a stream. False: it is no error of etcd's. */
bool etcd3_read_error(rdzv_bytes body, struct etcd3_error *out);

#endif
