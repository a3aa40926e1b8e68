/* SPDX-License-Identifier: BSD-3-Clause */
/* An agent that is suspended and stopped from other threads than the one that runs it; for the thread sanitizer most of
 * all. */
#include "live.h"

#include <rdzv/agent.h>
#include <signal.h>
#include <stdatomic.h>

enum { THREADS = 4, TIMES = 100 };

struct scene {
  rdzv_agent *agent;
  sem_t running;
};

static void on_agent(void *user, const rdzv_agent_event *event) {
  struct scene *scene = user;
  if (event->state == RDZV_AGENT_RUNNING) sem_post(&scene->running);
}

static void *suspend_often(void *agent) {
  for (int i = 0; i < TIMES; i++) rdzv_agent_suspend(agent, i % 2 == 0);
  return NULL;
}

static void *look_often(void *agent) {
  for (int i = 0; i < TIMES; i++) {
    int64_t count;
    SCRIPT_CHECK(*rdzv_handler_node(rdzv_agent_handler(agent)));
    SCRIPT_CHECK(rdzv_handler_num_nodes_waiting(rdzv_agent_handler(agent), &count, NULL) == 0);
  }
  return NULL;
}

static void *stop_once(void *agent) {
  rdzv_agent_stop(agent, SIGTERM);
  return NULL;
}

static void from_threads(void *(*run)(void *), rdzv_agent *agent) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, run, agent), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static void *tell_it_all(void *argument) {
  struct scene *scene = argument;
  await_sem(&scene->running);
  from_threads(suspend_often, scene->agent);
  from_threads(look_often, scene->agent);
  rdzv_agent_suspend(scene->agent, false);
  from_threads(stop_once, scene->agent);
  return NULL;
}

static void test_an_agent_is_suspended_and_stopped_from_many_threads(void **state) {
  (void)state;
  struct scene scene = {0};
  const rdzv_agent_options options = {.size = sizeof options,
                                      .standalone = true,
                                      .nproc_per_node = "2",
                                      .argv = (const char *const[]){"sleep", "1000", NULL},
                                      .log_dir = "/dev/null",
                                      .on_agent = on_agent,
                                      .event_user = &scene};
  rdzv_error error;
  rdzv_agent_result *result;
  pthread_t thread;
  sem_init(&scene.running, 0, 0);
  if (rdzv_agent_open(&options, &scene.agent, &error) < 0) fail_msg("%s", error.message);
  assert_int_equal(pthread_create(&thread, NULL, tell_it_all, &scene), 0);
  if (rdzv_agent_run(scene.agent, &result, &error) < 0) fail_msg("%s", error.message);
  pthread_join(thread, NULL);
  assert_int_equal(result->state, RDZV_AGENT_LEFT);
  assert_int_equal(result->exit_code, 128 + SIGTERM);
  rdzv_agent_result_free(result);
  rdzv_agent_free(scene.agent);
  sem_destroy(&scene.running);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_an_agent_is_suspended_and_stopped_from_many_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
