/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What connections of one side have in common: the keys of a secret file, or certificates. TLS 1.3 only, without
 * tickets, early data, compression and renegotiation. Contexts can be shared by threads.
 *
 * A server with a secret has no certificate to fall back to, unless it has both; then a client without the secret has
 * to show a certificate. A client with a secret takes nothing else for an answer.
 */
#ifndef RDZV_TLS_CONTEXT_H
#define RDZV_TLS_CONTEXT_H

#include "tls/names.h"

struct tls_context; /* counts its holders */

/* Reads the files. The names must be settled. RDZV_E_INVALID, RDZV_E_IO, RDZV_E_UNSUPPORTED, RDZV_E_NO_MEMORY: the
 * message names the file. */
int tls_context_server(const struct tls_names *names, struct tls_context **out, rdzv_error *error);
void tls_context_drop(struct tls_context *context); /* NULL is ignored */

/* The side of a client: one for all of a process that name the same files. A file that was replaced is read again for
 * the next connection. Counts its holders. */
struct tls_client;

/* NULL in *out: the settled names name nothing, and connections are plain. Reads the files, so that errors come early.
 */
int tls_client_open(const struct tls_names *names, struct tls_client **out, rdzv_error *error);
struct tls_client *tls_client_hold(struct tls_client *client); /* NULL is fine, here and below */
void tls_client_drop(struct tls_client *client);
const struct tls_names *tls_client_names(const struct tls_client *client);

/* A context for the next connection, for the caller to drop. */
int tls_client_context(struct tls_client *client, struct tls_context **out, rdzv_error *error);

#endif
