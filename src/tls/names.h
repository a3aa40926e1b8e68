/* SPDX-License-Identifier: BSD-3-Clause */
/* The files that a protected connection is made with: what --secret-file, --tls-cert and their like name. */
#ifndef RDZV_TLS_NAMES_H
#define RDZV_TLS_NAMES_H

#include <rdzv/error.h>
#include <stdbool.h>

/* Paths, NULL where none is given. */
struct tls_names {
  const char *secret;
  const char *ca; /* a client's: whose certificates it trusts */
  const char *cert, *key;
  const char *client_ca; /* a server's: whose certificates it wants of clients */
  const char *host;      /* a client's: the name in the server's certificate, if not the host it connects to */
};

/* An empty path counts as none. Where no file is named at all, and the secret not even as empty, RDZV_SECRET_FILE of
 * the environment is the secret file. */
void tls_names_settle(struct tls_names *names);

/* Is the connection to be protected? For settled names. */
static inline bool tls_names_any(const struct tls_names *names) {
  return names->secret || names->ca || names->cert || names->key || names->client_ca;
}

/* Do the files go together? RDZV_E_INVALID. */
int tls_names_check_client(const struct tls_names *names, rdzv_error *error);
int tls_names_check_server(const struct tls_names *names, rdzv_error *error);

#endif
