/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_STORE_H
#define RDZV_STORE_H

#include <rdzv/api.h>
#include <rdzv/bytes.h>
#include <rdzv/error.h>
#include <rdzv/log.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * A small key-value store shared by the processes of a job: the contract of PyTorch's c10d Store, on several
 * implementations. Keys and values are bytes; a value of no bytes is a value, and so is a key of none.
 *
 * Threads: one handle may be used from several threads. Calls on a tcp handle take their turns, so a blocked get holds
 * back the others: give each thread that blocks a handle of its own (rdzv_store_clone). On a hash or file handle a
 * blocked call holds nobody back. rdzv_store_cancel may be called at any time; rdzv_store_free only when no call on
 * the handle is under way.
 *
 * Processes: a handle belongs to the process that opened it. In a child made by fork every call returns RDZV_E_INVALID,
 * and rdzv_store_free frees the child's copy without touching what the parent uses.
 *
 * Out-parameters are written on success only. `error` may be NULL everywhere, and so may the results of add and
 * delete_key; any other missing out-parameter is RDZV_E_INVALID.
 *
 * Any call may return RDZV_E_INVALID, RDZV_E_NO_MEMORY, RDZV_E_CANCELED; on a tcp store also RDZV_E_CONNECTION (the
 * server cannot be reached within the timeout; nothing happened), RDZV_E_OUTCOME_UNKNOWN (see rdzv_store_open_tcp),
 * RDZV_E_PROTOCOL, RDZV_E_LIMIT (the server refuses the size), RDZV_E_STOPPED, RDZV_E_DATA_LOST; on a file store
 * RDZV_E_IO, RDZV_E_NO_SPACE, RDZV_E_CORRUPT, RDZV_E_LIMIT (a key over 64 KiB, a value over 1 GiB) and, where another
 * process holds the file's lock for the timeout and for half a second at least, RDZV_E_TIMEOUT. Only further codes are
 * named below.
 */
typedef struct rdzv_store rdzv_store;

#define RDZV_DEFAULT_PORT 29400      /* PyTorch's default for a store */
#define RDZV_STORE_TIMEOUT_MS 300000 /* PyTorch's default */
#define RDZV_TIMEOUT_STORE (-1)      /* for a timeout argument: the timeout of the handle */

/* ---- opening -------------------------------------------------------------------------------------------- */

/*
 * Zero means the default in every field of every options struct; `size` is always sizeof the struct. Common to all:
 *   timeout_ms  the handle's timeout, see rdzv_store_set_timeout; default RDZV_STORE_TIMEOUT_MS
 *   log         where log lines go; default nowhere
 *   cancel_fd   a descriptor of the caller's, which must stay open as long as the handle and its clones: while it is
 *               readable, every call returns RDZV_E_CANCELED, that which opens the store too. The read end of a signal
 *               handler's pipe, for example. Default none.
 */

typedef struct rdzv_hash_options {
  size_t size;
  int64_t timeout_ms;
  const rdzv_log *log;
  int cancel_fd;
} rdzv_hash_options;

/* A store in this process, empty, shared by this handle and its clones, gone with the last of them. */
RDZV_BEGIN
RDZV_API int rdzv_store_open_hash(const rdzv_hash_options *options, rdzv_store **out, rdzv_error *error);

typedef struct rdzv_file_options {
  size_t size;
  int64_t timeout_ms;
  const rdzv_log *log;
  int cancel_fd;
  /* How many stores will open and close this file in all. With it, this store counts itself in the file as
   * PyTorch 2 does, and the close of the last one removes the file. 0: not counted, never removed. Not negative. */
  int64_t num_workers;
  /* Names the run. The first store that gives one marks the file with it; a store that finds another's mark gets
   * RDZV_E_STALE instead of that run's values. NULL: no mark, no check. */
  const char *run_id;
} rdzv_file_options;

/* A store in a file that all processes see, byte for byte PyTorch's FileStore: PyTorch processes may use the same
 * file at the same time. The file is made by the first write. A record that its writer did not finish (it crashed, or
 * the disk was full) is cut off by the next write. Further errors: RDZV_E_STALE. */
RDZV_API int rdzv_store_open_file(const char *path, const rdzv_file_options *options, rdzv_store **out,
                                  rdzv_error *error);

typedef enum rdzv_dialect {
  RDZV_DIALECT_AUTO = 0, /* find out, and keep to it when the connection is lost */
  RDZV_DIALECT_V1,       /* PyTorch 1.9 to 2.0 */
  RDZV_DIALECT_V2,       /* PyTorch 2.2 and later */
  RDZV_DIALECT_RDZV,     /* our own server's */
} rdzv_dialect;

typedef struct rdzv_tcp_options {
  size_t size;
  int64_t timeout_ms; /* for connecting, for each operation, and for each blocking wait */
  const rdzv_log *log;
  int cancel_fd;
  rdzv_dialect dialect;
  /* Counts this client under the key `init/`, for which a PyTorch server with a world size waits. */
  bool announce_worker;
  /* The run that this client belongs to: a server of ours that is for another one refuses it with RDZV_E_STALE. Default
   * none: any will do. */
  const char *run_id;
} rdzv_tcp_options;

/*
 * A client of `rdzv serve` or of a PyTorch TCPStore at "host", "host:port", "[v6]:port" (port 29400 where none is
 * given). Every address of the name is tried, both families side by side, again and again with growing, jittered
 * pauses until one answers or the timeout has passed. A name that does not resolve yet is tried again too. The log
 * tells what is waited for: the first failure within a second, then changes, at least every 30 s. A server of another
 * protocol (HTTP, etcd, TLS, SSH) is RDZV_E_PROTOCOL within about 5 s.
 *
 * A lost connection is made again by the call that lost it. A call that only reads (get, check, wait, the counts and
 * lists) is repeated. Our own server does a write exactly once, however often the connection is lost before the answer:
 * it remembers the last write of each handle for a minute after the connection is gone. RDZV_E_OUTCOME_UNKNOWN says
 * that a write may or may not have taken effect: the server was not reached again within the timeout, or has forgotten
 * the handle meanwhile. At a PyTorch server a write is sent again only if nothing of it had left, else its outcome is
 * unknown. A write that returns RDZV_E_CANCELED may have taken effect, too.
 *
 * Our own server is recognised when it was restarted. The call that was under way then, or else the first one after
 * it, returns RDZV_E_DATA_LOST: the new store is empty, and whether the call was done before or not, nothing is left of
 * it. Later calls go on with the new store.
 *
 * Further errors: RDZV_E_ADDRESS.
 */
RDZV_API int rdzv_store_open_tcp(const char *endpoint, const rdzv_tcp_options *options, rdzv_store **out,
                                 rdzv_error *error);

/* A view of base in which the key k is base's key "prefix/k". Borrows base, which must outlive it; views nest. The
 * view has base's timeout at first and its own afterwards. */
RDZV_API int rdzv_store_open_prefix(rdzv_store *base, rdzv_bytes prefix, rdzv_store **out, rdzv_error *error);

/* A second handle on the same store with its own connection and the same options and timeout. */
RDZV_API int rdzv_store_clone(rdzv_store *store, rdzv_store **out, rdzv_error *error);

/* Frees the handle; NULL is fine. A file store that counts itself (num_workers) signs off here, and says in its log
 * if it cannot. */
RDZV_API void rdzv_store_free(rdzv_store *store);

/* Makes the call that is under way, and every later one, return RDZV_E_CANCELED. From any thread, and from a signal
 * handler. A prefix view is canceled together with its base, whichever of them is named. */
RDZV_API void rdzv_store_cancel(rdzv_store *store);

/* How long get, multi_get, wait and queue_pop block, in milliseconds; 0 does not block. */
RDZV_API int rdzv_store_set_timeout(rdzv_store *store, int64_t timeout_ms, rdzv_error *error);
RDZV_API int64_t rdzv_store_get_timeout(const rdzv_store *store);

/** Limits how long each later request takes that waits for no other process, and with it a lost connection; where the
 * store was opened with a shorter timeout, that holds. 0: no limit of its own. On a prefix view it is set for the store
 * below. */
RDZV_API int rdzv_store_set_request_timeout(rdzv_store *store, int64_t timeout_ms, rdzv_error *error);

/* What not every store can. A call of what it cannot returns RDZV_E_UNSUPPORTED. */
enum {
  RDZV_FEATURE_APPEND = 1 << 0,    /* append */
  RDZV_FEATURE_QUEUES = 1 << 1,    /* queue_push, queue_pop, queue_len */
  RDZV_FEATURE_LIST_KEYS = 1 << 2, /* list_keys */
  RDZV_FEATURE_VERSIONS = 1 << 3,  /* the calls on versions, at the end of this header */
};

/* The flags of what this store can; for a tcp store it depends on the server. A PyTorch server says neither its
 * version nor what it knows, so for it these are what 2.6 has: queue operations and list_keys are sent all the same,
 * and RDZV_E_UNSUPPORTED is the answer of one that closes the connection. */
RDZV_API unsigned rdzv_store_features(rdzv_store *store);

/* One line for people: "tcp localhost:29400 (127.0.0.1:29400, rdzv)", or "tcp 127.0.0.1:29400 (rdzv)". Valid until the
 * handle is closed. */
RDZV_API const char *rdzv_store_describe(rdzv_store *store);

/* ---- keys and values -------------------------------------------------------------------------------------- */

/* Sets the value. When it returns 0, every later read by anybody sees this value or a newer one. */
RDZV_API int rdzv_store_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, rdzv_error *error);

/* Waits until the key is there and gives its value, to be freed with rdzv_value_free. RDZV_E_TIMEOUT. */
RDZV_API int rdzv_store_get(rdzv_store *store, rdzv_bytes key, rdzv_value *out, rdzv_error *error);

/* Adds to the number that the value is in decimal text, in one step, and gives the sum; an absent key counts as 0.
 * The old text is read as strtoll does: blanks and a sign in front are taken, what follows the digits is passed over
 * ("12xyz" is 12). The sum wraps at 64 bits. No digits, or a number outside 64 bits: RDZV_E_NOT_A_NUMBER, nothing
 * changed; at a PyTorch server, which closes the connection then, RDZV_E_OUTCOME_UNKNOWN, and the sentence says
 * so. An empty value counts as 0 in a file store and is no number in the others, as in PyTorch's FileStore and
 * TCPStore (its HashStore takes it for 0). */
RDZV_API int rdzv_store_add(rdzv_store *store, rdzv_bytes key, int64_t delta, int64_t *sum, rdzv_error *error);

/* If the value is `expected`, sets `desired`; gives what then holds. As in PyTorch, on an absent key:
 * an empty `expected` means create it; any other sets nothing and gives `expected` back. */
RDZV_API int rdzv_store_compare_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired,
                                    rdzv_value *out, rdzv_error *error);

/* Are all the keys there? True of no keys. Does not block for them. */
RDZV_API int rdzv_store_check(rdzv_store *store, const rdzv_bytes *keys, size_t count, bool *all, rdzv_error *error);

/* Waits until each of the keys has been there; one that was set and deleted again meanwhile may count. timeout_ms in
 * milliseconds, or RDZV_TIMEOUT_STORE. RDZV_E_TIMEOUT. */
RDZV_API int rdzv_store_wait(rdzv_store *store, const rdzv_bytes *keys, size_t count, int64_t timeout_ms,
                             rdzv_error *error);

/* Deletes the key; tells whether it was there. A file store always says yes, as PyTorch's. */
RDZV_API int rdzv_store_delete_key(rdzv_store *store, rdzv_bytes key, bool *deleted, rdzv_error *error);

/* How many keys the store has. A prefix view gives base's number. A tcp server counts the key `init/` of PyTorch
 * clients with a world size; a file store counts the file's own records (refcount/ of PyTorch 2 and of num_workers,
 * cleanup/, run_id/), as PyTorch does, though list_keys leaves them out. */
RDZV_API int rdzv_store_num_keys(rdzv_store *store, int64_t *count, rdzv_error *error);

/* Adds bytes to the end of the value; on an absent key the same as set. */
RDZV_API int rdzv_store_append(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, rdzv_error *error);

/* Waits until all the keys are there and gives their values in order, which up to 1024 keys are those of one moment
 * (not so on PyTorch's servers): *out is an array of count values, to be freed
 * with rdzv_values_free(*out, count). RDZV_E_TIMEOUT. */
RDZV_API int rdzv_store_multi_get(rdzv_store *store, const rdzv_bytes *keys, size_t count, rdzv_value **out,
                                  rdzv_error *error);

/* Sets count keys. In one step on our own server, a hash and a file store; key by key on PyTorch's servers. */
RDZV_API int rdzv_store_multi_set(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                                  rdzv_error *error);

/** Sets count keys that no other process writes, as rdzv_store_multi_set does. To set such a key twice is as good as
 * once, so it is repeated where the outcome is unknown, as it is when the connection to a PyTorch server is lost. */
RDZV_API int rdzv_store_publish(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                                rdzv_error *error);

/* Gives the keys in no order, those of a prefix view without their prefix; to be freed with
 * rdzv_values_free(*out, *count). */
RDZV_API int rdzv_store_list_keys(rdzv_store *store, rdzv_value **out, size_t *count, rdzv_error *error);

/* ---- queues ------------------------------------------------------------------------------------------------ */

/* Queues have names of their own, first in first out; check and wait take one that is not empty as a key. */
RDZV_API int rdzv_store_queue_push(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, rdzv_error *error);

/* Takes the oldest value. An empty queue: RDZV_E_EMPTY, or with `block` waits for one (RDZV_E_TIMEOUT). Each push
 * wakes one that waits; nobody who blocks is told that the queue is empty because another was faster. */
RDZV_API int rdzv_store_queue_pop(rdzv_store *store, rdzv_bytes key, bool block, rdzv_value *out, rdzv_error *error);

RDZV_API int rdzv_store_queue_len(rdzv_store *store, rdzv_bytes key, int64_t *len, rdzv_error *error);

/* ---- versions ---------------------------------------------------------------------------------------------- */

/* Each change of a key gives it a version that it never had before; 0 is that of an absent key. Hash stores and our
 * own server have them, so that a watcher need not poll and a swap carries the value once. */

/* Gives value and version without waiting; an absent key has version 0 and an empty value. */
RDZV_API int rdzv_store_get_version(rdzv_store *store, rdzv_bytes key, rdzv_value *out, uint64_t *version,
                                    rdzv_error *error);

/* Sets the value if the key's version is `expected` (0: if it is absent). *swapped tells; *version is the version
 * that then holds; *out is the current value where the swap was refused, and empty where it was done. */
RDZV_API int rdzv_store_compare_set_version(rdzv_store *store, rdzv_bytes key, uint64_t expected, rdzv_bytes value,
                                            bool *swapped, rdzv_value *out, uint64_t *version, rdzv_error *error);

/* Waits until the key's version is another than `known`, deletion included, and gives the value and version that then
 * hold. timeout_ms as in rdzv_store_wait. RDZV_E_TIMEOUT. */
RDZV_API int rdzv_store_wait_changed(rdzv_store *store, rdzv_bytes key, uint64_t known, int64_t timeout_ms,
                                     rdzv_value *out, uint64_t *version, rdzv_error *error);

RDZV_END

#endif
