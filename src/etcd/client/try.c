/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/client/try.h"

#include "base/error.h"
#include "base/log.h"
#include "etcd/client/explain.h"
#include "etcd/client/fate.h"
#include "etcd/v3/write.h"

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

/* Of a request whose answer goes on, or not. */
static void end_stream(struct http_stream **stream) {
  if (!stream) return;
  http_stream_close(*stream);
  *stream = NULL;
}

static int ask_member(struct etcd_cluster *cluster, const struct etcd_member *member, const char *path,
                      struct http_request http, struct http_response *response, enum http_reach *reach,
                      rdzv_error *error) {
  int result = etcd_lines_perform(&cluster->lines, member->text, path, http, response, reach, error);
  if (result == 0 && http.json)
    response->cluster = etcd3_read_cluster((rdzv_bytes){response->body.data, response->body.len});
  if (result == RDZV_E_INVALID && !member->given) return fail_named(member, result, reach, error);
  if (result < 0 || members_is_ours(&cluster->members, member, response->cluster)) return result;
  buf_free(&response->body);
  end_stream(http.stream);
  result = fail_named(member, 0, reach, error);
  log_line(&cluster->log, RDZV_LOG_WARNING, "%s", error->message);
  return result;
}

/* ---- questions of our own ------------------------------------------------------------------------------------- */

static struct http_request question(const struct etcd_call *call, struct http_line *line) {
  const deadline until = deadline_sooner(call->until, deadline_after(QUESTION_MS));
  return (struct http_request){.method = "GET", .until = until, .cancel = call->cancel, .line = line};
}

/* One in the v3 API. */
static struct http_request v3_question(const struct etcd_call *call, struct http_line *line, const char *body) {
  struct http_request http = question(call, line);
  http.method = "POST";
  http.form = body;
  http.json = true;
  return http;
}

struct member_question {
  struct etcd_cluster *cluster;
  const struct etcd_member *member;
  struct http_line *line;
  const struct etcd_call *call;
};

static int ask_more(void *argument, const char *path, struct http_response *response) {
  const struct member_question *asking = argument;
  enum http_reach reach;
  rdzv_error unused;
  return ask_member(asking->cluster, asking->member, path, question(asking->call, asking->line), response, &reach,
                    &unused);
}

/* Fails, with an empty response, where the answer is not etcd's. A member that has answered as etcd before got only a
 * part of the request, or something between us answered. */
static int check_answer(struct etcd_cluster *cluster, struct etcd_try *one, bool v3, const struct etcd_call *call,
                        struct http_response *response) {
  const struct etcd_member *member = &one->member;
  rdzv_error *error = &one->error;
  struct member_question asking = {cluster, member, one->line, call};
  if (!etcd_is_foreign(response, v3)) return 0;
  const int result = member->heard ? error_set(error, RDZV_E_CONNECTION, "%s answers with status %ld, and not as etcd",
                                               member->text, response->status)
                                   : etcd_explain_answer(member->text, v3, response, ask_more, &asking, error);
  buf_free(&response->body);
  *response = (struct http_response){0};
  return result;
}

/* Asks the member for something that changes nothing. */
static int get_to_know(struct etcd_cluster *cluster, struct etcd_try *one, bool v3, const struct etcd_call *call) {
  const struct etcd_request members = {ETCD3_MEMBERS};
  struct http_response response = {0};
  int result = ask_member(cluster, &one->member, v3 ? members.path : "/v2/members",
                          v3 ? v3_question(call, one->line, members.form) : question(call, one->line), &response,
                          &one->reach, &one->error);
  if (one->reach == HTTP_REACH_SENT) one->reach = HTTP_REACH_CONNECTED; /* it was not the caller's request */
  if (result < 0) return result;
  result = check_answer(cluster, one, v3, call, &response);
  buf_free(&response.body);
  one->member.known = result == 0;
  return result;
}

/* ---- answers -------------------------------------------------------------------------------------------------- */

static int fail_not_now(struct etcd_try *one, enum etcd_answer answer, struct http_response *response) {
  const struct buf *body = &response->body;
  one->answered = true;
  if (answer == ETCD_ANSWER_CUT_FORM) one->reach = HTTP_REACH_CONNECTED;
  error_set(&one->error, RDZV_E_CONNECTION, "%s cannot serve the request now (status %ld): %.*s", one->member.text,
            response->status, (int)(body->len < 200 ? body->len : 200), body->data ? (const char *)body->data : "");
  buf_free(&response->body);
  return RDZV_E_CONNECTION;
}

/* ---- the user ------------------------------------------------------------------------------------------------- */

static int fail_login(struct etcd_cluster *cluster, struct etcd_try *one, const struct http_response *response) {
  struct etcd3_error refused = {0};
  etcd3_read_error((rdzv_bytes){response->body.data, response->body.len}, &refused);
  if (refused.refusal != ETCD3_REFUSAL_LOGIN)
    return error_set(&one->error, RDZV_E_CONNECTION, "%s does not log in user '%s' now (status %ld): %s",
                     one->member.text, cluster->lines.user, response->status, refused.text);
  return error_set(&one->error, RDZV_E_INVALID, "etcd at %s: wrong user or password for '%s': %s", one->member.text,
                   cluster->lines.user, refused.text);
}

/* Gets a token for user and password from this member. */
static int log_in(struct etcd_cluster *cluster, struct etcd_try *one, const struct etcd_call *call,
                  char token[ETCD3_TOKEN_SIZE]) {
  struct http_response response = {0};
  struct buf body = {0};
  struct etcd3_error refused;
  token[0] = '\0';
  if (!etcd3_write_login(cluster->lines.user, cluster->lines.password ? cluster->lines.password : "", &body)) {
    buf_free(&body);
    return error_no_memory(&one->error);
  }
  int result = ask_member(cluster, &one->member, "/v3/auth/authenticate",
                          v3_question(call, one->line, (const char *)body.data), &response, &one->reach, &one->error);
  buf_free(&body);
  if (one->reach == HTTP_REACH_SENT) one->reach = HTTP_REACH_CONNECTED; /* it was not the caller's request */
  if (result == 0) result = check_answer(cluster, one, true, call, &response);
  if (result < 0) return result;
  const rdzv_bytes answer = {response.body.data, response.body.len};
  const bool needless =
      response.status != 200 && etcd3_read_error(answer, &refused) && refused.refusal == ETCD3_REFUSAL_NO_AUTH;
  if (response.status == 200)
    result = etcd3_read_token(answer, token, &one->error);
  else if (!needless)
    result = fail_login(cluster, one, &response);
  buf_free(&response.body);
  if (result == 0) token_set(&cluster->token, token);
  return result;
}

/* ---- the try -------------------------------------------------------------------------------------------------- */

/* Sends it with a token that the user has, or none. */
static int send_as(struct etcd_cluster *cluster, struct etcd_try *one, const struct etcd_request *request,
                   const char *token, const struct etcd_call *call, struct http_response *response) {
  const struct http_request http = {.method = request->method,
                                    .form = request->form,
                                    .json = request->v3,
                                    .authorization = token && *token ? token : NULL,
                                    .once = request->once,
                                    .line = one->line,
                                    .stream = request->stream,
                                    .until = one->until,
                                    .cancel = call->cancel};
  int result = ask_member(cluster, &one->member, request->path, http, response, &one->reach, &one->error);
  if (result < 0 || !request->of_keys) return result;
  result = check_answer(cluster, one, request->v3, call, response);
  if (result < 0) end_stream(request->stream);
  return result;
}

static bool is_unknown_token(const struct http_response *response) {
  static const char canceled[] = "invalid auth token"; /* what a stream begins with then; in data it would be base64 */
  struct etcd3_error error;
  const rdzv_bytes body = {response->body.data, response->body.len};
  if (response->status == 200) return body.len > 0 && memmem(body.data, body.len, canceled, sizeof canceled - 1);
  if (!etcd3_read_error(body, &error)) return false;
  return error.refusal == ETCD3_REFUSAL_TOKEN || error.refusal == ETCD3_REFUSAL_NO_USER;
}

/* With the token of the user; with a new one, where etcd has forgotten the old one. It has done nothing then. */
static int send_with_token(struct etcd_cluster *cluster, struct etcd_try *one, const struct etcd_request *request,
                           const struct etcd_call *call, struct http_response *response) {
  char token[ETCD3_TOKEN_SIZE];
  for (int logins = 0;; logins++) {
    int result = token_get(&cluster->token, token) ? 0 : log_in(cluster, one, call, token);
    if (result == 0) result = send_as(cluster, one, request, token, call, response);
    if (result < 0 || logins > 0 || !is_unknown_token(response)) return result;
    buf_free(&response->body);
    end_stream(request->stream);
    token_drop(&cluster->token, token);
  }
}

int etcd_try_send(struct etcd_cluster *cluster, struct etcd_try *one, const struct etcd_request *request,
                  const struct etcd_call *call, struct http_response *response) {
  int result = 0;
  if (members_is_stranger(&cluster->members, &one->member) || (request->once && !one->member.heard))
    result = get_to_know(cluster, one, request->v3, call);
  if (result < 0) return result;
  result = request->v3 && cluster->lines.user ? send_with_token(cluster, one, request, call, response)
                                              : send_as(cluster, one, request, NULL, call, response);
  if (result < 0) return result;
  const enum etcd_answer answer = etcd_answer_of(response);
  return answer == ETCD_ANSWER_VALID ? 0 : fail_not_now(one, answer, response);
}

/* ---- no answer ------------------------------------------------------------------------------------------------ */

/* A server of TLS 1.3 that refuses our certificate, or misses it, reads our request first, so the connection may be
 * gone before it has said why. */
static int explain_tls(struct etcd_cluster *cluster, const struct etcd_try *one, const struct etcd_call *call,
                       rdzv_error *error) {
  struct http_request http = question(call, one->line);
  struct http_response response = {0};
  enum http_reach reach;
  http.tls12 = true;
  const int result = ask_member(cluster, &one->member, "/version", http, &response, &reach, error);
  if (result == 0) buf_free(&response.body);
  return result == RDZV_E_INVALID ? result : 0;
}

int etcd_try_explain(struct etcd_cluster *cluster, struct etcd_try *one, const struct etcd_call *call, int code) {
  const bool unclear = code == RDZV_E_CONNECTION || code == RDZV_E_TIMEOUT || code == RDZV_E_PROTOCOL;
  if (one->answered || one->member.heard || !unclear || one->reach == HTTP_REACH_NONE) return code;
  const bool https = strcmp(cluster->lines.scheme, "https") == 0;
  rdzv_error error;
  int why = https ? explain_tls(cluster, one, call, &error) : 0;
  if (why == 0) why = etcd_explain_silence(one->member.text, https, call->until, call->cancel, &error);
  if (why == 0) return code;
  one->error = error;
  return why;
}
