/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp/foreign.h"

#include <stddef.h>

const char *tcp_foreign_text(enum foreign foreign) {
  switch (foreign) {
    case FOREIGN_ETCD:
      return "etcd answers there, not a store (did you mean --rdzv-backend etcd-v2, or rdzv store --etcd?)";
    case FOREIGN_HTTP: return "a web server answers there, not a store (is the port right?)";
    case FOREIGN_TLS:
      return "a server that wants TLS answers there, not a store (is the port right? for etcd with TLS: "
             "--rdzv-backend etcd-v2 --rdzv-conf protocol=https)";
    case FOREIGN_SSH: return "an SSH server answers there, not a store (is the port right?)";
    case FOREIGN_UNKNOWN: break;
  }
  return NULL;
}
