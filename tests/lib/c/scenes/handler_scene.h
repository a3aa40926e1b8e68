/* SPDX-License-Identifier: BSD-3-Clause */
/* A server of ours, a handle on its store, one handler that joins nothing, and up to four nodes. */
#ifndef RDZV_TESTS_HANDLER_SCENE_H
#define RDZV_TESTS_HANDLER_SCENE_H

#include "nodes.h"

struct scene {
  rdzv_server *server;
  const char *endpoint;
  rdzv_store *raw;
  struct node watcher;
  struct node nodes[4];
};

static inline int scene_setup(void **state) {
  struct scene *scene = calloc(1, sizeof *scene);
  if (!scene) return -1;
  scene->server = serve();
  scene->endpoint = rdzv_server_address(scene->server);
  scene->raw = connect_to(scene->endpoint);
  node_open(&scene->watcher, scene->endpoint, "watcher", (struct node_options){0});
  *state = scene;
  return 0;
}

static inline int scene_teardown(void **state) {
  struct scene *scene = *state;
  close_all(scene->nodes, COUNT_OF(scene->nodes));
  node_close(&scene->watcher);
  rdzv_store_free(scene->raw);
  rdzv_server_free(scene->server);
  free(scene);
  return 0;
}

#define IN_A_SCENE(test) cmocka_unit_test_setup_teardown(test, scene_setup, scene_teardown)

#endif
