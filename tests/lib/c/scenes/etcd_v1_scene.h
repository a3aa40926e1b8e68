/* SPDX-License-Identifier: BSD-3-Clause */
/* Nodes of the first-generation rendezvous by the public API, in threads, and an etcd that is a sidecar. */
#ifndef RDZV_TESTS_ETCD_V1_SCENE_H
#define RDZV_TESTS_ETCD_V1_SCENE_H

#include "asleep.h"
#include "live.h"
#include "no_sync.h"

#include <rdzv/etcd.h>
#include <rdzv/handler.h>

static rdzv_etcd_process *etcd;

/* On that port, or, for 0, on a free one; without any data. */
static inline int start_etcd_at(int port) {
  const rdzv_etcd_process_options options = {.size = sizeof options, .port = port};
  rdzv_error error;
  no_sync();
  const int result = rdzv_etcd_process_start(&options, &etcd, &error);
  if (result < 0) print_error("%s\n", error.message);
  return result;
}

static inline int start_etcd(void **state) {
  (void)state;
  return start_etcd_at(0);
}

static inline int stop_etcd(void **state) {
  (void)state;
  rdzv_etcd_process_free(etcd);
  etcd = NULL;
  return 0;
}

/* ---- nodes ---------------------------------------------------------------------------------------------------- */

static inline rdzv_handler *open_at(const char *endpoint, const char *run_id, int64_t min, int64_t max) {
  const rdzv_params params = {.size = sizeof params,
                              .backend = "etcd",
                              .endpoint = endpoint,
                              .run_id = run_id,
                              .min_nodes = min,
                              .max_nodes = max,
                              .local_addr = "127.0.0.1",
                              .conf = "last_call_timeout=0.5,timeout=60,read_timeout=20"};
  rdzv_handler *handler;
  rdzv_error error;
  if (rdzv_handler_open(&params, &handler, &error) < 0) fail_msg("%s", error.message);
  return handler;
}

static inline rdzv_handler *open_node(const char *run_id, int64_t min, int64_t max) {
  return open_at(rdzv_etcd_process_endpoint(etcd), run_id, min, max);
}

static inline rdzv_result *must_join(rdzv_handler *handler) {
  rdzv_result *result;
  rdzv_error error;
  if (rdzv_handler_next(handler, &result, &error) < 0) fail_msg("%s", error.message);
  return result;
}

/* A call in a thread of its own. */
struct call {
  pthread_t thread;
  rdzv_handler *handler;
  const char *key;
  atomic_int id; /* of the thread */
  int code;
  rdzv_result *result;
  struct heard change;
  rdzv_value value;
  rdzv_error error;
};

static inline void *do_next(void *argument) {
  struct call *call = argument;
  atomic_store(&call->id, gettid());
  call->code = rdzv_handler_next(call->handler, &call->result, &call->error);
  return NULL;
}

static inline void *do_wait_event(void *argument) {
  struct call *call = argument;
  atomic_store(&call->id, gettid());
  call->code = hear(call->handler, INT64_MAX, &call->change, &call->error);
  return NULL;
}

static inline void *do_extra_get(void *argument) {
  struct call *call = argument;
  atomic_store(&call->id, gettid());
  call->code = rdzv_handler_get_extra(call->handler, call->key, SOON_MS, &call->value, &call->error);
  return NULL;
}

static inline void begin(struct call *call, void *(*what)(void *), rdzv_handler *handler) {
  call->handler = handler;
  assert_int_equal(pthread_create(&call->thread, NULL, what, call), 0);
}

/* It must end soon. */
static inline int finish(struct call *call) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += SOON_MS / 1000;
  if (pthread_timedjoin_np(call->thread, NULL, &until) != 0) fail_msg("a call does not end");
  return call->code;
}

/* Until the call waits for something. */
static inline void await_blocked(const struct call *call) { assert_true(await_asleep(&call->id)); }

static inline void pause_ms(int ms) { poll(NULL, 0, ms); }

/* Is there something to tell, now or within that time? */
static inline bool has_news(rdzv_handler *handler, int within_ms) {
  struct pollfd fd = {.fd = rdzv_handler_change_fd(handler), .events = POLLIN};
  assert_true(fd.fd >= 0);
  return poll(&fd, 1, within_ms) == 1;
}

static inline bool have_etcd(void) {
  const bool have = system("command -v etcd > /dev/null") == 0;
  if (!have) fprintf(stderr, "SKIP: there is no etcd (Debian's etcd-server)\n");
  return have;
}

static inline void await_waiting(rdzv_handler *handler, int64_t expected) {
  const int64_t until = live_now_ms() + SOON_MS;
  int64_t count = 0;
  while (count < expected && live_now_ms() < until)
    assert_code(rdzv_handler_num_nodes_waiting(handler, &count, NULL), 0);
  assert_int_equal(count, expected);
}

static inline void join_both(rdzv_handler *a, rdzv_handler *b, rdzv_result *results[2]) {
  struct call other = {0};
  begin(&other, do_next, b);
  results[0] = must_join(a);
  assert_code(finish(&other), 0);
  results[1] = other.result;
}

#endif
