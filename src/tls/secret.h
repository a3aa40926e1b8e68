/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A secret file: lines of text, each a secret. A client proves the first one; a server accepts each of them, so that a
 * secret can be replaced while clients still have the one before.
 *
 * A secret is used for two things, each derived from it by HKDF-SHA256 (RFC 5869) with the salt "rdzv" and a label of
 * its own: the key of TLS 1.3 ("rdzv psk 1"), and the identity by which the server finds the key ("rdzv identity 1"),
 * which is written in hexadecimal digits. What is kept is the keys, in a page of their own that core files do not have.
 * The text is overwritten.
 */
#ifndef RDZV_TLS_SECRET_H
#define RDZV_TLS_SECRET_H

#include <rdzv/bytes.h>
#include <rdzv/error.h>
#include <stdint.h>

enum { SECRET_KEY_BYTES = 32, SECRET_IDENTITY_BYTES = 32, SECRETS_MOST = 4 };

struct secret_key {
  uint8_t key[SECRET_KEY_BYTES];
  uint8_t identity[SECRET_IDENTITY_BYTES]; /* digits */
};

struct secret {
  size_t count;
  struct secret_key keys[SECRETS_MOST];
};

/* Reads a file that only its owner may read. RDZV_E_INVALID: others may read it, or it is no secret file; RDZV_E_IO: it
 * cannot be read. No message has a part of it. Free it with secret_free. */
int secret_read(const char *path, struct secret **out, rdzv_error *error);
void secret_free(struct secret *secret);

/* The key with that identity; NULL: there is none. */
const struct secret_key *secret_find(const struct secret *secret, rdzv_bytes identity);

#endif
