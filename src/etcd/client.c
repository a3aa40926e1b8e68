/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/client.h"

#include "base/error.h"
#include "base/log.h"
#include "base/text/options.h"
#include "etcd/explain.h"
#include "etcd/members.h"
#include "etcd/voice.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
  MAX_LINES = 64, /* that are kept while nobody needs them */
  /* One member's time for a request that does not block. It doubles, up to the last, each time that all members were
   * asked in vain: a follower that has lost its leader, and does not know it yet, keeps what it was asked for longer
   * than an election takes, so that it is better to ask the next one soon; a cluster that is slow needs more time. */
  FIRST_TRY_MS = 1000,
  LAST_TRY_MS = 5000,
  /* And for one that blocks, about, if read_timeout is not less: a member that is stopped or cut off, or one that is
   * new and empty and counts from elsewhere, would never answer. */
  WATCH_MS = 8000,
  DISCOVERY_MS = 1000, /* for asking who else is there, which can be done without */
  FIRST_PAUSE_MS = 20, /* after all members were asked in vain */
  LAST_PAUSE_MS = 1000,
  EXPLAIN_PASSES = 8, /* in the first of these a member that does not answer is asked whether it is etcd at all */
  READ_TIMEOUT_MS = 60000,
};

#define KEYS "/v2/keys"

struct etcd_client {
  atomic_int holds;
  rdzv_log log;
  char *scheme; /* "http" */
  char *ca_cert, *cert, *key, *user, *password;
  struct http_identity identity;
  int64_t read_timeout;
  char text[512]; /* of describe */

  struct etcd_members members;
  struct etcd_voice voice;

  pthread_mutex_t lock; /* guards what follows */
  struct http_line *idle[MAX_LINES];
  size_t idle_count;
};

const char *etcd_describe(const struct etcd_client *client) { return client->text; }
int64_t etcd_read_timeout(const struct etcd_client *client) { return client->read_timeout; }

/* ---- lines ---------------------------------------------------------------------------------------------------- */

static int take_line(struct etcd_client *client, struct http_line **out, rdzv_error *error) {
  pthread_mutex_lock(&client->lock);
  const bool kept = client->idle_count > 0;
  if (kept) *out = client->idle[--client->idle_count];
  pthread_mutex_unlock(&client->lock);
  return kept ? 0 : http_line_open(&client->identity, out, error);
}

static void give_line(struct etcd_client *client, struct http_line *line) {
  pthread_mutex_lock(&client->lock);
  const bool room = client->idle_count < MAX_LINES;
  if (room) client->idle[client->idle_count++] = line;
  pthread_mutex_unlock(&client->lock);
  if (!room) http_line_close(line);
}

/* ---- one try -------------------------------------------------------------------------------------------------- */

static int64_t watch_ms(const struct etcd_client *client) {
  const int64_t most = jitter(WATCH_MS);
  return most < client->read_timeout ? most : client->read_timeout;
}

static deadline try_until(struct etcd_client *client, const struct etcd_request *request, const struct etcd_call *call,
                          size_t tries) {
  const size_t doublings = (request->tried + tries - 1) / members_count(&client->members);
  const bool patient = (request->once && !request->resolvable) || doublings > 2;
  const int64_t quick = patient ? LAST_TRY_MS : FIRST_TRY_MS << doublings;
  const deadline cap = deadline_after(request->blocks ? watch_ms(client) : quick);
  return call->until < cap ? call->until : cap;
}

/* What a member of another cluster, or one with a certificate that does not do, means where it was only named to us:
 * that it is not to be asked, and nothing was done. */
static int not_to_be_asked(const struct etcd_member *member, int result, enum http_reach *reach, rdzv_error *error) {
  *reach = HTTP_REACH_NONE;
  if (result < 0) {
    error->code = RDZV_E_CONNECTION;
    return RDZV_E_CONNECTION;
  }
  return error_set(error, RDZV_E_CONNECTION, "%s, which was named to us as a member, is of another cluster",
                   member->text);
}

/* `http` lacks its URL. */
static int ask_member(struct etcd_client *client, const struct etcd_member *member, const char *path,
                      struct http_request http, struct http_response *response, enum http_reach *reach,
                      rdzv_error *error) {
  struct http_line *line;
  char *url;
  if (asprintf(&url, "%s://%s%s", client->scheme, member->text, path) < 0) return error_no_memory(error);
  http.url = url;
  int result = take_line(client, &line, error);
  if (result == 0) {
    result = http_perform(line, &http, response, reach, error);
    if (result == RDZV_E_LIMIT || result == RDZV_E_CANCELED)
      http_line_close(line);
    else
      give_line(client, line);
  }
  free(url);
  if (result == RDZV_E_INVALID && !member->given) return not_to_be_asked(member, result, reach, error);
  if (result < 0 || members_is_ours(&client->members, member, response->cluster)) return result;
  buf_free(&response->body);
  result = not_to_be_asked(member, 0, reach, error);
  log_line(&client->log, RDZV_LOG_WARNING, "%s", error->message);
  return result;
}

/* A question to a server whose answer we do not understand. */
struct question {
  struct etcd_client *client;
  const struct etcd_member *member;
  const struct etcd_call *call;
};

static int ask_question(void *argument, const char *path, struct http_response *response) {
  const struct question *question = argument;
  const deadline cap = deadline_after(FIRST_TRY_MS), until = question->call->until;
  const struct http_request http = {
      .method = "GET", .until = until < cap ? until : cap, .cancel = question->call->cancel};
  enum http_reach reach;
  rdzv_error unused;
  return ask_member(question->client, question->member, path, http, response, &reach, &unused);
}

/* Is it etcd who answered? If not, what is it; then *response is empty. One that has answered as etcd before has heard
 * only a part of the request, or something between us answered. */
static int check_answer(struct etcd_client *client, const struct etcd_member *member, const struct etcd_call *call,
                        struct http_response *response, rdzv_error *error) {
  struct question question = {client, member, call};
  if (!etcd_is_foreign(response)) return 0;
  const int result = member->heard
                         ? error_set(error, RDZV_E_CONNECTION, "%s answers with status %ld, and not as etcd does",
                                     member->text, response->status)
                         : etcd_explain_answer(member->text, response, ask_question, &question, error);
  buf_free(&response->body);
  *response = (struct http_response){0};
  return result;
}

/* Has a member that never answered before answer a request that changes nothing, so that what is not etcd is found out
 * before a write may or may not have been done there; and one that was named to us say whose it is. */
static int get_to_know(struct etcd_client *client, struct etcd_member *member, const struct etcd_call *call,
                       enum http_reach *reach, rdzv_error *error) {
  const deadline cap = deadline_after(FIRST_TRY_MS);
  const struct http_request http = {
      .method = "GET", .until = call->until < cap ? call->until : cap, .cancel = call->cancel};
  struct http_response response = {0};
  int result = ask_member(client, member, "/v2/members", http, &response, reach, error);
  if (*reach == HTTP_REACH_SENT) *reach = HTTP_REACH_CONNECTED; /* what was sent is not the caller's request */
  if (result < 0) return result;
  result = check_answer(client, member, call, &response, error);
  buf_free(&response.body);
  member->known = result == 0;
  return result;
}

static int try_member(struct etcd_client *client, struct etcd_member *member, const struct etcd_request *request,
                      size_t tries, const struct etcd_call *call, struct http_response *response,
                      enum http_reach *reach, rdzv_error *error) {
  if (members_is_stranger(&client->members, member) || (request->once && !member->heard)) {
    const int result = get_to_know(client, member, call, reach, error);
    if (result < 0) return result;
  }
  const struct http_request http = {.method = request->method,
                                    .form = request->form,
                                    .once = request->once,
                                    .until = try_until(client, request, call, tries),
                                    .cancel = call->cancel};
  const int result = ask_member(client, member, request->path, http, response, reach, error);
  const bool of_keys = strncmp(request->path, KEYS, strlen(KEYS)) == 0;
  return result == 0 && of_keys ? check_answer(client, member, call, response, error) : result;
}

/* A member that cannot do anything without a leader; it may or may not have passed the request on. */
static bool has_no_leader(const struct http_response *response) {
  if (response->status == 503 || response->status == 502 || response->status == 504) return true;
  if (response->status != 500 || !response->body.data) return false;
  static const char *const signs[] = {"\"errorCode\":300", "\"errorCode\":301", "no leader",
                                      "timed out",         "raft: stopped",     "server stopped"};
  for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
    if (memmem(response->body.data, response->body.len, signs[i], strlen(signs[i]))) return true;
  return false;
}

/* A member that has not got the whole form, which was cut off on its way: it has done nothing. */
static bool is_cut_form(const struct http_response *response) {
  static const char sign[] = "\"errorCode\":210";
  return response->status == 400 && response->body.data &&
         memmem(response->body.data, response->body.len, sign, sizeof sign - 1);
}

/* ---- a call --------------------------------------------------------------------------------------------------- */

/* A call under way. */
struct course {
  struct etcd_client *client;
  const struct etcd_request *request;
  struct etcd_call call;   /* with a flag that tells `waiting` */
  struct flag telling;     /* that flag */
  struct waiting *waiting; /* NULL: nothing is said */
  bool speaks;             /* `waiting` is the client's voice, which is ours for the time */
  size_t tries;
  size_t finals; /* of these, in a row, that failed in a way that waiting does not mend */
  int64_t began, pause;
};

/* One try of it. */
struct etcd_try {
  struct etcd_member member;
  enum http_reach reach;
  rdzv_error error;
};

static void report(struct course *course, const rdzv_error *error) {
  struct etcd_client *client = course->client;
  if (course->request->quiet) return;
  if (!course->waiting) {
    course->waiting = voice_take(&client->voice, &client->log, course->call.until);
    course->speaks = course->waiting != NULL;
    course->telling = flag_with(course->call.cancel, course->waiting);
    course->call.cancel = &course->telling;
  }
  waiting_fail(course->waiting, "no answer from etcd yet: %s", error->message);
}

static void end_report(struct course *course, int result) {
  const bool answered = result == 0;
  if (course->speaks)
    voice_give(&course->client->voice, answered, course->client->text);
  else if (answered)
    waiting_clear(course->waiting);
}

static bool is_final(int result) {
  return result == RDZV_E_PROTOCOL || result == RDZV_E_UNSUPPORTED || result == RDZV_E_INVALID;
}

/* A server of TLS 1.3 that refuses our certificate, or misses it, hears our request first, so that the connection may
 * be gone before it has said why. */
static int explain_tls(struct course *course, const struct etcd_member *member, rdzv_error *error) {
  const deadline cap = deadline_after(FIRST_TRY_MS), until = course->call.until;
  const struct http_request http = {
      .method = "GET", .tls12 = true, .until = until < cap ? until : cap, .cancel = course->call.cancel};
  struct http_response response = {0};
  enum http_reach reach;
  const int result = ask_member(course->client, member, "/version", http, &response, &reach, error);
  if (result == 0) buf_free(&response.body);
  return result == RDZV_E_INVALID ? result : 0;
}

/* One that never answered before, and takes connections, may be something else than etcd. */
static int explain(struct course *course, struct etcd_try *one, int result) {
  const size_t passes = (course->tries - 1) / members_count(&course->client->members);
  if (one->member.heard && result == RDZV_E_PROTOCOL) return one->error.code = RDZV_E_CONNECTION;
  const bool unclear = result == RDZV_E_CONNECTION || result == RDZV_E_TIMEOUT || result == RDZV_E_PROTOCOL;
  if (one->member.heard || !unclear || one->reach == HTTP_REACH_NONE || passes % EXPLAIN_PASSES != 0) return result;
  const bool https = strcmp(course->client->scheme, "https") == 0;
  rdzv_error error;
  int why = https ? explain_tls(course, &one->member, &error) : 0;
  if (why == 0) why = etcd_explain_silence(one->member.text, https, course->call.until, course->call.cancel, &error);
  if (why == 0) return result;
  one->error = error;
  return why;
}

static int no_answer(const struct course *course, const rdzv_error *last, rdzv_error *error) {
  return error_set(error, RDZV_E_CONNECTION, "%s of etcd at %s: no answer (%zu tries in %lld ms): %s",
                   course->request->method, course->client->text, course->tries,
                   (long long)(clock_now_ms() - course->began), last->message);
}

/* What a failed try means. 0: try again. */
static int judge(const struct course *course, int result, bool sent, const rdzv_error *last, rdzv_error *error) {
  const struct etcd_request *request = course->request;
  if (result == RDZV_E_TIMEOUT && request->blocks && deadline_left(course->call.until) == 0) {
    if (error) *error = *last;
    return RDZV_E_TIMEOUT;
  }
  if (request->blocks && sent) /* another member, or the same anew, may count from elsewhere: look first */
    return error_set(error, RDZV_E_TIMEOUT, "%s of etcd at %s was cut off: %s", request->method, course->client->text,
                     last->message);
  if (!request->once || !sent) return 0;
  return error_set(error, RDZV_E_OUTCOME_UNKNOWN, "%s of etcd at %s: it may or may not have taken effect: %s",
                   request->method, course->client->text, last->message);
}

/* Once all members were asked in vain, before the next pass. */
static int rest(struct course *course) {
  if (course->tries % members_count(&course->client->members) != 0) return 0;
  const int64_t wait = jitter(course->pause), left = deadline_left(course->call.until);
  course->pause = course->pause * 2 < LAST_PAUSE_MS ? course->pause * 2 : LAST_PAUSE_MS;
  if (flag_pause(course->call.cancel, deadline_after(wait < left ? wait : left)) == 0) return 0;
  return error_set(course->call.error, RDZV_E_CANCELED, "%s of etcd at %s: canceled", course->request->method,
                   course->client->text);
}

static void note_passing(struct etcd_try *one, struct http_response *response) {
  error_set(&one->error, RDZV_E_CONNECTION, "%s cannot do it now (status %ld): %.*s", one->member.text,
            response->status, (int)(response->body.len < 200 ? response->body.len : 200),
            response->body.data ? (const char *)response->body.data : "");
  buf_free(&response->body);
}

/* One try. 1: there is an answer. 0: try again. Else the call has failed. */
static int go_on(struct course *course, struct http_response *response, rdzv_error *cause) {
  struct etcd_client *client = course->client;
  const struct etcd_request *request = course->request;
  struct etcd_try one = {.member = members_choose(&client->members)};
  int result = try_member(client, &one.member, request, course->tries, &course->call, response, &one.reach, &one.error);
  const bool cut = result == 0 && is_cut_form(response), leaderless = cut || (result == 0 && has_no_leader(response));
  if (cut) one.reach = HTTP_REACH_CONNECTED;
  if (result == 0 && !leaderless) {
    members_prefer(&client->members, one.member.text);
    return 1;
  }
  if (leaderless) note_passing(&one, response);
  const bool ended = request->blocks && one.reach == HTTP_REACH_SENT && result == RDZV_E_TIMEOUT;
  if (!ended && result != RDZV_E_CANCELED && deadline_left(course->call.until) > 0) report(course, &one.error);
  result = explain(course, &one, result);
  course->finals = is_final(result) ? course->finals + 1 : 0;
  const bool hopeless = is_final(result) && course->finals >= members_count(&client->members);
  const bool passing = leaderless || is_final(result) || result == RDZV_E_CONNECTION || result == RDZV_E_TIMEOUT;
  if (hopeless || !passing) {
    if (course->call.error) *course->call.error = one.error;
    return result;
  }
  if (!ended) members_pass_over(&client->members, one.member.text);
  if (result == RDZV_E_TIMEOUT && cause->code != 0) one.error = *cause; /* says more than that time is over */
  if (result != RDZV_E_TIMEOUT) *cause = one.error;
  const bool sent = one.reach == HTTP_REACH_SENT && !is_final(result);
  result = judge(course, result, sent, &one.error, course->call.error);
  if (result < 0) return result;
  if (deadline_left(course->call.until) == 0) return no_answer(course, &one.error, course->call.error);
  return rest(course);
}

static int perform(struct etcd_client *client, const struct etcd_request *request, const struct etcd_call *call,
                   struct http_response *response) {
  struct course course = {.client = client,
                          .request = request,
                          .call = *call,
                          .waiting = flag_waiting(call->cancel),
                          .began = clock_now_ms(),
                          .pause = FIRST_PAUSE_MS};
  rdzv_error own = {0}, *cause = request->cause ? request->cause : &own;
  int result;
  do {
    course.tries++;
    result = go_on(&course, response, cause);
  } while (result == 0);
  if (result > 0) result = 0;
  end_report(&course, result);
  return result;
}

/* The first call that succeeds is followed by asking who else is there. */
static void discover(struct etcd_client *client, const struct etcd_call *call) {
  if (!members_to_ask(&client->members)) return;
  const struct etcd_request request = {.method = "GET", .path = "/v2/machines", .quiet = true};
  struct http_response response = {0};
  const deadline cap = deadline_after(DISCOVERY_MS);
  const struct etcd_call own = {call->until < cap ? call->until : cap, call->cancel, NULL};
  if (perform(client, &request, &own, &response) < 0) {
    members_not_told(&client->members);
    return;
  }
  if (response.status == 200 && buf_append(&response.body, "", 1))
    members_learn(&client->members, (char *)response.body.data, client->scheme);
  buf_free(&response.body);
}

int etcd_perform(struct etcd_client *client, const struct etcd_request *request, const struct etcd_call *call,
                 struct http_response *response) {
  *response = (struct http_response){0};
  const int result = perform(client, request, call, response);
  if (result == 0) discover(client, call);
  return result;
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

static bool copy(char **to, const char *text) { return !text || !*text || (*to = strdup(text)) != NULL; }

static int init(struct etcd_client *client, const rdzv_etcd_options *options, rdzv_error *error) {
  if (!copy(&client->scheme, options->https ? "https" : "http") || !copy(&client->ca_cert, options->ca_cert) ||
      !copy(&client->cert, options->cert) || !copy(&client->key, options->key) || !copy(&client->user, options->user) ||
      !copy(&client->password, options->password))
    return error_no_memory(error);
  client->identity = (struct http_identity){client->ca_cert, client->cert, client->key, client->user, client->password};
  client->read_timeout = options->read_timeout_ms > 0 ? options->read_timeout_ms : READ_TIMEOUT_MS;
  const char *endpoints = options->endpoints && *options->endpoints ? options->endpoints : "localhost";
  snprintf(client->text, sizeof client->text, "%s", endpoints);
  return members_give(&client->members, endpoints, error);
}

int etcd_open(const rdzv_etcd_options *given, struct etcd_client **out, rdzv_error *error) {
  rdzv_etcd_options options;
  int result = options_take(&options, sizeof options, given, "rdzv_etcd_options", error);
  if (result < 0) return result;
  struct etcd_client *client = calloc(1, sizeof *client);
  if (!client) return error_no_memory(error);
  atomic_init(&client->holds, 1);
  pthread_mutex_init(&client->lock, NULL);
  members_open(&client->members);
  voice_open(&client->voice);
  result = log_take(&options.log, &client->log, error);
  if (result == 0) result = init(client, &options, error);
  if (result < 0)
    etcd_close(client);
  else
    *out = client;
  return result;
}

struct etcd_client *etcd_share(struct etcd_client *client) {
  atomic_fetch_add(&client->holds, 1);
  return client;
}

void etcd_close(struct etcd_client *client) {
  if (!client || atomic_fetch_sub(&client->holds, 1) > 1) return;
  for (size_t i = 0; i < client->idle_count; i++) http_line_close(client->idle[i]);
  pthread_mutex_destroy(&client->lock);
  members_close(&client->members);
  voice_close(&client->voice);
  free(client->scheme);
  free(client->ca_cert);
  free(client->cert);
  free(client->key);
  free(client->user);
  free(client->password);
  free(client);
}
