/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A call goes from member to member: try (etcd/client/try.h); where it fails, its fate (etcd/client/fate.h) says
 * whether the next member may be asked; after all failed, a pause.
 */
#include "etcd/client/client.h"

#include "base/error.h"
#include "base/log.h"
#include "base/os/private_file.h"
#include "base/text/options.h"
#include "etcd/client/fate.h"
#include "etcd/client/try.h"
#include "etcd/client/voice.h"
#include "etcd/v3/read.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  /* One member's time for a request that does not block. It doubles, up to the last, each time that all members
   * failed. A follower that has lost its leader, and does not know it yet, keeps a request for longer than an
   * election takes, so it is better to ask the next one soon; a cluster that is slow needs more time. */
  FIRST_TRY_MS = 1000,
  LAST_TRY_MS = 5000,
  /* And for one that blocks, about, if read_timeout is not less: a member that is stopped or cut off, or one that is
   * new and empty and counts from elsewhere, would never answer. */
  WATCH_MS = 8000,
  DISCOVERY_MS = 1000, /* for asking for the other members, which is optional */
  FIRST_PAUSE_MS = 20, /* after all members failed */
  LAST_PAUSE_MS = 1000,
  EXPLAIN_PASSES = 8, /* in the first of these a member that does not answer is asked whether it is etcd */
  READ_TIMEOUT_MS = 60000,
};

struct etcd_client {
  atomic_int holds;
  int64_t read_timeout;
  char text[512]; /* of describe */
  struct etcd_cluster cluster;
  struct etcd_voice voice;
};

const char *etcd_describe(const struct etcd_client *client) { return client->text; }
int64_t etcd_read_timeout(const struct etcd_client *client) { return client->read_timeout; }

int etcd_line_take(struct etcd_client *client, struct http_line **out, rdzv_error *error) {
  return etcd_lines_take(&client->cluster.lines, out, error);
}

void etcd_line_give(struct etcd_client *client, struct http_line *line) {
  if (line) etcd_lines_give(&client->cluster.lines, line);
}

struct etcd_member_text etcd_current_member(struct etcd_client *client) {
  const struct etcd_member member = members_choose(&client->cluster.members);
  struct etcd_member_text text;
  memcpy(text.text, member.text, sizeof text.text);
  return text;
}

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
  int64_t began;
  struct backoff pauses;
  rdzv_error *cause; /* what the last member said */
};

static size_t members_of(const struct course *course) { return members_count(&course->client->cluster.members); }

/* ---- what is said of it --------------------------------------------------------------------------------------- */

struct waiting *etcd_voice_take(struct etcd_client *client, deadline until) {
  return voice_take(&client->voice, &client->cluster.log, until);
}

void etcd_voice_give(struct etcd_client *client, bool over, const char *sentence) {
  voice_give(&client->voice, over, client->text, sentence);
}

static void report(struct course *course, const rdzv_error *error) {
  struct etcd_client *client = course->client;
  if (course->request->quiet) return;
  if (!course->waiting) {
    course->waiting = etcd_voice_take(client, course->call.until);
    course->speaks = course->waiting != NULL;
    course->telling = flag_with(course->call.cancel, course->waiting);
    course->call.cancel = &course->telling;
  }
  waiting_fail(course->waiting, "no answer from etcd yet: %s", error->message);
}

static void end_report(struct course *course, int result) {
  const bool answered = result == 0;
  if (course->speaks)
    etcd_voice_give(course->client, answered, "answers again");
  else if (answered)
    waiting_succeed(course->waiting, "etcd at %s answers again", course->client->text);
}

/* ---- tries ---------------------------------------------------------------------------------------------------- */

static deadline try_until(const struct course *course) {
  const struct etcd_request *request = course->request;
  const int64_t watch = jitter(WATCH_MS), longest = course->client->read_timeout;
  const size_t doublings = (request->tried + course->tries - 1) / members_of(course);
  const bool patient = (request->once && !request->resolvable) || doublings > 2;
  const int64_t quick = patient ? LAST_TRY_MS : FIRST_TRY_MS << doublings;
  const deadline cap = deadline_after(!request->blocks ? quick : watch < longest ? watch : longest);
  return deadline_sooner(course->call.until, cap);
}

static int fail_no_answer(const struct course *course, const rdzv_error *last) {
  return error_set(course->call.error, RDZV_E_CONNECTION, "etcd at %s: no answer (%zu %s in %lld ms): %s",
                   course->client->text, course->tries, course->tries == 1 ? "try" : "tries",
                   (long long)(clock_now_ms() - course->began), last->message);
}

/* After all members failed, before the next pass. */
static int rest(struct course *course) {
  if (course->tries % members_of(course) != 0) return 0;
  const deadline next = deadline_sooner(backoff_next(&course->pauses), course->call.until);
  if (flag_pause(course->call.cancel, next) == 0) return 0;
  return error_set(course->call.error, RDZV_E_CANCELED, "a request to etcd at %s was canceled", course->client->text);
}

/* After a failure that waiting, or another member, may mend. 0: try again. */
static int follow(struct course *course, struct etcd_try *one, int code) {
  const struct etcd_request *request = course->request;
  rdzv_error *error = course->call.error;
  const bool late = deadline_left(course->call.until) == 0;
  if (code == RDZV_E_TIMEOUT && course->cause->code != 0) one->error = *course->cause; /* says more */
  if (code != RDZV_E_TIMEOUT) *course->cause = one->error;
  switch (etcd_fate_of(request, code, one->reach == HTTP_REACH_SENT && !etcd_is_final(code), late)) {
    case ETCD_FATE_OVER:
      if (error) *error = one->error;
      return RDZV_E_TIMEOUT;
    case ETCD_FATE_CUT_OFF:
      return error_set(error, RDZV_E_TIMEOUT, "a request to etcd at %s was cut off: %s", course->client->text,
                       one->error.message);
    case ETCD_FATE_UNKNOWN:
      return error_set(error, RDZV_E_OUTCOME_UNKNOWN, "a request to etcd at %s may or may not have taken effect: %s",
                       course->client->text, one->error.message);
    case ETCD_FATE_AGAIN: break;
  }
  return late ? fail_no_answer(course, &one->error) : rest(course);
}

/* Why the try failed, where it is worth asking. A member that has answered as etcd before still is one. */
static int explain(struct course *course, struct etcd_try *one, int code) {
  const size_t passes = (course->tries - 1) / members_of(course);
  if (one->member.heard && code == RDZV_E_PROTOCOL) return one->error.code = RDZV_E_CONNECTION;
  return passes % EXPLAIN_PASSES == 0 ? etcd_try_explain(&course->client->cluster, one, &course->call, code) : code;
}

/* One try. 1: there is an answer. 0: try again. Else the call has failed. */
static int go_on(struct course *course, struct http_response *response) {
  struct etcd_cluster *cluster = &course->client->cluster;
  course->tries++;
  struct etcd_try one = {
      .member = members_choose(&cluster->members), .line = course->request->line, .until = try_until(course)};
  int code = etcd_try_send(cluster, &one, course->request, &course->call, response);
  if (code == 0) {
    members_prefer(&cluster->members, one.member.text);
    return 1;
  }
  const bool ended = course->request->blocks && one.reach == HTTP_REACH_SENT && code == RDZV_E_TIMEOUT;
  if (!ended && code != RDZV_E_CANCELED && deadline_left(course->call.until) > 0) report(course, &one.error);
  code = explain(course, &one, code);
  course->finals = etcd_is_final(code) ? course->finals + 1 : 0;
  const bool hopeless = course->finals > 0 && course->finals >= members_of(course);
  const bool passing = etcd_is_final(code) || code == RDZV_E_CONNECTION || code == RDZV_E_TIMEOUT;
  if (hopeless || !passing) {
    if (course->call.error) *course->call.error = one.error;
    return code;
  }
  if (!ended) members_pass_over(&cluster->members, one.member.text);
  return follow(course, &one, code);
}

/* ---- calls ---------------------------------------------------------------------------------------------------- */

static int perform(struct etcd_client *client, const struct etcd_request *request, const struct etcd_call *call,
                   struct http_response *response) {
  rdzv_error own = {0};
  struct course course = {.client = client,
                          .request = request,
                          .call = *call,
                          .waiting = flag_waiting(call->cancel),
                          .began = clock_now_ms(),
                          .pauses = {FIRST_PAUSE_MS, LAST_PAUSE_MS},
                          .cause = request->cause ? request->cause : &own};
  int result;
  do result = go_on(&course, response);
  while (result == 0);
  if (result > 0) result = 0;
  end_report(&course, result);
  return result;
}

static void learn(struct etcd_client *client, bool v3, struct buf *body) {
  struct etcd_cluster *cluster = &client->cluster;
  char *list = NULL;
  if (v3 && etcd3_read_members((rdzv_bytes){body->data, body->len}, &list, NULL) == 0)
    members_learn(&cluster->members, list, cluster->lines.scheme);
  if (!v3 && buf_append(body, "", 1)) members_learn(&cluster->members, (char *)body->data, cluster->lines.scheme);
  free(list);
}

/* The first call that succeeds is followed by asking for the other members. */
static void discover(struct etcd_client *client, const struct etcd_request *after, const struct etcd_call *call) {
  struct etcd_members *members = &client->cluster.members;
  if (!members_to_ask(members)) return;
  struct etcd_request request =
      after->v3 ? (struct etcd_request){ETCD3_MEMBERS} : (struct etcd_request){.method = "GET", .path = "/v2/machines"};
  request.quiet = true;
  request.line = after->line;
  struct http_response response = {0};
  const deadline until = deadline_sooner(call->until, deadline_after(DISCOVERY_MS));
  const struct etcd_call own = {until, call->cancel, NULL};
  if (perform(client, &request, &own, &response) < 0) {
    members_not_told(members);
    return;
  }
  if (response.status == 200) learn(client, after->v3, &response.body);
  buf_free(&response.body);
}

int etcd_perform(struct etcd_client *client, const struct etcd_request *request, const struct etcd_call *call,
                 struct http_response *response) {
  *response = (struct http_response){0};
  const int result = perform(client, request, call, response);
  if (result == 0) discover(client, request, call);
  return result;
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

int etcd_open(const rdzv_etcd_options *given, struct etcd_client **out, rdzv_error *error) {
  rdzv_etcd_options options;
  int result = options_take(&options, sizeof options, given, "rdzv_etcd_options", error);
  if (result == 0) result = private_file_look("the key of etcd's client", options.key, error);
  if (result == 0) result = certificate_file_look("the certificate of etcd's client", options.cert, error);
  if (result < 0) return result;
  struct etcd_client *client = calloc(1, sizeof *client);
  if (!client) return error_no_memory(error);
  const char *endpoints = options.endpoints && *options.endpoints ? options.endpoints : "localhost";
  atomic_init(&client->holds, 1);
  client->read_timeout = options.read_timeout_ms > 0 ? options.read_timeout_ms : READ_TIMEOUT_MS;
  snprintf(client->text, sizeof client->text, "%s", endpoints);
  members_open(&client->cluster.members);
  voice_open(&client->voice);
  token_open(&client->cluster.token);
  result = etcd_lines_open(&client->cluster.lines, &options, error);
  if (result == 0) result = log_take(&options.log, &client->cluster.log, error);
  if (result == 0) result = members_give(&client->cluster.members, endpoints, error);
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
  etcd_lines_close(&client->cluster.lines);
  members_close(&client->cluster.members);
  token_close(&client->cluster.token);
  voice_close(&client->voice);
  free(client);
}
