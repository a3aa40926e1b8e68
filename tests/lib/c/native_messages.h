/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages of native nodes and their server to begin with. */
#ifndef RDZV_TEST_NATIVE_MESSAGES_H
#define RDZV_TEST_NATIVE_MESSAGES_H

#include "wire/native.h"

static inline struct native_join native_join_sample(void) {
  struct native_join join = {
      .run_id = "a-run",
      .session = {.node = {"host-7", 1234, 1}, .token = "0123456789abcde", .epoch = 3},
      .number = 2,
      .times = {2000, 300},
      .settings = RENDEZVOUS_SETTINGS_DEFAULT,
      .layout = TORCH_2_3,
      .first_round = 4,
      .master_addr = "10.0.0.7",
      .master_port = 29400,
      .workers = {"trainer", 8, 1},
  };
  join.settings.min_nodes = 2;
  join.settings.max_nodes = 9;
  join.settings.rank_order = RANK_ORDER_STABLE;
  join.settings.launcher = LAUNCHER_AGENT;
  join.settings.max_restarts = 7;
  return join;
}

static inline struct native_joined native_joined_sample(void) {
  return (struct native_joined){.number = 2,
                                .round = 7,
                                .rank = 3,
                                .world_size = 9,
                                .all_native = true,
                                .master_is_ours = true,
                                .master_node = "host-1_12_0",
                                .master_addr = "10.0.0.1",
                                .master_port = 1024,
                                .has_ranks = true,
                                .ranks = {24, 72, 24, 72, 1}};
}

static inline struct native_news native_news_sample(void) {
  return (struct native_news){.what = 1 << 6,
                              .round = 7,
                              .waiting = 1,
                              .gone = 2,
                              .named = 2,
                              .nodes = {{"host-2", 5, 0}, {"host-3", 6, 1}},
                              .warning = "nodes differ"};
}

/* A status of three nodes. */
static inline void native_status_sample(struct wire_writer *out) {
  const struct wire_native_status status = {.exists = true,
                                            .complete = true,
                                            .round = 7,
                                            .call_left_ms = -1,
                                            .layout = TORCH_2_6,
                                            .reason = "done",
                                            .min_nodes = 2,
                                            .max_nodes = 4,
                                            .ended_us = 1790000000000000,
                                            .ended_by = "host-1_12_0"};
  const struct wire_native_node nodes[] = {
      {{"host-1", 12, 0}, 0, NODE_PARTICIPANT, NATIVE_WAY_NATIVE, 15, 120},
      {{"host-10", -3, 1}, 1, NODE_PARTICIPANT, NATIVE_WAY_TORCH, 4000, -1},
      {{"other", INT64_MAX, INT64_MIN}, 0, NODE_WAITING, NATIVE_WAY_SWAP, -1, -1},
  };
  struct wire_native_writer writer;
  wire_native_begin_status(&writer, out, &status, 3);
  for (int i = 0; i < 3; i++) wire_native_add(&writer, &nodes[i]);
  wire_native_end(&writer);
}

static inline void native_members_sample(struct wire_writer *out) {
  struct wire_native_writer writer;
  wire_native_begin_members(&writer, out, 7, 2);
  wire_native_add(&writer, &(struct wire_native_node){{"host-1", 12, 0}, 1, NODE_PARTICIPANT, NATIVE_WAY_NATIVE, 0, 0});
  wire_native_add(&writer, &(struct wire_native_node){{"host-2", 13, 0}, 0, NODE_PARTICIPANT, NATIVE_WAY_SWAP, 0, 0});
  wire_native_end(&writer);
}

#endif
