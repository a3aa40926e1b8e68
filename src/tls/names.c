/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls/names.h"

#include "base/error.h"

#include <stddef.h>
#include <stdlib.h>

static void settle(const char **name) {
  if (*name && !**name) *name = NULL;
}

void tls_names_settle(struct tls_names *names) {
  const bool silent = !tls_names_any(names);
  if (silent) names->secret = getenv("RDZV_SECRET_FILE");
  settle(&names->secret);
  settle(&names->ca);
  settle(&names->cert);
  settle(&names->key);
  settle(&names->client_ca);
  settle(&names->host);
}

static int check_pair(const struct tls_names *names, rdzv_error *error) {
  if (!names->cert == !names->key) return 0;
  return error_set(error, RDZV_E_INVALID, "a certificate and its key belong together: %s is missing",
                   names->cert ? "the key (tls_key)" : "the certificate (tls_cert)");
}

int tls_names_check_client(const struct tls_names *names, rdzv_error *error) {
  if (names->secret && names->ca)
    return error_set(error, RDZV_E_INVALID,
                     "a connection is protected by a secret or by certificates (give secret_file or tls_ca, not both)");
  if (names->cert && !names->ca)
    return error_set(error, RDZV_E_INVALID,
                     "a client's certificate needs the CA of the server's certificate, too (tls_ca)");
  return check_pair(names, error);
}

int tls_names_check_server(const struct tls_names *names, rdzv_error *error) {
  if (!names->cert && !names->key && names->client_ca)
    return error_set(error, RDZV_E_INVALID,
                     "a server that requires client certificates needs a certificate itself (tls_cert and tls_key)");
  if (names->secret && names->cert && !names->client_ca)
    return error_set(
        error, RDZV_E_INVALID,
        "a server with a secret and a certificate also needs the CA of its clients' certificates (tls_client_ca)");
  return check_pair(names, error);
}
