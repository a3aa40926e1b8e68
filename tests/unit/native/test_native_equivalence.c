/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The coordinator and N swap engines over one cell are fed with the same histories of joins, leaves, deaths and
 * closings, and must come to the same worlds: each node is in the same rounds with the same ranks, or fails alike, and
 * between the events, when all has settled, the states are the same.
 *
 * What the order of the events does not determine is left out: a node dies when all has settled, and long enough before
 * the next event for the others to find it by either way; no event comes when a last call may end, which swap nodes can
 * only estimate.
 */
#include "native_scene.h"
#include "state/pickle/read.h"

enum {
  NODES = 6,
  EVENTS = 30,
  HISTORIES = 80,
  LAST_CALL_MS = 1000,
  SOON_MS = 200,
  BURST = 4,       /* so many events come soon after one another, before any last call can end */
  LONG_MS = 60000, /* all has settled */
  JOIN_MS = 100000,
};

/* What became of the joins of a node. */
struct fates {
  char text[4096];
  size_t len;
};

static void add_fate(struct fates *fates, const char *format, ...) RDZV_PRINTF(2, 3);
static void add_fate(struct fates *fates, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fates->len += (size_t)vsnprintf(fates->text + fates->len, sizeof fates->text - fates->len, format, args);
  va_end(args);
  assert_true(fates->len < sizeof fates->text);
}

static void add_world(struct fates *fates, int64_t round, const struct rendezvous_state *state) {
  add_fate(fates, "%d:", (int)round);
  for (size_t i = 0; i < state->count; i++)
    if (state->nodes[i].kinds & NODE_PARTICIPANT)
      add_fate(fates, "%s%d", state->nodes[i].desc.addr, (int)state->nodes[i].rank);
  add_fate(fates, " ");
}

/* ---- engines over a cell -------------------------------------------------------------------------------------- */

struct swap_node {
  struct engine engine;
  struct engine_update update;
  bool alive;
  uint64_t turn; /* of its last join: who came first acts first */
  struct fates fates;
};

struct swap_world {
  struct swap_node nodes[NODES];
  struct rendezvous_state cell;
  uint64_t token;
  struct moment now;
  uint64_t turns;
};

static void note_update(struct swap_node *node) {
  const struct engine_update *update = &node->update;
  if (update->news & ENGINE_NEWS_JOINED) add_world(&node->fates, update->round, update->state);
  if (update->news & ENGINE_NEWS_FAILED) add_fate(&node->fates, "%s ", rdzv_error_name(update->error.code));
  if (update->news & ENGINE_NEWS_EVICTED) add_fate(&node->fates, "evicted ");
}

static void feed(struct swap_world *world, struct swap_node *node, struct engine_event event) {
  rdzv_error error;
  event.now = world->now;
  assert_code(engine_step(&node->engine, &event, &node->update, &error), 0);
  note_update(node);
}

static void feed_state(struct swap_world *world, struct swap_node *node, enum engine_event_kind kind) {
  struct rendezvous_state state;
  assert_true(state_copy(&state, &world->cell));
  feed(world, node,
       (struct engine_event){
           .kind = kind, .state = world->token ? &state : NULL, .token = world->token, .has_permit = true});
  state_free(&state);
}

/* A node that acts on a state of before loses, and tries again at once, before any other. */
static void do_swap(struct swap_world *world, struct swap_node *node) {
  if (node->update.token != world->token) {
    feed_state(world, node, ENGINE_EV_SWAP_LOST);
    return;
  }
  state_free(&world->cell);
  assert_true(state_copy(&world->cell, node->update.state));
  world->token++;
  feed(world, node, (struct engine_event){.kind = ENGINE_EV_SWAP_WON, .token = world->token});
}

/* True: it has done something. */
static bool serve(struct swap_world *world, struct swap_node *node) {
  bool did = false;
  for (;; did = true) {
    switch (node->update.request) {
      case ENGINE_DO_READ: feed_state(world, node, ENGINE_EV_STATE_READ); break;
      case ENGINE_DO_SWAP: do_swap(world, node); break;
      case ENGINE_DO_WAIT:
        if (node->update.token != world->token)
          feed_state(world, node, ENGINE_EV_STATE_READ);
        else if (world->now.mono_ms >= node->update.until_ms)
          feed(world, node, (struct engine_event){.kind = ENGINE_EV_TIMER});
        else
          return did;
        break;
      case ENGINE_DO_BACK_OFF:
        if (world->now.mono_ms < node->update.until_ms) return did;
        feed(world, node, (struct engine_event){.kind = ENGINE_EV_TIMER});
        break;
      default: return did;
    }
  }
}

/* One after the other, who joined first goes first, until none has anything to do. */
static void settle(struct swap_world *world) {
  for (bool did = true; did;) {
    did = false;
    for (uint64_t turn = 0; turn <= world->turns; turn++)
      for (size_t i = 0; i < NODES; i++)
        if (world->nodes[i].alive && world->nodes[i].turn == turn) did |= serve(world, &world->nodes[i]);
  }
}

static void pass_swap(struct swap_world *world, int64_t ms) {
  const int64_t end = world->now.mono_ms + ms;
  while (world->now.mono_ms < end) {
    int64_t next = end;
    for (size_t i = 0; i < NODES; i++) {
      const struct engine_update *update = &world->nodes[i].update;
      const bool waits = update->request == ENGINE_DO_WAIT || update->request == ENGINE_DO_BACK_OFF;
      if (world->nodes[i].alive && waits && update->until_ms < next) next = update->until_ms;
    }
    world->now.wall_us += (next - world->now.mono_ms) * 1000;
    world->now.mono_ms = next;
    settle(world);
  }
}

static void ask(struct swap_world *world, size_t i, enum engine_event_kind kind) {
  struct swap_node *node = &world->nodes[i];
  if (kind == ENGINE_EV_ASK_JOIN) node->turn = ++world->turns;
  feed(world, node, (struct engine_event){.kind = kind});
  serve(world, node);
  settle(world);
}

/* ---- both worlds ---------------------------------------------------------------------------------------------- */

enum status { OUTSIDE, JOINING, JOINED, DEAD };

struct both {
  struct swap_world swap;
  struct scene *scene;
  struct fates fates[NODES];
  struct rendezvous_settings settings[NODES];
  enum status status[NODES]; /* as the coordinator says */
  bool closed;
  uint64_t random;
  char story[4096];
  size_t story_len;
};

static uint64_t draw(struct both *both, uint64_t below) {
  struct pace pace = {.random = both->random};
  const uint64_t drawn = pace_random(&pace) % below;
  both->random = pace.random;
  return drawn;
}

static void tell_story(struct both *both, const char *what, size_t node) {
  both->story_len += (size_t)snprintf(both->story + both->story_len, sizeof both->story - both->story_len, "%s%c ",
                                      what, (char)('a' + node));
}

static void hear(void *user, const struct coordinator_effect *effect) {
  struct both *both = user;
  if (effect->kind == COORDINATOR_DO_SAVE) {
    both->scene->saved.len = 0;
    assert_code(coordinator_write_blob(effect->run, both->scene->now, &both->scene->saved, NULL), 0);
  }
  if (!effect->link) return;
  const size_t i = (size_t)(link_name(effect->link).text[0] - 'a');
  if (i >= NODES) return;
  struct fates *fates = &both->fates[i];
  if (effect->kind == COORDINATOR_DO_JOINED) {
    const int64_t round = effect->joined->round;
    const struct rendezvous_state *world = coordinator_world(effect->run, round);
    assert_non_null(world);
    const struct node_desc node = session_of((char)('a' + i), 1).node;
    assert_int_equal(state_find(world, &node)->rank, effect->joined->rank);
    assert_int_equal(world->count, effect->joined->world_size);
    add_world(fates, round, world);
    both->status[i] = JOINED;
  }
  if (effect->kind == COORDINATOR_DO_FAIL) {
    add_fate(fates, "%s ", rdzv_error_name(effect->error->code));
    both->status[i] = OUTSIDE;
  }
  if (effect->kind == COORDINATOR_DO_TELL && (effect->news->what & ENGINE_NEWS_EVICTED)) add_fate(fates, "evicted ");
}

/* What the run has left is where it begins again, as the server does it. */
static void adopt_saved(struct both *both) {
  struct scene *scene = both->scene;
  if (run_of(scene) || scene->saved.len == 0) return;
  struct rendezvous_state state;
  struct torch_layouts layouts;
  assert_code(pickle_read((rdzv_bytes){scene->saved.data, scene->saved.len}, &state, &layouts, NULL), 0);
  assert_code(coordinator_adopt(scene->coordinator, "run", &state, TORCH_NEWEST, scene->now, NULL), 0);
}

static void do_join(struct both *both, size_t i) {
  tell_story(both, "+", i);
  both->status[i] = JOINING;
  adopt_saved(both);
  both->scene->join.settings = both->settings[i];
  join(both->scene, (char[]){(char)('a' + i), '\0'});
  ask(&both->swap, i, ENGINE_EV_ASK_JOIN);
}

static void do_leave(struct both *both, size_t i) {
  tell_story(both, "-", i);
  both->status[i] = OUTSIDE;
  leave(both->scene, (char)('a' + i));
  ask(&both->swap, i, ENGINE_EV_ASK_LEAVE);
}

static void do_close(struct both *both, size_t i) {
  tell_story(both, "!", i);
  both->closed = true;
  adopt_saved(both);
  close_run(both->scene);
  ask(&both->swap, i, ENGINE_EV_ASK_CLOSE);
}

static void begin_engine(struct both *both, size_t i) {
  struct swap_node *node = &both->swap.nodes[i];
  engine_init(&node->engine, &(struct engine_config){.node = session_of((char)('a' + i), 1).node,
                                                     .settings = both->settings[i],
                                                     .seed = both->random + i});
  node->alive = true;
}

static void pass_both(struct both *both, int64_t ms) {
  char heard[NODES + 1];
  size_t len = 0;
  for (size_t i = 0; i < NODES; i++)
    if (both->status[i] != DEAD) heard[len++] = (char)('a' + i);
  heard[len] = '\0';
  pass(both->scene, ms, heard);
  pass_swap(&both->swap, ms);
  assert_int_equal(both->scene->now.mono_ms, both->swap.now.mono_ms);
}

static void do_die(struct both *both, size_t i) {
  tell_story(both, "x", i);
  both->status[i] = DEAD;
  lose(both->scene, (char)('a' + i));
  both->swap.nodes[i].alive = false;
  pass_both(both, LONG_MS);
  /* Another process with its name comes later. */
  engine_free(&both->swap.nodes[i].engine);
  begin_engine(both, i);
  both->swap.nodes[i].update = (struct engine_update){.request = ENGINE_DO_NOTHING};
  both->status[i] = OUTSIDE;
}

static bool compare(struct both *both, bool settled) {
  for (size_t i = 0; i < NODES; i++)
    if (strcmp(both->fates[i].text, both->swap.nodes[i].fates.text) != 0) {
      print_error("'%c': native '%s', swap '%s'\n", (char)('a' + i), both->fates[i].text,
                  both->swap.nodes[i].fates.text);
      return false;
    }
  if (!settled || both->closed || !run_of(both->scene)) return true;
  const struct rendezvous_state *native = coordinator_run_state(run_of(both->scene)), *swap = &both->swap.cell;
  const struct state_text native_text = text_of(native), swap_text = text_of(swap);
  if (native->round == swap->round && native->complete == swap->complete &&
      strcmp(native_text.text, swap_text.text) == 0)
    return true;
  print_error("native round %d %s, swap round %d %s\n", (int)native->round, native_text.text, (int)swap->round,
              swap_text.text);
  return false;
}

/* ---- histories ------------------------------------------------------------------------------------------------ */

static size_t count_active(const struct both *both) {
  size_t count = 0;
  for (size_t i = 0; i < NODES; i++) count += both->status[i] == JOINING || both->status[i] == JOINED;
  return count;
}

static void one_event(struct both *both, bool settled) {
  const size_t i = draw(both, NODES);
  const bool active = both->status[i] == JOINING || both->status[i] == JOINED;
  const uint64_t kind = draw(both, 16);
  if (kind == 0 && draw(both, 4) == 0)
    do_close(both, i);
  else if (kind <= 3 && active && settled && count_active(both) > 1)
    do_die(both, i);
  else if (kind <= 6 && active)
    do_leave(both, i);
  else
    do_join(both, i);
}

static void begin_both(struct both *both, uint64_t seed) {
  both->random = seed;
  both->scene = scene_begin(1, 1);
  coordinator_free(both->scene->coordinator);
  both->scene->coordinator = coordinator_new(hear, both, NULL);
  both->swap.now = NOW;
  both->swap.cell = STATE_EMPTY;
  const bool alike = draw(both, 2) == 0;
  for (size_t i = 0; i < NODES; i++) {
    struct rendezvous_settings settings = RENDEZVOUS_SETTINGS_DEFAULT;
    settings.min_nodes = 1 + (int64_t)draw(both, 3);
    settings.max_nodes = 3 + (int64_t)draw(both, 4); /* a round can have all: else the later ones fail */
    settings.join_timeout = JOIN_MS;
    settings.last_call_timeout = LAST_CALL_MS;
    both->settings[i] = alike && i > 0 ? both->settings[0] : settings;
    begin_engine(both, i);
  }
}

static void end_both(struct both *both) {
  for (size_t i = 0; i < NODES; i++) engine_free(&both->swap.nodes[i].engine);
  state_free(&both->swap.cell);
  scene_end(both->scene);
}

static void run_history(uint64_t seed, size_t *worlds) {
  struct both *both = test_calloc(1, sizeof *both);
  begin_both(both, seed);
  bool settled = true, same = true;
  for (int i = 0, soon = 0; i < EVENTS && same && !both->closed; i++) {
    one_event(both, settled);
    settled = ++soon == BURST || draw(both, 3) == 0;
    if (settled) soon = 0;
    both->story_len += (size_t)snprintf(both->story + both->story_len, sizeof both->story - both->story_len, "%s",
                                        settled ? "… " : "");
    pass_both(both, settled ? LONG_MS : SOON_MS);
    same = compare(both, settled);
  }
  if (!same) fail_msg("seed %llu: %s", (unsigned long long)seed, both->story);
  for (size_t i = 0; i < NODES; i++) *worlds += strchr(both->fates[i].text, ':') != NULL;
  end_both(both);
  test_free(both);
}

static void test_the_same_histories_make_the_same_worlds(void **context) {
  (void)context;
  size_t worlds = 0;
  for (uint64_t seed = 1; seed <= HISTORIES; seed++) run_history(seed, &worlds);
  assert_true(worlds > (size_t)HISTORIES); /* it was not for nothing */
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_same_histories_make_the_same_worlds)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
