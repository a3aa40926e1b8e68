/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/net/net.h"

#include <unistd.h>

enum {
  ASK_MS = 1000, /* for connecting, and for the first bytes */
  MORE_MS = 200, /* for the rest of an answer that has begun */
};

static deadline sooner(int64_t ms, deadline until) { return deadline_sooner(deadline_after(ms), until); }

static size_t receive(int fd, char *answer, size_t cap, deadline until, const struct flag *cancel) {
  size_t len = 0, got;
  while (len < cap &&
         net_recv(fd, answer + len, cap - len, sooner(len ? MORE_MS : ASK_MS, until), cancel, &got, NULL) == 0)
    len += got;
  return len;
}

size_t net_ask(const struct endpoint *endpoint, rdzv_bytes question, char *answer, size_t cap, deadline until,
               const struct flag *cancel) {
  size_t sent;
  int fd;
  const struct flag silent = flag_with(cancel, NULL); /* the wait is about the connection that is there */
  if (net_connect(endpoint, sooner(ASK_MS, until), &silent, &fd, NULL) < 0) return 0;
  net_send(fd, question.data, question.len, sooner(ASK_MS, until), cancel, &sent, NULL);
  const size_t len = receive(fd, answer, cap, until, cancel);
  close(fd);
  return len;
}
