/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_SERVER_H
#define RDZV_SERVER_H

#include <rdzv/api.h>
#include <rdzv/error.h>
#include <rdzv/log.h>
#include <rdzv/store.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The store server: PyTorch's TCPStore protocol in both its dialects and our own, on one port, in one thread.
 *
 * Life: open (bound and listening; clients may connect already) -> run in this thread, or start in a thread of its
 * own -> stop -> close. Threads: stop from any thread and from a signal handler; the others from one thread at a time.
 * Processes: a server belongs to the process that opened it. In a child made by fork run and start return
 * RDZV_E_INVALID, stop and drain do nothing, and close gives up the child's copy and leaves the parent's at work.
 */
typedef struct rdzv_server rdzv_server;

/* Zero means the default in every field; `size` is always sizeof the struct. */
typedef struct rdzv_server_options {
  size_t size;
  const char *bind; /* an address or a name; "*": every address, IPv6 and IPv4; default "127.0.0.1" */
  int port;         /* default RDZV_DEFAULT_PORT; RDZV_ANY_PORT picks a free one */
  int listen_fd;    /* a listening socket to take instead, owned by the server from then on, also on failure */
  const rdzv_log *log;
  const char *run_id; /* the run that this store is for; clients of ours that name another one are refused. Default
                         none: all are served */

  /* Limits on what a peer may make the server do. Over one, that client is refused and closed, with the reason in
   * the log and, for clients of our own dialect, in their error. */
  size_t max_connections; /* default 65536 */
  size_t max_key_bytes;   /* without the slash that clients put before each key; default 8192 */
  size_t max_value_bytes; /* default 8 MiB */
  size_t max_keys;        /* in one request; default 131072 */
  size_t max_memory;      /* all keys, values and buffers together; default 1 GiB */
  int64_t
      request_timeout_ms;  /* for a half-sent request, and for an answer that the client does not read; default 60 s */
  int64_t idle_timeout_ms; /* closes a client that neither asks nor waits for anything; default: never */
  /* How long the server remembers the last write of a client that lost its connection, so that the client can find out
   * whether it was done; default 60 s. */
  int64_t session_timeout_ms;
  size_t max_waits; /* keys that one client waits for and watches at the same time; default 131072 */
} rdzv_server_options;

#define RDZV_ANY_PORT (-1)

RDZV_BEGIN

/* Binds and listens. RDZV_E_INVALID, RDZV_E_ADDRESS, RDZV_E_IN_USE (the message names the address), RDZV_E_IO,
 * RDZV_E_NO_MEMORY. */
RDZV_API int rdzv_server_open(const rdzv_server_options *options, rdzv_server **out, rdzv_error *error);

/* Where it listens: "127.0.0.1:29400", "[::1]:29400". Owned by the server. */
RDZV_API const char *rdzv_server_address(const rdzv_server *server);
RDZV_API int rdzv_server_port(const rdzv_server *server);

/* Serves in the calling thread until it is stopped; 0 then. */
RDZV_API int rdzv_server_run(rdzv_server *server, rdzv_error *error);

/* Serves in a thread of its own. */
RDZV_API int rdzv_server_start(rdzv_server *server, rdzv_error *error);

/* Asks it to stop accepting, to close every client in an orderly way (those that wait are told), and to end. May be
 * called from any thread and from a signal handler. */
RDZV_API void rdzv_server_stop(rdzv_server *server);

/* Waits until no client is connected, or the time is over: for one that is to go last. Not from the thread that runs
 * it. */
RDZV_API void rdzv_server_drain(rdzv_server *server, int64_t timeout_ms);

/* Stops it if it runs, waits for its thread, and frees it; NULL is fine. Not from the thread that runs it. */
RDZV_API void rdzv_server_free(rdzv_server *server);

RDZV_END

#endif
