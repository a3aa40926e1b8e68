/* SPDX-License-Identifier: BSD-3-Clause */
/* One node on etcd v3, step by step: what it asks for, and what it makes of the answers. */
#include "state/leased/machine.h"
#include "unit.h"

#include <stdlib.h>
#include <string.h>

enum { LEASE = 0x2a, OTHER = 0x2b, RUN = 0x77 };

/* Of round 0: 'there' is rank 0, we are rank 1. */
#define WORLD_OF_TWO                                                 \
  "{\"round\":0,\"size\":2,\"master_addr\":\"x\",\"master_port\":1," \
  "\"nodes\":[[\"there\",1,0,\"2b\"],[\"here\",7,0,\"2a\"]]}"

struct case_node {
  struct leased machine;
  struct leased_update update;
  int64_t now;
};

static struct case_node node_of(int64_t min, int64_t max) {
  struct leased_config config = {.node = {"here", 7, 0}, .lease_ms = 5000, .seed = 1};
  config.settings = RENDEZVOUS_SETTINGS_DEFAULT;
  config.settings.min_nodes = min;
  config.settings.max_nodes = max;
  struct case_node node = {.now = 1000};
  leased_init(&node.machine, &config);
  return node;
}

static void step(struct case_node *node, struct leased_event event) {
  event.now = (struct moment){node->now, node->now * 1000};
  assert_int_equal(leased_step(&node->machine, &event, &node->update, NULL), 0);
}

static void join(struct case_node *node) {
  step(node, (struct leased_event){.kind = LEASED_EV_ASK_JOIN, .master_addr = "m", .master_port = 99});
  assert_int_equal(node->update.request, LEASED_DO_GRANT);
  assert_int_equal(node->update.ttl_ms, 5000);
  step(node, (struct leased_event){.kind = LEASED_EV_GRANTED, .lease = LEASE});
  assert_int_equal(node->update.request, LEASED_DO_TXN);
}

static void assert_compare(const struct leased_txn *txn, size_t i, const char *key, bool mod, int64_t number) {
  assert_true(i < txn->compare_count);
  assert_string_equal(txn->compares[i].key, key);
  assert_int_equal(txn->compares[i].mod, mod);
  assert_int_equal(txn->compares[i].number, number);
}

/* Joined as the only node, which leads. */
static void lead(struct case_node *node) {
  join(node);
  step(node, (struct leased_event){.kind = LEASED_EV_DONE, .revision = 5, .count = 0});
  assert_int_equal(node->update.request, LEASED_DO_READ);
  const struct leased_kv own = {node->machine.own_key.text, node->machine.value, 5, 5, LEASE, false};
  step(node, (struct leased_event){.kind = LEASED_EV_FOUND, .revision = 5, .kvs = &own, .kv_count = 1});
}

static void complete(struct case_node *node) {
  lead(node);
  assert_int_equal(node->update.request, LEASED_DO_GRANT); /* of the run */
  step(node, (struct leased_event){.kind = LEASED_EV_GRANTED, .lease = RUN});
  assert_int_equal(node->update.request, LEASED_DO_TXN);
  step(node, (struct leased_event){.kind = LEASED_EV_DONE, .revision = 6});
  assert_int_equal(node->update.news, ENGINE_NEWS_JOINED);
  assert_int_equal(node->update.request, LEASED_DO_WATCH);
}

/* ---- joining -------------------------------------------------------------------------------------------------- */

static void test_a_join_is_one_transaction_on_the_world_that_is_known(void **state) {
  (void)state;
  struct case_node node = node_of(2, 2);
  join(&node);
  const struct leased_txn *txn = &node.update.txn;
  assert_compare(txn, 0, "world", true, 0);
  assert_compare(txn, 1, "closed", false, 0);
  assert_compare(txn, 2, "0/nodes/here_7_0.2a", false, 0);
  assert_string_equal(txn->counted, "0/nodes/");
  assert_int_equal(txn->put_count, 1);
  assert_int_equal(txn->puts[0].lease, LEASE);
  assert_non_null(strstr(txn->puts[0].value, "\"master_port\":99"));
  leased_free(&node.machine);
}

static void test_the_oldest_writes_the_world_fenced_by_the_world_before_and_its_own_key(void **state) {
  (void)state;
  struct case_node node = node_of(1, 1);
  lead(&node);
  step(&node, (struct leased_event){.kind = LEASED_EV_GRANTED, .lease = RUN});
  const struct leased_txn *txn = &node.update.txn;
  assert_compare(txn, 0, "world", true, 0);
  assert_compare(txn, 1, "closed", false, 0);
  assert_compare(txn, 2, "0/nodes/here_7_0.2a", false, 5);
  assert_string_equal(txn->puts[0].key, "world");
  assert_int_equal(txn->puts[0].lease, RUN);
  leased_free(&node.machine);
}

static void test_one_who_is_not_the_oldest_waits_for_the_world(void **state) {
  (void)state;
  struct case_node node = node_of(2, 2);
  join(&node);
  step(&node, (struct leased_event){.kind = LEASED_EV_DONE, .revision = 6, .count = 1});
  assert_int_equal(node.update.request, LEASED_DO_WATCH);
  assert_false(node.update.watch.all);
  assert_int_equal(node.update.watch.nodes_from, 7);
  const struct leased_kv world = {"world", WORLD_OF_TWO, 7, 7, RUN, false};
  step(&node, (struct leased_event){.kind = LEASED_EV_CHANGED, .kvs = &world, .kv_count = 1});
  assert_int_equal(node.update.news, ENGINE_NEWS_JOINED);
  assert_int_equal(node.update.rank, 1);
  assert_int_equal(node.update.world_size, 2);
  leased_free(&node.machine);
}

static void test_a_world_that_a_member_has_left_is_not_entered(void **state) {
  (void)state;
  struct case_node node = node_of(2, 2);
  join(&node);
  step(&node, (struct leased_event){.kind = LEASED_EV_DONE, .revision = 6, .count = 1});
  const struct leased_kv kvs[] = {{"0/nodes/there_1_0.2b", "{}", 7, 8, OTHER, true},
                                  {"world", WORLD_OF_TWO, 9, 9, RUN, false}};
  step(&node, (struct leased_event){.kind = LEASED_EV_CHANGED, .kvs = kvs, .kv_count = 2});
  assert_int_equal(node.update.news, 0);
  assert_int_equal(node.update.request, LEASED_DO_TXN); /* says that it leaves, and goes on to the next */
  leased_free(&node.machine);
}

static void test_closed_while_joining(void **state) {
  (void)state;
  struct case_node node = node_of(1, 1);
  join(&node);
  const struct leased_kv closed = {"closed", "{\"reason\":\"enough\"}", 3, 3, 1, false};
  step(&node, (struct leased_event){.kind = LEASED_EV_REFUSED, .revision = 4, .kvs = &closed, .kv_count = 1});
  assert_int_equal(node.update.news, ENGINE_NEWS_FAILED);
  assert_int_equal(node.update.error.code, RDZV_E_CLOSED);
  assert_non_null(strstr(node.update.error.message, "enough"));
  assert_int_equal(node.update.request, LEASED_DO_REVOKE);
  leased_free(&node.machine);
}

/* ---- a participant -------------------------------------------------------------------------------------------- */

static void test_a_node_that_slept_renews_its_lease_before_anything_else_and_is_told(void **state) {
  (void)state;
  struct case_node node = node_of(1, 1);
  complete(&node);
  node.now += 60000;
  const struct leased_kv want = {"want", "{}", 9, 9, OTHER, false};
  step(&node, (struct leased_event){.kind = LEASED_EV_CHANGED, .kvs = &want, .kv_count = 1});
  assert_int_equal(node.update.request, LEASED_DO_KEEP_ALIVE);
  assert_int_equal(node.update.lease, LEASE);
  step(&node, (struct leased_event){.kind = LEASED_EV_GONE});
  assert_int_equal(node.update.news, ENGINE_NEWS_EVICTED);
  assert_int_equal(node.update.request, LEASED_DO_IDLE);
  leased_free(&node.machine);
}

static void test_another_world_is_the_loss_of_the_place(void **state) {
  (void)state;
  struct case_node node = node_of(1, 1);
  complete(&node);
  const struct leased_kv world = {
      "world", "{\"round\":1,\"size\":1,\"master_addr\":\"x\",\"master_port\":1,\"nodes\":[[\"there\",1,0,\"2b\"]]}",
      6,       9,
      RUN,     false};
  step(&node, (struct leased_event){.kind = LEASED_EV_CHANGED, .kvs = &world, .kv_count = 1});
  assert_int_equal(node.update.news, ENGINE_NEWS_EVICTED);
  leased_free(&node.machine);
}

static void test_changes_that_are_told_again_do_nothing(void **state) {
  (void)state;
  struct case_node node = node_of(1, 1);
  complete(&node);
  const struct leased_kv want = {"want", "{}", 9, 9, OTHER, false};
  step(&node, (struct leased_event){.kind = LEASED_EV_CHANGED, .kvs = &want, .kv_count = 1});
  assert_int_equal(node.update.news, ENGINE_NEWS_SOMEONE_WAITS);
  step(&node, (struct leased_event){.kind = LEASED_EV_CHANGED, .kvs = &want, .kv_count = 1});
  assert_int_equal(node.update.news, 0);
  leased_free(&node.machine);
}

/* In a round of two: 'there' is rank 0, we are rank 1. */
static struct case_node node_in_two(void) {
  struct case_node node = node_of(2, 3);
  join(&node);
  step(&node, (struct leased_event){.kind = LEASED_EV_DONE, .revision = 6, .count = 1});
  const struct leased_kv world = {"world", WORLD_OF_TWO, 7, 7, RUN, false};
  step(&node, (struct leased_event){.kind = LEASED_EV_CHANGED, .kvs = &world, .kv_count = 1});
  assert_int_equal(node.update.news, ENGINE_NEWS_JOINED);
  return node;
}

static void test_a_participant_that_waits_has_left(void **state) {
  (void)state;
  struct case_node node = node_in_two();
  const struct leased_kv want = {"want", "{}", 9, 9, OTHER, false};
  const struct leased_kv gone = {"0/nodes/there_1_0.2b", "{\"left\":true}", 5, 8, OTHER, true};
  step(&node, (struct leased_event){.kind = LEASED_EV_CHANGED, .kvs = &want, .kv_count = 1});
  assert_int_equal(node.update.news, ENGINE_NEWS_SOMEONE_WAITS | ENGINE_NEWS_PARTICIPANT_LEFT);
  const struct leased_member *member = leased_gone(&node.machine, NULL);
  assert_string_equal(member->desc.addr, "there");
  assert_false(member->died);
  step(&node, (struct leased_event){.kind = LEASED_EV_CHANGED, .kvs = &gone, .kv_count = 1}); /* its key, late */
  assert_int_equal(node.update.news, 0);
  leased_free(&node.machine);
}

static void test_another_that_waits_has_not_left(void **state) {
  (void)state;
  struct case_node node = node_in_two();
  const struct leased_kv want = {"want", "{}", 9, 9, 0x2c, false};
  step(&node, (struct leased_event){.kind = LEASED_EV_CHANGED, .kvs = &want, .kv_count = 1});
  assert_int_equal(node.update.news, ENGINE_NEWS_SOMEONE_WAITS);
  leased_free(&node.machine);
}

/* After changes were missed: who has a key in a later round has left, not died. */
static void test_a_participant_that_is_found_in_a_later_round_has_left(void **state) {
  (void)state;
  for (int there = 0; there <= 1; there++) {
    struct case_node node = node_in_two();
    step(&node, (struct leased_event){.kind = LEASED_EV_WATCH_LOST});
    assert_int_equal(node.update.request, LEASED_DO_READ);
    const struct leased_kv found[] = {
        {"0/nodes/here_7_0.2a", "{}", 6, 6, LEASE, false},
        {"world", WORLD_OF_TWO, 7, 7, RUN, false},
        {"1/nodes/there_1_0.2b", "{}", 9, 9, OTHER, false},
    };
    step(&node,
         (struct leased_event){.kind = LEASED_EV_FOUND, .revision = 9, .kvs = found, .kv_count = (size_t)(2 + there)});
    assert_int_equal(node.update.news, there ? ENGINE_NEWS_PARTICIPANT_LEFT : ENGINE_NEWS_PARTICIPANT_DIED);
    leased_free(&node.machine);
  }
}

static void test_a_lost_answer_is_looked_up(void **state) {
  (void)state;
  struct case_node node = node_of(2, 2);
  const rdzv_error lost = {.code = RDZV_E_OUTCOME_UNKNOWN, .message = "lost"};
  join(&node);
  step(&node, (struct leased_event){.kind = LEASED_EV_ERROR, .error = &lost});
  assert_int_equal(node.update.request, LEASED_DO_PAUSE);
  node.now = node.update.until_ms;
  step(&node, (struct leased_event){.kind = LEASED_EV_TIMER});
  assert_int_equal(node.update.request, LEASED_DO_READ);
  const struct leased_kv own = {node.machine.own_key.text, node.machine.value, 5, 5, LEASE, false};
  step(&node, (struct leased_event){.kind = LEASED_EV_FOUND, .revision = 8, .kvs = &own, .kv_count = 1});
  assert_int_equal(node.update.request, LEASED_DO_WATCH); /* it was done */
  assert_true(node.update.watch.all);
  leased_free(&node.machine);
}

/* ---- records -------------------------------------------------------------------------------------------------- */

static void test_keys(void **state) {
  (void)state;
  const struct node_desc desc = {"a/b", 1, 2};
  int64_t round, lease;
  assert_string_equal(leased_key(12, &desc, 255).text, "12/nodes/a%2Fb_1_2.ff");
  assert_true(leased_key_parse("12/nodes/a%2Fb_1_2.ff", &round, &lease));
  assert_int_equal(round, 12);
  assert_int_equal(lease, 255);
  static const char *const others[] = {"world",
                                       "12/nodes/a",
                                       "x/nodes/a.1",
                                       "12/nodes/a.",
                                       "12/nodes/a.g1",
                                       "12/kv/a.1",
                                       "1234567890123456789/nodes/a.1",
                                       "1/nodes/a.12345678901234567"};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
    assert_false(leased_key_parse(others[i], &round, &lease));
}

static void test_records_that_cannot_be_read(void **state) {
  (void)state;
  static const char *const worlds[] = {
      "",
      "[]",
      "{\"round\":-1,\"master_addr\":\"\",\"master_port\":0,\"nodes\":[]}",
      "{\"round\":1,\"master_addr\":\"\",\"master_port\":70000,\"nodes\":[]}",
      "{\"round\":1,\"master_addr\":\"\",\"master_port\":0,\"nodes\":[[\"a\",1,0]]}",
      "{\"round\":1,\"master_addr\":\"\",\"master_port\":0,\"nodes\":[[\"a\",1,0,\"\"]]}"};
  struct leased_world world;
  struct leased_node node;
  for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++)
    assert_int_equal(leased_world_read(worlds[i], &world, NULL), RDZV_E_CORRUPT);
  assert_int_equal(leased_node_read("{\"addr\":\"a\"}", &node, NULL), RDZV_E_CORRUPT);
  assert_int_equal(leased_node_read("nothing", &node, NULL), RDZV_E_CORRUPT);
}

static void test_a_wait_beside_one_node_and_beside_two(void **unused) {
  (void)unused;
  struct leased node = {.placed = true, .world_mod = 1};
  node.world.count = 1;
  assert_string_equal(leased_waiting(&node).text, "waiting for the next round: round 0 goes on with 1 node");
  node.world.count = 2;
  assert_string_equal(leased_waiting(&node).text, "waiting for the next round: round 0 goes on with 2 nodes");
  node.spare = true;
  assert_string_equal(leased_waiting(&node).text, "waiting as a spare: round 0 is full with 2 nodes");
  node.world.count = 1;
  assert_string_equal(leased_waiting(&node).text, "waiting as a spare: round 0 is full with 1 node");
}

static void assert_waiting(const struct leased *node, const char *text) {
  assert_string_equal(leased_waiting(node).text, text);
}

static void test_what_a_node_waits_for(void **state) {
  (void)state;
  struct leased_seat seats[] = {{.round = 0}, {.round = 0, .clashes = true}, {.round = 0}};
  struct leased leads = {.placed = true, .leads = true, .seats = seats, .seat_count = 2, .call_ends = INT64_MAX};
  leads.config.settings = (struct rendezvous_settings){.min_nodes = 2, .max_nodes = 4};
  assert_waiting(&leads, "waiting for nodes: 1 of at least 2 have joined");
  leads.seat_count = 3;
  assert_waiting(&leads, "waiting for the last call to begin: 2 nodes have joined");
  leads.call_ends = 1;
  assert_waiting(&leads, "waiting for the end of the last call: 2 of at most 4 nodes have joined");
  struct leased other = {.placed = true, .older = 1, .config = leads.config};
  assert_waiting(&other, "waiting for the end of the last call: at least 2 of at most 4 nodes have joined");
  other.config.settings.min_nodes = 3;
  assert_waiting(&other, "waiting for nodes: at least 2 of at least 3 have joined");
  other.clash_lease = 7;
  assert_waiting(&other, "checking whether the node with conflicting settings is alive");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_a_node_waits_for),
      cmocka_unit_test(test_a_join_is_one_transaction_on_the_world_that_is_known),
      cmocka_unit_test(test_the_oldest_writes_the_world_fenced_by_the_world_before_and_its_own_key),
      cmocka_unit_test(test_one_who_is_not_the_oldest_waits_for_the_world),
      cmocka_unit_test(test_a_world_that_a_member_has_left_is_not_entered),
      cmocka_unit_test(test_closed_while_joining),
      cmocka_unit_test(test_a_node_that_slept_renews_its_lease_before_anything_else_and_is_told),
      cmocka_unit_test(test_another_world_is_the_loss_of_the_place),
      cmocka_unit_test(test_changes_that_are_told_again_do_nothing),
      cmocka_unit_test(test_a_participant_that_waits_has_left),
      cmocka_unit_test(test_another_that_waits_has_not_left),
      cmocka_unit_test(test_a_participant_that_is_found_in_a_later_round_has_left),
      cmocka_unit_test(test_a_lost_answer_is_looked_up),
      cmocka_unit_test(test_keys),
      cmocka_unit_test(test_a_wait_beside_one_node_and_beside_two),
      cmocka_unit_test(test_records_that_cannot_be_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
