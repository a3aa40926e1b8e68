/* SPDX-License-Identifier: BSD-3-Clause */
/* Between the completion of a round and the return of rdzv_next: the round's store is connected to, and rank 0 is found
 * there. */
#include "handler_scene.h"

#include "proxy.h"

enum { AT_ONCE_MS = 3000 };

static bool await_end(struct node *node, int64_t timeout_ms) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += timeout_ms / 1000;
  return pthread_timedjoin_np(node->thread, NULL, &until) == 0;
}

/* ---- canceling ------------------------------------------------------------------------------------------------ */

/* Joins through a proxy that swallows the n-th piece on the connection of the round's store, and cancels then. False:
 * there are fewer pieces. */
static bool cancel_at_piece(struct scene *scene, int piece, bool as_rank_0) {
  const struct node_options options = {.max = as_rank_0 ? 1 : 2, .min = as_rank_0 ? 1 : 2, .conf = "is_host=0"};
  struct node *node = &scene->nodes[0], *other = &scene->nodes[1];
  const struct timespec moment = {0, 1000000};
  struct proxy proxy;
  proxy_start(&proxy, rdzv_server_port(scene->server));
  node_open(node, proxy.endpoint, "b", options);
  atomic_store(&proxy.swallow_from, piece);
  if (!as_rank_0) {
    node_open(other, scene->endpoint, "a", options);
    join_start(other);
  }
  join_start(node);
  while (atomic_load(&proxy.swallowed) == 0 && !await_end(node, 0)) nanosleep(&moment, NULL);
  const bool swallowed = atomic_load(&proxy.swallowed) > 0;
  if (swallowed) {
    const int64_t began = live_now_ms();
    rdzv_cancel(node->handler);
    const bool ended = await_end(node, AT_ONCE_MS);
    if (!ended) { /* let it end, so that the test leaves nothing behind */
      rdzv_server_stop(scene->server);
      proxy_end(&proxy);
      fail_msg("piece %d: after %lld ms it had not ended", piece, (long long)(live_now_ms() - began));
    }
    assert_error(node->code, RDZV_E_CANCELED, &node->error, "cannot join the rendezvous: canceled");
    assert_null(node->result);
  } else {
    assert_code(node->code, 0);
  }
  if (!as_rank_0) {
    assert_code(join_end(other), 0);
    node_close(other);
  }
  node_close(node);
  proxy_end(&proxy);
  return swallowed;
}

/* A cancel ends the join wherever it is, and does not wait for the store. */
static void check_cancel(struct scene *scene, bool as_rank_0) {
  int piece = 1;
  while (cancel_at_piece(scene, piece, as_rank_0)) {
    piece++;
    node_close(&scene->watcher); /* a run of its own for each */
    rdzv_store_close(scene->raw);
    rdzv_server_close(scene->server);
    scene->server = serve();
    scene->endpoint = rdzv_server_address(scene->server);
    scene->raw = connect_to(scene->endpoint);
    node_open(&scene->watcher, scene->endpoint, "watcher", (struct node_options){0});
  }
  assert_true(piece > 2); /* the greeting, and what rank 0 says or the others ask */
}

static void test_a_cancel_ends_the_join_of_rank_0(void **state) { check_cancel(*state, true); }
static void test_a_cancel_ends_the_join_of_another(void **state) { check_cancel(*state, false); }

/* The store of a round that was joined is not canceled with the handler. */
static void test_the_store_of_a_round_outlives_a_cancel(void **state) {
  struct scene *scene = *state;
  struct node *node = &scene->nodes[0];
  open_and_join(node, 1, scene->endpoint, (struct node_options){0});
  rdzv_cancel(node->handler);
  must_set(node->result->store, "k", "v");
  assert_get(node->result->store, "k", "v");
  rdzv_store *clone;
  rdzv_error error;
  assert_code(rdzv_store_clone(node->result->store, &clone, &error), 0);
  assert_get(clone, "k", "v");
  rdzv_store_close(clone);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_A_SCENE(test_a_cancel_ends_the_join_of_rank_0),
      IN_A_SCENE(test_a_cancel_ends_the_join_of_another),
      IN_A_SCENE(test_the_store_of_a_round_outlives_a_cancel),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
