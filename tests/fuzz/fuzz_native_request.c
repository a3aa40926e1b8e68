/* SPDX-License-Identifier: BSD-3-Clause */
/* The values of NODE_JOIN and NODE_RESUME: the first byte chooses. What is taken is within its limits, and comes out
 * the same when it is written again. */
#include "fuzz.h"
#include "wire/native.h"

static void check_session(const struct native_session *session) {
  const size_t len = strlen(session->node.addr);
  CHECK(len >= 1 && len <= STATE_MAX_ADDR && session->epoch > 0);
}

static void check_same(struct wire_writer *out, const uint8_t *data, size_t len) {
  CHECK(!out->failed && out->buf.len == len + 9 && memcmp(out->buf.data + 9, data, len) == 0);
  buf_free(&out->buf);
}

static void join(const uint8_t *data, size_t len) {
  struct native_join join;
  struct wire_writer out = {0};
  if (wire_native_join((rdzv_bytes){data, len}, &join, NULL) < 0) return;
  check_session(&join.session);
  CHECK(strlen(join.run_id) >= 1 && strlen(join.run_id) <= NATIVE_MAX_RUN_ID && join.number > 0);
  CHECK(strlen(join.master_addr) <= NATIVE_MAX_MASTER && strlen(join.workers.role) <= NATIVE_MAX_ROLE);
  CHECK(join.settings.min_nodes >= 1 && join.settings.max_nodes >= join.settings.min_nodes);
  CHECK(join.settings.max_nodes <= STATE_MAX_NODES && rendezvous_dead_time(&join.settings) > 0);
  CHECK(join.master_port >= 0 && join.master_port <= 65535 && join.first_round >= 0);
  wire_put_native_join(&out, &join);
  check_same(&out, data, len);
}

static void resume(const uint8_t *data, size_t len) {
  struct native_session session;
  const char *run_id;
  struct wire_writer out = {0};
  if (wire_native_resume((rdzv_bytes){data, len}, &run_id, &session, NULL) < 0) return;
  check_session(&session);
  CHECK(strlen(run_id) >= 1 && strlen(run_id) <= NATIVE_MAX_RUN_ID);
  wire_put_native_resume(&out, run_id, &session);
  check_same(&out, data, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  if (len == 0) return 0;
  uint8_t *copy = fuzz_copy(data + 1, len - 1);
  if (data[0] % 2 == 0)
    join(copy, len - 1);
  else
    resume(copy, len - 1);
  free(copy);
  return 0;
}
