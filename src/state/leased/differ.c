/* SPDX-License-Identifier: BSD-3-Clause */
/* Nodes that differ in settings that must be the same (state/differences.h). A key has its node's settings. A node that
 * joins learns those of one key that was there before, and the node that leads those of all. A node whose number of
 * nodes can never be in one round with that of the oldest node fails, once a dead one would have lost its lease. */
#include "base/error.h"
#include "state/leased/machine.h"

#include <string.h>

enum { LEASE_SLACK_MS = 2000 }; /* etcd ends a lease a little late */

static void warn(struct leased *node, const struct leased_node *other, struct leased_update *update) {
  const struct differences_settings own = differences_settings(&node->config.settings);
  if (update->news & ENGINE_NEWS_WARNING) return; /* with a later step */
  if (differences_tell(&node->differences, own.text, other->settings, node_text(&other->desc).text, &update->warning))
    update->news |= ENGINE_NEWS_WARNING;
}

static void suspect(struct leased *node, const struct leased_node *other, int64_t lease) {
  if (node->clash_lease || node->been_in_round || !differences_clashes(&node->config.settings, other->settings)) return;
  node->clash_lease = lease;
  node->clash_ms = node->now.mono_ms + node->config.lease_ms + LEASE_SLACK_MS;
}

int leased_meet(struct leased *node, const struct leased_kv *kv, struct leased_update *update, rdzv_error *error) {
  struct leased_node other;
  int64_t round, lease;
  if (!leased_key_parse(kv->key, &round, &lease) || lease == node->lease) return 0;
  const int result = leased_node_read(kv->value, &other, error);
  if (result < 0) return result == RDZV_E_CORRUPT ? 0 : result;
  warn(node, &other, update);
  suspect(node, &other, lease);
  leased_node_free(&other);
  return 0;
}

void leased_meet_seats(struct leased *node, struct leased_update *update) {
  for (size_t i = 0; i < node->seat_count; i++) {
    const struct leased_seat *seat = &node->seats[i];
    if (!seat->differs || seat->lease == node->lease) continue;
    warn(node, &seat->node, update);
    if (seat->create < node->born) suspect(node, &seat->node, seat->lease);
  }
}

/* The oldest key that was there before ours; NULL: there is none. */
static const struct leased_kv *find_oldest(const struct leased *node, const struct leased_event *event) {
  const struct leased_kv *oldest = NULL;
  int64_t round, lease;
  for (size_t i = 0; i < event->kv_count; i++) {
    const struct leased_kv *kv = &event->kvs[i];
    if (!leased_key_parse(kv->key, &round, &lease) || kv->create >= node->born) continue;
    if (!oldest || kv->create < oldest->create) oldest = kv;
  }
  return oldest;
}

void leased_check_clash(struct leased *node, const struct leased_event *event) {
  struct leased_node other;
  if (!node->clash_lease) return;
  const struct leased_kv *oldest = find_oldest(node, event);
  const bool read = oldest && leased_node_read(oldest->value, &other, NULL) == 0;
  const bool clashes = read && differences_clashes(&node->config.settings, other.settings);
  const struct differences_settings own = differences_settings(&node->config.settings);
  if (clashes) node->clash = differences_describe_clash(own.text, other.settings, node_text(&other.desc).text);
  if (read) leased_node_free(&other);
  if (!clashes) node->clash_lease = 0;
  node->clash_known = clashes && node->now.mono_ms > node->clash_ms;
}
