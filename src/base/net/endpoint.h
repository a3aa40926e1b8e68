/* SPDX-License-Identifier: BSD-3-Clause */
/* "host", "host:port", "1.2.3.4:port", "::1", "[::1]", "[::1]:port". */
#ifndef RDZV_BASE_NET_ENDPOINT_H
#define RDZV_BASE_NET_ENDPOINT_H

#include <rdzv/error.h>

struct endpoint {
  char host[256]; /* without brackets */
  int port;       /* 1 to 65535; 0 where it is not known yet */
};

/* Fails with RDZV_E_INVALID; the message quotes the text and says what is wrong with it. */
int endpoint_parse(const char *text, int default_port, struct endpoint *out, rdzv_error *error);

/* The same for an endpoint to serve at: port 0 is valid, and means any free port. */
int endpoint_parse_to_serve(const char *text, int default_port, struct endpoint *out, rdzv_error *error);

/* Room for a host in brackets and a port. */
#define ENDPOINT_TEXT_SIZE (256 + 10)

/* "host:port", with brackets where the host has colons. */
void endpoint_format(const char *host, int port, char out[ENDPOINT_TEXT_SIZE]);

#endif
