/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/native/member.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
  ANSWER_MS = 2000,  /* for an answer of a server that is there */
  NODES_PER_MS = 64, /* so many connect again in one millisecond, where all lost their connection at once */
};

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

void member_init(struct member *member, const struct member_config *config) {
  *member = (struct member){.config = *config, .trip_us = -1};
  struct native_times *times = &member->config.times;
  if (times->keep_alive_ms < NATIVE_LEAST_KEEP_ALIVE_MS) times->keep_alive_ms = NATIVE_LEAST_KEEP_ALIVE_MS;
  if (times->grace_ms < 0) times->grace_ms = 0;
  member->pace.random = siphash(&config->secret, "pace", 4);
}

static void trace(const struct member *member, const char *format, ...) RDZV_PRINTF(2, 3);
static void trace(const struct member *member, const char *format, ...) {
  if (!member->config.trace) return;
  char line[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  member->config.trace(member->config.argument, line);
}

/* ---- the session ---------------------------------------------------------------------------------------------- */

/* A token that cannot be predicted without the secret. */
static void draw_token(struct member *member) {
  for (size_t at = 0; at < NATIVE_TOKEN_BYTES; at += sizeof(uint64_t)) {
    member->tokens++;
    const uint64_t drawn = siphash(&member->config.secret, &member->tokens, sizeof member->tokens);
    memcpy(member->token + at, &drawn, sizeof drawn);
  }
}

static void begin_session(struct member *member) {
  draw_token(member);
  member->in_session = true;
  member->attached = false;
  member->epoch = 0; /* the joins go on: an answer to one of a session before is not taken for one of this */
}

/* The server has ended our session. */
static void end_session(struct member *member, struct engine_update *told) {
  if (member->in_round) {
    trace(member, "the session is over -> evicted from round %" PRId64, member->round);
    told->news |= ENGINE_NEWS_EVICTED;
    told->round = member->round;
  }
  member->in_round = member->in_session = member->attached = member->resuming = false;
  member->sent_join = member->sent_leave = false;
}

/* ---- what is asked -------------------------------------------------------------------------------------------- */

static void keep_text(char *to, size_t size, const char *text) { snprintf(to, size, "%s", text ? text : ""); }

static void ask(struct member *member, enum engine_wish wish, int64_t deadline) {
  member->in_round = member->sent_join = member->sent_leave = false;
  member->wish = wish;
  member->wish_deadline = deadline;
  member->again_ms = member->connect_ms = 0; /* a new request does not wait for earlier failures */
  member->trouble.code = 0;
}

static void ask_join(struct member *member, const struct member_event *event) {
  if (member->sent_leave) member->in_session = false; /* the wait for its answer is over */
  ask(member, WISH_JOIN, event->now.mono_ms + member->config.settings.join_timeout);
  keep_text(member->master_addr, sizeof member->master_addr, event->master_addr);
  member->master_port = event->master_port;
  keep_text(member->role, sizeof member->role, event->workers.role);
  member->workers = event->workers;
  member->workers.role = member->role;
  if (!member->in_session) begin_session(member);
  member->joins++;
}

static void ask_close(struct member *member, const struct member_event *event) {
  member->closing = true;
  member->sent_close = false;
  member->close_again_ms = member->connect_ms = 0;
  member->trouble.code = 0;
  member->close_deadline = event->now.mono_ms + member->config.settings.close_timeout;
  keep_text(member->reason, sizeof member->reason, event->reason);
}

/* This node has no connection from here on. */
static void detach(struct member *member) {
  member->link = MEMBER_LINK_DOWN;
  member->attached = member->resuming = false;
  member->sent_join = member->sent_leave = member->sent_close = false;
}

static void stop(struct member *member, struct member_update *update) {
  ask(member, WISH_NOTHING, 0);
  member->closing = member->in_session = false;
  if (member->link != MEMBER_LINK_DOWN) update->doing |= MEMBER_DO_DROP;
  detach(member);
}

/* ---- answers -------------------------------------------------------------------------------------------------- */

static const char *wish_name(enum engine_event_kind asked) {
  return asked == ENGINE_EV_ASK_CLOSE ? "close" : asked == ENGINE_EV_ASK_LEAVE ? "leave" : "join";
}

/* What was asked has failed. A step reports the first failure, the next steps the others. */
static void fail(struct member *member, enum engine_event_kind asked, const rdzv_error *error,
                 struct member_update *update) {
  update->told.news |= ENGINE_NEWS_FAILED;
  update->told.failed = asked;
  update->told.error = *error;
  if (asked == ENGINE_EV_ASK_CLOSE)
    member->closing = member->sent_close = false;
  else {
    member->wish = WISH_NOTHING;
    member->sent_join = member->sent_leave = false;
  }
  trace(member, "cannot %s: %s", wish_name(asked), error->message);
}

/* Trying again may help: nothing was done, or the same again does no harm. */
static bool is_passing(int code) {
  const rdzv_error_class class = rdzv_error_class_of(code);
  return code == 0 || class == RDZV_ERROR_CLASS_RETRYABLE || class == RDZV_ERROR_CLASS_UNCERTAIN;
}

static void joined(struct member *member, const struct member_event *event, struct member_update *update) {
  const struct native_joined *answer = event->joined;
  if (member->wish != WISH_JOIN || !member->sent_join || answer->number != member->joins) return;
  struct engine_update *told = &update->told;
  member->wish = WISH_NOTHING;
  member->sent_join = false;
  member->in_round = true;
  member->round = told->round = answer->round;
  member->world_size = told->world_size = answer->world_size;
  told->rank = answer->rank;
  told->news |= ENGINE_NEWS_JOINED;
  update->joined = answer;
  if (answer->round >= member->first_round) member->first_round = answer->round + 1;
  trace(member, "round %" PRId64 " is complete -> joined as rank %" PRId64 " of %" PRId64, told->round, told->rank,
        told->world_size);
}

static void resumed(struct member *member, const struct member_event *event) {
  member->resuming = false;
  trace(member, "the session goes on, after join %" PRIu64, event->number);
}

static void left(struct member *member, struct member_update *update) {
  if (member->wish != WISH_LEAVE) return;
  end_session(member, &update->told);
  member->wish = WISH_NOTHING;
  update->told.news |= ENGINE_NEWS_LEFT;
}

static void closed(struct member *member, struct member_update *update) {
  if (!member->closing || !member->sent_close) return;
  member->closing = member->sent_close = false;
  update->told.news |= ENGINE_NEWS_CLOSE_DONE;
}

static void tell(struct member *member, const struct member_event *event, struct member_update *update) {
  const unsigned known = ENGINE_NEWS_SOMEONE_WAITS | ENGINE_NEWS_PARTICIPANT_LEFT | ENGINE_NEWS_PARTICIPANT_DIED |
                         ENGINE_NEWS_IS_CLOSED | ENGINE_NEWS_EVICTED;
  const struct native_news *news = event->news;
  struct engine_update *told = &update->told;
  if (news->what & ENGINE_NEWS_WARNING) {
    told->news |= ENGINE_NEWS_WARNING;
    snprintf(told->warning.text, sizeof told->warning.text, "%s", news->warning ? news->warning : "");
  }
  if (!member->in_round || news->round != member->round) return;
  told->news |= news->what & known;
  told->round = news->round;
  update->news = news;
  const bool died = news->what & ENGINE_NEWS_PARTICIPANT_DIED;
  if (news->named > 0) *(died ? &told->dead : &told->left) = node_text(&news->nodes[0]);
  if (news->what & ENGINE_NEWS_EVICTED) member->in_round = false;
}

/* ---- refusals ------------------------------------------------------------------------------------------------- */

static void lose(struct member *member, struct moment now, const rdzv_error *error);

/* The server's sentence, with what was asked before it where it does not say. */
static void fail_refused(struct member *member, enum engine_event_kind asked, const rdzv_error *error,
                         struct member_update *update) {
  rdzv_error own = *error;
  const bool told = own.code == RDZV_E_CLOSED || own.code == RDZV_E_GRACEFUL_EXIT || own.code == RDZV_E_TIMEOUT;
  if (own.code == RDZV_E_CORRUPT) error_prefix(&own, own.code, "the state of the rendezvous is corrupt");
  if (!told) error_prefix(&own, own.code, "cannot %s the rendezvous", wish_name(asked));
  fail(member, asked, &own, update);
}

static void refuse_join(struct member *member, const struct member_event *event, struct member_update *update) {
  const rdzv_error *error = event->error;
  if (member->wish != WISH_JOIN || !member->sent_join) return;
  member->sent_join = false;
  if (error->code == RDZV_E_STALE) {
    end_session(member, &update->told);
    begin_session(member);
    member->joins++;
    trace(member, "the server does not know the session -> join in another one");
  } else if (error->code != RDZV_E_TIMEOUT && is_passing(error->code)) {
    member->trouble = *error;
    member->attached = false;
    member->again_ms = event->now.mono_ms + pace_after_error(&member->pace);
  } else {
    fail_refused(member, ENGINE_EV_ASK_JOIN, error, update);
  }
}

/* A refusal that comes late is of a join that is over, or of a session that has another connection since. */
static bool is_late(const struct member *member, const struct member_event *event) {
  const uint64_t current = event->refused == MEMBER_DO_JOIN     ? member->joins
                           : event->refused == MEMBER_DO_RESUME ? member->epoch
                                                                : event->number;
  return event->number != 0 && event->number != current;
}

static void refuse(struct member *member, const struct member_event *event, struct member_update *update) {
  const rdzv_error *error = event->error;
  if (is_late(member, event)) {
    trace(member, "the refusal is of %" PRIu64 ", which is over -> ignore it", event->number);
    return;
  }
  switch (event->refused) {
    case MEMBER_DO_JOIN: refuse_join(member, event, update); return;
    case MEMBER_DO_LEAVE: left(member, update); return; /* there is nothing to leave */
    case MEMBER_DO_CLOSE:
      if (!member->closing || !member->sent_close) return;
      member->sent_close = false;
      member->trouble = *error;
      member->close_again_ms = event->now.mono_ms + pace_after_error(&member->pace);
      if (!is_passing(error->code)) fail_refused(member, ENGINE_EV_ASK_CLOSE, error, update);
      return;
    case MEMBER_DO_RESUME:
      if (member->sent_join) return; /* which follows it on this connection, and speaks for the session */
      member->resuming = false;
      if (!is_passing(error->code)) break;
      update->doing |= MEMBER_DO_DROP;
      lose(member, event->now, error);
      return;
    default: break;
  }
  if (event->refused == MEMBER_DO_BEAT && error->code != RDZV_E_STALE) return;
  end_session(member, &update->told); /* also where a join is asked for: it begins another one */
}

/* ---- the connection ------------------------------------------------------------------------------------------- */

/* How many may have lost their connection together with us. */
static int64_t crowd(const struct member *member) {
  return member->world_size > 0 ? member->world_size : member->config.settings.max_nodes;
}

/* The first time at once, but for a moment where there are many. */
static int64_t pause_before_connect(struct member *member) {
  const int64_t longest = liveness_look_interval(&member->config.settings); /* others soon take us for dead */
  if (member->pace.errors > 0) return earlier(pace_after_error(&member->pace), longest);
  member->pace.errors = 1;
  return pace_jitter(&member->pace, earlier(crowd(member) / NODES_PER_MS, member->config.times.grace_ms / 4));
}

static int64_t longest_silence(const struct member *member) {
  return rendezvous_dead_time(&member->config.settings) * 2 / 3;
}

/* A join that the server has kept beyond its time is that of a spare: it goes on when the server is back. */
static void keep_spare(struct member *member, int64_t now_ms) {
  if (member->wish == WISH_JOIN && member->sent_join && now_ms > member->wish_deadline)
    member->wish_deadline = now_ms + longest_silence(member);
}

static void lose(struct member *member, struct moment now, const rdzv_error *error) {
  keep_spare(member, now.mono_ms);
  member->trouble = error ? *error : (rdzv_error){0};
  if (member->trouble.code == 0)
    error_set(&member->trouble, RDZV_E_CONNECTION, "the connection to the server was lost");
  detach(member);
  const int64_t pause = pause_before_connect(member);
  member->connect_ms = now.mono_ms + pause;
  trace(member, "%s -> connect again in %" PRId64 " ms", member->trouble.message, pause);
}

static void connected(struct member *member, struct moment now) {
  member->link = MEMBER_LINK_UP;
  member->heard_ms = now.mono_ms;
  silence_end(&member->silence, now.mono_ms);
}

/* A message: the server is there, and does not refuse to talk to us. */
static void heard(struct member *member, struct moment now) {
  member->heard_ms = now.mono_ms;
  silence_end(&member->silence, now.mono_ms);
  member->pace.errors = 0;
  member->trouble.code = 0;
}

/* ---- events --------------------------------------------------------------------------------------------------- */

static void absorb(struct member *member, const struct member_event *event, struct member_update *update) {
  const int64_t now_ms = event->now.mono_ms;
  if (event->kind >= MEMBER_EV_JOINED && event->kind <= MEMBER_EV_HEARD) heard(member, event->now);
  switch (event->kind) {
    case MEMBER_EV_ASK_JOIN: ask_join(member, event); break;
    case MEMBER_EV_ASK_LEAVE: ask(member, WISH_LEAVE, now_ms + member->config.settings.close_timeout); break;
    case MEMBER_EV_ASK_CLOSE: ask_close(member, event); break;
    case MEMBER_EV_ASK_STOP: stop(member, update); break;
    case MEMBER_EV_CONNECTED: connected(member, event->now); break;
    case MEMBER_EV_LOST: lose(member, event->now, event->error); break;
    case MEMBER_EV_JOINED: joined(member, event, update); break;
    case MEMBER_EV_RESUMED: resumed(member, event); break;
    case MEMBER_EV_LEFT: left(member, update); break;
    case MEMBER_EV_CLOSED: closed(member, update); break;
    case MEMBER_EV_BEAT: member->trip_us = event->trip_us; break;
    case MEMBER_EV_NEWS: tell(member, event, update); break;
    case MEMBER_EV_REFUSED: refuse(member, event, update); break;
    case MEMBER_EV_HEARD:
    case MEMBER_EV_TIMER: break;
  }
}

/* ---- deadlines ------------------------------------------------------------------------------------------------ */

/* Where the dead time is short, more often than the keep-alive interval says: its end is found by answers. */
static int64_t beat_interval(const struct member *member) {
  return earlier(member->config.times.keep_alive_ms, liveness_look_interval(&member->config.settings));
}

/* The server ends a join by its own clock. Where it is not there, or refuses for now, ours counts; from then on each
 * beat wants an answer. */
static int64_t late_at(const struct member *member) {
  if (member->wish != WISH_JOIN || !member->sent_join) return member->wish_deadline + 1;
  const int64_t since = member->heard_ms > member->wish_deadline ? member->heard_ms : member->wish_deadline;
  return since + beat_interval(member) + ANSWER_MS;
}

static void fail_late(struct member *member, enum engine_event_kind asked, int64_t now_ms,
                      struct member_update *update) {
  rdzv_error error;
  if (member->trouble.code != 0)
    error_set(&error, member->trouble.code, "cannot %s the rendezvous: %s", wish_name(asked), member->trouble.message);
  else
    error_set(&error, RDZV_E_TIMEOUT, "cannot %s the rendezvous: no answer for %.1f s", wish_name(asked),
              (double)(now_ms - member->heard_ms) / 1000);
  fail(member, asked, &error, update);
}

/* An error of the connection that will not pass ends what is wished for at once. A step reports one failure. */
static void end_wishes(struct member *member, int64_t now_ms, struct member_update *update) {
  const bool in_vain = member->link == MEMBER_LINK_DOWN && !is_passing(member->trouble.code);
  if (update->told.news & ENGINE_NEWS_FAILED) return;
  if (member->closing && (in_vain || now_ms > member->close_deadline)) {
    fail_late(member, ENGINE_EV_ASK_CLOSE, now_ms, update);
  } else if (member->wish != WISH_NOTHING && (in_vain || now_ms >= late_at(member))) {
    fail_late(member, member->wish == WISH_LEAVE ? ENGINE_EV_ASK_LEAVE : ENGINE_EV_ASK_JOIN, now_ms, update);
  }
}

/* ---- sending -------------------------------------------------------------------------------------------------- */

/* Says whose connection this is. */
static void attach(struct member *member) {
  if (member->attached) return;
  member->attached = true;
  member->epoch++;
}

static struct native_join make_join(const struct member *member, int64_t now_ms) {
  const struct member_config *config = &member->config;
  struct native_join join = {.run_id = config->run_id,
                             .session = {.node = config->node, .epoch = member->epoch},
                             .number = member->joins,
                             .times = config->times,
                             .settings = config->settings,
                             .layout = config->layout,
                             .first_round = member->first_round,
                             .master_addr = member->master_addr,
                             .master_port = member->master_port,
                             .workers = member->workers};
  memcpy(join.session.token, member->token, sizeof join.session.token);
  join.workers.role = member->role;
  const int64_t left = member->wish_deadline - now_ms;
  join.settings.join_timeout = left > 1 ? left : 1;
  return join;
}

static void send_wish(struct member *member, int64_t now_ms, struct member_update *update) {
  if (member->wish == WISH_JOIN && !member->sent_join && member->again_ms <= now_ms) {
    if (!member->in_session) { /* refused, or forgotten, since it was asked for */
      begin_session(member);
      member->joins++;
    }
    if (!member->attached) member->beat_ms = now_ms + pace_jitter(&member->pace, beat_interval(member));
    attach(member);
    member->resuming = false;
    member->sent_join = true;
    member->again_ms = 0;
    update->doing |= MEMBER_DO_JOIN;
    trace(member, "join %" PRIu64 ", connection %" PRIu64 " -> send it", member->joins, member->epoch);
  }
  if (member->wish == WISH_LEAVE && !member->sent_leave && member->attached && !member->resuming) {
    member->sent_leave = true;
    update->doing |= MEMBER_DO_LEAVE;
  }
}

/* A new connection resumes the session, if the node is in a round or leaves. */
static void resume(struct member *member, int64_t now_ms, struct member_update *update) {
  if (!member->in_session || member->attached || member->wish == WISH_JOIN) return;
  if (!member->in_round && member->wish != WISH_LEAVE) return;
  attach(member);
  member->resuming = true;
  member->beat_ms = now_ms + pace_jitter(&member->pace, beat_interval(member));
  update->doing |= MEMBER_DO_RESUME;
  trace(member, "connection %" PRIu64 " -> resume the session", member->epoch);
}

static bool has_place(const struct member *member) {
  return member->attached && (member->in_round || member->wish == WISH_JOIN);
}

/* The next one; after the join timeout the server is asked at once whether it is there. */
static int64_t next_beat(const struct member *member) {
  const bool asks = member->wish == WISH_JOIN && member->heard_ms <= member->wish_deadline &&
                    member->beat_ms - beat_interval(member) <= member->wish_deadline;
  return asks ? earlier(member->beat_ms, member->wish_deadline + 1) : member->beat_ms;
}

static void beat(struct member *member, int64_t now_ms, struct member_update *update) {
  const int64_t interval = beat_interval(member);
  if (!has_place(member) || next_beat(member) > now_ms) return;
  const bool over = member->wish == WISH_JOIN && now_ms > member->wish_deadline;
  update->doing |= MEMBER_DO_BEAT;
  update->wants_answer =
      over || now_ms + interval > member->heard_ms + liveness_look_interval(&member->config.settings);
  update->trip_us = member->trip_us;
  member->beat_ms = now_ms + interval;
}

/* Is an answer awaited that the server gives at once? */
static bool expects(const struct member *member) {
  return has_place(member) || member->resuming || member->sent_leave || member->sent_close;
}

/* A connection that is open and dead: the server, or the way to it, may be gone without a word. */
static void end_silence(struct member *member, struct moment now, struct member_update *update) {
  const int64_t lasted = silence_look(&member->silence, &member->config.settings, now.mono_ms);
  if (member->link != MEMBER_LINK_UP || !expects(member) || lasted < longest_silence(member)) return;
  rdzv_error error;
  error_set(&error, RDZV_E_TIMEOUT, "the server has not answered for %" PRId64 " ms", lasted);
  lose(member, now, &error);
  update->doing |= MEMBER_DO_DROP;
}

/* ---- what is to be done --------------------------------------------------------------------------------------- */

static bool wants_link(const struct member *member) {
  return member->wish != WISH_NOTHING || member->closing || (member->in_round && member->in_session);
}

static void act(struct member *member, int64_t now_ms, struct member_update *update) {
  if (member->wish == WISH_LEAVE && !member->in_session) left(member, update);
  const bool failed = update->told.news & ENGINE_NEWS_FAILED; /* other failures are reported before the next try */
  if (member->link == MEMBER_LINK_DOWN && wants_link(member) && member->connect_ms <= now_ms && !failed) {
    member->link = MEMBER_LINK_CONNECTING;
    update->doing |= MEMBER_DO_CONNECT;
  }
  if (member->link != MEMBER_LINK_UP) return;
  resume(member, now_ms, update);
  send_wish(member, now_ms, update);
  if (member->closing && !member->sent_close && member->close_again_ms <= now_ms) {
    member->sent_close = true;
    update->doing |= MEMBER_DO_CLOSE;
  }
  beat(member, now_ms, update);
}

/* The earliest time at which a timer would do something. */
static int64_t wake(const struct member *member, const struct member_update *update, int64_t now_ms) {
  int64_t until = INT64_MAX;
  if (update->told.news & ENGINE_NEWS_FAILED) until = now_ms; /* there may be more to tell */
  if (member->link == MEMBER_LINK_DOWN && wants_link(member)) until = earlier(until, member->connect_ms);
  if (member->closing) until = earlier(until, member->close_deadline + 1);
  if (member->wish != WISH_NOTHING) until = earlier(until, late_at(member));
  if (member->link != MEMBER_LINK_UP) return until;
  if (member->wish == WISH_JOIN && !member->sent_join) until = earlier(until, member->again_ms);
  if (member->closing && !member->sent_close) until = earlier(until, member->close_again_ms);
  if (has_place(member)) until = earlier(until, next_beat(member));
  if (expects(member)) {
    const struct silence *silence = &member->silence;
    until = earlier(until, silence_wake(silence, &member->config.settings));
    until = earlier(until, silence->looked_ms + longest_silence(member) - silence->lasted_ms);
  }
  return until;
}

void member_step(struct member *member, const struct member_event *event, struct member_update *update) {
  const int64_t now_ms = event->now.mono_ms;
  *update = (struct member_update){.until_ms = INT64_MAX};
  absorb(member, event, update);
  end_silence(member, event->now, update);
  end_wishes(member, now_ms, update);
  act(member, now_ms, update);
  update->join = make_join(member, now_ms);
  update->reason = member->reason;
  update->until_ms = wake(member, update, now_ms);
}

int64_t member_usual_silence(const struct member *member) {
  return beat_interval(member) + liveness_look_interval(&member->config.settings);
}
