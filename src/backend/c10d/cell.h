/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The cell as one key of a c10d store: PyTorch's C10dRendezvousBackend. The key torch.rendezvous.<run_id> holds the
 * state in base64, or a sentinel where there is none.
 *
 * PyTorch's token is the text itself, so a swap carries the state three times, and a change is found by polling. This
 * is also how it works here with PyTorch's servers and with files. A store with versions, as our own server, avoids
 * both: the version is the token, and changes are pushed. More keys are beside the cell there (store/run_keys.h):
 *   - The bell counts changes that other nodes want to hear of soon. A large state is not pushed to all nodes with each
 *     heartbeat of each node. They wait for the bell instead, and also look now and then, since PyTorch nodes do not
 *     ring.
 *   - The permit and the move let one node write at a time: backend/c10d/permit.h.
 */
#ifndef RDZV_BACKEND_C10D_CELL_H
#define RDZV_BACKEND_C10D_CELL_H

#include <rdzv/backend.h>
#include <rdzv/server.h>

#define C10D_SENTINEL "Y2FuaW1hZGFt"

/* A cell in `store`, which is borrowed. `server` is taken over, also on failure, and closed with the cell; may be NULL.
 * RDZV_E_INVALID: the run id is empty. */
int c10d_open(rdzv_store *store, rdzv_server *server, const char *run_id, const rdzv_log *log, rdzv_backend **out,
              rdzv_error *error);

#endif
