/* SPDX-License-Identifier: BSD-3-Clause */
/* "[http[s]://][USER[:PASSWORD]@]HOST[:PORT],...", taken apart. */
#ifndef RDZV_CLI_STORE_ETCD_URL_H
#define RDZV_CLI_STORE_ETCD_URL_H

#include <stdbool.h>

struct etcd_url {
  bool https;
  char *user, *password; /* NULL: none */
  char *hosts;           /* "host:port,host:port" */
  char *text;            /* private: what user and password point into */
};

/* Gives what is wrong, or NULL. The sentence has nothing of the text, in which there may be a password; hosts and ports
 * are looked at by the library. Free it in either case. */
const char *etcd_url_parse(const char *text, struct etcd_url *out);
void etcd_url_free(struct etcd_url *url);

#endif
