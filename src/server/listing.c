/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * LIST_KEYS. One walk over the keys, some of them in each iteration of the loop, makes the list for all clients that
 * ask at that time. A client that asks during a walk waits for the next one, unless no key was added or removed since
 * the walk began: a key that exists from the request to the answer must be in the answer. The list is kept for the next
 * clients as long as it is up to date.
 */
#include "server/server.h"

#include <endian.h>
#include <stdlib.h>
#include <utlist.h>

enum { ANSWERS_AT_ONCE = 16 };

static void start(struct rdzv_server *server) {
  struct listing *listing = &server->listing;
  const size_t size = sizeof(uint64_t) + ks_keys_bytes(server->ks);
  blob_drop(listing->keys);
  listing->keys = NULL;
  listing->code = size > server->limits.max_message ? RDZV_E_LIMIT : blob_new(&server->budget, size, &listing->keys);
  listing->version = ks_keys_version(server->ks);
  listing->count = 0;
  listing->walking = listing->code == 0;
  if (listing->walking) listing->keys->len = sizeof(uint64_t);
  ks_walk_start(server->ks);
  timeouts_tick(server);
}

static void put_key(struct blob *keys, rdzv_bytes key) {
  const uint64_t len = htole64(key.len);
  memcpy(keys->data + keys->len, &len, sizeof len);
  bytes_copy(keys->data + keys->len + sizeof len, key.data, key.len);
  keys->len += sizeof len + key.len;
}

static void walk(struct rdzv_server *server) {
  struct listing *listing = &server->listing;
  rdzv_bytes key;
  for (size_t n = 0, bytes = 0; n < SLICE_KEYS && bytes < SLICE_BYTES; n++, bytes += key.len) {
    if (!ks_walk(server->ks, &key)) {
      const uint64_t count = htole64(listing->count);
      memcpy(listing->keys->data, &count, sizeof count);
      listing->walking = false;
      return;
    }
    put_key(listing->keys, key);
    listing->count++;
  }
}

static void answer(struct conn *conn) {
  const struct listing *listing = &conn->server->listing;
  if (listing->code < 0) {
    refuse_code(conn, listing->code);
    return;
  }
  const uint8_t done = WIRE_BYTE_DONE;
  if (conn->decoder.dialect == WIRE_DIALECT_RDZV) conn_send(conn, &done, sizeof done);
  conn_send_blob(conn, blob_hold(listing->keys));
}

/* Does the list, complete or in progress, have all keys of this moment? */
static bool is_up_to_date(const struct rdzv_server *server) {
  const struct listing *listing = &server->listing;
  return listing->keys && listing->version == ks_keys_version(server->ks);
}

static struct listing_wait **list_of(const struct listing_wait *asking) {
  struct listing *listing = &asking->conn->server->listing;
  return asking->is_now ? &listing->now : &listing->next;
}

bool listing_ask(struct conn *conn) {
  struct rdzv_server *server = conn->server;
  struct listing *listing = &server->listing;
  if (!listing->walking && !listing->now && !is_up_to_date(server)) {
    start(server);
    if (listing->walking) walk(server);
  }
  if (!listing->walking && !listing->now && (listing->code < 0 || is_up_to_date(server))) {
    answer(conn);
    return true;
  }
  struct listing_wait *asking = calloc(1, sizeof *asking);
  if (!asking) {
    refuse_code(conn, RDZV_E_NO_MEMORY);
    return true;
  }
  asking->conn = conn;
  asking->is_now = is_up_to_date(server);
  conn->asking = asking;
  DL_APPEND(*list_of(asking), asking);
  schedule_work(server);
  return false;
}

void listing_forget(struct conn *conn) {
  struct listing_wait *asking = conn->asking;
  if (!asking) return;
  DL_DELETE(*list_of(asking), asking);
  free(asking);
  conn->asking = NULL;
}

static void answer_some(struct rdzv_server *server) {
  struct listing *listing = &server->listing;
  for (int i = 0; i < ANSWERS_AT_ONCE && listing->now; i++) {
    struct conn *conn = listing->now->conn;
    listing_forget(conn);
    if (!conn->is_doomed) answer(conn);
    schedule_conn(conn);
  }
}

bool listing_is_busy(const struct listing *listing) { return listing->walking || listing->now || listing->next; }

void listing_go_on(struct rdzv_server *server) {
  struct listing *listing = &server->listing;
  if (listing->walking) {
    walk(server);
  } else if (listing->now) {
    answer_some(server);
  } else if (listing->next) {
    struct listing_wait *asking;
    listing->now = listing->next;
    listing->next = NULL;
    DL_FOREACH(listing->now, asking) asking->is_now = true;
    start(server);
  }
}

void listing_tidy(struct rdzv_server *server) {
  struct listing *listing = &server->listing;
  if (listing->walking || listing->now || is_up_to_date(server)) return;
  blob_drop(listing->keys);
  listing->keys = NULL;
}
