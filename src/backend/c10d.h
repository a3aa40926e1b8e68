/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cell as one key of a c10d store: PyTorch's C10dRendezvousBackend. The key torch.rendezvous.<run_id> holds the
 * state in base64, or a sentinel where there is none.
 *
 * PyTorch's token is the text itself, so a swap carries the state three times, and a change is found by reading again
 * and again. So it is here with PyTorch's servers and with files. A store that has versions, as our own server, spares
 * both: the version is the token, and changes are pushed. Three keys of ours are beside the cell there:
 *   <key>.bell  counts changes that others want to hear of soon. A state that is large is not pushed to everybody with
 *               each heartbeat of each node: everybody waits for the bell instead, and looks now and then all the same,
 *               for PyTorch nodes do not ring.
 *   <key>.permit  a queue with one value in it, the permit to write. A node takes it, writes, and puts it back.
 *   <key>.move  is set whenever the permit is given back. If that has not happened for a while, the permit got lost
 * with the node that had it, and the first of the waiting nodes to set this key replaces it. The value in the queue is
 * the version of this key, so that a slow node that was replaced does not put back a second one.
 */
#ifndef RDZV_BACKEND_C10D_H
#define RDZV_BACKEND_C10D_H

#include "base/net/endpoint.h"

#include <rdzv/backend.h>
#include <rdzv/server.h>

#define C10D_SENTINEL "Y2FuaW1hZGFt"

/* A cell in `store`, which is borrowed. `server` is taken over, also on failure, and closed with the cell; may be NULL.
 * RDZV_E_INVALID: the run id is empty. */
int c10d_open(rdzv_store *store, rdzv_server *server, const char *run_id, const rdzv_log *log, rdzv_backend **out,
              rdzv_error *error);

enum c10d_store_type { C10D_TCP, C10D_FILE };
enum c10d_is_host { C10D_FIND_OUT, C10D_HOST, C10D_CLIENT };

struct c10d_options {
  enum c10d_store_type store_type;
  enum c10d_is_host is_host;
  int64_t read_timeout_ms;
  rdzv_dialect dialect;
  int cancel_fd; /* while opening */
  const rdzv_log *log;
  const char *run_id; /* that the store is for, or NULL: any */
};

/* Opens the store that the endpoint names, a path for a file. Serves it in this process where this node is the host,
 * and gives the server, else NULL. Port 0 is any free port, for the host only. A node that was inferred to be the host,
 * but finds the port taken, is a client of who listens there; while nobody does, it tries again to serve. */
int c10d_open_store(const char *endpoint, const struct c10d_options *options, rdzv_store **store, rdzv_server **server,
                    rdzv_error *error);

/* Serves on the endpoint's port, 0: any free one: on loopback if it names that, else on every address. `run_id` is the
 * run that the store is for; NULL: any. */
int c10d_serve(const struct endpoint *endpoint, bool loopback, const char *run_id, const rdzv_log *log,
               rdzv_server **out, rdzv_error *error);

/* Where the host reaches its own server: at the address it listens on, whatever the endpoint's name resolves to. */
void c10d_own_endpoint(rdzv_server *server, char out[ENDPOINT_TEXT_SIZE]);

#endif
