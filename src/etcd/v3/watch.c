/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A watch remembers, for each one watched, the revision that comes next. Where its stream ends, another is begun from
 * there, at the member that calls go to by then; after a pause (streams.c), since etcd, or a proxy before it, may end
 * each one.
 *
 * A stream says nothing while nothing changes, also where its member is stopped or cut off. So the watch follows to the
 * member that calls are answered by, and makes such a call itself where there was none for a while. A member without
 * a leader ends the stream (etcd/http/http.c asks for that).
 */
#include "base/error.h"
#include "etcd/v3/call.h"
#include "etcd/v3/write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  QUIET_MS = 8000,    /* without a word, until a call is made, about */
  PROBE_MS = 5000,    /* for that call */
  ANSWER_MS = 2000,   /* an etcd that does not begin a stream within less is slow, not gone */
  WANTED_LINES = 64,  /* that are read before what they tell is given */
  CREATION_MS = 1000, /* for the stream to take up all that is watched; longer each time, up to the next */
  LAST_CREATION_MS = 16000,
  READ_AHEAD = 512, /* how much of a body etcd's gateway reads at first, and at least, at a time */
};

struct watched {
  rdzv_value key, end;
  int64_t next; /* the revision that is not told yet; 0: from now on */
  bool removals;
};

struct etcd3_watch {
  struct etcd3 *etcd;
  struct http_line *line; /* its own, if that of etcd is not used */
  struct http_stream *stream;
  struct etcd_member_text member; /* of the stream */
  int64_t begun_ms;               /* when it was */
  bool lasts;                     /* for ETCD3_LASTING_MS, with all that is watched */
  int64_t heard_ms;               /* when the stream said something last */
  size_t created;                 /* how many of those watched the stream has taken up */
  deadline created_by;            /* when all must be, else another stream is begun */
  int64_t creation_ms;            /* the time for that */
  bool doubtful;                  /* the member is behind what was reported before: find out why */
  int over;                       /* the code to end the call with; 0: it goes on */
  bool useless;                   /* and each later one */
  rdzv_error why;                 /* of that */
  size_t count;
  struct watched watched[];
};

/* ---- opening -------------------------------------------------------------------------------------------------- */

static struct etcd3_keys keys_of(const struct watched *watched) {
  return (struct etcd3_keys){rdzv_value_bytes(&watched->key), rdzv_value_bytes(&watched->end)};
}

static bool copy(struct watched *to, const struct etcd3_watched *from) {
  to->next = from->from;
  return value_copy(&to->key, from->keys.key.data, from->keys.key.len) &&
         value_copy(&to->end, from->keys.end.data, from->keys.end.len);
}

int etcd3_watch_open(struct etcd3 *etcd, const struct etcd3_watched *watched, size_t count, struct etcd3_watch **out,
                     rdzv_error *error) {
  if (count == 0 || count > ETCD3_MAX_WATCHED)
    return error_set(error, RDZV_E_INVALID, "a watch takes 1 to %d key ranges, not %zu", ETCD3_MAX_WATCHED, count);
  struct etcd3_watch *watch = calloc(1, sizeof *watch + count * sizeof watch->watched[0]);
  if (!watch) return error_no_memory(error);
  watch->etcd = etcd;
  watch->creation_ms = CREATION_MS;
  int result = 0;
  for (; watch->count < count && result == 0; watch->count++)
    if (!copy(&watch->watched[watch->count], &watched[watch->count])) result = error_no_memory(error);
  if (result == 0 && !etcd->line) result = etcd_line_take(etcd->client, &watch->line, error);
  if (result < 0)
    etcd3_watch_close(watch);
  else
    *out = watch;
  return result;
}

void etcd3_watch_only_removals(struct etcd3_watch *watch, size_t which) { watch->watched[which].removals = true; }

static void end_stream(struct etcd3_watch *watch) {
  http_stream_close(watch->stream);
  watch->stream = NULL;
}

void etcd3_watch_close(struct etcd3_watch *watch) {
  if (!watch) return;
  end_stream(watch);
  etcd_line_give(watch->etcd->client, watch->line);
  for (size_t i = 0; i < watch->count; i++) {
    rdzv_value_free(&watch->watched[i].key);
    rdzv_value_free(&watch->watched[i].end);
  }
  free(watch);
}

/* ---- the stream ----------------------------------------------------------------------------------------------- */

/* It ended, or has to: another is begun after a pause. */
static void fail_stream(struct etcd3_watch *watch, const char *why, const struct etcd_call *call) {
  const int64_t lasted = watch->stream ? clock_now_ms() - watch->begun_ms : 0;
  end_stream(watch);
  etcd3_stream_ended(watch->etcd, lasted, why, call);
}

/*
 * All watches as one body: the gateway takes one request after the other from it. But it stops reading the body when
 * it begins to answer, which it does after the first request. What it has read ahead by then counts; the blanks before
 * a longer body make it read far enough ahead to get all of it. That all were taken up is checked nevertheless.
 */
static bool write_body(const struct etcd3_watch *watch, struct buf *body) {
  struct buf requests = {0};
  char blanks[READ_AHEAD];
  size_t first = 0;
  bool made = true;
  for (size_t i = 0; i < watch->count && made; i++) {
    const struct watched *watched = &watch->watched[i];
    const struct etcd3_keys keys = keys_of(watched);
    made = etcd3_write_watch(&keys, watched->next, (int64_t)i + 1, watched->removals, &requests);
    if (i == 0) first = requests.len;
  }
  memset(blanks, ' ', sizeof blanks);
  const size_t ahead = requests.len > READ_AHEAD && first < READ_AHEAD ? READ_AHEAD - first + 1 : 0;
  made = made && buf_append(body, blanks, ahead) && buf_append(body, requests.data, requests.len + 1);
  buf_free(&requests);
  return made;
}

static int refuse_stream(struct etcd3_watch *watch, const struct http_response *response,
                         const struct etcd_call *call) {
  rdzv_error own;
  rdzv_error *error = call->error ? call->error : &own;
  const int result =
      etcd3_refused(watch->etcd, response->status, (rdzv_bytes){response->body.data, response->body.len}, error);
  fail_stream(watch, error->message, call);
  return result;
}

/* No answer by the deadline of the call. Where there was little time for one, it says nothing about etcd. */
static int fail_begin(int result, bool hurried, const struct etcd_call *call) {
  if (result != RDZV_E_CONNECTION || !hurried || deadline_left(call->until) > 0) return result;
  if (call->error) call->error->code = RDZV_E_TIMEOUT;
  return RDZV_E_TIMEOUT;
}

static int begin_stream(struct etcd3_watch *watch, const struct etcd_call *call) {
  struct etcd_client *client = watch->etcd->client;
  const bool hurried = deadline_left(call->until) < ANSWER_MS;
  struct http_response response = {0};
  struct buf body = {0};
  int result = etcd3_stream_pause(watch->etcd, call);
  if (result < 0) return result;
  const bool made = write_body(watch, &body);
  const struct etcd_request request = {.method = "POST",
                                       .path = "/v3/watch",
                                       .form = (const char *)body.data,
                                       .v3 = true,
                                       .of_keys = true,
                                       .line = watch->line ? watch->line : watch->etcd->line,
                                       .stream = &watch->stream};
  result = made ? etcd_perform(client, &request, call, &response) : error_no_memory(call->error);
  buf_free(&body);
  if (result < 0) return fail_begin(result, hurried, call);
  watch->member = etcd_current_member(client);
  watch->heard_ms = watch->begun_ms = clock_now_ms();
  watch->lasts = false;
  watch->created = 0;
  watch->created_by = deadline_after(watch->creation_ms);
  if (!watch->stream) result = refuse_stream(watch, &response, call);
  buf_free(&response.body);
  return result;
}

/* ---- messages ------------------------------------------------------------------------------------------------- */

/* The call ends with that code and `why`, after the events before. */
static void end_call(struct etcd3_watch *watch, int code, const struct etcd_call *call) {
  watch->over = code;
  watch->useless = code == ETCD3_COMPACTED || code == RDZV_E_DATA_LOST;
  fail_stream(watch, watch->why.message, call);
}

static void take_canceled(struct etcd3_watch *watch, const struct etcd3_message *message,
                          const struct etcd_call *call) {
  const char *where = etcd_describe(watch->etcd->client);
  if (message->compacted > 0) {
    error_set(&watch->why, RDZV_E_STALE, "etcd at %s: the history before revision %" PRId64 " is gone", where,
              message->compacted);
    end_call(watch, ETCD3_COMPACTED, call);
    return;
  }
  if (message->reason[0] == '\0' || strstr(message->reason, "permission denied"))
    error_set(&watch->why, RDZV_E_INVALID, "this user lacks permission in etcd at %s: %s", where, message->reason);
  else
    error_set(&watch->why, RDZV_E_PROTOCOL, "etcd at %s has ended the watch: %s", where, message->reason);
  end_call(watch, watch->why.code, call);
}

/* Moves the events to those given, without those that were reported before. */
static bool add_events(struct watched *watched, size_t index, struct etcd3_events *from, struct etcd3_events *to) {
  struct etcd3_event *list = realloc(to->list, (to->count + from->count) * sizeof *list);
  int64_t next = watched->next;
  if (!list) return false;
  to->list = list;
  for (size_t i = 0; i < from->count; i++) {
    struct etcd3_event *event = &from->list[i];
    if (event->kv.mod_revision < watched->next) continue;
    if (event->kv.mod_revision >= next) next = event->kv.mod_revision + 1;
    event->watched = index;
    list[to->count++] = *event;
    event->kv = (struct etcd3_kv){0};
  }
  watched->next = next;
  to->revision = from->revision;
  return true;
}

static int take_message(struct etcd3_watch *watch, struct etcd3_message *message, struct etcd3_events *events,
                        const struct etcd_call *call) {
  if (message->canceled) return take_canceled(watch, message, call), 0; /* with any id: some etcds lack ours then */
  if (message->id < 1 || message->id > (int64_t)watch->count) return 0; /* of all: of no interest */
  const size_t index = (size_t)message->id - 1;
  struct watched *watched = &watch->watched[index];
  if (!message->created && message->events.count > 0)
    return add_events(watched, index, &message->events, events) ? 0 : error_no_memory(call->error);
  if (message->created && ++watch->created == watch->count) watch->creation_ms = CREATION_MS;
  if (message->created && watched->next == 0) watched->next = message->revision + 1;
  if (message->created && message->revision < watched->next - 1) watch->doubtful = true;
  if (!message->created && message->revision >= watched->next) watched->next = message->revision + 1; /* progress */
  return 0;
}

static int take_line(struct etcd3_watch *watch, rdzv_bytes line, struct etcd3_events *events,
                     const struct etcd_call *call) {
  struct etcd3_message message;
  struct etcd3_error refused;
  if (etcd3_read_error(line, &refused)) { /* such as that there is no leader */
    fail_stream(watch, refused.text, call);
    return 0;
  }
  int result = etcd3_read_message(line, &message, &watch->why);
  if (result < 0) return end_call(watch, result, call), 0;
  result = take_message(watch, &message, events, call);
  etcd3_message_free(&message);
  return result;
}

/* All lines that are there. */
static int take_lines(struct etcd3_watch *watch, struct etcd3_events *events, const struct etcd_call *call) {
  for (int lines = 0; watch->stream && lines < WANTED_LINES; lines++) {
    struct buf *body = http_stream_body(watch->stream);
    const uint8_t *end = body->len > 0 ? memchr(body->data, '\n', body->len) : NULL;
    if (!end) return 0;
    struct buf line = {0};
    const size_t len = (size_t)(end - body->data);
    if (!buf_append(&line, body->data, len)) return error_no_memory(call->error);
    buf_consume(body, len + 1);
    watch->heard_ms = clock_now_ms();
    const int result = len > 0 ? take_line(watch, (rdzv_bytes){line.data, line.len}, events, call) : 0;
    buf_free(&line);
    if (result < 0) return result;
  }
  return 0;
}

/* ---- silence -------------------------------------------------------------------------------------------------- */

static int64_t heard_ms(struct etcd3_watch *watch) {
  pthread_mutex_lock(&watch->etcd->lock);
  const int64_t answered = watch->etcd->answered_ms;
  pthread_mutex_unlock(&watch->etcd->lock);
  return answered > watch->heard_ms ? answered : watch->heard_ms;
}

/* Asks for the revision, at a majority. No answer is no news: the stream goes on, here or elsewhere. */
static int probe(struct etcd3_watch *watch, const struct etcd_call *call) {
  const struct etcd3_range range = {.keys = {rdzv_value_bytes(&watch->watched[0].key), {0}}, .count_only = true};
  const struct etcd_call own = {deadline_sooner(call->until, deadline_after(PROBE_MS)), call->cancel, call->error};
  struct etcd3_reply reply;
  int64_t next = 0;
  int result = etcd3_range(watch->etcd, &range, &own, &reply);
  watch->heard_ms = clock_now_ms();
  if (result == RDZV_E_CONNECTION && deadline_left(call->until) > 0) return 0;
  if (result == RDZV_E_CONNECTION) result = RDZV_E_TIMEOUT; /* there was no time left to ask in */
  if (result == RDZV_E_TIMEOUT && call->error) call->error->code = result;
  for (size_t i = 0; i < watch->count; i++)
    if (watch->watched[i].next > next) next = watch->watched[i].next;
  if (result == 0 && reply.revision < next - 1)
    result = error_set(call->error, RDZV_E_DATA_LOST,
                       "etcd at %s has lost its data: it is at revision %" PRId64 " and was at %" PRId64,
                       etcd_describe(watch->etcd->client), reply.revision, next - 1);
  if (result == 0) watch->doubtful = false;
  if (result == 0) etcd3_reply_free(&reply);
  if (result == RDZV_E_DATA_LOST) {
    error_set(&watch->why, result, "%s", call->error ? call->error->message : "etcd has lost its data");
    end_call(watch, result, call);
  }
  return result;
}

/* ---- waiting -------------------------------------------------------------------------------------------------- */

static bool has_moved(struct etcd3_watch *watch) {
  return watch->stream && strcmp(etcd_current_member(watch->etcd->client).text, watch->member.text) != 0;
}

static bool is_half(const struct etcd3_watch *watch) {
  return watch->stream && watch->created < watch->count && deadline_left(watch->created_by) == 0;
}

/* The stream has not taken up all that is watched: another is given more time. */
static void give_up_half(struct etcd3_watch *watch) {
  end_stream(watch);
  watch->creation_ms = watch->creation_ms < LAST_CREATION_MS ? 2 * watch->creation_ms : LAST_CREATION_MS;
}

static bool is_lasting(const struct etcd3_watch *watch) {
  return watch->created == watch->count && clock_now_ms() - watch->begun_ms >= ETCD3_LASTING_MS;
}

/* When to look at the stream, whatever it says. */
static deadline due(const struct etcd3_watch *watch, deadline quiet) {
  if (watch->created < watch->count) return deadline_sooner(quiet, watch->created_by);
  return watch->lasts ? quiet : deadline_sooner(quiet, watch->begun_ms + ETCD3_LASTING_MS);
}

/* Waits for the next lines, or does what is due. 0: look. */
static int wait_for_more(struct etcd3_watch *watch, const struct etcd_call *call) {
  if (has_moved(watch)) end_stream(watch);
  if (is_half(watch)) give_up_half(watch);
  if (!watch->stream) return begin_stream(watch, call);
  if (!watch->lasts && is_lasting(watch)) {
    watch->lasts = true;
    etcd3_stream_lasts(watch->etcd, call);
  }
  const deadline quiet = heard_ms(watch) + QUIET_MS;
  if (watch->doubtful || deadline_left(quiet) == 0) return probe(watch, call);
  const deadline until = deadline_sooner(call->until, due(watch, quiet));
  const int result = http_stream_wait(watch->stream, until, call->cancel, call->error);
  if (result == RDZV_E_TIMEOUT && deadline_left(call->until) > 0) return 0;
  if (result == RDZV_E_LIMIT) fail_stream(watch, "it sends too much at once", call);
  if (result != RDZV_E_CONNECTION) return result;
  fail_stream(watch, "the connection was closed", call);
  return 0;
}

static int end_next(struct etcd3_watch *watch, rdzv_error *error) {
  const int code = watch->over;
  if (error && watch->why.code != 0) *error = watch->why;
  if (!watch->useless) watch->over = 0;
  return code;
}

int etcd3_watch_next(struct etcd3_watch *watch, const struct etcd_call *call, struct etcd3_events *events) {
  int result = 0;
  *events = (struct etcd3_events){0};
  while (result == 0) {
    if (!watch->over) result = take_lines(watch, events, call);
    if (events->count > 0 && result == 0) return 0;
    if (result == 0 && watch->over) return end_next(watch, call->error);
    if (result == 0) result = wait_for_more(watch, call);
  }
  etcd3_events_free(events);
  return result;
}
