/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text/base64.h"
#include "store/etcd/keys.h"
#include "unit.h"

enum { FEW = 1000, MANY = 4000 };

#define PREFIX "/store"

/* A directory with a node for each of that many keys, and the keys. */
struct scene {
  struct etcd_node dir;
  rdzv_bytes *keys;
  char (*texts)[32];
  bool all;
};

static struct scene scene_of(size_t count) {
  struct scene scene = {.dir = {.dir = true, .count = count}};
  scene.dir.nodes = calloc(count, sizeof *scene.dir.nodes);
  scene.keys = calloc(count, sizeof *scene.keys);
  scene.texts = calloc(count, sizeof *scene.texts);
  for (size_t i = 0; i < count; i++) {
    snprintf(scene.texts[i], sizeof scene.texts[i], "key/%zu", i * 7919 % count);
    scene.keys[i] = rdzv_str(scene.texts[i]);
    assert_int_equal(etcd_key_path(PREFIX, scene.keys[i], &scene.dir.nodes[count - 1 - i].key, NULL), 0);
  }
  return scene;
}

static void scene_free(struct scene *scene) {
  for (size_t i = 0; i < scene->dir.count; i++) free(scene->dir.nodes[i].key);
  free(scene->dir.nodes);
  free(scene->keys);
  free(scene->texts);
}

static bool has_all(const struct scene *scene, const rdzv_bytes *keys, size_t count) {
  struct etcd_key_check check;
  assert_true(etcd_key_check_open(&check, keys, count));
  assert_int_equal(etcd_visit_keys(PREFIX, &scene->dir, etcd_check_key, &check, NULL), 0);
  const bool all = check.missing == 0;
  etcd_key_check_close(&check);
  return all;
}

/* All are asked for, one twice, one that is not there, none; also with bytes of 0 in them. */
static void test_a_listing_is_searched(void **state) {
  (void)state;
  struct scene scene = scene_of(5);
  const rdzv_bytes twice[] = {scene.keys[3], scene.keys[1], scene.keys[3]}, other[] = {scene.keys[0], BYTES("key/1\0")};
  assert_true(has_all(&scene, scene.keys, 5));
  assert_true(has_all(&scene, twice, 3));
  assert_false(has_all(&scene, other, 2));
  assert_true(has_all(&scene, NULL, 0));
  scene_free(&scene);
}

static void check_all(void *argument) {
  struct scene *scene = argument;
  scene->all = has_all(scene, scene->keys, scene->dir.count);
}

/* Each of many keys is looked for in a listing of as many. */
static void test_a_check_of_many_keys_is_not_quadratic(void **state) {
  (void)state;
  struct scene few = scene_of(FEW), many = scene_of(MANY);
  assert_not_quadratic(growth_time(check_all, &few), growth_time(check_all, &many));
  assert_true(few.all && many.all);
  scene_free(&few);
  scene_free(&many);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_listing_is_searched),
      cmocka_unit_test(test_a_check_of_many_keys_is_not_quadratic),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
