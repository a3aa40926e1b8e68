/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rules_driver VERSION: our rules on the states of that PyTorch, for test_rules.py. A line of input is
 *
 *   OPERATION ADDR PID LOCAL_ID NOW_US DEADLINE_MS MIN MAX PICKLE
 *
 * an operation of exit, join, close, keep_alive or sanitize, the node that does it, the time, how much time is left for
 * it, the limits, and the state as PyTorch's pickle in hex. A line of output is the action and the state after it.
 */
#include "judge_by_wall.h"
#include "state/engine/liveness.h"
#include "state/pickle/read.h"
#include "state/pickle/write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void fail(const char *what, const rdzv_error *error) {
  fprintf(stderr, "rules_driver: %s%s%s\n", what, error ? ": " : "", error ? error->message : "");
  exit(1);
}

struct question {
  char operation[16], addr[256];
  struct node_desc node;
  struct rendezvous_settings settings;
  struct moment now;
  int64_t left_ms;
  struct rendezvous_state state;
  enum torch_layout layout;
};

static struct buf from_hex(const char *hex) {
  struct buf bytes = {0};
  for (unsigned value; sscanf(hex, "%2x", &value) == 1; hex += 2)
    if (!buf_append(&bytes, &(uint8_t){(uint8_t)value}, 1)) fail("no memory", NULL);
  return bytes;
}

static void read_question(const char *line, enum torch_layout layout, struct question *question) {
  int at = 0;
  rdzv_error error = {0};
  question->settings = RENDEZVOUS_SETTINGS_DEFAULT;
  question->settings.marks = false;
  const int fields =
      sscanf(line, "%15s %255s %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %n",
             question->operation, question->addr, &question->node.pid, &question->node.local_id, &question->now.wall_us,
             &question->left_ms, &question->settings.min_nodes, &question->settings.max_nodes, &at);
  if (fields != 8) fail("no such question", NULL);
  question->node.addr = question->addr;
  question->now.mono_ms = 1000000;
  struct buf pickle = from_hex(line + at);
  struct torch_layouts layouts;
  if (pickle_read((rdzv_bytes){pickle.data, pickle.len}, &question->state, &layouts, &error) < 0)
    fail("cannot read the state", &error);
  buf_free(&pickle);
  question->layout = torch_layout_choose(layouts, layout);
  question->settings.has_redundancy_list = torch_traits(question->layout)->redundancy_list;
}

static void look(struct liveness *liveness, const struct question *question, int64_t wall_us) {
  static const struct node_desc nobody = {"nobody.example", 1, 0};
  struct rendezvous_state state;
  if (!state_copy(&state, &question->state)) fail("no memory", NULL);
  for (size_t i = 0; i < state.count; i++) /* before it beat, the heartbeat was another */
    if (state.nodes[i].last_heartbeat > wall_us) state.nodes[i].last_heartbeat -= INT64_C(3600000000);
  const struct moment moment = {question->now.mono_ms + (wall_us - question->now.wall_us) / 1000, wall_us};
  if (liveness_observe(liveness, &question->settings, &nobody, &state, moment, NULL) < 0) fail("no memory", NULL);
  state_free(&state);
}

/* Somebody whose clock agrees with everybody's has watched the heartbeats come, looking every millisecond in which one
 * did, and every few seconds. */
static void sanitize(struct question *question) {
  static const struct node_desc nobody = {"nobody.example", 1, 0};
  struct liveness liveness = {0};
  const int64_t end = question->now.wall_us;
  for (int64_t at = end - INT64_C(200000000), next; at < end; at = next) {
    look(&liveness, question, at);
    next = at + 3000000 < end ? at + 3000000 : end;
    for (size_t i = 0; i < question->state.count; i++) {
      const int64_t heartbeat = question->state.nodes[i].last_heartbeat;
      if (heartbeat > at && heartbeat < next) next = heartbeat;
    }
  }
  look(&liveness, question, end);
  liveness_sanitize(&liveness, &question->settings, &nobody, &question->state, question->now.mono_ms);
  liveness_free(&liveness);
}

static enum rendezvous_action decide(const struct question *question, const struct rendezvous_context *context) {
  switch (question->operation[0]) {
    case 'e': return decide_exit(context);
    case 'j': return decide_join(context);
    case 'c': return decide_close(context);
    default: return decide_keep_alive(context);
  }
}

static const char *act(struct question *question) {
  if (question->operation[0] == 's') {
    sanitize(question);
    return "SANITIZE";
  }
  struct rendezvous_context context = {.node = &question->node,
                                       .state = &question->state,
                                       .settings = &question->settings,
                                       .now = question->now,
                                       .deadline_ms = question->now.mono_ms + question->left_ms};
  judge_by_wall(&context);
  const enum rendezvous_action action = decide(question, &context);
  rdzv_error error;
  if (rendezvous_apply(&context, action, &error) < 0) fail("cannot apply", &error);
  return rendezvous_action_name(action);
}

static void answer(const char *action, const struct question *question) {
  struct buf pickle = {0};
  rdzv_error error;
  if (pickle_write(&question->state, question->layout, &pickle, &error) < 0) fail("cannot write the state", &error);
  printf("%s ", action);
  for (size_t i = 0; i < pickle.len; i++) printf("%02x", pickle.data[i]);
  putchar('\n');
  buf_free(&pickle);
}

int main(int argc, char **argv) {
  char *line = NULL;
  size_t size = 0;
  enum torch_layout layout;
  if (argc != 2 || torch_layout_parse(argv[1], &layout, NULL) < 0) fail("usage: rules_driver VERSION", NULL);
  while (getline(&line, &size, stdin) > 0) {
    struct question question = {0};
    read_question(line, layout, &question);
    answer(act(&question), &question);
    state_free(&question.state);
  }
  free(line);
  return 0;
}
