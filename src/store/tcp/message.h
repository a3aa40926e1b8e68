/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The messages of one try: the request is put together field by field, sent, and its answer is read in the dialect of
 * the server. RDZV_E_CONNECTION from any of these ends the try; call.c decides what happens then.
 */
#ifndef RDZV_STORE_TCP_MESSAGE_H
#define RDZV_STORE_TCP_MESSAGE_H

#include "store/tcp/tcp.h"

/* Fields of the request, kept until it is sent. */
void tcp_put_op(struct tcp_store *tcp, enum wire_op op);
void tcp_put_op_on(struct tcp_store *tcp, enum wire_op op, rdzv_bytes key); /* the operation, and its key */
void tcp_put_key(struct tcp_store *tcp, rdzv_bytes key);
void tcp_put_value(struct tcp_store *tcp, rdzv_bytes value);
void tcp_put_number(struct tcp_store *tcp, uint64_t number);
void tcp_put_keys(struct tcp_store *tcp, const rdzv_bytes *keys, size_t count);

int tcp_send(struct tcp_store *tcp);

/* Reads an answer that comes at once: its status where the dialect has one, then the fields (wire/scan.h; `items` is
 * the length of a V list). The fields stay in conn.scan until tcp_conn_consume or a tcp_take_*. */
int tcp_answer(struct tcp_store *tcp, const char *fields, uint64_t items);

/* Reads more fields of the same answer. */
int tcp_more(struct tcp_store *tcp, const char *fields, uint64_t items);

/* tcp_send and tcp_answer. */
int tcp_ask(struct tcp_store *tcp, const char *fields, uint64_t items);

/* The same where the answer is one number, "b" or "n". */
int tcp_ask_number(struct tcp_store *tcp, const char *fields, uint64_t *number);

/* The same for a write without an answer in PyTorch's dialects: there a NUM_KEYS sent behind it has one, which shows
 * that the write has arrived. */
int tcp_ask_done(struct tcp_store *tcp);

/* The same for a request that blocks: the answer may take until `until`. RDZV_E_TIMEOUT leaves the connection usable.
 * Not for V1, which cannot take a wait back. */
int tcp_ask_blocking(struct tcp_store *tcp, const char *fields, uint64_t items, deadline until);

/* Copies field i, a value, and consumes the answer. Numbers stay readable. */
int tcp_take_value(struct tcp_store *tcp, int i, rdzv_value *out);

/* The same for a V list. */
int tcp_take_values(struct tcp_store *tcp, rdzv_value *out, size_t count);

static inline uint64_t tcp_number(const struct tcp_store *tcp, int i) { return tcp->conn.scan.field[i].number; }

#endif
