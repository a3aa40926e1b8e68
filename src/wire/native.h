/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a native node and its server tell each other (state/native/native.h), on the wire. docs/wire.md describes it.
 *
 * Decoders copy nothing: texts have a byte 0 behind them on the wire, and what is decoded points into the message.
 * They check every length, and that every number is within what its sender may say. On failure they return
 * RDZV_E_PROTOCOL, and the sentence names the field.
 */
#ifndef RDZV_WIRE_NATIVE_H
#define RDZV_WIRE_NATIVE_H

#include "state/native/native.h"
#include "wire/refusal.h"
#include "wire/scan.h"
#include "wire/writer.h"

enum {
  WIRE_NATIVE_MAX_MESSAGE = WIRE_MAX_REFUSAL, /* bytes of a value, except those of STATUS and MEMBERS */
  WIRE_NATIVE_HEAD_BYTES = 9,                 /* of a message of the server: status and length */
};

/* The first byte of a message of the server. */
enum wire_native_kind {
  WIRE_NATIVE_JOINED = 1,
  WIRE_NATIVE_RESUMED,
  WIRE_NATIVE_LEFT,
  WIRE_NATIVE_CLOSED,
  WIRE_NATIVE_BEAT,
  WIRE_NATIVE_NEWS,
  WIRE_NATIVE_STATUS,
  WIRE_NATIVE_MEMBERS,
};

/* ---- requests: whole, as the client sends them ---- */

void wire_put_native_join(struct wire_writer *out, const struct native_join *join);
void wire_put_native_resume(struct wire_writer *out, const char *run_id, const struct native_session *session);
void wire_put_native_leave(struct wire_writer *out);
void wire_put_native_close(struct wire_writer *out, const char *run_id, const char *reason);
void wire_put_native_query(struct wire_writer *out, const char *run_id, uint64_t round);

/* trip_us: the round-trip time of the last beat that was answered; -1: not known. */
void wire_put_native_beat(struct wire_writer *out, bool wants_answer, int64_t trip_us);

/* Of a NODE_QUERY: the status instead of the members of a round. */
#define WIRE_NATIVE_QUERY_STATUS UINT64_MAX

/* The values of NODE_JOIN and NODE_RESUME. On failure the number of the join, or the epoch, is set nevertheless: to 0
 * if it could not be read. */
int wire_native_join(rdzv_bytes value, struct native_join *out, rdzv_error *error);
int wire_native_resume(rdzv_bytes value, const char **run_id, struct native_session *session, rdzv_error *error);

/* The number of a NODE_BEAT. */
static inline bool wire_native_beat_wants_answer(uint64_t number) { return number >> 63; }
static inline int64_t wire_native_beat_trip(uint64_t number) {
  const uint32_t trip_us = (uint32_t)number;
  return trip_us == 0 ? -1 : (int64_t)trip_us;
}

/* ---- messages of the server: whole ---- */

void wire_put_native_joined(struct wire_writer *out, const struct native_joined *joined);
void wire_put_native_resumed(struct wire_writer *out, uint64_t number);
void wire_put_native_done(struct wire_writer *out, enum wire_native_kind kind); /* LEFT, CLOSED, BEAT */

/* Names as many of the nodes as fit into a message. */
void wire_put_native_news(struct wire_writer *out, const struct native_news *news);

/* One message, as the client finds it in the stream. */
struct wire_native_message {
  size_t size;     /* in the stream */
  int code;        /* 0; or an error: */
  int asked;       /* the operation (enum wire_op) that is refused; -1: the connection as such */
  uint64_t number; /* of the request that is refused; 0: it has none, or it could not be read */
  enum wire_native_kind kind;
  rdzv_bytes body; /* behind the kind; of an error: its text */
};

/* Finds the first message in a stream that begins with one. STATUS and MEMBERS are at most `most` bytes long.
 * WIRE_RESULT_MORE: it has not come whole, and *want is how long the stream must be at least. */
enum wire_result wire_native_next(const uint8_t *data, size_t len, size_t most, struct wire_native_message *out,
                                  size_t *want);

/* The bodies of JOINED, RESUMED, NEWS. */
int wire_native_joined(rdzv_bytes body, struct native_joined *out, rdzv_error *error);
int wire_native_resumed(rdzv_bytes body, uint64_t *number, rdzv_error *error);
int wire_native_news(rdzv_bytes body, struct native_news *out, rdzv_error *error);

/* ---- STATUS and MEMBERS: lists of nodes, in wire/native_list.c ---- */

/* What NODE_QUERY tells of a run. */
struct wire_native_status {
  bool exists; /* else nothing else has a meaning */
  bool complete, closed;
  int64_t round;
  int64_t call_left_ms; /* of the last call; -1: there is none */
  enum torch_layout layout;
  const char *reason;           /* for closing; "": none is known */
  int64_t min_nodes, max_nodes; /* as the first node has them; 0: not known */
  int64_t ended_us;             /* when it was closed, or its last node left or died; 0: not, or it is not known */
  const char *ended_by;         /* the node that did; "": not known */
  bool died;                    /* it died. With nodes: all are silent by their clocks, this one the shortest */
};

struct wire_native_node {
  struct node_desc desc;
  int64_t rank;   /* of a participant; else 0 */
  unsigned kinds; /* enum node_kind */
  enum native_way way;
  int64_t heard_ms; /* from here on of STATUS only. Since it was heard of last; -1: not known */
  int64_t trip_us;  /* -1: not known */
};

/* A list being written: begun by one of the first two, then each node, in node order for a short list. */
struct wire_native_writer {
  struct wire_writer *out;
  enum wire_native_kind kind;
  size_t start;       /* of the value */
  const char *before; /* the address of the node before, which must be there until the next one is added */
};
void wire_native_begin_status(struct wire_native_writer *writer, struct wire_writer *out,
                              const struct wire_native_status *status, size_t count);
void wire_native_begin_members(struct wire_native_writer *writer, struct wire_writer *out, int64_t round, size_t count);
void wire_native_add(struct wire_native_writer *writer, const struct wire_native_node *node);
void wire_native_end(struct wire_native_writer *writer);

/* A list being read. */
struct wire_native_reader {
  rdzv_bytes rest;
  enum wire_native_kind kind;
  size_t count; /* of nodes left */
  size_t len;
  char addr[STATE_MAX_ADDR + 1]; /* of the last node */
};
int wire_native_read_status(struct wire_native_reader *reader, rdzv_bytes body, struct wire_native_status *out,
                            rdzv_error *error);
int wire_native_read_members(struct wire_native_reader *reader, rdzv_bytes body, int64_t *round, rdzv_error *error);

/* 1: a node, whose address is valid until the next call; 0: that were all. */
int wire_native_read_node(struct wire_native_reader *reader, struct wire_native_node *out, rdzv_error *error);

#endif
