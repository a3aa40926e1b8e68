/* SPDX-License-Identifier: BSD-3-Clause */
/* One native node on a clock of the test's, and what a server says to it. It is node 'm_7_0'. */
#ifndef RDZV_TESTS_MEMBER_WORLD_H
#define RDZV_TESTS_MEMBER_WORLD_H

#include "state/native/member.h"
#include "unit.h"

enum { START_MS = 100000, DEAD_MS = 15000 };

struct world {
  struct member member;
  struct member_update update;
  struct moment now;
};

static inline void begin(struct world *world) {
  struct member_config config = {.run_id = "job",
                                 .node = {"m", 7, 0},
                                 .settings = RENDEZVOUS_SETTINGS_DEFAULT,
                                 .times = NATIVE_TIMES_DEFAULT,
                                 .layout = TORCH_NEWEST,
                                 .secret = {{1, 2}}};
  *world = (struct world){.now = {START_MS, 0}};
  member_init(&world->member, &config);
}

static inline void step(struct world *world, struct member_event event) {
  event.now = world->now;
  member_step(&world->member, &event, &world->update);
}

static inline void event(struct world *world, enum member_event_kind kind) {
  step(world, (struct member_event){.kind = kind});
}

static inline void after(struct world *world, int64_t ms) {
  world->now.mono_ms += ms;
  event(world, MEMBER_EV_TIMER);
}

static inline void lose(struct world *world, int code) {
  rdzv_error error = {.code = code, .message = "it broke"};
  step(world, (struct member_event){.kind = MEMBER_EV_LOST, .error = &error});
}

static inline void refuse_number(struct world *world, enum member_request what, uint64_t number, int code) {
  rdzv_error error = {.code = code, .message = "no"};
  step(world, (struct member_event){.kind = MEMBER_EV_REFUSED, .refused = what, .number = number, .error = &error});
}

static inline void refuse(struct world *world, enum member_request what, int code) {
  const struct member *member = &world->member;
  refuse_number(world, what,
                what == MEMBER_DO_JOIN     ? member->joins
                : what == MEMBER_DO_RESUME ? member->epoch
                                           : 0,
                code);
}

static inline void answer_join(struct world *world, uint64_t number, int64_t round) {
  const struct native_joined joined = {
      .number = number, .round = round, .rank = 1, .world_size = 2, .all_native = true};
  step(world, (struct member_event){.kind = MEMBER_EV_JOINED, .joined = &joined});
}

static inline void tell(struct world *world, unsigned what, int64_t round) {
  struct native_news news = {.what = what, .round = round, .gone = 1, .named = 1, .nodes = {{"n", 1, 0}}};
  step(world, (struct member_event){.kind = MEMBER_EV_NEWS, .news = &news});
}

#define assert_doing(world, flags) assert_int_equal((world)->update.doing, (flags))
#define assert_told(world, flags) assert_int_equal((world)->update.told.news, (flags))

/* Runs the timers up to that time, without any answer, and gives what was done. */
static inline unsigned run_until(struct world *world, int64_t until_ms) {
  unsigned done = 0;
  while (world->update.until_ms <= until_ms) {
    world->now.mono_ms = world->update.until_ms > world->now.mono_ms ? world->update.until_ms : world->now.mono_ms;
    event(world, MEMBER_EV_TIMER);
    done |= world->update.doing;
  }
  world->now.mono_ms = until_ms;
  return done;
}

/* Asks, connects and sends the join. */
static inline void begin_to_join(struct world *world) {
  begin(world);
  step(world,
       (struct member_event){
           .kind = MEMBER_EV_ASK_JOIN, .master_addr = "10.0.0.7", .master_port = 4711, .workers = {"trainer", 8, 1}});
  assert_doing(world, MEMBER_DO_CONNECT);
  event(world, MEMBER_EV_CONNECTED);
  assert_doing(world, MEMBER_DO_JOIN);
}

static inline void join(struct world *world, int64_t round) {
  begin_to_join(world);
  answer_join(world, 1, round);
  assert_told(world, ENGINE_NEWS_JOINED);
}

#endif
