/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a durable server keeps what must survive it. A keep holds records: short names with values, as bytes. The
 * server (server/keeper/) knows what the records mean (keep/record.h); an engine stores them, and knows nothing of it.
 *
 *   keep.h          the interface of an engine, with its contract
 *   batch.c         the changes of one commit, made from objects; the names of records, their check sums
 *   record.c        the codec: objects as bytes
 *   load.c          reads all records, checks them, and gives objects back
 *   folder/         the engine of `--state-dir`
 *   etcd/           the engine of `--state-etcd`
 *
 * The server opens a keep, loads it once, and then commits one batch after another. It sends no answer before the batch
 * that covers the answer is durable. So the whole of durability is in the contract of `commit`:
 *
 *   - Atomic: after a crash at any moment, a load finds all changes of a batch or none of them.
 *   - Ordered: batches become durable in the order of their commits. A load finds the changes of the first n, for some
 *     n.
 *   - Durable: when commit has returned 0, a load finds the batch, whatever ends: this process, its machine.
 *   - Repeated: a batch that failed may have been stored, or may be stored later (never after close): the outcome is
 *     open. The server commits the same changes again, maybe together with others that came later, until it succeeds. A
 *     change says what a record is to be, not what to do with it, so a repetition does no harm.
 *   - Fenced: while one keep is open, no other process can commit to the same place. An engine that cannot exclude
 *     others for good (a lease) makes each commit depend on the exclusion itself.
 *
 * The sizes. A record has a name of at most KEEP_MAX_NAME bytes and a value of at most KEEP_MAX_VALUE: longer objects
 * are split by batch.c. A batch has any number of records: typically 2 to 2000, at most all that the server holds. An
 * engine whose transactions are smaller than that has to make a batch atomic itself (e.g. stage the records under the
 * number of the batch, and let one last transaction make that number count). Names are binary; their order is that of
 * memcmp. The record of the head (RECORD_HEAD) is in every batch.
 *
 * Errors of open, load and commit name the place, what was tried, and the innermost cause. The codes:
 *   - RDZV_E_NO_SPACE: there is no room. The server refuses writes with this sentence, and tries again now and then.
 *   - RDZV_E_IO, RDZV_E_TIMEOUT, RDZV_E_CONNECTION, RDZV_E_NO_MEMORY: the same, for another cause.
 *   - RDZV_E_STALE (commit, room): another one has taken the place over, for good. The server stops answering,
 * even reads, and ends. Every later commit returns it, too.
 *   - RDZV_E_IN_USE (open only): another server has the place.
 *   - RDZV_E_CORRUPT (open, load, commit): what is stored is damaged. Nothing is changed or removed. The server ends,
 *     since a commit would fail again and again.
 *   - RDZV_E_UNSUPPORTED (open, load): it is of another program, or of a newer version of this one. Nothing is changed.
 *   - RDZV_E_CANCELED: after cancel.
 *
 * Threads. open, load and close are called one after another. commit, room and rest are called one at a time, between
 * load and close, mostly from another thread; they may block. cancel and holds are called from any thread, at any time
 * between open and close.
 */
#ifndef RDZV_KEEP_KEEP_H
#define RDZV_KEEP_KEEP_H

#include <rdzv/bytes.h>
#include <rdzv/error.h>
#include <rdzv/log.h>
#include <stdbool.h>
#include <stdint.h>

enum {
  KEEP_MAX_NAME = 21,
  KEEP_MAX_VALUE = 512 * 1024 + 64,
};

/* What a record is to be. The bytes are valid during the call. */
struct keep_change {
  rdzv_bytes name;
  rdzv_bytes head, body; /* the value is both, one behind the other; a value is never empty */
  bool gone;             /* there is to be no such record; head and body are empty */
};

/* Takes a record that is loaded; the bytes are valid during the call. Below 0: the load ends with that code. */
typedef int keep_take(void *user, rdzv_bytes name, rdzv_bytes value, rdzv_error *error);

struct keep;

struct keep_ops {
  const char *name;

  /* Gives all records to `take`, in the order of their names. A name or a value that is too long is RDZV_E_CORRUPT. A
   * new place has no records. */
  int (*load)(struct keep *keep, keep_take *take, void *user, rdzv_error *error);

  /* See above. No name is there twice. */
  int (*commit)(struct keep *keep, const struct keep_change *changes, size_t count, rdzv_error *error);

  /* May the server accept more? RDZV_E_NO_SPACE and the like: what was committed is durable, but there is no room for
   * more; the server refuses writes with that sentence, and asks again twice a second. Asked after each commit, and
   * twice a second, in the thread of commits. NULL: always. */
  int (*room)(struct keep *keep, rdzv_error *error);

  /* There is nothing to commit for the moment: time to give back what is not needed. Returns soon; true: there is more
   * to do. NULL: nothing to do. */
  bool (*rest)(struct keep *keep);

  /* Does the server still have the place, as far as is known without a request? The server asks before it sends an
   * answer, also to a read, so it must be cheap. Once false, always false. NULL: always. */
  bool (*holds)(struct keep *keep);

  /* A commit that waits for something returns soon, and so do later ones. NULL: commit does not wait. */
  void (*cancel)(struct keep *keep);

  /* No commit is under way. Frees the keep. */
  void (*close)(struct keep *keep);
};

/* The first field of the struct of each engine. */
struct keep {
  const struct keep_ops *ops;
};

static inline int keep_load(struct keep *keep, keep_take *take, void *user, rdzv_error *error) {
  return keep->ops->load(keep, take, user, error);
}

static inline int keep_commit(struct keep *keep, const struct keep_change *changes, size_t count, rdzv_error *error) {
  return keep->ops->commit(keep, changes, count, error);
}

static inline int keep_room(struct keep *keep, rdzv_error *error) {
  return keep->ops->room ? keep->ops->room(keep, error) : 0;
}

static inline bool keep_rest(struct keep *keep) { return keep->ops->rest && keep->ops->rest(keep); }

static inline bool keep_holds(struct keep *keep) { return !keep->ops->holds || keep->ops->holds(keep); }

/* Does a commit wait for others than the disk? */
static inline bool keep_waits(const struct keep *keep) { return keep->ops->cancel; }

static inline void keep_cancel(struct keep *keep) {
  if (keep->ops->cancel) keep->ops->cancel(keep);
}

static inline void keep_close(struct keep *keep) {
  if (keep) keep->ops->close(keep);
}

/* ---- folder/ ---- */

/* Opens the folder, makes it if it is not there, and locks it. */
int keep_open_folder(const char *path, struct keep **out, rdzv_error *error);

/* ---- etcd/ ---- */

enum { KEEP_ETCD_LEASE_MS = 5000, KEEP_ETCD_LEAST_LEASE_MS = 2000 };
#define KEEP_ETCD_PREFIX "/rdzv-server"

struct keep_etcd_options {
  const struct rdzv_etcd_options *etcd;
  const char *prefix;  /* NULL: KEEP_ETCD_PREFIX */
  const char *address; /* of this server, for its clients: "10.0.0.7:29400" */
  int64_t lease_ms;    /* 0: KEEP_ETCD_LEASE_MS */
  const rdzv_log *log;

  /* Another server is active, at that address ("": not known); or, with NULL, none is, and this one takes over. In the
   * thread that enters. NULL: not told. */
  void (*told)(void *user, const char *active);
  void *user;
};

/* A keep that is not open yet: it can be entered, canceled and closed. Asks etcd nothing. Copies the options.
 * RDZV_E_INVALID: one of them. */
int keep_new_etcd(const struct keep_etcd_options *options, struct keep **out, rdzv_error *error);

/* A keep of the same place, not open yet, for a server that has lost it. Its wait does not end where etcd cannot be
 * reached: it was there before. */
int keep_again_etcd(struct keep *keep, struct keep **out, rdzv_error *error);

/* Opens it: waits until no other server is active at this place, and is the active one then, until close. Once; from
 * any thread. Errors as above, but not RDZV_E_IN_USE; also RDZV_E_INVALID: etcd refuses the user; RDZV_E_PROTOCOL:
 * there is no etcd. */
int keep_enter_etcd(struct keep *keep, rdzv_error *error);

#endif
