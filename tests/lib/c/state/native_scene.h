/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A coordinator with a clock, and what it has said since it was last looked at, as a text: "a: joined 1 round 0 rank
 * 0/2 | b: …". Nodes have names of one letter; a connection is named after its node and the epoch of its session, 'a'
 * for the first, then 'a2', 'a3'. CHANGED is only counted.
 */
#ifndef RDZV_TESTS_NATIVE_SCENE_H
#define RDZV_TESTS_NATIVE_SCENE_H

#include "rules_world.h"
#include "state/engine/engine.h"
#include "state/native/coordinator.h"

struct scene {
  struct coordinator *coordinator;
  struct moment now;
  struct native_join join; /* what a join is made from */
  uint64_t numbers[128];   /* of the last join of each node */
  char said[4096];
  size_t len;
  size_t changes;
  struct buf saved;
  struct native_joined joined; /* the last one, without its texts */
  char master[256];
  rdzv_error error;
};

/* A connection: so that each has an address of its own. */
static inline void *link_of(char node, unsigned epoch) {
  static char links[128][16];
  snprintf(links[(unsigned)node] + 0, 2, "%c", node);
  return &links[(unsigned)node][epoch];
}

static inline struct state_text link_name(const void *link) {
  struct state_text name = {""};
  for (char node = 'A'; node <= 'z'; node++)
    for (unsigned epoch = 1; epoch < 16; epoch++)
      if (link_of(node, epoch) == link) {
        if (epoch == 1)
          snprintf(name.text, sizeof name.text, "%c", node);
        else
          snprintf(name.text, sizeof name.text, "%c%u", node, epoch);
      }
  return name;
}

static inline void say(struct scene *scene, const char *format, ...) RDZV_PRINTF(2, 3);
static inline void say(struct scene *scene, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const int len = vsnprintf(scene->said + scene->len, sizeof scene->said - scene->len, format, args);
  va_end(args);
  if ((size_t)len < sizeof scene->said - scene->len) scene->len += (size_t)len;
}

static inline void say_news(struct scene *scene, const struct native_news *news) {
  static const struct {
    unsigned what;
    const char *name;
  } names[] = {{ENGINE_NEWS_SOMEONE_WAITS, "waits"},
               {ENGINE_NEWS_PARTICIPANT_LEFT, "left"},
               {ENGINE_NEWS_PARTICIPANT_DIED, "died"},
               {ENGINE_NEWS_IS_CLOSED, "closed"},
               {ENGINE_NEWS_EVICTED, "evicted"}};
  for (size_t i = 0; i < COUNT_OF(names); i++)
    if (news->what & names[i].what) say(scene, " %s", names[i].name);
  if (news->gone > 0) say(scene, " %zu", news->gone);
  for (size_t i = 0; i < news->named; i++) say(scene, "%s%s", i ? "," : ":", news->nodes[i].addr);
}

static inline void scene_hears(void *user, const struct coordinator_effect *effect) {
  struct scene *scene = user;
  if (effect->kind == COORDINATOR_DO_CHANGED) {
    scene->changes++;
    return;
  }
  say(scene, "%s", scene->len > 0 ? " | " : "");
  if (effect->link) say(scene, "%s:", link_name(effect->link).text);
  switch (effect->kind) {
    case COORDINATOR_DO_JOINED:
      scene->joined = *effect->joined;
      snprintf(scene->master, sizeof scene->master, "%s at %s:%d", effect->joined->master_node,
               effect->joined->master_addr, effect->joined->master_port);
      say(scene, " joined %d round %d rank %d/%d", (int)effect->joined->number, (int)effect->joined->round,
          (int)effect->joined->rank, (int)effect->joined->world_size);
      break;
    case COORDINATOR_DO_RESUMED: say(scene, " resumed %d", (int)effect->number); break;
    case COORDINATOR_DO_LEFT: say(scene, " left"); break;
    case COORDINATOR_DO_CLOSED: say(scene, " closed"); break;
    case COORDINATOR_DO_FAIL:
      scene->error = *effect->error;
      say(scene, " fail %s", rdzv_error_name(effect->error->code));
      break;
    case COORDINATOR_DO_TELL: say_news(scene, effect->news); break;
    case COORDINATOR_DO_DROP: say(scene, " drop"); break;
    case COORDINATOR_DO_SAVE:
      say(scene, "save");
      scene->saved.len = 0;
      coordinator_write_blob(effect->run, scene->now, &scene->saved, NULL);
      break;
    default: fail_msg("effect %d", (int)effect->kind);
  }
}

static inline struct native_session session_of(char node, unsigned epoch) {
  static char names[128][2];
  names[(unsigned)node][0] = node;
  struct native_session session = {.node = {names[(unsigned)node], 1, 0}, .epoch = epoch};
  memset(session.token, node, sizeof session.token);
  return session;
}

static inline struct scene *scene_begin(int64_t min_nodes, int64_t max_nodes) {
  struct scene *scene = test_calloc(1, sizeof *scene);
  scene->coordinator = coordinator_new(scene_hears, scene, NULL);
  scene->now = NOW;
  scene->join = (struct native_join){.run_id = "run",
                                     .times = NATIVE_TIMES_DEFAULT,
                                     .settings = RENDEZVOUS_SETTINGS_DEFAULT,
                                     .layout = TORCH_NEWEST,
                                     .master_addr = "here",
                                     .master_port = 29500,
                                     .workers = {.role = "default"}};
  scene->join.settings.min_nodes = min_nodes;
  scene->join.settings.max_nodes = max_nodes;
  scene->join.settings.join_timeout = 60000;
  assert_non_null(scene->coordinator);
  return scene;
}

static inline void scene_end(struct scene *scene) {
  coordinator_free(scene->coordinator);
  free(scene->saved.data);
  test_free(scene);
}

static inline int scene_step(struct scene *scene, struct coordinator_event event) {
  event.now = scene->now;
  return coordinator_step(scene->coordinator, &event, NULL);
}

/* What was said since the last time. */
#define expect(scene, text) expect_((scene), (text), __FILE__, __LINE__)
static inline void expect_(struct scene *scene, const char *text, const char *file, int line) {
  const bool same = strcmp(scene->said, text) == 0;
  if (!same) print_error("'%s' was said, not '%s'\n", scene->said, text);
  scene->len = 0;
  scene->said[0] = '\0';
  if (!same) _fail(file, line);
}

/* ---- events ---- */

/* A join of that number on the connection of that epoch. */
static inline void join_as(struct scene *scene, char node, unsigned epoch, uint64_t number) {
  struct native_join join = scene->join;
  join.session = session_of(node, epoch);
  join.number = scene->numbers[(unsigned)node] = number;
  assert_code(
      scene_step(scene,
                 (struct coordinator_event){.kind = COORDINATOR_EV_JOIN, .link = link_of(node, epoch), .join = &join}),
      0);
}

/* The next join of these nodes, one after the other. */
static inline void join(struct scene *scene, const char *nodes) {
  for (; *nodes; nodes++) join_as(scene, *nodes, 1, scene->numbers[(unsigned)*nodes] + 1);
}

static inline void resume(struct scene *scene, char node, unsigned epoch) {
  const struct native_session session = session_of(node, epoch);
  assert_code(scene_step(scene, (struct coordinator_event){.kind = COORDINATOR_EV_RESUME,
                                                           .link = link_of(node, epoch),
                                                           .run_id = scene->join.run_id,
                                                           .session = &session}),
              0);
}

static inline void on_link(struct scene *scene, enum coordinator_event_kind kind, char node, unsigned epoch) {
  assert_code(scene_step(scene, (struct coordinator_event){.kind = kind, .link = link_of(node, epoch), .trip_us = -1}),
              0);
}
static inline void leave(struct scene *scene, char node) { on_link(scene, COORDINATOR_EV_LEAVE, node, 1); }
static inline void lose(struct scene *scene, char node) { on_link(scene, COORDINATOR_EV_LOST, node, 1); }

static inline void close_run(struct scene *scene) {
  assert_code(scene_step(scene,
                         (struct coordinator_event){
                             .kind = COORDINATOR_EV_CLOSE, .link = link_of('Z', 1), .run_id = scene->join.run_id}),
              0);
}

static inline struct coordinator_run *run_of(const struct scene *scene) {
  return coordinator_find(scene->coordinator, scene->join.run_id, strlen(scene->join.run_id));
}

static inline void swap_to(struct scene *scene, struct rendezvous_state *state, enum torch_layout layout) {
  assert_code(
      scene_step(scene,
                 (struct coordinator_event){
                     .kind = COORDINATOR_EV_SWAPPED, .run_id = scene->join.run_id, .state = state, .layout = layout}),
      0);
}

static inline void advance_clock(struct scene *scene, int64_t ms) {
  scene->now.mono_ms += ms;
  scene->now.wall_us += ms * 1000;
}

/* Time passes in which the server runs: its timers come when they are due, and the nodes that are named are heard. */
static inline void pass(struct scene *scene, int64_t ms, const char *heard) {
  const int64_t end = scene->now.mono_ms + ms;
  for (bool done = false; !done;) {
    const int64_t wake = coordinator_wake(scene->coordinator);
    done = wake >= end;
    if (wake > scene->now.mono_ms || done) advance_clock(scene, (done ? end : wake) - scene->now.mono_ms);
    for (const char *node = heard; *node; node++) on_link(scene, COORDINATOR_EV_HEARD, *node, 1);
    assert_code(scene_step(scene, (struct coordinator_event){.kind = COORDINATOR_EV_TIMER}), 0);
  }
}

#endif
