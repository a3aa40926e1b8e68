/* SPDX-License-Identifier: BSD-3-Clause */
/* The flags that protect connections, which several commands have. */
#ifndef RDZV_CLI_PROTECTION_H
#define RDZV_CLI_PROTECTION_H

#include "cli/cli.h"

struct protection_flags {
  const char *secret_file, *tls_ca, *tls_cert, *tls_key;
};

/* Rows for a client's table of flags. */
#define PROTECTION_FLAGS(to)                                                                           \
  {"secret-file", FLAG_TEXT, &(to)->secret_file, "FILE",                                               \
   "file with the secret of the store (default $RDZV_SECRET_FILE)"},                                   \
      {"tls-ca", FLAG_TEXT, &(to)->tls_ca, "FILE", "CA of the store's certificate, PEM; enables TLS"}, \
      {"tls-cert", FLAG_TEXT, &(to)->tls_cert, "FILE", "client certificate for the store, PEM"}, {     \
    "tls-key", FLAG_TEXT, &(to)->tls_key, "FILE", "private key of --tls-cert, PEM"                     \
  }

/* The options of a rendezvous with what the flags add, to be freed. NULL: it has said why. */
char *protection_conf(const char *command, const struct protection_flags *flags, const char *conf);

/* Where a secret or a key is named, by flags, options or the environment: from here on there is no core file of this
 * process, and no other process of the same user can look into its memory. */
void protection_hide(const struct protection_flags *flags, const char *conf);

#endif
