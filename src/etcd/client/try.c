/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/client/try.h"

#include "base/error.h"
#include "base/log.h"
#include "etcd/client/explain.h"
#include "etcd/client/fate.h"

#include <string.h>

enum { QUESTION_MS = 1000 };

/* The member was only named to us, and has a certificate that does not do (`code`) or is of another cluster (0): it is
 * not to be asked, and nothing was done. */
static int fail_named(const struct etcd_member *member, int code, enum http_reach *reach, rdzv_error *error) {
  *reach = HTTP_REACH_NONE;
  if (code == 0)
    return error_set(error, RDZV_E_CONNECTION, "%s, which a member named, belongs to another cluster", member->text);
  return error->code = RDZV_E_CONNECTION;
}

static int ask_member(struct etcd_cluster *cluster, const struct etcd_member *member, const char *path,
                      struct http_request http, struct http_response *response, enum http_reach *reach,
                      rdzv_error *error) {
  int result = etcd_lines_perform(&cluster->lines, member->text, path, http, response, reach, error);
  if (result == RDZV_E_INVALID && !member->given) return fail_named(member, result, reach, error);
  if (result < 0 || members_is_ours(&cluster->members, member, response->cluster)) return result;
  buf_free(&response->body);
  result = fail_named(member, 0, reach, error);
  log_line(&cluster->log, RDZV_LOG_WARNING, "%s", error->message);
  return result;
}

/* ---- questions of our own ------------------------------------------------------------------------------------- */

static struct http_request question(const struct etcd_call *call) {
  const deadline until = deadline_sooner(call->until, deadline_after(QUESTION_MS));
  return (struct http_request){.method = "GET", .until = until, .cancel = call->cancel};
}

struct member_question {
  struct etcd_cluster *cluster;
  const struct etcd_member *member;
  const struct etcd_call *call;
};

static int ask_more(void *argument, const char *path, struct http_response *response) {
  const struct member_question *asking = argument;
  enum http_reach reach;
  rdzv_error unused;
  return ask_member(asking->cluster, asking->member, path, question(asking->call), response, &reach, &unused);
}

/* Fails, with an empty response, where the answer is not etcd's. A member that has answered as etcd before got only a
 * part of the request, or something between us answered. */
static int check_answer(struct etcd_cluster *cluster, const struct etcd_member *member, const struct etcd_call *call,
                        struct http_response *response, rdzv_error *error) {
  struct member_question asking = {cluster, member, call};
  if (!etcd_is_foreign(response)) return 0;
  const int result = member->heard ? error_set(error, RDZV_E_CONNECTION, "%s answers with status %ld, and not as etcd",
                                               member->text, response->status)
                                   : etcd_explain_answer(member->text, response, ask_more, &asking, error);
  buf_free(&response->body);
  *response = (struct http_response){0};
  return result;
}

/* Asks the member for something that changes nothing. */
static int get_to_know(struct etcd_cluster *cluster, struct etcd_try *one, const struct etcd_call *call) {
  struct http_response response = {0};
  int result = ask_member(cluster, &one->member, "/v2/members", question(call), &response, &one->reach, &one->error);
  if (one->reach == HTTP_REACH_SENT) one->reach = HTTP_REACH_CONNECTED; /* it was not the caller's request */
  if (result < 0) return result;
  result = check_answer(cluster, &one->member, call, &response, &one->error);
  buf_free(&response.body);
  one->member.known = result == 0;
  return result;
}

/* ---- the try -------------------------------------------------------------------------------------------------- */

static int fail_not_now(struct etcd_try *one, enum etcd_answer answer, struct http_response *response) {
  const struct buf *body = &response->body;
  one->answered = true;
  if (answer == ETCD_ANSWER_CUT_FORM) one->reach = HTTP_REACH_CONNECTED;
  error_set(&one->error, RDZV_E_CONNECTION, "%s cannot serve the request now (status %ld): %.*s", one->member.text,
            response->status, (int)(body->len < 200 ? body->len : 200), body->data ? (const char *)body->data : "");
  buf_free(&response->body);
  return RDZV_E_CONNECTION;
}

int etcd_try_send(struct etcd_cluster *cluster, struct etcd_try *one, const struct etcd_request *request,
                  const struct etcd_call *call, struct http_response *response) {
  int result = 0;
  if (members_is_stranger(&cluster->members, &one->member) || (request->once && !one->member.heard))
    result = get_to_know(cluster, one, call);
  if (result < 0) return result;
  const struct http_request http = {.method = request->method,
                                    .form = request->form,
                                    .once = request->once,
                                    .until = one->until,
                                    .cancel = call->cancel};
  result = ask_member(cluster, &one->member, request->path, http, response, &one->reach, &one->error);
  if (result == 0 && request->of_keys) result = check_answer(cluster, &one->member, call, response, &one->error);
  if (result < 0) return result;
  const enum etcd_answer answer = etcd_answer_of(response);
  return answer == ETCD_ANSWER_VALID ? 0 : fail_not_now(one, answer, response);
}

/* ---- no answer ------------------------------------------------------------------------------------------------ */

/* A server of TLS 1.3 that refuses our certificate, or misses it, reads our request first, so the connection may be
 * gone before it has said why. */
static int explain_tls(struct etcd_cluster *cluster, const struct etcd_member *member, const struct etcd_call *call,
                       rdzv_error *error) {
  struct http_request http = question(call);
  struct http_response response = {0};
  enum http_reach reach;
  http.tls12 = true;
  const int result = ask_member(cluster, member, "/version", http, &response, &reach, error);
  if (result == 0) buf_free(&response.body);
  return result == RDZV_E_INVALID ? result : 0;
}

int etcd_try_explain(struct etcd_cluster *cluster, struct etcd_try *one, const struct etcd_call *call, int code) {
  const bool unclear = code == RDZV_E_CONNECTION || code == RDZV_E_TIMEOUT || code == RDZV_E_PROTOCOL;
  if (one->answered || one->member.heard || !unclear || one->reach == HTTP_REACH_NONE) return code;
  const bool https = strcmp(cluster->lines.scheme, "https") == 0;
  rdzv_error error;
  int why = https ? explain_tls(cluster, &one->member, call, &error) : 0;
  if (why == 0) why = etcd_explain_silence(one->member.text, https, call->until, call->cancel, &error);
  if (why == 0) return code;
  one->error = error;
  return why;
}
