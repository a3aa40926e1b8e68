/* SPDX-License-Identifier: BSD-3-Clause */
/** \file
 * The key-value store of a job: the contract of PyTorch's c10d Store, on several implementations. */
#ifndef RDZV_STORE_H
#define RDZV_STORE_H

#include <rdzv/api.h>
#include <rdzv/bytes.h>
#include <rdzv/error.h>
#include <rdzv/log.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * A handle on a small key-value store that the processes of a job share. Keys and values are bytes; both may be empty.
 *
 * Threads: several threads may use one handle. Calls on a tcp handle are done one after the other, so a get that waits
 * delays the others: give each thread that waits a handle of its own (rdzv_store_clone). On a hash or file handle
 * a waiting call delays no other. rdzv_store_cancel may be called at any time; rdzv_store_free only when no call on the
 * handle runs.
 *
 * Signals: rdzv_store_cancel can be called in a signal handler, the other calls cannot. A lost connection never raises
 * SIGPIPE. A signal that interrupts a call does not end it.
 *
 * Forks: a handle belongs to the process that opened it. In a child, rdzv_store_free frees the copy of the child
 * without any effect on the parent, rdzv_store_cancel does nothing, and every call that can fail returns
 * RDZV_E_INVALID.
 *
 * Effects on the process: none that outlives the handle. Looking up a name may leave a thread, with all signals
 * blocked, until the name server answers. A file store uses locks (flock) on its own descriptor.
 *
 * Out-parameters are written on success only. `error` may be NULL in every call, and so may the results of
 * rdzv_store_add and rdzv_store_delete_key; another out-parameter that is NULL is RDZV_E_INVALID.
 *
 * Every call may return RDZV_E_INVALID, RDZV_E_NO_MEMORY and RDZV_E_CANCELED. On a tcp store also RDZV_E_CONNECTION
 * (the server cannot be reached within the timeout; nothing happened), RDZV_E_OUTCOME_UNKNOWN (see
 * rdzv_store_open_tcp), RDZV_E_PROTOCOL, RDZV_E_LIMIT (the server refuses the size), RDZV_E_STOPPED, RDZV_E_DATA_LOST,
 * RDZV_E_NO_SPACE, RDZV_E_IO (a durable server cannot write; nothing happened). On a file store also RDZV_E_IO,
 * RDZV_E_NO_SPACE, RDZV_E_CORRUPT, RDZV_E_LIMIT (a key over 64 KiB, a value over 1 GiB), and RDZV_E_TIMEOUT if another
 * process holds the lock of the file for the timeout and at least half a second. The comments below name further errors
 * only.
 */
typedef struct rdzv_store rdzv_store;

#define RDZV_DEFAULT_PORT 29400      /**< The port of a store; PyTorch's default. */
#define RDZV_STORE_TIMEOUT_MS 300000 /**< The timeout of a handle; PyTorch's default. */
#define RDZV_TIMEOUT_STORE (-1)      /**< As a timeout argument: the timeout of the handle. */

/* ---- opening -------------------------------------------------------------------------------------------- */

/*
 * Options: set `size`; a field that is zero has its default. Everything is copied. Common to all stores:
 *   timeout_ms  the timeout of the handle, see rdzv_store_set_timeout
 *   log         default none
 *   cancel_fd   a descriptor of the caller, which must stay open as long as the handle and its clones: while it is
 *               readable, every call returns RDZV_E_CANCELED, also the one that opens the store. For example the read
 *               end of the pipe of a signal handler. Default none.
 */

/** Options of a hash store. */
typedef struct rdzv_hash_options {
  size_t size;         /**< sizeof(rdzv_hash_options) */
  int64_t timeout_ms;  /**< Default RDZV_STORE_TIMEOUT_MS. */
  const rdzv_log *log; /**< Default: RDZV_LOG decides, see rdzv/log.h. */
  int cancel_fd;       /**< Cancels calls while it is readable; default none. */
} rdzv_hash_options;

/** Options of a file store. */
typedef struct rdzv_file_options {
  size_t size;         /**< sizeof(rdzv_file_options) */
  int64_t timeout_ms;  /**< Default RDZV_STORE_TIMEOUT_MS. */
  const rdzv_log *log; /**< Default: RDZV_LOG decides, see rdzv/log.h. */
  int cancel_fd;       /**< Cancels calls while it is readable; default none. */
  int64_t
      num_workers;    /**< The number of stores that will open and free this file. Each counts itself in the file, as
                         PyTorch 2 does, and the last one removes the file. 0, the default: not counted, never removed. */
  const char *run_id; /**< Names the run. The first store with a name marks the file with it; a store with another name
                         gets RDZV_E_STALE instead of the values of that run. Default none: no mark, no check. */
} rdzv_file_options;

/** The protocol of a tcp store. */
typedef enum rdzv_dialect {
  RDZV_DIALECT_AUTO = 0, /**< Detect it, and keep it when the connection is lost. */
  RDZV_DIALECT_V1,       /**< PyTorch 1.9 to 2.0. */
  RDZV_DIALECT_V2,       /**< PyTorch 2.2 and later. */
  RDZV_DIALECT_RDZV,     /**< The server of this library. */
} rdzv_dialect;

/** Options of a tcp store. */
typedef struct rdzv_tcp_options {
  size_t size;          /**< sizeof(rdzv_tcp_options) */
  int64_t timeout_ms;   /**< To connect, for each request, and for each wait; default RDZV_STORE_TIMEOUT_MS. */
  const rdzv_log *log;  /**< Default: RDZV_LOG decides, see rdzv/log.h. */
  int cancel_fd;        /**< Cancels calls while it is readable; default none. */
  rdzv_dialect dialect; /**< Default RDZV_DIALECT_AUTO. */
  bool announce_worker; /**< Count this client under the key `init/`, for which a PyTorch server with a world size
                           waits. */
  const char *run_id;   /**< The run of this client: a server of this library that is for another run refuses it with
                           RDZV_E_STALE. Default none: any server will do. */

  /* Protection, by TLS 1.3: by a secret, or by certificates. Files are read again for later connections if they were
   * replaced. */
  const char *secret_file; /**< A file whose first line is the secret of the server: both ends prove it. Only its owner
                              may have access to it. Default: the environment variable RDZV_SECRET_FILE, if no file is
                              named here; "": none. */
  const char *tls_ca;      /**< The server has to show a certificate for its host name, of one of these CAs (PEM). */
  const char *tls_cert;    /**< A certificate to show to the server (PEM). */
  const char *tls_key;     /**< The key of that certificate (PEM). Only its owner may have access to it. */
  const char *tls_host;    /**< The name or address that the server's certificate has to be for; default the host of the
                              endpoint. */
} rdzv_tcp_options;

RDZV_BEGIN

/** Opens an empty store in this process. The handle and its clones share it; it is gone with the last of them. */
RDZV_API int rdzv_store_open_hash(const rdzv_hash_options *options, rdzv_store **out, rdzv_error *error);

/** Opens a store in a file that several processes share, byte for byte PyTorch's FileStore: PyTorch processes may use
 * the same file at the same time. The first write creates the file. A record whose writer did not finish it (the
 * process crashed, or the disk was full) is cut off by the next write. RDZV_E_STALE. */
RDZV_API int rdzv_store_open_file(const char *path, const rdzv_file_options *options, rdzv_store **out,
                                  rdzv_error *error);

/**
 * Opens a client of `rdzv serve` or of a PyTorch TCPStore at "host", "host:port" or "[v6]:port"; the default port is
 * RDZV_DEFAULT_PORT. Every address of the name is tried, both families side by side, with growing and jittered pauses,
 * until one answers or the timeout has passed. A name that does not resolve is tried again, too. The log says what is
 * waited for: the first failure within a second, then changes, at least every 30 s. A server with another protocol
 * (HTTP, etcd, TLS, SSH) is RDZV_E_PROTOCOL within about 5 s.
 *
 * A call that loses the connection connects again. A call that only reads (get, check, wait, counts and lists) is
 * repeated. The server of this library does a write exactly once, however often the connection is lost before the
 * answer: it remembers the last write of each handle for a minute after the connection is lost. RDZV_E_OUTCOME_UNKNOWN
 * means that a write may or may not have taken effect: the server could not be reached again within the timeout, or has
 * forgotten the handle. At a PyTorch server, a write is sent again only if nothing of it had been sent; else its
 * outcome is unknown. A write that returns RDZV_E_CANCELED may have taken effect, too.
 *
 * A restarted server of this library is detected. The call that runs then, or else the next one, returns
 * RDZV_E_DATA_LOST: the new store is empty, and the call has no effect in it. Later calls use the new store.
 *
 * RDZV_E_ADDRESS: the name cannot be resolved.
 */
RDZV_API int rdzv_store_open_tcp(const char *endpoint, const rdzv_tcp_options *options, rdzv_store **out,
                                 rdzv_error *error);

/** Opens a view of `base` in which the key k is the key "prefix/k" of base. Borrows base, which must outlive the view.
 * Views can be nested. The view has the timeout of base at first, and its own afterwards. */
RDZV_API int rdzv_store_open_prefix(rdzv_store *base, rdzv_bytes prefix, rdzv_store **out, rdzv_error *error);

/** Opens a second handle on the same store, with its own connection and the same options and timeout. */
RDZV_API int rdzv_store_clone(rdzv_store *store, rdzv_store **out, rdzv_error *error);

/** Opens a second handle as rdzv_store_clone does, with another cancel_fd than that of `store`; 0: none. For the store
 * of a result, which has none. */
RDZV_API int rdzv_store_clone_with(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error);

/** Frees a handle. NULL is ignored. A file store with num_workers counts itself out here, and writes a line to its log
 * if it cannot. */
RDZV_API void rdzv_store_free(rdzv_store *store);

/** Makes the running call and all later ones return RDZV_E_CANCELED. Can be called from any thread and in a signal
 * handler. A prefix view and its base are canceled together. */
RDZV_API void rdzv_store_cancel(rdzv_store *store);

/** Sets how long get, multi_get, wait and queue_pop wait, in milliseconds; 0 does not wait. */
RDZV_API int rdzv_store_set_timeout(rdzv_store *store, int64_t timeout_ms, rdzv_error *error);

/** Returns the timeout of the handle in milliseconds. */
RDZV_API int64_t rdzv_store_get_timeout(const rdzv_store *store);

/** Limits the time of later requests that wait for no other process, where the store was opened with a longer timeout;
 * 0 removes the limit. A file store waits that long for the lock of its file. On a prefix view it is set for the base.
 */
RDZV_API int rdzv_store_set_request_timeout(rdzv_store *store, int64_t timeout_ms, rdzv_error *error);

/** Limits the time of each call that this thread makes on any store from now on, in place of the timeouts of the
 * handle: the wait of a call that waits for other processes, and the whole of any other call. -1 removes the limit. For
 * bindings to languages in which each call takes a timeout. */
RDZV_API void rdzv_store_limit_calls(int64_t timeout_ms);

/** Cancels the calls that this thread makes on any store or handler: while the descriptor is readable, a call that
 * waits returns RDZV_E_CANCELED. Calls of other threads on the same object go on. It must stay open until it is
 * replaced; 0 removes it. For bindings to languages in which a signal ends the call of one thread. */
RDZV_API void rdzv_thread_cancel_fd(int fd);

/** Operations that some stores lack. They return RDZV_E_UNSUPPORTED there. */
enum {
  RDZV_FEATURE_APPEND = 1 << 0,    /**< append */
  RDZV_FEATURE_QUEUES = 1 << 1,    /**< queue_push, queue_pop, queue_len */
  RDZV_FEATURE_LIST_KEYS = 1 << 2, /**< list_keys */
  RDZV_FEATURE_VERSIONS = 1 << 3,  /**< get_version, compare_set_version, wait_changed */
};

/** Returns the features of the store, RDZV_FEATURE_…; for a tcp store they are those of the server. A PyTorch server
 * reports neither its version nor its features, so these are the ones of PyTorch 2.6: queue operations and list_keys
 * are sent, and a server that closes the connection then lacks them (RDZV_E_UNSUPPORTED). */
RDZV_API unsigned rdzv_store_features(rdzv_store *store);

/** Returns one line that describes the store: "tcp localhost:29400 (127.0.0.1:29400, rdzv)". Valid until the handle is
 * freed. */
RDZV_API const char *rdzv_store_describe(rdzv_store *store);

/* ---- keys and values -------------------------------------------------------------------------------------- */

/** Sets the value of a key. After it returned 0, every read by any process sees this value or a newer one. */
RDZV_API int rdzv_store_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, rdzv_error *error);

/** Waits until the key exists, and reads its value. Free it with rdzv_value_free. RDZV_E_TIMEOUT. */
RDZV_API int rdzv_store_get(rdzv_store *store, rdzv_bytes key, rdzv_value *out, rdzv_error *error);

/** Adds to the number in a value, which is decimal text, in one step, and returns the sum in *sum. A missing key counts
 * as 0. The old text is read as strtoll does: blanks and a sign before the digits are accepted, and what follows the
 * digits is ignored ("12xyz" is 12). The sum wraps at 64 bits. RDZV_E_NOT_A_NUMBER: there are no digits, or the number
 * has more than 64 bits; nothing is changed. A PyTorch server closes the connection in that case, so it is
 * RDZV_E_OUTCOME_UNKNOWN there. An empty value is 0 in a file store and not a number in the others, as in PyTorch's
 * FileStore and TCPStore. */
RDZV_API int rdzv_store_add(rdzv_store *store, rdzv_bytes key, int64_t delta, int64_t *sum, rdzv_error *error);

/** Sets `desired` if the value is `expected`, and returns the value that holds then. As in PyTorch, on a missing key:
 * an empty `expected` creates it; any other sets nothing and returns `expected`. Free *out with rdzv_value_free. */
RDZV_API int rdzv_store_compare_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired,
                                    rdzv_value *out, rdzv_error *error);

/** Checks whether all keys exist, without waiting. True for no keys. */
RDZV_API int rdzv_store_check(rdzv_store *store, const rdzv_bytes *keys, size_t count, bool *all, rdzv_error *error);

/** Waits until each key existed; a key that was set and deleted meanwhile may count. timeout_ms is in milliseconds, or
 * RDZV_TIMEOUT_STORE. RDZV_E_TIMEOUT. */
RDZV_API int rdzv_store_wait(rdzv_store *store, const rdzv_bytes *keys, size_t count, int64_t timeout_ms,
                             rdzv_error *error);

/** Deletes a key, and sets *deleted to whether it existed. A file store always sets true, as PyTorch does. */
RDZV_API int rdzv_store_delete_key(rdzv_store *store, rdzv_bytes key, bool *deleted, rdzv_error *error);

/** Counts the keys of the store. A prefix view counts those of its base. A tcp server counts the key `init/` of PyTorch
 * clients with a world size. A file store counts the records of the file itself (refcount/ of PyTorch 2 and of
 * num_workers, cleanup/, run_id/), as PyTorch does, although list_keys omits them. */
RDZV_API int rdzv_store_num_keys(rdzv_store *store, int64_t *count, rdzv_error *error);

/** Appends bytes to a value. On a missing key the same as set. */
RDZV_API int rdzv_store_append(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, rdzv_error *error);

/** Waits until all keys exist, and reads their values in the order of the keys. Up to 1024 values are those of one
 * moment, but not on PyTorch's servers. Free them with rdzv_values_free(*out, count). RDZV_E_TIMEOUT. */
RDZV_API int rdzv_store_multi_get(rdzv_store *store, const rdzv_bytes *keys, size_t count, rdzv_value **out,
                                  rdzv_error *error);

/** Sets several keys: in one step on the server of this library, a hash and a file store; key by key on PyTorch's
 * servers. */
RDZV_API int rdzv_store_multi_set(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                                  rdzv_error *error);

/** Sets several keys that no other process writes, as rdzv_store_multi_set. Since it does no harm to set such a key
 * twice, the call repeats a write whose outcome is unknown. */
RDZV_API int rdzv_store_publish(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                                rdzv_error *error);

/** Lists all keys in no particular order, those of a prefix view without the prefix. Free them with
 * rdzv_values_free(*out, *count). */
RDZV_API int rdzv_store_list_keys(rdzv_store *store, rdzv_value **out, size_t *count, rdzv_error *error);

/* ---- queues ------------------------------------------------------------------------------------------------ */

/** Adds a value to the end of a queue. The names of queues are apart from those of keys; check and wait accept the name
 * of a queue that is not empty as a key. */
RDZV_API int rdzv_store_queue_push(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, rdzv_error *error);

/** Takes the oldest value of a queue. If the queue is empty, returns RDZV_E_EMPTY, or with `block` waits for a value
 * (RDZV_E_TIMEOUT). Each push wakes one waiting call. Free *out with rdzv_value_free. */
RDZV_API int rdzv_store_queue_pop(rdzv_store *store, rdzv_bytes key, bool block, rdzv_value *out, rdzv_error *error);

/** Returns the number of values in a queue in *len. */
RDZV_API int rdzv_store_queue_len(rdzv_store *store, rdzv_bytes key, int64_t *len, rdzv_error *error);

/* ---- versions ---------------------------------------------------------------------------------------------- */

/** Reads value and version of a key without waiting. Each change of a key gives it a version that it never had before.
 * A missing key has version 0 and an empty value. */
RDZV_API int rdzv_store_get_version(rdzv_store *store, rdzv_bytes key, rdzv_value *out, uint64_t *version,
                                    rdzv_error *error);

/** Sets the value if the key has the version `expected` (0: if it is missing), and sets *swapped. *version is the
 * version that holds then; *out is the current value if the key has another version, else empty. */
RDZV_API int rdzv_store_compare_set_version(rdzv_store *store, rdzv_bytes key, uint64_t expected, rdzv_bytes value,
                                            bool *swapped, rdzv_value *out, uint64_t *version, rdzv_error *error);

/** Waits until the key has another version than `known`, also by deletion, and reads value and version. timeout_ms as
 * in rdzv_store_wait. RDZV_E_TIMEOUT. */
RDZV_API int rdzv_store_wait_changed(rdzv_store *store, rdzv_bytes key, uint64_t known, int64_t timeout_ms,
                                     rdzv_value *out, uint64_t *version, rdzv_error *error);

RDZV_END

#endif
