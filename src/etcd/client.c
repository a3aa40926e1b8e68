/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/client.h"

#include "base/endpoint.h"
#include "base/error.h"
#include "base/host.h"
#include "base/log.h"
#include "base/options.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
  MAX_MEMBERS = 32,
  MAX_LINES = 64, /* that are kept while nobody needs them */
  /* One member's time for a request that does not block. It doubles, up to the last, each time that all members were
   * asked in vain: a follower that has lost its leader, and does not know it yet, keeps what it was asked for longer
   * than an election takes, so that it is better to ask the next one soon; a cluster that is slow needs more time. */
  FIRST_ATTEMPT_MS = 1000,
  LAST_ATTEMPT_MS = 5000,
  /* And for one that blocks, about, if read_timeout is not less: a member that is stopped or cut off, or one that is
   * new and empty and counts from elsewhere, would never answer. */
  WATCH_MS = 8000,
  DISCOVERY_MS = 1000, /* for asking who else is there, which can be done without */
  MAX_ASKED = 3,       /* in vain */
  FIRST_PAUSE_MS = 20, /* after all members were asked in vain */
  LAST_PAUSE_MS = 1000,
  READ_TIMEOUT_MS = 60000,
};

/* One of the endpoints given, or one that these named, which is believed less: it must say that it is of the same
 * cluster. */
struct etcd_member {
  char text[ENDPOINT_TEXT_SIZE]; /* "host:port" */
  bool given;
  bool known; /* to be of our cluster, by its own word */
};

struct etcd_members {
  pthread_mutex_t lock; /* guards the rest */
  struct etcd_member list[MAX_MEMBERS];
  size_t count;
  size_t current;   /* the one that answered last, unless it has been passed over since */
  uint64_t cluster; /* the id that a given one said last; 0: none yet */
  bool asked;       /* who else is there */
  int unanswered;   /* times that nobody said */
};

struct etcd_client {
  atomic_int holds;
  rdzv_log log;
  char *scheme; /* "http" */
  char *ca_cert, *cert, *key, *user, *password;
  struct http_identity identity;
  int64_t read_timeout;
  char text[512]; /* of describe */

  struct etcd_members members;

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

/* ---- members: who is there ------------------------------------------------------------------------------------ */

static size_t index_of(const struct etcd_members *members, const char *text) {
  size_t i = 0;
  while (i < members->count && strcmp(members->list[i].text, text) != 0) i++;
  return i;
}

static void add_member(struct etcd_members *members, const struct endpoint *endpoint, bool given) {
  struct etcd_member member = {.given = given};
  endpoint_format(endpoint->host, endpoint->port, member.text);
  pthread_mutex_lock(&members->lock);
  if (members->count < MAX_MEMBERS && index_of(members, member.text) == members->count)
    members->list[members->count++] = member;
  pthread_mutex_unlock(&members->lock);
}

/* The first one is a given one always. */
static void forget(struct etcd_members *members, size_t at) {
  memmove(&members->list[at], &members->list[at + 1], (--members->count - at) * sizeof members->list[0]);
  if (members->current > at) members->current--;
  if (members->current == members->count) members->current = 0;
}

static void forget_named(struct etcd_members *members) {
  for (size_t i = members->count; i-- > 0;)
    if (!members->list[i].given) forget(members, i);
}

/* "host:port,host:port". */
static int members_give(struct etcd_members *members, const char *list, rdzv_error *error) {
  char *copy = strdup(list), *rest = copy;
  if (!copy) return error_no_memory(error);
  int result = 0;
  while (rest && result == 0) {
    struct endpoint endpoint;
    const char *one = strsep(&rest, ",");
    one += strspn(one, " ");
    if (!*one) continue;
    result = endpoint_parse(one, RDZV_ETCD_PORT, &endpoint, error);
    if (result == 0) add_member(members, &endpoint, true);
  }
  free(copy);
  if (result < 0) return error_prefix(error, result, "invalid endpoint of etcd");
  return members->count > 0 ? 0 : error_set(error, RDZV_E_INVALID, "no endpoint of etcd is given");
}

/* Is one of the endpoints given on this machine, so that "localhost" is where the members mean it to be? */
static bool are_local(struct etcd_members *members) {
  bool local = false;
  pthread_mutex_lock(&members->lock);
  for (size_t i = 0; i < members->count && !local; i++) {
    struct endpoint endpoint;
    local = members->list[i].given && endpoint_parse(members->list[i].text, RDZV_ETCD_PORT, &endpoint, NULL) == 0 &&
            host_is_loopback(endpoint.host);
  }
  pthread_mutex_unlock(&members->lock);
  return local;
}

/* "http://a:2379, http://b:2379", which is written into: those of that scheme. What cannot be read is left out, and so
 * is this machine where the endpoints given are of another: a member that calls itself "localhost" is not here. */
static void members_learn(struct etcd_members *members, char *list, const char *scheme) {
  const size_t len = strlen(scheme);
  const bool local = are_local(members);
  while (list) {
    struct endpoint endpoint;
    char *one = strsep(&list, ",");
    one += strspn(one, " ");
    if (strncmp(one, scheme, len) != 0 || strncmp(one + len, "://", 3) != 0) continue;
    one += len + 3;
    one[strcspn(one, "/ ")] = '\0';
    if (endpoint_parse(one, RDZV_ETCD_PORT, &endpoint, NULL) < 0) continue;
    if (local || !host_is_loopback(endpoint.host)) add_member(members, &endpoint, false);
  }
}

/* True the first time, and when the cluster is another than before. */
static bool members_to_ask(struct etcd_members *members) {
  pthread_mutex_lock(&members->lock);
  const bool asked = members->asked;
  members->asked = true;
  pthread_mutex_unlock(&members->lock);
  return !asked;
}

/* Nobody said: it is worth asking again, though not for ever, since each time takes long. */
static void members_not_told(struct etcd_members *members) {
  pthread_mutex_lock(&members->lock);
  members->asked = ++members->unanswered >= MAX_ASKED;
  pthread_mutex_unlock(&members->lock);
}

static size_t members_count(struct etcd_members *members) {
  pthread_mutex_lock(&members->lock);
  const size_t count = members->count;
  pthread_mutex_unlock(&members->lock);
  return count;
}

/* ---- members: whom to ask ------------------------------------------------------------------------------------- */

static struct etcd_member members_choose(struct etcd_members *members) {
  pthread_mutex_lock(&members->lock);
  const struct etcd_member member = members->list[members->current];
  pthread_mutex_unlock(&members->lock);
  return member;
}

/* It did not answer: the next one is to be asked, by everybody. */
static void members_pass_over(struct etcd_members *members, const char *text) {
  pthread_mutex_lock(&members->lock);
  if (strcmp(members->list[members->current].text, text) == 0)
    members->current = (members->current + 1) % members->count;
  pthread_mutex_unlock(&members->lock);
}

static void members_prefer(struct etcd_members *members, const char *text) {
  pthread_mutex_lock(&members->lock);
  const size_t at = index_of(members, text);
  if (at < members->count) members->current = at;
  pthread_mutex_unlock(&members->lock);
}

/* ---- members: whose they are ---------------------------------------------------------------------------------- */

/* Must it say which cluster it is of before it is told anything? */
static bool members_is_stranger(struct etcd_members *members, const struct etcd_member *member) {
  pthread_mutex_lock(&members->lock);
  const bool stranger = !member->given && !member->known && members->cluster != 0;
  pthread_mutex_unlock(&members->lock);
  return stranger;
}

static void believe(struct etcd_members *members, uint64_t cluster) {
  if (members->cluster != 0 && members->cluster != cluster) {
    forget_named(members);
    members->asked = false;
  }
  members->cluster = cluster;
}

/* It says that it is of that cluster (0: it does not say). False: that is not ours, and it is forgotten. Where a given
 * one is of another cluster than before, those that were named are forgotten. */
static bool members_is_ours(struct etcd_members *members, const struct etcd_member *member, uint64_t cluster) {
  bool ours = true;
  pthread_mutex_lock(&members->lock);
  if (member->given && cluster != 0) believe(members, cluster);
  if (!member->given && members->cluster != 0 && (cluster != 0 || !member->known)) {
    const size_t at = index_of(members, member->text);
    ours = cluster == members->cluster;
    if (at < members->count && ours) members->list[at].known = true;
    if (at < members->count && !ours) forget(members, at);
  }
  pthread_mutex_unlock(&members->lock);
  return ours;
}

/* ---- one try -------------------------------------------------------------------------------------------------- */

static int64_t watch_ms(const struct etcd_client *client) {
  const int64_t most = jitter(WATCH_MS);
  return most < client->read_timeout ? most : client->read_timeout;
}

static deadline attempt_until(struct etcd_client *client, const struct etcd_request *request,
                              const struct etcd_call *call, size_t tries) {
  const size_t doublings = (request->tried + tries - 1) / members_count(&client->members);
  const bool patient = (request->once && !request->resolvable) || doublings > 2;
  const int64_t quick = patient ? LAST_ATTEMPT_MS : FIRST_ATTEMPT_MS << doublings;
  const deadline cap = deadline_after(request->blocks ? watch_ms(client) : quick);
  return call->until < cap ? call->until : cap;
}

/* What a member of another cluster, or one with a certificate that does not do, means where it was only named to us:
 * that it is not to be asked, and nothing was done. */
static int not_to_be_asked(const struct etcd_member *member, int result, bool *sent, rdzv_error *error) {
  *sent = false;
  if (result < 0) {
    error->code = RDZV_E_CONNECTION;
    return RDZV_E_CONNECTION;
  }
  return error_set(error, RDZV_E_CONNECTION, "%s, which was named to us as a member, is of another cluster",
                   member->text);
}

/* `http` lacks its URL. */
static int ask_member(struct etcd_client *client, const struct etcd_member *member, const char *path,
                      struct http_request http, struct http_response *response, bool *sent, rdzv_error *error) {
  struct http_line *line;
  char *url;
  if (asprintf(&url, "%s://%s%s", client->scheme, member->text, path) < 0) return error_no_memory(error);
  http.url = url;
  int result = take_line(client, &line, error);
  if (result == 0) {
    result = http_exchange(line, &http, response, sent, error);
    if (result == RDZV_E_LIMIT || result == RDZV_E_CANCELED)
      http_line_close(line);
    else
      give_line(client, line);
  }
  free(url);
  if (result == RDZV_E_INVALID && !member->given) return not_to_be_asked(member, result, sent, error);
  if (result < 0 || members_is_ours(&client->members, member, response->cluster)) return result;
  buf_free(&response->body);
  result = not_to_be_asked(member, 0, sent, error);
  log_line(&client->log, RDZV_LOG_WARNING, "%s", error->message);
  return result;
}

/* Has one that was named to us say whose it is, before anything is written there. */
static int get_to_know(struct etcd_client *client, struct etcd_member *member, const struct etcd_call *call,
                       rdzv_error *error) {
  const deadline cap = deadline_after(FIRST_ATTEMPT_MS);
  const struct http_request http = {
      .method = "GET", .until = call->until < cap ? call->until : cap, .cancel = call->cancel};
  struct http_response response = {0};
  bool sent = false;
  const int result = ask_member(client, member, "/v2/members", http, &response, &sent, error);
  if (result < 0) return result;
  buf_free(&response.body);
  member->known = true;
  return 0;
}

static int try_member(struct etcd_client *client, struct etcd_member *member, const struct etcd_request *request,
                      size_t tries, const struct etcd_call *call, struct http_response *response, bool *sent,
                      rdzv_error *error) {
  if (members_is_stranger(&client->members, member)) {
    const int result = get_to_know(client, member, call, error);
    if (result < 0) return result;
  }
  const struct http_request http = {.method = request->method,
                                    .form = request->form,
                                    .once = request->once,
                                    .until = attempt_until(client, request, call, tries),
                                    .cancel = call->cancel};
  return ask_member(client, member, request->path, http, response, sent, error);
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

/* Is it worth asking another member? */
static bool may_pass(int result, const struct http_response *response) {
  if (result == 0) return has_no_leader(response);
  return result == RDZV_E_CONNECTION || result == RDZV_E_TIMEOUT;
}

/* ---- a call --------------------------------------------------------------------------------------------------- */

static int no_answer(struct etcd_client *client, const struct etcd_request *request, const rdzv_error *last,
                     size_t tries, int64_t began, rdzv_error *error) {
  return error_set(error, RDZV_E_CONNECTION, "%s of etcd at %s: no answer (%zu tries in %lld ms): %s", request->method,
                   client->text, tries, (long long)(clock_now_ms() - began), last->message);
}

/* What a failed try means. 0: try again. */
static int judge(struct etcd_client *client, const struct etcd_request *request, const struct etcd_call *call,
                 int result, bool sent, const rdzv_error *last, rdzv_error *error) {
  if (result == RDZV_E_TIMEOUT && request->blocks && deadline_left(call->until) == 0) {
    if (error) *error = *last;
    return RDZV_E_TIMEOUT;
  }
  if (request->blocks && sent) /* another member, or the same anew, may count from elsewhere: look first */
    return error_set(error, RDZV_E_TIMEOUT, "%s of etcd at %s was cut off: %s", request->method, client->text,
                     last->message);
  if (!request->once || !sent) return 0;
  return error_set(error, RDZV_E_OUTCOME_UNKNOWN, "%s of etcd at %s: it may or may not have taken effect: %s",
                   request->method, client->text, last->message);
}

static int exchange(struct etcd_client *client, const struct etcd_request *request, const struct etcd_call *call,
                    struct http_response *response) {
  const int64_t began = clock_now_ms();
  int64_t pause = FIRST_PAUSE_MS;
  rdzv_error own = {0}, *cause = request->cause ? request->cause : &own;
  for (size_t tries = 1;; tries++) {
    struct etcd_member member = members_choose(&client->members);
    rdzv_error last = {0};
    bool sent = false;
    int result = try_member(client, &member, request, tries, call, response, &sent, &last);
    if (result == RDZV_E_TIMEOUT && cause->code != 0) last = *cause; /* which says more than that time is over */
    if (result == RDZV_E_CONNECTION) *cause = last;
    if (!may_pass(result, response)) {
      if (result == 0) members_prefer(&client->members, member.text);
      if (result < 0 && call->error) *call->error = last;
      return result;
    }
    if (!(request->blocks && sent && result == RDZV_E_TIMEOUT)) members_pass_over(&client->members, member.text);
    if (result == 0) {
      error_set(&last, RDZV_E_CONNECTION, "%s has no leader: %.*s", member.text,
                (int)(response->body.len < 200 ? response->body.len : 200), (const char *)response->body.data);
      *cause = last;
      buf_free(&response->body);
    }
    result = judge(client, request, call, result, sent, &last, call->error);
    if (result < 0) return result;
    if (deadline_left(call->until) == 0) return no_answer(client, request, &last, tries, began, call->error);
    if (tries % members_count(&client->members) != 0) continue;
    const int64_t wait = jitter(pause), left = deadline_left(call->until);
    if (cancel_pause(call->cancel, deadline_after(wait < left ? wait : left)) < 0)
      return error_set(call->error, RDZV_E_CANCELED, "%s of etcd at %s: canceled", request->method, client->text);
    pause = pause * 2 < LAST_PAUSE_MS ? pause * 2 : LAST_PAUSE_MS;
  }
}

/* The first call that succeeds is followed by asking who else is there. */
static void discover(struct etcd_client *client, const struct etcd_call *call) {
  if (!members_to_ask(&client->members)) return;
  const struct etcd_request request = {.method = "GET", .path = "/v2/machines"};
  struct http_response response = {0};
  const deadline cap = deadline_after(DISCOVERY_MS);
  const struct etcd_call own = {call->until < cap ? call->until : cap, call->cancel, NULL};
  if (exchange(client, &request, &own, &response) < 0) {
    members_not_told(&client->members);
    return;
  }
  if (response.status == 200 && buf_append(&response.body, "", 1))
    members_learn(&client->members, (char *)response.body.data, client->scheme);
  buf_free(&response.body);
}

int etcd_exchange(struct etcd_client *client, const struct etcd_request *request, const struct etcd_call *call,
                  struct http_response *response) {
  *response = (struct http_response){0};
  const int result = exchange(client, request, call, response);
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
  int result = options_copy(&options, sizeof options, given, error);
  if (result < 0) return result;
  struct etcd_client *client = calloc(1, sizeof *client);
  if (!client) return error_no_memory(error);
  atomic_init(&client->holds, 1);
  client->log = options.log;
  pthread_mutex_init(&client->lock, NULL);
  pthread_mutex_init(&client->members.lock, NULL);
  result = init(client, &options, error);
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
  pthread_mutex_destroy(&client->members.lock);
  free(client->scheme);
  free(client->ca_cert);
  free(client->cert);
  free(client->key);
  free(client->user);
  free(client->password);
  free(client);
}
