/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/dynamic/native/native.h"

#include "base/error.h"
#include "base/log.h"
#include "base/wait/waiting.h"
#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
  TRY_MS = 5000,  /* to connect, before it counts as failed */
  FEW_NODES = 64, /* their names are looked up for the log line of a long wait */
};

static struct native *self(struct driver *driver) { return (struct native *)driver; }

/* ---- the member ----------------------------------------------------------------------------------------------- */

static void carry_out(struct native *native);

/* Is the join refused for now, to be repeated? With the lock held. True: from this event on. */
static bool note_put_off(struct native *native, const struct member_event *event) {
  const struct member *member = &native->member;
  const bool was = native->is_put_off, troubled = member->trouble.code != 0 && member->link == MEMBER_LINK_UP;
  native->is_put_off = troubled && member->wish == WISH_JOIN && (was || event->kind == MEMBER_EV_REFUSED);
  return native->is_put_off && !was;
}

/* Lines that say why, while the server puts the join off. */
static void tell_put_off(struct native *native, const struct member_event *event, bool begins) {
  if (!native->is_put_off || event->kind != MEMBER_EV_REFUSED) return;
  if (begins) {
    waiting_begin(&native->waiting, native->base.log, native->member.wish_deadline);
    waiting_about(&native->waiting, "the server does not let this node join yet");
  }
  waiting_fail(&native->waiting, "%s", event->error->message);
}

/* One step of the member: reports its news and carries out what it wants. */
static void step(struct native *native, struct member_event *event) {
  struct driver *driver = &native->base;
  event->now = (struct moment){clock_now_ms(), clock_wall_us()};
  pthread_mutex_lock(&driver->lock);
  silence_look(&driver->silence, driver_settings(driver), event->now.mono_ms);
  if (event->kind >= MEMBER_EV_CONNECTED && event->kind != MEMBER_EV_LOST && event->kind != MEMBER_EV_TIMER)
    driver_note_answer(driver);
  if (event->kind == MEMBER_EV_LOST) driver_note_failure(driver, event->error);
  member_step(&native->member, event, &native->update);
  const bool begins = note_put_off(native, event);
  pthread_mutex_unlock(&driver->lock);
  tell_put_off(native, event, begins);
  if (native->update.told.news) {
    const struct driver_news news = {
        .update = &native->update.told, .joined = native->update.joined, .native = native->update.news};
    driver->tell(driver->user, &news);
  }
  carry_out(native);
}

/* A line now and then, while no connection can be made. */
static void tell_lost(struct native *native, const rdzv_error *error) {
  if (!native->is_lost) {
    waiting_begin(&native->waiting, native->base.log, INT64_MAX);
    waiting_about(&native->waiting, "not connected to the store server");
  }
  native->is_lost = true;
  waiting_fail(&native->waiting, "%s", error->message);
}

static void lose(struct native *native, const rdzv_error *error) {
  tell_lost(native, error);
  link_drop(&native->link);
  native->connecting = false;
  struct member_event event = {.kind = MEMBER_EV_LOST, .error = error};
  step(native, &event);
}

/* What the member wants. Connecting is for the loop: what is asked may end it. */
static void carry_out(struct native *native) {
  const unsigned sends = MEMBER_DO_JOIN | MEMBER_DO_RESUME | MEMBER_DO_LEAVE | MEMBER_DO_CLOSE | MEMBER_DO_BEAT;
  const unsigned doing = native->update.doing;
  rdzv_error error;
  if (doing & MEMBER_DO_DROP) {
    link_drop(&native->link);
    native->connecting = false;
  }
  if (doing & MEMBER_DO_CONNECT) native->connecting = true;
  if (doing & MEMBER_DO_JOIN)
    events_note(native->base.events, RDZV_NODE_STATE_RUNNING, -1, -1, "asks the server for the next round");
  if (doing & MEMBER_DO_RESUME)
    events_note(native->base.events, RDZV_NODE_STATE_RUNNING, native->member.round, -1, "resumes its session");
  if ((doing & sends) && link_put(&native->link, &native->update, &error) < 0) lose(native, &error);
}

/* ---- the loop ------------------------------------------------------------------------------------------------- */

static void take_asks(struct native *native) {
  static const enum member_event_kind kinds[] = {[DRIVER_STOP] = MEMBER_EV_ASK_STOP,
                                                 [DRIVER_LEAVE] = MEMBER_EV_ASK_LEAVE,
                                                 [DRIVER_JOIN] = MEMBER_EV_ASK_JOIN,
                                                 [DRIVER_CLOSE] = MEMBER_EV_ASK_CLOSE};
  enum driver_ask what;
  struct driver_words words;
  flag_lower(&native->wake);
  while (driver_take(&native->base, &what, &words)) {
    struct member_event event = {.kind = kinds[what],
                                 .master_addr = words.master_addr,
                                 .master_port = words.master_port,
                                 .workers = {words.role, words.local_world_size, words.restart_count},
                                 .reason = words.reason};
    step(native, &event);
  }
}

static void connect_once(struct native *native) {
  rdzv_error error = {0};
  const deadline try = deadline_after(TRY_MS), until = deadline_sooner(try, native->update.until_ms);
  const int result = link_connect(&native->link, until, &native->wake, &error);
  if (result == RDZV_E_CANCELED) return; /* something is asked; then again */
  if (result == RDZV_E_TIMEOUT && until < try) {
    step(native, &(struct member_event){.kind = MEMBER_EV_TIMER});
    return;
  }
  if (result < 0) {
    lose(native, &error);
    return;
  }
  native->connecting = native->is_lost = false;
  atomic_store(&native->instance, native->link.conn.instance);
  step(native, &(struct member_event){.kind = MEMBER_EV_CONNECTED});
}

/* Hands the messages that have come to the member, until it drops the connection. */
static void take_messages(struct native *native) {
  struct link_message message;
  rdzv_error error;
  int result = link_receive(&native->link, &error);
  if (result == 0) {
    while ((result = link_next(&native->link, &message, &error)) == 1) {
      step(native, &message.event);
      if (native->link.conn.fd < 0) return;
      link_consume(&native->link, &message);
    }
  }
  if (result < 0) lose(native, &error);
}

/* Waits for the server, for what is asked, or for the member's time. */
static void await(struct native *native) {
  struct link *link = &native->link;
  const short events = (short)(POLLIN | (link_is_full(link) ? POLLOUT : 0));
  struct pollfd fds[2] = {{.fd = link->conn.fd, .events = events}};
  rdzv_error error;
  const struct flag telling = flag_with(&native->wake, native->is_put_off ? &native->waiting : NULL);
  const int result = flag_poll(&telling, fds, 1, native->update.until_ms);
  if (result == RDZV_E_TIMEOUT) step(native, &(struct member_event){.kind = MEMBER_EV_TIMER});
  if (result == RDZV_E_IO) flag_pause(NULL, deadline_after(100)); /* no memory for a poll: it passes */
  if (result == 0 && (fds[0].revents & POLLOUT) && link_flush(link, &error) < 0) {
    lose(native, &error);
    return;
  }
  if (result == 0 && (fds[0].revents & ~POLLOUT)) take_messages(native);
}

/* A connection that was not used yet and is closed by the server, or that speaks. */
static void await_idle(struct native *native) {
  if (native->link.fresh) {
    struct pollfd fds[2] = {{.fd = native->link.conn.fd, .events = POLLIN}};
    if (flag_poll(&native->wake, fds, 1, INT64_MAX) == 0) link_drop(&native->link);
    return;
  }
  await(native);
}

static void run(struct driver *driver) {
  struct native *native = self(driver);
  for (;;) {
    take_asks(native);
    events_flush(driver->events);
    pthread_mutex_lock(&driver->lock);
    const bool over = driver->stopping;
    pthread_mutex_unlock(&driver->lock);
    if (over) break;
    if (native->connecting)
      connect_once(native);
    else
      await_idle(native);
    events_flush(driver->events);
  }
  link_drop(&native->link);
}

/* ---- what the member knows ------------------------------------------------------------------------------------ */

static struct driver_facts facts(struct driver *driver) {
  pthread_mutex_lock(&driver->lock);
  const struct driver_facts facts = {.layout = self(driver)->member.config.layout};
  pthread_mutex_unlock(&driver->lock);
  return facts;
}

static int64_t usual_silence(const struct driver *driver) {
  return member_usual_silence(&((const struct native *)driver)->member);
}

/* Which nodes are there, the server knows; a crowd does not ask it. */
static void tell_wait(struct driver *driver, struct waiting *waiting) {
  struct native *native = self(driver);
  const struct rendezvous_settings *settings = driver_settings(driver);
  pthread_mutex_lock(&driver->lock);
  const bool is_in = native->member.sent_join, put_off = native->is_put_off;
  const deadline until = native->member.wish_deadline;
  pthread_mutex_unlock(&driver->lock);
  if (put_off) waiting_about(waiting, "%s", ""); /* the thread says why */
  if (!is_in || put_off) return;
  if (settings->max_nodes > FEW_NODES)
    waiting_about(waiting, "waiting for nodes: at least %" PRId64 " are needed", settings->min_nodes);
  else
    native_tell_nodes(native, waiting, until);
}

uint64_t native_instance(const struct driver *driver) {
  return atomic_load(&((const struct native *)driver)->instance);
}

/* ---- beginning and end ---------------------------------------------------------------------------------------- */

static const char *describe(struct driver *driver) { return self(driver)->text; }
static void wake(struct driver *driver) { flag_raise(&self(driver)->wake); }
static void cancel(struct driver *driver) { (void)driver; /* the thread waits for nothing that `wake` does not end */ }

static void free_native(struct driver *driver, bool abandoned, bool quiet) {
  struct native *native = self(driver);
  (void)quiet;
  if (abandoned) {
    if (native->link.conn.fd >= 0) close(native->link.conn.fd);
    free(native->link.conn.run_id); /* the thread may have been changing the rest */
  } else {
    tcp_conn_free(&native->link.conn);
    pthread_mutex_destroy(&native->view.call);
  }
  rdzv_server_free(native->server);
  free(native->run_id);
  flag_close(&native->wake);
  free(native);
}

static const struct driver_ops native_ops = {.backend = "c10d",
                                             .native = true,
                                             .run = run,
                                             .wake = wake,
                                             .cancel = cancel,
                                             .describe = describe,
                                             .usual_silence = usual_silence,
                                             .facts = facts,
                                             .tell_wait = tell_wait,
                                             .look = native_look,
                                             .free = free_native};

static struct member_config member_config(const struct native *native, const struct driver_options *options) {
  struct member_config config = {.run_id = native->run_id,
                                 .node = native->base.node,
                                 .settings = native->base.settings,
                                 .times = options->times,
                                 .layout = options->layout,
                                 .trace = log_on(options->log, RDZV_LOG_DEBUG) ? driver_trace : NULL,
                                 .argument = (void *)native};
  if (getrandom(&config.secret, sizeof config.secret, 0) < 0) /* only in kernels without it */
    config.secret = (struct siphash_seed){{options->engine.seed, (uint64_t)clock_wall_us()}};
  return config;
}

int native_open(const struct driver_options *options, rdzv_store *store, rdzv_server *server, struct driver **out,
                rdzv_error *error) {
  struct native *native = calloc(1, sizeof *native);
  if (!native) return error_no_memory(error);
  driver_init(&native->base, &native_ops, options);
  native->run_id = strdup(options->run_id);
  native->store = store;
  native->link.conn.fd = -1;
  native->wake = FLAG_NONE;
  native->update.until_ms = INT64_MAX;
  pthread_mutex_init(&native->view.call, NULL);
  const struct member_config config = member_config(native, options);
  member_init(&native->member, &config);
  snprintf(native->text, sizeof native->text, "c10d %s%s", rdzv_store_describe(store),
           server ? ", served by this process" : "");
  int result = native->run_id ? flag_open(&native->wake, error) : error_no_memory(error);
  if (result == 0 && !tcp_store_split(store, &native->link.conn)) result = error_no_memory(error);
  if (result < 0) {
    driver_free(&native->base);
    return result;
  }
  native->link.fresh = native->link.conn.fd >= 0;
  native->link.timeout_ms = NATIVE_SILENT_INTERVALS * native->member.config.times.keep_alive_ms;
  native->link.conn.wanted = RDZV_DIALECT_RDZV;
  atomic_store(&native->instance, native->link.conn.instance);
  native->server = server;
  *out = &native->base;
  return 0;
}
