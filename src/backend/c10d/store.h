/* SPDX-License-Identifier: BSD-3-Clause */
/* Serves a c10d store, or connects to one, as backend/c10d/host.h decides. */
#ifndef RDZV_BACKEND_C10D_STORE_H
#define RDZV_BACKEND_C10D_STORE_H

#include "backend/c10d/host.h"
#include "tls/names.h"

#include <rdzv/server.h>
#include <rdzv/store.h>

struct waiting;

/* How a store is protected, and where it is served. */
struct c10d_protection {
  struct tls_names names; /* settled */
  const char *bind;       /* NULL: at the address that the endpoint names */
};

/* Option store_type. */
enum c10d_store_type { C10D_STORE_TCP, C10D_STORE_FILE };

struct c10d_options {
  enum c10d_store_type store_type;
  enum c10d_is_host is_host;
  int64_t read_timeout_ms;
  rdzv_dialect dialect;
  int cancel_fd; /* also of the store's calls, until store_forget_cancel_fd */
  const rdzv_log *log;
  const char *run_id; /* that the store is for, or NULL: any */
  bool asks_native;   /* whether the server forms rounds: store_is_native */
  struct c10d_protection protection;
};

/* Opens the store that the endpoint names, a path for a file; "" is localhost. Serves it in this process where this
 * node is the host, and returns the server in *server, else NULL. Port 0 is any free port, for the host only. A host
 * that was not told to be one, and finds the port taken, is a client of the process that listens there; while none
 * does, it tries again to serve. */
int c10d_store_open(const char *endpoint, const struct c10d_options *options, rdzv_store **store, rdzv_server **server,
                    rdzv_error *error);

/* Serves on the endpoint's port, 0: any free one. `run_id` is the run that the store is for; NULL: any. */
int c10d_store_serve(const struct endpoint *endpoint, const struct c10d_protection *protection, const char *run_id,
                     const rdzv_log *log, rdzv_server **out, rdzv_error *error);

/* The names of a client, as far as its options have places for them. `host` is that of the endpoint, for which the
 * certificate of the server is, wherever this process reaches it. */
void c10d_protect_client(const struct c10d_protection *protection, const char *host, rdzv_tcp_options *to);

/* Connects to `server`, where this process serves, else (NULL) to the endpoint. `waiting` may be NULL. */
int c10d_store_connect(rdzv_server *server, const char *endpoint, const rdzv_tcp_options *options, bool asks_native,
                       struct waiting *waiting, rdzv_store **out, rdzv_error *error);

#endif
