/* SPDX-License-Identifier: BSD-3-Clause */
/* A cell is opened while its server is restarted, or the connection is lost: nothing was read yet, so nothing is lost.
 */
#include "handler_scene.h"

#include "handler/dynamic/dynamic.h"
#include "proxy.h"

#define SENTINEL "Y2FuaW1hZGFt"

static void restart(struct scene *scene) {
  const int port = rdzv_server_port(scene->server);
  rdzv_server_free(scene->server);
  scene->server = serve_with((rdzv_server_options){0}, port);
  scene->endpoint = rdzv_server_address(scene->server);
}

static void open_and_close(rdzv_store *store) {
  rdzv_backend *cell;
  rdzv_error error;
  if (c10d_open(store, NULL, "run", &(rdzv_log){0}, &cell, &error) < 0) fail_msg("%s", error.message);
  assert_get(store, "torch.rendezvous.run", SENTINEL);
  cell->ops->close(cell);
}

static void test_a_server_that_is_restarted_does_not_end_the_opening(void **state) {
  struct scene *scene = *state;
  rdzv_store *store = connect_to(scene->endpoint);
  restart(scene);
  open_and_close(store);
  rdzv_store_free(store);
}

static void test_a_lost_answer_of_a_pytorch_server_does_not_end_the_opening(void **state) {
  struct scene *scene = *state;
  struct proxy proxy;
  proxy_start(&proxy, rdzv_server_port(scene->server));
  rdzv_store *store = connect_with(proxy.endpoint, (rdzv_tcp_options){.dialect = RDZV_DIALECT_V2});
  atomic_store(&proxy.cut, CUT_ANSWER);
  open_and_close(store);
  assert_int_equal(atomic_load(&proxy.cut), CUT_NOTHING);
  rdzv_store_free(store);
  proxy_end(&proxy);
}

/* It is tried within the store's time only. */
static void test_a_server_that_is_gone_ends_the_opening_in_time(void **state) {
  struct scene *scene = *state;
  rdzv_store *store = connect_to(scene->endpoint);
  rdzv_backend *cell;
  rdzv_error error;
  assert_code(rdzv_store_set_request_timeout(store, 300, &error), 0);
  rdzv_server_free(scene->server);
  scene->server = NULL;
  const int64_t began = live_now_ms();
  assert_true(c10d_open(store, NULL, "run", &(rdzv_log){0}, &cell, &error) < 0);
  assert_within(began, 5000);
  rdzv_store_free(store);
}

static void test_the_program_of_an_unnamed_run_is_told_to_the_new_server(void **state) {
  struct scene *scene = *state;
  const rdzv_params params = {.size = sizeof params, .run_id = UNNAMED_RUN, .program = "train"};
  rdzv_store *store = connect_to(scene->endpoint);
  rdzv_error error;
  restart(scene);
  if (dynamic_check_program(store, &params, &error) < 0) fail_msg("%s", error.message);
  assert_get(store, "rdzv.program." UNNAMED_RUN, "train");
  rdzv_store_free(store);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_A_SCENE(test_a_server_that_is_restarted_does_not_end_the_opening),
      IN_A_SCENE(test_a_lost_answer_of_a_pytorch_server_does_not_end_the_opening),
      IN_A_SCENE(test_a_server_that_is_gone_ends_the_opening_in_time),
      IN_A_SCENE(test_the_program_of_an_unnamed_run_is_told_to_the_new_server),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
