/* SPDX-License-Identifier: BSD-3-Clause */
/** \file
 * A store in etcd, and an etcd that a program runs beside it. */
#ifndef RDZV_ETCD_H
#define RDZV_ETCD_H

#include <rdzv/api.h>
#include <rdzv/error.h>
#include <rdzv/log.h>
#include <rdzv/store.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The port of etcd for clients. */
#define RDZV_ETCD_PORT 2379

/** How to reach an etcd cluster. Set `size`; a field that is zero has its default. Everything is copied. */
typedef struct rdzv_etcd_options {
  size_t size;             /**< sizeof(rdzv_etcd_options) */
  const char *endpoints;   /**< "host:port,host:port"; default "localhost:2379". The other members are discovered. */
  bool https;              /**< Use TLS. */
  const char *ca_cert;     /**< CA certificates (PEM file); default those of the system. */
  const char *cert;        /**< Client certificate (PEM file); default none. */
  const char *key;         /**< Key of the client certificate (PEM file). Only its owner may have access to it. */
  const char *user;        /**< Default none. */
  const char *password;    /**< Default none. */
  int64_t read_timeout_ms; /**< For one request with all its tries; default 60 s. */
  const rdzv_log *log;     /**< Default: RDZV_LOG decides, see rdzv/log.h. */
} rdzv_etcd_options;

/** Options of a store in etcd. Set `size`; a field that is zero has its default. Everything is copied. */
typedef struct rdzv_etcd_store_options {
  size_t size;                   /**< sizeof(rdzv_etcd_store_options) */
  int64_t timeout_ms;            /**< See rdzv_store_set_timeout; default RDZV_STORE_TIMEOUT_MS. */
  const rdzv_log *log;           /**< Default: RDZV_LOG decides, see rdzv/log.h. */
  int cancel_fd;                 /**< See rdzv/store.h; default none. */
  const rdzv_etcd_options *etcd; /**< How to reach etcd; default all defaults. If it has no log, it uses this one. */
} rdzv_etcd_store_options;

/** Options of a store in etcd by its v3 API. Set `size`; a field that is zero has its default. Everything is copied. */
typedef struct rdzv_etcd3_store_options {
  size_t size;                   /**< sizeof(rdzv_etcd3_store_options) */
  int64_t timeout_ms;            /**< See rdzv_store_set_timeout; default RDZV_STORE_TIMEOUT_MS. */
  const rdzv_log *log;           /**< Default: RDZV_LOG decides, see rdzv/log.h. */
  int cancel_fd;                 /**< See rdzv/store.h; default none. */
  const rdzv_etcd_options *etcd; /**< How to reach etcd; default all defaults. If it has no log, it uses this one. */
  int64_t lease_ms;              /**< How long keys stay in etcd after the last handle on the store is freed, in any
                                    process; whole seconds, rounded up. Default: they stay until they are deleted. */
} rdzv_etcd3_store_options;

RDZV_BEGIN

/**
 * Opens a store in etcd below the path `prefix`: PyTorch's EtcdStore, with the same keys and values (both in base64),
 * so that PyTorch processes can use it at the same time. It has versions, and no queues.
 *
 * A write is never done twice. If its answer is lost, the library looks for its effect in etcd; if that does not tell,
 * the call returns RDZV_E_OUTCOME_UNKNOWN. Errors as for a tcp store, and at once RDZV_E_PROTOCOL (no endpoint is an
 * etcd), RDZV_E_UNSUPPORTED (etcd has no v2 API), RDZV_E_INVALID (a certificate cannot be used).
 *
 * Threads, signals and forks: as every store; with https, a program should ignore SIGPIPE, which a TLS library may
 * raise. Effects on the process: the first use of etcd loads libcurl, which stays loaded.
 */
RDZV_API int rdzv_store_open_etcd(const char *prefix, const rdzv_etcd_store_options *options, rdzv_store **out,
                                  rdzv_error *error);

/**
 * Opens a store in etcd 3.4 or later by its v3 API, below the path `prefix`, with all operations. Values are stored as
 * they are: the key k is PREFIX/keys/k in etcd, and `etcdctl get` shows it. It shares nothing with the store of
 * rdzv_store_open_etcd.
 *
 * A write is done exactly once, however often the connection is lost before the answer. RDZV_E_OUTCOME_UNKNOWN: etcd
 * could not be reached again within the timeout. rdzv_store_multi_get reads all values at one moment.
 * rdzv_store_multi_set sets up to 127 keys in one step, and more in several.
 *
 * With lease_ms, a thread of this process keeps a lease in etcd alive, which all keys of the store have; each process
 * of the job should open the store with the same lease_ms.
 *
 * Errors as for a tcp store. RDZV_E_DATA_LOST: etcd has lost its data, or the lease has ended because no process kept
 * it alive; returned once, later calls use the new store. RDZV_E_NO_SPACE: etcd is full. RDZV_E_LIMIT: etcd refuses the
 * size of a value (its default limit is 1.5 MiB). At once RDZV_E_PROTOCOL (no endpoint is an etcd), RDZV_E_UNSUPPORTED
 * (etcd is too old, or its gateway for HTTP is switched off), RDZV_E_INVALID (a certificate cannot be used; no
 * permission; wrong user or password).
 *
 * Threads, signals, forks and effects on the process: as rdzv_store_open_etcd.
 */
RDZV_API int rdzv_store_open_etcd3(const char *prefix, const rdzv_etcd3_store_options *options, rdzv_store **out,
                                   rdzv_error *error);

/**
 * An etcd of one member on this machine, a child process that ends with this process, however that ends.
 *
 * Threads: from one thread at a time. Two threads may wait.
 *
 * Signals: none of its calls can be used in a signal handler. SIGCHLD is neither needed nor handled, and may be
 * ignored; a program that waits for all its children may take the end of this child, too, which does no harm.
 *
 * Forks: it belongs to the process that started it. In a child, rdzv_etcd_process_wait returns RDZV_E_INVALID, and
 * rdzv_etcd_process_free frees the copy of the child only. A child that lives on does not keep the parent from ending
 * etcd.
 *
 * Effects on the process: one child process. Environment variables that etcd would read as flags (ETCD_…) are not
 * passed to it; the environment of this process is not changed.
 */
typedef struct rdzv_etcd_process rdzv_etcd_process;

/** Options of an etcd process. Set `size`; a field that is zero has its default. Everything is copied. */
typedef struct rdzv_etcd_process_options {
  size_t size;          /**< sizeof(rdzv_etcd_process_options) */
  const char *binary;   /**< Default: RDZV_ETCD_BINARY, TORCHELASTIC_ETCD_BINARY_PATH, LIBEXEC/rdzv/etcd, PATH. */
  const char *data_dir; /**< Default: a new folder below TMPDIR or /tmp, which is removed at the end. */
  const char *log_path; /**< The output of etcd is appended to this file. Default: kept for the error message only. */
  int log_fd;           /**< Receives the stderr of etcd instead; borrowed until etcd is started. Default none. */
  int port;             /**< For clients, on 127.0.0.1; default a free one. */
  int64_t timeout_ms;   /**< For etcd to answer; default 60 s. */
  int tries;            /**< With different ports, if none was given; default 3. */
  const rdzv_log *log;  /**< Default: RDZV_LOG decides, see rdzv/log.h. */
} rdzv_etcd_process_options;

/** Starts etcd, and waits until it answers. Free it with rdzv_etcd_process_free. RDZV_E_IO: there is no binary, it
 * cannot be run, the port is taken, or a file cannot be written. RDZV_E_TIMEOUT, RDZV_E_CONNECTION: etcd did not
 * answer, or ended; the message has its last lines. RDZV_E_INVALID: the port is not valid. */
RDZV_API int rdzv_etcd_process_start(const rdzv_etcd_process_options *options, rdzv_etcd_process **out,
                                     rdzv_error *error);

/** Returns the endpoint for clients: "127.0.0.1:39001". Owned by the object. */
RDZV_API const char *rdzv_etcd_process_endpoint(const rdzv_etcd_process *process);

/** Returns the port for clients. */
RDZV_API int rdzv_etcd_process_port(const rdzv_etcd_process *process);

/** Returns the process id of the guard, the child that runs etcd and ends it. */
RDZV_API int64_t rdzv_etcd_process_pid(const rdzv_etcd_process *process);

/** Waits until etcd ends by itself, and sets *status as waitpid does. RDZV_E_CANCELED: cancel_fd (0: none) is readable.
 */
RDZV_API int rdzv_etcd_process_wait(rdzv_etcd_process *process, int cancel_fd, int *status, rdzv_error *error);

/** Ends etcd if it runs, removes a data folder that rdzv_etcd_process_start created, and frees the object. NULL is
 * ignored. */
RDZV_API void rdzv_etcd_process_free(rdzv_etcd_process *process);

RDZV_END

#endif
