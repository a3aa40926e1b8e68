/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/tcp_foreign.h"

#include "base/net.h"

#include <unistd.h>

enum {
  ASK_MS = 1000, /* for one question */
  MORE_MS = 200, /* for the rest of an answer that has begun */
  MOST = 2048,   /* of an answer */
};

static deadline sooner(int64_t ms, deadline until) {
  const deadline own = deadline_after(ms);
  return own < until ? own : until;
}

static size_t receive(int fd, char answer[MOST], deadline until, const struct cancel *cancel) {
  size_t len = 0, got;
  while (len < MOST &&
         net_recv(fd, answer + len, MOST - len, sooner(len ? MORE_MS : ASK_MS, until), cancel, &got, NULL) == 0)
    len += got;
  return len;
}

static enum wire_foreign ask(const struct endpoint *endpoint, rdzv_bytes question, deadline until,
                             const struct cancel *cancel) {
  char answer[MOST];
  size_t sent;
  int fd;
  const struct cancel silent = cancel_with(cancel, NULL); /* the wait is about the connection that is there */
  if (net_connect(endpoint, sooner(ASK_MS, until), &silent, &fd, NULL) < 0) return FOREIGN_UNKNOWN;
  net_send(fd, question.data, question.len, sooner(ASK_MS, until), cancel, &sent, NULL);
  const size_t len = receive(fd, answer, until, cancel);
  close(fd);
  return foreign_recognize((rdzv_bytes){answer, len});
}

enum wire_foreign tcp_foreign_ask(const struct endpoint *endpoint, deadline until, const struct cancel *cancel) {
  enum wire_foreign found = FOREIGN_UNKNOWN;
  for (int i = 0; i < FOREIGN_QUESTIONS && found == FOREIGN_UNKNOWN && deadline_left(until) > 0; i++)
    found = ask(endpoint, foreign_question(i), until, cancel);
  return found;
}
