/* SPDX-License-Identifier: BSD-3-Clause */
/** \file
 * The store server, to be run inside a program. */
#ifndef RDZV_SERVER_H
#define RDZV_SERVER_H

#include <rdzv/api.h>
#include <rdzv/error.h>
#include <rdzv/log.h>
#include <rdzv/store.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * A store server. It speaks both dialects of PyTorch's TCPStore and our own on one port, in one thread.
 *
 *   rdzv_server_open -> rdzv_server_run, or rdzv_server_start -> rdzv_server_stop -> rdzv_server_free
 *
 * Clients can connect as soon as rdzv_server_open returns; they are served once the server runs.
 *
 * Threads: rdzv_server_stop from any thread; the other calls from one thread at a time.
 *
 * Signals: rdzv_server_stop can be called in a signal handler. All signals are blocked in the thread of
 * rdzv_server_start; rdzv_server_run blocks SIGPIPE in its thread until it returns. No handler is installed.
 *
 * Forks: a server belongs to the process that opened it. In a child, rdzv_server_run and rdzv_server_start return
 * RDZV_E_INVALID, rdzv_server_stop and rdzv_server_drain do nothing, and rdzv_server_free frees the copy of the child
 * and leaves the server of the parent running.
 *
 * Effects on the process: none that outlives the server, but for a pipe (two descriptors) that libuv opens once for the
 * process, with the first server or agent. The descriptor limit is read and not changed: if it is too low for
 * max_connections, fewer clients are admitted.
 */
typedef struct rdzv_server rdzv_server;

/** A port for rdzv_server_options.port: any free one. */
#define RDZV_ANY_PORT (-1)

/** Options of a server. Set `size`; a field that is zero has its default. Everything is copied. */
typedef struct rdzv_server_options {
  size_t size;         /**< sizeof(rdzv_server_options) */
  const char *bind;    /**< The address or name to listen on; "*": every address, IPv6 and IPv4. Default "127.0.0.1". */
  int port;            /**< The port, or RDZV_ANY_PORT; default RDZV_DEFAULT_PORT. */
  int listen_fd;       /**< A listening socket to use instead of bind and port. The server owns it from then on, also if
                          rdzv_server_open fails. Default none. */
  const rdzv_log *log; /**< Default: RDZV_LOG decides, see rdzv/log.h. */
  const char *run_id;  /**< The run that this store is for: a client of this library that names another run is refused
                          with  RDZV_E_STALE. Default none: all clients are served. */

  /* Limits. A client that exceeds one is refused and disconnected. The log has the reason, and so has the error of a
   * client of this library. */
  size_t max_connections; /**< Default 65536. */
  size_t max_key_bytes;   /**< Without the slash that PyTorch puts before each key; default 8192. */
  size_t max_value_bytes; /**< Default 8 MiB. */
  size_t max_keys;        /**< Keys in one request; default 131072. */
  size_t max_memory;      /**< For all keys, values and buffers together; default 1 GiB. */
  int64_t
      request_timeout_ms;  /**< For a client to finish a request that it began, and to read an answer; default 60 s. */
  int64_t idle_timeout_ms; /**< Disconnects a client that neither asks nor waits for anything; default never. */
  int64_t session_timeout_ms; /**< How long the server remembers the last write of a client that lost its connection, so
                                 that a repeated write is done once; default 60 s. */
  size_t max_waits;           /**< Keys that one client waits for and watches at the same time; default 131072. */

  /* Protection, by TLS 1.3. A client that speaks no TLS is closed without an answer. */
  const char *secret_file; /**< A file of secrets, one on each line: a client has to prove one of them, and the server
                              proves it to the client. Only its owner may have access to it. Default: the environment
                              variable RDZV_SECRET_FILE, if no file is named here; "": none. */
  const char *tls_cert;    /**< The certificate of the server, with its chain (PEM). Default none. */
  const char *tls_key;     /**< The key of the certificate (PEM). Only its owner may have access to it. Default none. */
  const char *tls_client_ca; /**< Clients have to show a certificate of one of these CAs (PEM). Default: they need none,
                                and every client that trusts the server's certificate can connect. */
  const char *allow_plain; /**< Clients from these addresses need no TLS: "loopback,10.1.0.0/16,fd00::1". Default none.
                            */
  const char *state_dir;   /**< A folder in which the server keeps its state, made if it is not there. No answer leaves
                              before all that it depends on is on disk, and a server that is opened again with the same
                              folder goes on where the last one ended. While the folder is deleted or moved, writes are
                              refused. Default none: the state ends with the server. */
  size_t max_runs;         /**< Runs at the same time; one more is refused with RDZV_E_LIMIT. Default no limit. */
  size_t max_run_memory;   /**< For the keys and values of one run; default no limit but max_memory. */
  int64_t run_ttl_ms;      /**< A run that was not used for this long is removed with all its keys; default never. */
  const struct rdzv_etcd_options *state_etcd; /**< An etcd (3.4 or later) in which the server keeps its state instead,
                            together with other servers (rdzv/etcd.h). One of them is active. The others are standbys:
                            they refuse clients, and name the active one to clients of this library. Default none. */
  const char *state_prefix; /**< The path below which the state is in etcd; servers with the same one belong together.
                            Default "/rdzv-server". */
  int64_t state_lease_ms;   /**< How long the active server may be silent before a standby takes over; at least 2 s, in
                            whole seconds, rounded up. Default 5 s. */
  const char *advertise;    /**< With state_etcd: where clients reach this server, "host" or "host:port". Default the
                            address that it listens on. RDZV_E_INVALID if that is every address. */
  bool renew_groups; /**< For a store of PyTorch workers: a worker that destroys its default process group and forms
                     it again finds no keys of the group before. Default false. */
} rdzv_server_options;

RDZV_BEGIN

/** Binds the address and listens. Free the server with rdzv_server_free. RDZV_E_INVALID, RDZV_E_ADDRESS, RDZV_E_IN_USE
 * (the message names the address), RDZV_E_IO, RDZV_E_NO_MEMORY. */
RDZV_API int rdzv_server_open(const rdzv_server_options *options, rdzv_server **out, rdzv_error *error);

/** Returns the address that the server listens on: "127.0.0.1:29400", "[::1]:29400". Owned by the server. */
RDZV_API const char *rdzv_server_address(const rdzv_server *server);

/** Returns the port that the server listens on. */
RDZV_API int rdzv_server_port(const rdzv_server *server);

/** Serves in the calling thread until the server is stopped, and returns 0 then. With state_etcd, it first waits until
 * no other server is active. A server that loses its lease, because it was paused or cut off from etcd, disconnects its
 * clients, stands by again, and serves when it is its turn. RDZV_E_STALE: another state replaced the one in state_dir.
 * Other codes: etcd cannot be used, or the state in it cannot be loaded. When it returns, another server can use the
 * state. */
RDZV_API int rdzv_server_run(rdzv_server *server, rdzv_error *error);

/** Serves in a new thread, and returns at once. RDZV_E_IO: the thread cannot be started. */
RDZV_API int rdzv_server_start(rdzv_server *server, rdzv_error *error);

/** Stops the server: it accepts no further clients, answers those that wait, disconnects all, and ends. Returns at
 * once. */
RDZV_API void rdzv_server_stop(rdzv_server *server);

/** Makes the server read the files of secret_file, tls_cert, tls_key and tls_client_ca again, for later connections. A
 * client whose secret is no longer in the file is disconnected. If a file cannot be used, an error is logged,
 * and the old files remain in use. Returns at once. Can be called from any thread and in a signal handler. */
RDZV_API void rdzv_server_reload(rdzv_server *server);

/** Waits until no client is connected, for timeout_ms at most. For a process that has to end after its clients. Not
 * from the thread that serves. */
RDZV_API void rdzv_server_drain(rdzv_server *server, int64_t timeout_ms);

/** Stops a running server, waits for its thread, and frees it. NULL is ignored. Not from the thread that serves. */
RDZV_API void rdzv_server_free(rdzv_server *server);

RDZV_END

#endif
