/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_ETCD_H
#define RDZV_ETCD_H

#include <rdzv/api.h>
#include <rdzv/error.h>
#include <rdzv/log.h>
#include <rdzv/store.h>
#include <stdbool.h>
#include <stdint.h>

#define RDZV_ETCD_PORT 2379

/* How to reach an etcd cluster. Zero means the default in every field; `size` is always sizeof the struct. Everything
 * is copied. */
typedef struct rdzv_etcd_options {
  size_t size;
  const char *endpoints; /* "host:port,host:port"; default "localhost:2379". The other members are found out */
  bool https;
  const char *ca_cert; /* files in PEM: whom to believe; default the system's */
  const char *cert;    /* who we are; default nobody */
  const char *key;     /* of cert */
  const char *user;    /* default none */
  const char *password;
  int64_t read_timeout_ms; /* for a request, with all its tries; default 60 s */
  const rdzv_log *log;
} rdzv_etcd_options;

typedef struct rdzv_etcd_store_options {
  size_t size;
  int64_t timeout_ms;
  const rdzv_log *log;
  int cancel_fd;
  const rdzv_etcd_options *etcd; /* how to reach etcd; default all defaults. Its log is this one where it has none */
} rdzv_etcd_store_options;

RDZV_BEGIN

/*
 * A store in etcd, below the path `prefix`: PyTorch's EtcdStore, with the same keys and values (base64 of both), so
 * that both can use it at the same time. It has versions, and no queues. Keys of more than one level,
 * which base64 with '/' in it makes, are found as well. A write is never done twice: where its answer is lost it is
 * looked for, and where that does not tell, it is RDZV_E_OUTCOME_UNKNOWN. Errors as for a tcp store; also
 * RDZV_E_PROTOCOL where no endpoint is that of an etcd, RDZV_E_UNSUPPORTED where etcd has no v2 API, RDZV_E_INVALID for
 * certificates that cannot be used: none of these is waited for to get better.
 */
RDZV_API int rdzv_store_open_etcd(const char *prefix, const rdzv_etcd_store_options *options, rdzv_store **out,
                                  rdzv_error *error);

/* ---- etcd as a sidecar ---------------------------------------------------------------------------------------- */

/* A local etcd of one member, a process of its own that ends with this one, in whatever way that ends. Variables of the
 * environment that etcd would take for its flags (ETCD_...) are kept from it. */
typedef struct rdzv_etcd_process rdzv_etcd_process;

typedef struct rdzv_etcd_process_options {
  size_t size;
  const char *binary;   /* default: RDZV_ETCD_BINARY, TORCHELASTIC_ETCD_BINARY_PATH, <libexec>/rdzv/etcd, PATH */
  const char *data_dir; /* default: one of its own below TMPDIR or /tmp, removed at the end */
  const char *log_path; /* what it writes is appended there; default: read for the error's sentence, and else dropped */
  int log_fd;           /* its stderr goes there instead, borrowed until it is started; default none */
  int port;             /* for clients, on 127.0.0.1; default a free one */
  int64_t timeout_ms;   /* for it to answer; default 60 s */
  int tries;            /* with other ports, where none was given; default 3 */
  const rdzv_log *log;
} rdzv_etcd_process_options;

/* Starts it, and waits until it answers. RDZV_E_IO: there is no binary, it cannot be run, the port is taken, or a file
 * cannot be written. RDZV_E_TIMEOUT and RDZV_E_CONNECTION: it did not answer, or ended; the sentence has the last lines
 * that it wrote. RDZV_E_INVALID: there is no such port. */
RDZV_API int rdzv_etcd_process_start(const rdzv_etcd_process_options *options, rdzv_etcd_process **out,
                                     rdzv_error *error);

/* "127.0.0.1:39001". Owned by the object. */
RDZV_API const char *rdzv_etcd_process_endpoint(const rdzv_etcd_process *process);
RDZV_API int rdzv_etcd_process_port(const rdzv_etcd_process *process);

/* Of the process that watches etcd, and ends it with itself. */
RDZV_API int64_t rdzv_etcd_process_pid(const rdzv_etcd_process *process);

/* Waits until it ends by itself, or until cancel_fd (0: none) is readable: 0 and *status of etcd as waitpid gives it,
 * or RDZV_E_CANCELED. It needs no SIGCHLD, and nobody who waits for other children is in its way. */
RDZV_API int rdzv_etcd_process_wait(rdzv_etcd_process *process, int cancel_fd, int *status, rdzv_error *error);

/* Ends it, also where it has ended already, removes a data directory of its own making and only that, and frees it;
 * NULL is fine. In a process forked from the one that started it, it only frees. */
RDZV_API void rdzv_etcd_process_free(rdzv_etcd_process *process);

RDZV_END

#endif
