/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a server is that does not answer as the v2 or v3 API of etcd does, and what the user can do about it. Each
 * function gives a code below 0 where waiting does not help, and 0 where it may:
 *   - RDZV_E_PROTOCOL: a server of another kind, a port of etcd that is not for clients, TLS on one side only.
 *   - RDZV_E_UNSUPPORTED: an etcd without that API.
 */
#ifndef RDZV_ETCD_CLIENT_EXPLAIN_H
#define RDZV_ETCD_CLIENT_EXPLAIN_H

#include "etcd/http/http.h"

/* Is it an answer that no etcd gives to a request for keys or members, in that API? */
bool etcd_is_foreign(const struct http_response *response, bool v3);

/* Asks the same server for another path. After 0 the response is to be freed. */
typedef int etcd_ask(void *argument, const char *path, struct http_response *response);

/* After such an answer of the server at `endpoint` ("host:port"). RDZV_E_CONNECTION: a server of HTTP that did not
 * understand the request; never 0. */
int etcd_explain_answer(const char *endpoint, bool v3, const struct http_response *response, etcd_ask *ask,
                        void *argument, rdzv_error *error);

/* After no answer in HTTP, or HTTPS: asks what else is spoken there, on connections of its own, for 4 s at most. */
int etcd_explain_silence(const char *endpoint, bool https, deadline until, const struct flag *cancel,
                         rdzv_error *error);

#endif
