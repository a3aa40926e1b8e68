/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp_foreign.h"

#include "base/net.h"

enum { MOST = 2048 /* of an answer */ };

enum wire_foreign tcp_foreign_ask(const struct endpoint *endpoint, deadline until, const struct cancel *cancel) {
  enum wire_foreign found = FOREIGN_UNKNOWN;
  for (int i = 0; i < FOREIGN_QUESTIONS && found == FOREIGN_UNKNOWN && deadline_left(until) > 0; i++) {
    char answer[MOST];
    const size_t len = net_ask(endpoint, foreign_question(i), answer, sizeof answer, until, cancel);
    found = foreign_recognize((rdzv_bytes){answer, len});
  }
  return found;
}
