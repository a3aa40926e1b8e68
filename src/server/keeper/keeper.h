/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Durability in the server: what has changed is committed to a keep (keep/keep.h), and no answer leaves before
 * everything that it depends on is durable.
 *
 *   keeper.c   commits: which changes, when, in a thread of their own; what a failure means
 *   gather.c   the changes of all parts of the server as one batch, and loading them
 *   natives.c  the same for the rounds of native nodes
 *   hold.c     answers that wait for a commit
 *   standby.c  a server with its state in etcd, until it is the active one
 *
 * Batches are numbered. At any moment one commit is under way, or none; what changes meanwhile is gathered, and is the
 * next batch. So each commit takes along all that came during the one before (a group commit).
 *
 * An answer is made from the state in memory. It depends, at most, on the newest batch that is not empty: that number
 * is noted with its bytes in the outbox, and they leave when the batch is durable (hold.c). So everything that is
 * sent (an answer, a value that a waiter gets, a round) is covered, and no part of the server has to know. Only
 * reads of one key are looked at closer: they depend on the batch of that key. A server that has nothing to commit
 * sends at once. While the answers of a client wait, its next requests are not read: that bounds what waits.
 *
 * A commit that fails is repeated until it succeeds. Until then writes are refused with the cause, and so they are
 * where the keep has no room for more. In a folder, reads that depend on the batch are refused, too; the clients whose
 * answers wait for it are closed after a second, come back and are refused: no client waits without knowing why. Of a
 * write whose answer waited, the outcome is unknown.
 */
#ifndef RDZV_SERVER_KEEPER_KEEPER_H
#define RDZV_SERVER_KEEPER_KEEPER_H

#include "keep/load.h"
#include "server/server.h"
#include "store/keyspace/changes.h"

/* What the commit thread is asked to do. */
enum keeper_job { KEEPER_NOTHING, KEEPER_COMMIT, KEEPER_ROOM, KEEPER_REST, KEEPER_END };

struct kept_run;

struct keeper {
  struct rdzv_server *server;
  struct keep *keep;
  struct record_tally tally;
  uint64_t committed; /* number of the last durable batch */
  bool in_flight;     /* batch committed + 1 is being committed */
  bool is_fresh;      /* the head has never been committed */
  struct batch batch; /* the one in flight */
  size_t charged;     /* what it takes from the budget */
  uint64_t issued;    /* serials of sessions up to this one are reserved by it */
  struct kept_run *runs;
  struct native_scratch scratch;
  struct conn *held; /* with answers that wait, */
  size_t held_count; /* so many */

  bool refuses; /* writes, for lack of room or because a commit has failed */
  bool failing; /* a commit has failed, and is to be repeated */
  uint64_t failing_at;
  bool nodes_told;
  rdzv_error why;

  uint64_t began_ns, ended_ns; /* the last commit */
  size_t released;             /* clients whose answers it let go */
  size_t served;               /* server->served then */

  uv_prepare_t turn;
  uv_idle_t spin; /* while it is active, the loop does not wait for events */
  uv_timer_t again;
  uv_async_t done;
  uv_timer_t look;  /* whether the place is still ours, and has room */
  uint64_t room_at; /* when to look for room next, while nothing is committed */
  bool rested;

  pthread_t thread;
  bool has_thread;
  pthread_mutex_t lock; /* guards what follows */
  pthread_cond_t asked, answered;
  enum keeper_job job;
  bool is_done;
  int result, room;
  bool more; /* to do, of a rest */
  rdzv_error error, room_error;
};

/* ---- gather.c ---- */

/* Has anything changed since the last batch was made? */
bool gather_has_changes(const struct keeper *keeper);

/* Makes the batch of all changes. False: no memory, and nothing has been gathered. */
bool gather_batch(struct keeper *keeper);

/* Loads all that is kept into a new server. */
int gather_load(struct keeper *keeper, rdzv_error *error);

/* ---- natives.c ---- */
void kept_natives_collect(struct keeper *keeper, struct batch *batch);
void kept_natives_collected(struct keeper *keeper);
int kept_natives_load_run(struct keeper *keeper, struct record_id id, rdzv_bytes head, rdzv_bytes body,
                          struct record_slot slot, rdzv_error *error);
int kept_natives_load_node(struct keeper *keeper, struct record_id id, rdzv_bytes head, struct record_slot slot,
                           rdzv_error *error);
int kept_natives_loaded(struct keeper *keeper, rdzv_error *error);
void kept_natives_free(struct keeper *keeper);

/* ---- hold.c ---- */

/* A batch is durable: lets the answers go that waited for it. */
void hold_release(struct keeper *keeper);

/* A batch cannot be committed: closes the connections whose answers wait for it, with the reason in the log. A client
 * of this library comes back, and is refused with the reason: keeper_refuses_read. A node resumes its session, and its
 * answers wait again. */
void hold_close(struct keeper *keeper, bool with_nodes);

#endif
