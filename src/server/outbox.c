/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is on its way to a client: a chain of chunks, with bytes of their own or with a part in a blob that others hold,
 * too. It is there only as long as there is something to send.
 *
 * Answers of a request that is executed for the client itself do not come here, unless its socket does not take them at
 * once. All others do: a client that is woken or told of changes is sent everything in its next slice. A slice sends a
 * bounded amount. When the socket is full, libuv says when it is not any more.
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

/* Long bytes are not copied. */
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

/* The first bytes of it, at most SLICE_BYTES; gives how many. */
static size_t gather(const struct chain *chain, struct iovec *pieces, int *count) {
  size_t total = 0;
  *count = 0;
  for (struct chunk *chunk = chain->first; chunk && *count < PIECES && total < SLICE_BYTES; chunk = chunk->next) {
    uint8_t *data = chunk->blob ? (uint8_t *)chunk->blob->data : chunk->data;
    size_t len = chunk->len - chunk->at;
    if (len > SLICE_BYTES - total) len = SLICE_BYTES - total;
    pieces[(*count)++] = (struct iovec){data + chunk->at, len};
    total += len;
  }
  return total;
}

/* ---- outboxes ----------------------------------------------------------------------------------------------- */

struct outbox {
  uv_write_t write;
  struct chain chain;
  size_t under_way; /* given to libuv; 0: nothing */
};

struct chain *outbox_chain(struct conn *conn) {
  if (!conn->out) conn->out = calloc(1, sizeof *conn->out);
  return conn->out ? &conn->out->chain : NULL;
}

void outbox_free(struct conn *conn) {
  if (!conn->out) return;
  chain_free(&conn->out->chain, &conn->server->budget);
  free(conn->out);
  conn->out = NULL;
}

bool outbox_is_stuck(const struct conn *conn) { return conn->out && conn->out->under_way > 0; }

size_t outbox_len(const struct conn *conn) { return conn->out ? conn->out->chain.len : 0; }

static void on_written(uv_write_t *request, int status) {
  struct conn *conn = (struct conn *)request->handle;
  struct outbox *out = conn->out;
  const size_t sent = out->under_way;
  out->under_way = 0;
  if (status == UV_ECANCELED) return; /* it is being closed */
  consume(&out->chain, &conn->server->budget, sent);
  if (status < 0) conn_doom(conn, RDZV_E_CONNECTION, NULL);
  timeouts_restart(conn);
  schedule_conn(conn);
  conn_reap(conn->server, REAP_AT_ONCE);
}

static void let_libuv_send(struct conn *conn) {
  struct iovec pieces[PIECES];
  uv_buf_t buffers[PIECES];
  int count;
  conn->out->under_way = gather(&conn->out->chain, pieces, &count);
  for (int i = 0; i < count; i++) buffers[i] = uv_buf_init(pieces[i].iov_base, (unsigned)pieces[i].iov_len);
  if (uv_write(&conn->out->write, (uv_stream_t *)&conn->tcp, buffers, (unsigned)count, on_written) == 0) return;
  conn->out->under_way = 0;
  conn_doom(conn, RDZV_E_CONNECTION, NULL);
}

ssize_t outbox_send_now(struct conn *conn, const void *data, size_t len) {
  const ssize_t sent = send(conn->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN && errno != EINTR) conn_doom(conn, RDZV_E_CONNECTION, NULL);
  return sent < 0 ? 0 : sent;
}

void outbox_flush(struct conn *conn) {
  struct outbox *out = conn->out;
  if (!out || out->under_way > 0 || conn->is_doomed) return;
  for (size_t sent = 0; out->chain.len > 0 && sent < SLICE_BYTES;) {
    struct iovec pieces[PIECES];
    struct msghdr message = {.msg_iov = pieces};
    int count;
    const size_t total = gather(&out->chain, pieces, &count);
    message.msg_iovlen = (size_t)count;
    const ssize_t part = sendmsg(conn->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0 && errno != EAGAIN) {
      conn_doom(conn, RDZV_E_CONNECTION, NULL);
      return;
    }
    if (part > 0) consume(&out->chain, &conn->server->budget, (size_t)part);
    if (part < (ssize_t)total) { /* the socket is full */
      let_libuv_send(conn);
      return;
    }
    sent += (size_t)part;
  }
  if (out->chain.len == 0) outbox_free(conn);
}
