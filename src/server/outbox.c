/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bytes on their way to a client: a chain of chunks, each with bytes of its own or with a blob that others hold, too. A
 * connection has an outbox only while there is something to send.
 *
 * The answer to a client's own request comes here only if the socket does not take it at once. Answers to waits and
 * messages to watchers always do; they are sent in the client's next slice, at most SLICE_BYTES at a time. When the
 * socket is full, conn.c polls it for writing.
 */
#include "server/server.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <utlist.h>

enum {
  CHUNK_LEAST = 64,
  CHUNK_MOST = 64 * 1024,
  PIECES = 16, /* of one write */
};

struct chunk {
  struct chunk *next;
  struct blob *blob; /* NULL: the bytes are its own */
  size_t at, len;    /* sent, and to be sent in all */
  size_t cap;
  uint8_t data[];
};

/* ---- chains ------------------------------------------------------------------------------------------------- */

static struct chunk *add_chunk(struct chain *chain, struct budget *budget, size_t cap) {
  if (!budget_take(budget, sizeof(struct chunk) + cap)) return NULL;
  struct chunk *chunk = malloc(sizeof *chunk + cap);
  if (!chunk) {
    budget_give(budget, sizeof *chunk + cap);
    return NULL;
  }
  *chunk = (struct chunk){.cap = cap};
  if (chain->last)
    chain->last->next = chunk;
  else
    chain->first = chunk;
  chain->last = chunk;
  return chunk;
}

static void drop_first(struct chain *chain, struct budget *budget) {
  struct chunk *chunk = chain->first;
  chain->first = chunk->next;
  if (!chain->first) chain->last = NULL;
  blob_drop(chunk->blob);
  budget_give(budget, sizeof *chunk + chunk->cap);
  free(chunk);
}

bool chain_put(struct chain *chain, struct budget *budget, const void *data, size_t len) {
  const uint8_t *at = data;
  while (len > 0) {
    struct chunk *last = chain->last;
    if (!last || last->blob || last->len == last->cap) {
      size_t cap = last && !last->blob ? 2 * last->cap : len;
      if (cap < CHUNK_LEAST) cap = CHUNK_LEAST;
      if (cap > CHUNK_MOST) cap = CHUNK_MOST;
      last = add_chunk(chain, budget, cap);
      if (!last) return false;
    }
    const size_t part = len < last->cap - last->len ? len : last->cap - last->len;
    memcpy(last->data + last->len, at, part);
    last->len += part;
    chain->len += part;
    at += part;
    len -= part;
  }
  return true;
}

bool chain_put_blob(struct chain *chain, struct budget *budget, struct blob *blob) {
  struct chunk *chunk = add_chunk(chain, budget, 0);
  if (!chunk) {
    blob_drop(blob);
    return false;
  }
  chunk->blob = blob;
  chunk->len = blob->len;
  chain->len += blob->len;
  return true;
}

/* A long value is not copied. */
bool chain_put_value(struct chain *chain, struct budget *budget, struct blob *value) {
  const rdzv_bytes bytes = blob_bytes(value);
  const uint64_t len = htole64(bytes.len);
  if (!chain_put(chain, budget, &len, sizeof len)) return false;
  if (bytes.len < SHARED_BYTES) return chain_put(chain, budget, bytes.data, bytes.len);
  return chain_put_blob(chain, budget, blob_hold(value));
}

bool chain_put_found(struct chain *chain, struct rdzv_server *server, rdzv_bytes key, rdzv_bytes value) {
  const uint64_t len = htole64(value.len);
  if (!chain_put(chain, &server->budget, &len, sizeof len)) return false;
  if (value.len < SHARED_BYTES) return chain_put(chain, &server->budget, value.data, value.len);
  return chain_put_blob(chain, &server->budget, ks_share(server->ks, key));
}

void chain_move(struct chain *to, struct chain *from) {
  if (!from->first) return;
  if (to->last)
    to->last->next = from->first;
  else
    to->first = from->first;
  to->last = from->last;
  to->len += from->len;
  *from = (struct chain){0};
}

void chain_free(struct chain *chain, struct budget *budget) {
  while (chain->first) drop_first(chain, budget);
  chain->len = 0;
}

static void consume(struct chain *chain, struct budget *budget, size_t sent) {
  chain->len -= sent;
  while (chain->first) {
    struct chunk *chunk = chain->first;
    const size_t part = sent < chunk->len - chunk->at ? sent : chunk->len - chunk->at;
    chunk->at += part;
    sent -= part;
    if (chunk->at < chunk->len) return;
    drop_first(chain, budget);
  }
}

/* Points `pieces` to the first bytes of a chain, at most `most`; returns the number of pieces. */
static size_t gather(const struct chain *chain, size_t most, struct iovec pieces[PIECES]) {
  size_t count = 0;
  for (struct chunk *chunk = chain->first; chunk && count < PIECES && most > 0; chunk = chunk->next) {
    uint8_t *data = chunk->blob ? (uint8_t *)chunk->blob->data : chunk->data;
    size_t len = chunk->len - chunk->at;
    if (len > most) len = most;
    pieces[count++] = (struct iovec){data + chunk->at, len};
    most -= len;
  }
  return count;
}

/* ---- outboxes ----------------------------------------------------------------------------------------------- */

/* Bytes that wait for a batch. Two batches can be awaited at the same time: the one in flight, and the next. */
struct hold {
  uint64_t batch;
  size_t len;
};

struct outbox {
  struct chain chain;
  size_t stuck;         /* bytes to send before the client counts as reading again; 0: the socket is not full */
  struct hold holds[2]; /* of the last bytes of the chain, in order; len 0: none */
};

/* Lets go what waits for a batch that is durable. */
static void let_go(struct outbox *out, uint64_t committed) {
  while (out->holds[0].len > 0 && out->holds[0].batch <= committed) {
    out->holds[0] = out->holds[1];
    out->holds[1] = (struct hold){0};
  }
}

void outbox_hold(struct conn *conn, uint64_t batch, size_t len) {
  struct outbox *out = conn->out;
  if (len == 0) return;
  let_go(out, keeper_committed(conn->server));
  if (out->holds[0].len == 0 && batch == 0) return;
  struct hold *last = &out->holds[out->holds[1].len > 0];
  if (last->len > 0 && batch > last->batch && last == out->holds) last++;
  if (batch > last->batch) last->batch = batch;
  last->len += len;
  keeper_hold(conn);
}

/* How much of the chain may be sent. */
static size_t sendable(const struct conn *conn) {
  struct outbox *out = conn->out;
  if (out->holds[0].len > 0) let_go(out, keeper_committed(conn->server));
  return out->chain.len - out->holds[0].len - out->holds[1].len;
}

bool outbox_can_send(const struct conn *conn) { return conn->out && conn->out->stuck == 0 && sendable(conn) > 0; }

struct chain *outbox_chain(struct conn *conn) {
  if (!conn->out) conn->out = calloc(1, sizeof *conn->out);
  return conn->out ? &conn->out->chain : NULL;
}

void outbox_free(struct conn *conn) {
  if (!conn->out) return;
  keeper_forget(conn);
  chain_free(&conn->out->chain, &conn->server->budget);
  free(conn->out);
  conn->out = NULL;
}

bool outbox_is_stuck(const struct conn *conn) { return conn->out && conn->out->stuck > 0; }

size_t outbox_len(const struct conn *conn) { return conn->out ? conn->out->chain.len : 0; }

static ssize_t send_pieces(struct conn *conn, struct iovec *pieces, size_t count) {
  if (conn->cover != COVER_NONE) return cover_send(conn, pieces, count);
  const struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
  return sendmsg(conn->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Another server may be active by now: what this one would say may be wrong. */
static bool may_send(struct conn *conn) {
  if (keeper_holds(conn->server)) return true;
  conn_doom(conn, RDZV_E_CONNECTION, NULL);
  return false;
}

ssize_t outbox_send_now(struct conn *conn, const void *data, size_t len) {
  if (!may_send(conn)) return 0;
  struct iovec piece = {(void *)data, len};
  const ssize_t sent =
      conn->cover == COVER_NONE ? send(conn->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL) : cover_send(conn, &piece, 1);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) conn_doom(conn, RDZV_E_CONNECTION, NULL);
  return sent < 0 ? 0 : sent;
}

/* Sends at most `most` bytes; returns how many. 0: the socket is full, or the client is gone and now doomed. */
static size_t send_some(struct conn *conn, size_t most) {
  if (!may_send(conn)) return 0;
  struct iovec pieces[PIECES];
  const size_t count = gather(&conn->out->chain, most, pieces);
  ssize_t sent;
  do {
    sent = send_pieces(conn, pieces, count);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && errno != EAGAIN) conn_doom(conn, RDZV_E_CONNECTION, NULL);
  if (sent <= 0) return 0;
  consume(&conn->out->chain, &conn->server->budget, (size_t)sent);
  return (size_t)sent;
}

bool outbox_unstick(struct conn *conn) {
  struct outbox *out = conn->out;
  while (out->stuck > 0) {
    const size_t sent = send_some(conn, out->stuck);
    if (sent == 0) return false;
    out->stuck -= sent;
  }
  timeouts_restart(conn);
  return true;
}

void outbox_flush(struct conn *conn) {
  struct outbox *out = conn->out;
  if (!out || out->stuck > 0 || conn->is_doomed) return;
  size_t free_bytes = sendable(conn);
  for (size_t left = SLICE_BYTES; left > 0 && free_bytes > 0;) {
    const size_t sent = send_some(conn, left < free_bytes ? left : free_bytes);
    if (conn->is_doomed) return;
    if (sent == 0) {
      out->stuck = free_bytes < SLICE_BYTES ? free_bytes : SLICE_BYTES;
      return;
    }
    left -= sent;
    free_bytes -= sent;
  }
  if (out->chain.len == 0) outbox_free(conn);
}
