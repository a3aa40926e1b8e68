/* SPDX-License-Identifier: BSD-3-Clause */
/* Servers that are no TCPStore, by what they answer: a port of another protocol does not become ours by waiting. */
#ifndef RDZV_WIRE_FOREIGN_H
#define RDZV_WIRE_FOREIGN_H

#include <rdzv/bytes.h>
#include <stdbool.h>

enum wire_foreign { FOREIGN_UNKNOWN = 0, FOREIGN_ETCD, FOREIGN_HTTP, FOREIGN_TLS, FOREIGN_SSH };

/* Questions that a server of another protocol answers at once, one for each connection; a TCPStore closes it. */
enum { FOREIGN_QUESTIONS = 2 };
rdzv_bytes foreign_question(int which);

/* Who begins an answer like this? */
enum wire_foreign foreign_recognize(rdzv_bytes answer);

/* Questions that a TCPStore answers at once, one for each connection, and no other server like this. */
enum { FOREIGN_STORE_QUESTIONS = 2 };
rdzv_bytes foreign_store_question(int which);
bool foreign_is_store(int which, rdzv_bytes answer);

/* "etcd answers there (is it meant? …)". Static storage; NULL for FOREIGN_UNKNOWN. */
const char *foreign_text(enum wire_foreign foreign);

#endif
