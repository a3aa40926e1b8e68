/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client that waits for an answer of one of several servers looks now and then whether another one is active by now.
 * A server that is stopped, or whose machine is gone, keeps its connections; without a look, the client would wait for
 * it until the deadline.
 */
#include "store/tcp/conn.h"

#include <string.h>

bool tcp_conn_is_left_behind(const struct tcp_conn *conn, deadline until, const struct flag *cancel) {
  struct tcp_conn look = *conn; /* the servers and the run id stay those of the other */
  look.fd = -1;
  look.tls = NULL;
  look.is_greeted = false;
  look.in = look.out.buf = (struct buf){0};
  look.session = (struct tcp_session){0};
  tcp_choice_next(&look.choice);
  const int result = tcp_conn_try(&look, until, cancel, NULL);
  const bool other = result == 0 && look.instance == conn->instance && strcmp(look.peer, conn->peer) != 0;
  tcp_conn_drop(&look);
  buf_free(&look.in);
  buf_free(&look.out.buf);
  return other;
}
