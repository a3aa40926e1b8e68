/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/keyspace/table.h"
#include "unit.h"

enum { MANY = 10000 };

static bool has(const struct table *table, const struct table_node *node) {
  for (const struct table_node *at = table_first(table, node->hash); at; at = at->next)
    if (at == node) return true;
  return false;
}

static uint64_t mixed(uint64_t number) { return number * 0x9E3779B97F4A7C15u; }

/* Whatever was added is found after each step of growth, and not after it was taken off. */
static void test_all_are_found_while_it_grows_and_shrinks(void **state) {
  (void)state;
  struct table table = {0};
  struct table_node *nodes = calloc(MANY, sizeof *nodes);
  assert_non_null(nodes);
  assert_null(table_first(&table, 1));
  for (size_t i = 0; i < MANY; i++) {
    nodes[i].hash = mixed(i) >> 3;
    assert_true(table_add(&table, &nodes[i]));
    assert_true(has(&table, &nodes[i]) && has(&table, &nodes[i / 2]) && has(&table, &nodes[0]));
    assert_true(table.places >= table.count);
  }
  for (size_t i = 0; i < MANY; i++) assert_true(has(&table, &nodes[i]));
  for (size_t i = 0; i < MANY; i += 2) table_remove(&table, &nodes[i]);
  for (size_t i = 0; i < MANY; i++) assert_int_equal(has(&table, &nodes[i]), i % 2);
  size_t at = 0, left = 0;
  for (struct table_node *node; (node = table_any(&table, &at)) != NULL; left++) table_remove(&table, node);
  assert_int_equal(left, MANY / 2);
  assert_int_equal(table.count, 0);
  table_free(&table);
  free(nodes);
}

/* It grows by at most one place with each node. */
static void test_it_grows_evenly(void **state) {
  (void)state;
  struct table table = {0};
  struct table_node *nodes = calloc(MANY, sizeof *nodes);
  assert_non_null(nodes);
  for (size_t i = 0; i < MANY; i++) {
    const size_t before = table.places;
    nodes[i].hash = i;
    assert_true(table_add(&table, &nodes[i]));
    assert_true(before == 0 || table.places <= before + 1);
  }
  table_free(&table);
  free(nodes);
}

/* The same hash for all makes it slow, not wrong. */
static void test_equal_hashes(void **state) {
  (void)state;
  struct table table = {0};
  struct table_node nodes[200] = {0};
  for (size_t i = 0; i < 200; i++) assert_true(table_add(&table, &nodes[i]));
  for (size_t i = 0; i < 200; i++) {
    assert_true(has(&table, &nodes[i]));
    table_remove(&table, &nodes[i]);
    assert_false(has(&table, &nodes[i]));
  }
  table_free(&table);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_are_found_while_it_grows_and_shrinks),
      cmocka_unit_test(test_it_grows_evenly),
      cmocka_unit_test(test_equal_hashes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
