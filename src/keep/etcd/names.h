/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a keep is laid out in etcd, below its prefix. Pure.
 *
 *   PREFIX/active               the active server, as JSON, with a lease. Its create revision is the fence: each write
 *                               depends on it, so a server that lost the key can write nothing more
 *   PREFIX/batch                the marker, as JSON: the number of the last write, who did it, and how many parts of a
 *                               staged batch count
 *   PREFIX/records/NAME         a record; the name is in hexadecimal, so that the order of keys is that of names
 *   PREFIX/staged/NUMBER/PART   changes of a batch that does not fit into one transaction, packed
 */
#ifndef RDZV_KEEP_ETCD_NAMES_H
#define RDZV_KEEP_ETCD_NAMES_H

#include "base/buf.h"
#include "keep/keep.h"

enum {
  PLACE_MAX_PREFIX = 200,
  PLACE_NAME_SIZE = PLACE_MAX_PREFIX + 64,
  PLACE_FORMAT = 1,
};

struct place_name {
  char text[PLACE_NAME_SIZE];
};

/* "/rdzv-server" for "rdzv-server/". RDZV_E_INVALID: it is too long or empty. */
int place_prefix(const char *given, char out[PLACE_MAX_PREFIX + 1], rdzv_error *error);

struct place_name place_key(const char *prefix, const char *what); /* "/active": PREFIX/active */
struct place_name place_record(const char *prefix, rdzv_bytes name);
struct place_name place_staged(const char *prefix, uint64_t number, uint32_t part);

/* The name of a record out of a key that begins with PREFIX/records/. False: it is not one. */
bool place_read_record(const char *prefix, rdzv_bytes key, uint8_t name[KEEP_MAX_NAME], size_t *len);

/* ---- the marker ---- */
struct place_marker {
  uint64_t number;
  int64_t fence;   /* of the server that wrote it */
  uint32_t staged; /* parts of the staged batch of this number, which counts; 0: none */
};

struct place_text {
  char text[160];
};
struct place_text place_marker_text(const struct place_marker *marker);

/* RDZV_E_CORRUPT; RDZV_E_UNSUPPORTED: of a newer version of this program, or of another. */
int place_read_marker(rdzv_bytes text, struct place_marker *out, rdzv_error *error);

/* ---- the active server ---- */

/* To be freed. NULL: no memory. */
char *place_active_text(const char *address, const char *host, int64_t pid, const char *since, int64_t lease);

/* The address in it; "" where there is none that can be used. */
void place_read_active(rdzv_bytes text, char *address, size_t size);

/* ---- packed changes ---- */

/* Appends one. False: no memory. */
bool place_pack(struct buf *out, const struct keep_change *change);
size_t place_packed_size(const struct keep_change *change);

/* Takes the next one off the front; the value is in its head. 1: there is one; 0: the end. RDZV_E_CORRUPT. */
int place_unpack(rdzv_bytes *rest, struct keep_change *out, rdzv_error *error);

#endif
