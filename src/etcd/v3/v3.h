/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * etcd's v3 API, by way of its JSON gateway: the calls that etcd 3.4 to 3.7 share.
 *
 *   types.h  what is asked and answered
 *   write.h  requests as JSON; pure
 *   read.h   answers and errors from JSON; pure
 *   v3.c     calls that are answered at once
 *   lease.c  leases
 *   watch.c  a watch: a stream of changes
 *   streams.c  pauses between streams that end soon
 *
 * Every call gives 0, a code of enum etcd3_code, which is above 0, or a negative RDZV_E code, with its sentence in the
 * call's error:
 *   RDZV_E_CONNECTION       no member answers
 *   RDZV_E_TIMEOUT          of a watch only: nothing changed by the deadline
 *   RDZV_E_CANCELED         the flag of the call was raised
 *   RDZV_E_OUTCOME_UNKNOWN  a write may or may not have been done
 *   RDZV_E_NO_SPACE         etcd is full: it has raised its space alarm
 *   RDZV_E_LIMIT            etcd refuses the size of the request, or its answer is too long
 *   RDZV_E_DATA_LOST        etcd has forgotten what it told this client: its revision went back, or it is another
 *                           cluster. Told once; what comes after is of the new one
 *   RDZV_E_INVALID          no permission, wrong user or password, a certificate that cannot be used
 *   RDZV_E_UNSUPPORTED      no v3 API there: the gateway is switched off, or etcd is older than 3.4
 *   RDZV_E_PROTOCOL         it is no etcd, or it answers what cannot be read
 *
 * One thread is enough for a user that watches, keeps a lease and calls: it waits in etcd3_watch_next with its own flag
 * and with the time of the next keep-alive as the deadline, makes its calls in between, and looks at the watch again.
 * Changes meanwhile wait in the stream. The flag, raised, ends the wait with RDZV_E_CANCELED, and is lowered by its
 * owner.
 */
#ifndef RDZV_ETCD_V3_V3_H
#define RDZV_ETCD_V3_V3_H

#include "etcd/client/client.h"
#include "etcd/v3/types.h"

enum etcd3_code {
  ETCD3_COMPACTED = 1,  /* the history asked for is gone: read, and watch from there */
  ETCD3_LEASE_GONE = 2, /* there is no such lease, or it has expired */
};

/* One user of a cluster: what it has seen there, by which a loss of data is noticed. Any thread may call. */
struct etcd3;

/* Takes over one hold on the client (etcd/client/client.h), also on failure. */
int etcd3_open(struct etcd_client *client, struct etcd3 **out, rdzv_error *error);
void etcd3_close(struct etcd3 *etcd);

/* From here on one thread makes all calls, and has one watch at most: both share a handle of libcurl, which saves three
 * descriptors. Two connections, two descriptors of libcurl's. */
int etcd3_for_one_thread(struct etcd3 *etcd, rdzv_error *error);
struct etcd_client *etcd3_client(const struct etcd3 *etcd);

/* ---- keys ---- */

/* One result, of a range. */
int etcd3_range(struct etcd3 *etcd, const struct etcd3_range *range, const struct etcd_call *call,
                struct etcd3_reply *reply);

/*
 * A result for each op of the list that was done. A transaction without a put and a delete, and one with
 * ETCD3_REPEAT_FREELY, is repeated until it is answered.
 *
 * ETCD3_REPEAT_FENCED is repeated, too. If it was done at an earlier try of which the answer got lost, `succeeded` is
 * false and `unsure` true: the caller tells by the results of `otherwise` whether it was its own. So let it read there
 * a key that `then` writes with a value that no one else writes. RDZV_E_OUTCOME_UNKNOWN only where no answer came
 * after such a try until the deadline.
 */
int etcd3_txn(struct etcd3 *etcd, const struct etcd3_txn *txn, const struct etcd_call *call, struct etcd3_reply *reply);

/* Without a condition. `repeat` as in a transaction: NEVER, or FREELY where a repetition that comes late, over what was
 * written since, does no harm. */
int etcd3_put(struct etcd3 *etcd, const struct etcd3_put *put, enum etcd3_repeat repeat, const struct etcd_call *call,
              int64_t *revision);
int etcd3_delete(struct etcd3 *etcd, const struct etcd3_delete *what, enum etcd3_repeat repeat,
                 const struct etcd_call *call, struct etcd3_reply *reply);

/* Is `value` what the range found, as its only key? */
bool etcd3_holds(const struct etcd3_result *result, rdzv_bytes value);

/* ---- leases ---- */

/* A lease with an id of our choosing, so that a lost answer does no harm. */
int etcd3_lease_grant(struct etcd3 *etcd, int64_t ttl_s, const struct etcd_call *call, struct etcd3_lease *lease);

/* Renews it. ETCD3_LEASE_GONE. `ttl_s` may be NULL. */
int etcd3_lease_keep_alive(struct etcd3 *etcd, int64_t id, const struct etcd_call *call, int64_t *ttl_s);

/* Ends it, and deletes its keys. 0 also if it was gone. */
int etcd3_lease_revoke(struct etcd3 *etcd, int64_t id, const struct etcd_call *call);

/* How long it lasts. ETCD3_LEASE_GONE. */
int etcd3_lease_time_to_live(struct etcd3 *etcd, int64_t id, const struct etcd_call *call, struct etcd3_lease *lease);

/* ---- watches ---- */

enum { ETCD3_MAX_WATCHED = 4 }; /* since each makes it less sure that etcd takes up all at once: see watch.c */

struct etcd3_watched {
  struct etcd3_keys keys;
  int64_t from; /* the first revision of interest; 0: from now on, which a read before cannot be matched with */
};

/* A stream of the changes of some keys on one connection, which is made, and made again, by etcd3_watch_next. Borrows
 * the etcd3; copies the rest. For one thread at a time. RDZV_E_INVALID: none, or too many. */
struct etcd3_watch;
int etcd3_watch_open(struct etcd3 *etcd, const struct etcd3_watched *watched, size_t count, struct etcd3_watch **out,
                     rdzv_error *error);
void etcd3_watch_close(struct etcd3_watch *watch);

/* Before the first etcd3_watch_next: reports only removals in that range, with the old values. */
void etcd3_watch_only_removals(struct etcd3_watch *watch, size_t which);

/*
 * Waits for changes: at least one, and all that are there. No change is lost or reported twice, even when the
 * stream breaks and continues at another member. A member that says nothing is asked by a call of its own now and then,
 * unless the caller makes calls anyway; the watch follows to the member that answers.
 *
 * ETCD3_COMPACTED: the history is gone from where the watch stood. RDZV_E_DATA_LOST. After these the watch is
 * useless: read, and open another. After each other failure it can be called again. RDZV_E_TIMEOUT and
 * RDZV_E_CANCELED leave *events empty and the stream as it is.
 */
int etcd3_watch_next(struct etcd3_watch *watch, const struct etcd_call *call, struct etcd3_events *events);

/* ---- the cluster ---- */
int etcd3_status(struct etcd3 *etcd, const struct etcd_call *call, struct etcd3_status *status);

/* How large the database may become before etcd raises its space alarm: its --quota-backend-bytes, which only its
 * metrics tell. RDZV_E_UNSUPPORTED: they do not. */
int etcd3_quota(struct etcd3 *etcd, const struct etcd_call *call, int64_t *bytes);

/* Where the members serve clients: "http://a:2379,http://b:2379". To be freed. The client asks that by itself after the
 * first call that succeeds, and uses those members, too. */
int etcd3_member_list(struct etcd3 *etcd, const struct etcd_call *call, char **urls);

#endif
