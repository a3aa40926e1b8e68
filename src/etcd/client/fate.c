/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/client/fate.h"

#include <string.h>

static bool has(const struct http_response *response, const char *text) {
  return response->body.data && memmem(response->body.data, response->body.len, text, strlen(text));
}

/* Of a request that goes on (a watch, a lease's keep-alive), 3.4 says "unexpected EOF" with 500, and 3.5 nothing with
 * 499, where it came in part only. A transaction would get that with 400; with 500, its outcome is not known. Neither
 * is it where the member has given up the request, since the connection seemed to be gone: 408, 499. */
static bool has_no_leader(const struct http_response *response) {
  static const long passing[] = {408, 499, 502, 503, 504};
  static const char *const signs[] = {"\"errorCode\":300", "\"errorCode\":301", "no leader",
                                      "timed out",         "raft: stopped",     "server stopped",
                                      "unexpected EOF",    "context canceled",  "context deadline exceeded"};
  for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++)
    if (response->status == passing[i]) return true;
  if (response->status == 429 && has(response, "too many requests")) return true;
  for (size_t i = 0; response->status == 500 && i < sizeof signs / sizeof signs[0]; i++)
    if (has(response, signs[i])) return true;
  return false;
}

enum etcd_answer etcd_answer_of(const struct http_response *response) {
  static const char *const cut[] = {"\"errorCode\":210", "unexpected EOF", "\"EOF\""}; /* of v2, of v3 */
  for (size_t i = 0; response->status == 400 && i < sizeof cut / sizeof cut[0]; i++)
    if (has(response, cut[i])) return ETCD_ANSWER_CUT_FORM;
  return has_no_leader(response) ? ETCD_ANSWER_NO_LEADER : ETCD_ANSWER_VALID;
}

bool etcd_is_final(int code) { return code == RDZV_E_PROTOCOL || code == RDZV_E_UNSUPPORTED || code == RDZV_E_INVALID; }

enum etcd_fate etcd_fate_of(const struct etcd_request *request, int code, bool sent, bool late) {
  if (request->blocks && code == RDZV_E_TIMEOUT && late) return ETCD_FATE_OVER;
  if (request->blocks && sent) return ETCD_FATE_CUT_OFF;
  return request->once && sent ? ETCD_FATE_UNKNOWN : ETCD_FATE_AGAIN;
}
