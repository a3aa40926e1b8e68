/* SPDX-License-Identifier: BSD-3-Clause */
/* The sessions of native nodes: how they begin, move from one connection to another, and die. */
#include "base/error.h"
#include "base/text/utf8.h"
#include "state/engine/engine.h"
#include "state/native/run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MOST_MS = INT64_C(1) << 40; /* of any time that a node asks for */

/* ---- finding -------------------------------------------------------------------------------------------------- */

struct node_key {
  int64_t pid, local_id;
  char addr[STATE_MAX_ADDR + 1];
};
_Static_assert(offsetof(struct node_key, addr) == 2 * sizeof(int64_t), "the key has no gaps");
_Static_assert(offsetof(struct native_node, addr) == offsetof(struct native_node, pid) + 2 * sizeof(int64_t),
               "nor has that of a node");

struct native_node *native_find(const struct coordinator_run *run, const struct node_desc *node) {
  const size_t len = strlen(node->addr);
  if (len > STATE_MAX_ADDR) return NULL;
  struct node_key key;
  key.pid = node->pid;
  key.local_id = node->local_id;
  memcpy(key.addr, node->addr, len + 1);
  struct native_node *found;
  HASH_FIND(by_node, run->nodes, &key, offsetof(struct node_key, addr) + len, found); /* NOLINT: all of it is set */
  return found;
}

struct native_node *native_find_link(const struct coordinator *coordinator, const void *link) {
  struct native_node *found;
  HASH_FIND(by_link, coordinator->links, &link, sizeof link, found);
  return found;
}

/* In a time that does not tell how much of it was right. */
static bool same_token(const uint8_t *a, const uint8_t *b) {
  unsigned differ = 0;
  for (size_t i = 0; i < NATIVE_TOKEN_BYTES; i++) differ |= a[i] ^ b[i];
  return differ == 0;
}

/* ---- beginning and ending ------------------------------------------------------------------------------------- */

/* RDZV_E_NO_MEMORY: the node has no connection, and the old one is forgotten. */
static int attach(struct native_node *node, void *link, rdzv_error *error) {
  struct coordinator *coordinator = node->run->coordinator;
  if (node->link == link) return 0;
  if (node->link)
    HASH_DELETE(by_link, coordinator->links, node);
  else if (node->lost_prev)
    DL_DELETE2(node->run->lost, node, lost_prev, lost_next);
  node->lost_prev = node->lost_next = NULL;
  node->link = link;
  HASH_ADD(by_link, coordinator->links, link, sizeof node->link, node);
  if (node->by_link.tbl) return 0;
  node->link = NULL;
  node->lost = coordinator->credit;
  DL_APPEND2(node->run->lost, node, lost_prev, lost_next);
  return error_no_memory(error);
}

static void detach(struct native_node *node) {
  if (node->link)
    HASH_DELETE(by_link, node->run->coordinator->links, node);
  else if (node->lost_prev)
    DL_DELETE2(node->run->lost, node, lost_prev, lost_next);
  node->link = NULL;
  node->lost_prev = node->lost_next = NULL;
}

void native_end(struct native_node *node) {
  run_touch(node->run);
  detach(node);
  HASH_DELETE(by_node, node->run->nodes, node);
  node->run->coordinator->node_count--;
  free(node->texts);
  free(node);
}

static struct native_node *new_node(struct coordinator_run *run, const struct native_session *session) {
  const size_t len = strlen(session->node.addr);
  struct native_node *node = calloc(1, sizeof *node + len + 1);
  if (!node) return NULL;
  memcpy(node->addr, session->node.addr, len + 1);
  node->pid = session->node.pid;
  node->local_id = session->node.local_id;
  node->node = (struct node_desc){node->addr, node->pid, node->local_id};
  memcpy(node->token, session->token, sizeof node->token);
  node->epoch = session->epoch;
  node->run = run;
  node->serial = ++run->coordinator->serials;
  run_touch(run);
  node->joined = node->trip_us = -1;
  HASH_ADD_KEYPTR(by_node, run->nodes, &node->pid, 2 * sizeof(int64_t) + len, node);
  if (!node->by_node.tbl) {
    free(node);
    return NULL;
  }
  struct coordinator *coordinator = run->coordinator;
  if (coordinator->node_count++ == 0) coordinator->scan_ms = coordinator->last_ms + LOOK_MS;
  return node;
}

static int64_t at_least(int64_t value, int64_t least) { return value < least ? least : value; }

/* What the join says of the node from here on. */
static int take_join(struct native_node *node, const struct native_join *join, rdzv_error *error) {
  const size_t role = strlen(join->workers.role) + 1, master = strlen(join->master_addr) + 1;
  char *texts = malloc(role + master);
  if (!texts) return error_no_memory(error);
  memcpy(texts, join->workers.role, role);
  memcpy(texts + role, join->master_addr, master);
  free(node->texts);
  node->texts = texts;
  node->workers = join->workers;
  node->workers.role = texts;
  node->master_addr = texts + role;
  node->master_port = join->master_port;
  node->number = join->number;
  node->first_round = join->first_round;
  node->settings = join->settings;
  node->settings.has_redundancy_list = torch_traits(node->run->layout)->redundancy_list;
  node->times.keep_alive_ms = at_least(join->times.keep_alive_ms, NATIVE_LEAST_KEEP_ALIVE_MS);
  node->times.grace_ms = at_least(join->times.grace_ms, 0);
  node->run->settings = node->settings;
  run_touch(node->run);
  return 0;
}

/* ---- checking ------------------------------------------------------------------------------------------------- */

static bool is_time(int64_t ms) { return ms >= 0 && ms <= MOST_MS; }

static bool times_are_right(const struct native_join *join) {
  const struct rendezvous_settings *settings = &join->settings;
  return is_time(settings->join_timeout) && is_time(settings->last_call_timeout) && is_time(settings->close_timeout) &&
         is_time(settings->heartbeat_timeout) && is_time(settings->keep_alive_interval) &&
         settings->keep_alive_interval > 0 && settings->keep_alive_max_attempt > 0 &&
         settings->keep_alive_max_attempt <= MOST_MS / settings->keep_alive_interval &&
         is_time(join->times.keep_alive_ms) && is_time(join->times.grace_ms);
}

static int check_node(const struct node_desc *node, rdzv_error *error) {
  const rdzv_bytes addr = rdzv_str(node->addr);
  if (addr.len == 0 || addr.len > STATE_MAX_ADDR || !utf8_is_valid(addr))
    return error_set(error, RDZV_E_INVALID, "the address of the node is not UTF-8 of 1 to %d bytes", STATE_MAX_ADDR);
  return 0;
}

static int check_join(const struct native_join *join, rdzv_error *error) {
  const struct rendezvous_settings *settings = &join->settings;
  const struct native_workers *workers = &join->workers;
  const size_t run_id = strlen(join->run_id);
  if (run_id == 0 || run_id > NATIVE_MAX_RUN_ID)
    return error_set(error, RDZV_E_INVALID, "the run ID has %zu bytes, it must have 1 to %d", run_id,
                     NATIVE_MAX_RUN_ID);
  if (settings->min_nodes < 1 || settings->max_nodes < settings->min_nodes || settings->max_nodes > MOST_MS)
    return error_set(error, RDZV_E_INVALID, "invalid range of nodes: %" PRId64 " to %" PRId64, settings->min_nodes,
                     settings->max_nodes);
  if (!times_are_right(join)) return error_set(error, RDZV_E_INVALID, "a time of the join is out of range");
  if (settings->rank_order > RANK_ORDER_NATURAL || join->layout > TORCH_NEWEST)
    return error_set(error, RDZV_E_INVALID, "the join asks for a rank order or a layout that is not known");
  if (strlen(join->master_addr) > NATIVE_MAX_MASTER || join->master_port < 0 || join->master_port > UINT16_MAX)
    return error_set(error, RDZV_E_INVALID, "the join has no proper address for rank 0");
  if (strlen(workers->role) > NATIVE_MAX_ROLE || workers->local_world_size < 0 || workers->local_world_size > 1 << 20 ||
      workers->restart_count < 0)
    return error_set(error, RDZV_E_INVALID, "the join has an invalid role, number of workers or number of restarts");
  return check_node(&join->session.node, error);
}

/* ---- joining and resuming ------------------------------------------------------------------------------------- */

static int refuse(struct coordinator *coordinator, const struct coordinator_event *event, rdzv_error *error) {
  coordinator_trace(coordinator, NULL, "refused: %s", error->message);
  coordinator_emit(coordinator,
                   (struct coordinator_effect){.kind = COORDINATOR_DO_FAIL,
                                               .link = event->link,
                                               .asked = event->kind,
                                               .number = event->join ? event->join->number : event->session->epoch,
                                               .error = error});
  return error->code == RDZV_E_NO_MEMORY ? error->code : 0;
}

/* The connection of the event is that of the session from here on. False: it is not, and that has been answered. */
static bool take_connection(struct native_node *node, const struct coordinator_event *event, uint64_t epoch,
                            int *result, rdzv_error *error) {
  struct coordinator *coordinator = node->run->coordinator;
  void *old = node->link;
  const bool same = old == event->link;
  *result = 0;
  if (same ? epoch != node->epoch : epoch <= node->epoch) {
    coordinator_trace(coordinator, node->run, "'%s': connection %" PRIu64 " is not after %" PRIu64 " -> drop it",
                      node_text(&node->node).text, epoch, node->epoch);
    if (same) sessions_lost(node, event->now); /* it was the connection of the session */
    coordinator_emit(coordinator, (struct coordinator_effect){.kind = COORDINATOR_DO_DROP, .link = event->link});
    return false;
  }
  node->heard = coordinator->credit;
  *result = attach(node, event->link, error);
  if (old && !same)
    coordinator_emit(coordinator, (struct coordinator_effect){.kind = COORDINATOR_DO_DROP, .link = old});
  if (*result < 0) {
    refuse(coordinator, event, error);
    return false;
  }
  node->epoch = epoch;
  run_touch(node->run);
  return true;
}

/* News on the old connection may be lost with it, so all news of the round is sent again. */
static void tell_again(struct native_node *node) {
  node->told_gone = node->told_waits = 0;
  node->told_closed = false;
  if (!node->in_round && node->wish == NATIVE_NOTHING && node->joined >= 0) node->missed = ENGINE_NEWS_EVICTED;
  tell_missed(node);
}

/* What the node did not hear while it had no connection. */
static void catch_up(struct native_node *node) {
  if (node->unanswered) tell_joined(node);
  tell_again(node);
}

static int begin(struct native_node *node, const struct coordinator_event *event, rdzv_error *error) {
  struct coordinator_run *run = node->run;
  if (take_join(node, event->join, error) < 0) return refuse(run->coordinator, event, error);
  run_begin_join(node, event->now);
  run_end_step(run, event->now);
  return 0;
}

static int join_first(struct coordinator *coordinator, struct coordinator_run *run,
                      const struct coordinator_event *event, rdzv_error *error) {
  const struct native_join *join = event->join;
  if (!run) run = run_new(coordinator, join->run_id, join->layout);
  struct native_node *node = run ? new_node(run, &join->session) : NULL;
  int result = node ? attach(node, event->link, error) : error_no_memory(error);
  if (node && result == 0) {
    node->heard = coordinator->credit;
    result = begin(node, event, error);
  } else {
    refuse(coordinator, event, error);
  }
  if (result == 0) return 0;
  if (node) native_end(node);
  if (run && !run->nodes) run_end_step(run, event->now);
  return result;
}

static int join_again(struct native_node *node, const struct coordinator_event *event, rdzv_error *error) {
  const struct native_join *join = event->join;
  int result;
  if (!take_connection(node, event, join->session.epoch, &result, error)) return result;
  if (join->number > node->number) return begin(node, event, error);
  if (join->number < node->number) {
    error_set(error, RDZV_E_STALE, "join %" PRIu64 " of node '%s' is over", join->number, node_text(&node->node).text);
    return refuse(node->run->coordinator, event, error);
  }
  if (node->wish != NATIVE_NOTHING) return 0;            /* it is answered when the round is complete */
  if (!node->in_round) return begin(node, event, error); /* its round is over: it gets the next one */
  tell_joined(node);
  tell_again(node);
  return 0;
}

int sessions_join(struct coordinator *coordinator, const struct coordinator_event *event, rdzv_error *error) {
  const struct native_join *join = event->join;
  if (check_join(join, error) < 0) return refuse(coordinator, event, error);
  const struct native_session *session = &join->session;
  struct coordinator_run *run = coordinator_find(coordinator, join->run_id, strlen(join->run_id));
  struct native_node *node = run ? native_find(run, &session->node) : NULL;
  const struct native_node *bound = native_find_link(coordinator, event->link);
  if (!run_may_reach(run, join->first_round)) {
    error_set(error, RDZV_E_INVALID, "round %" PRId64 " cannot be the next one", join->first_round);
    return refuse(coordinator, event, error);
  }
  if (bound && bound != node) {
    error_set(error, RDZV_E_INVALID, "the connection belongs to node '%s'", node_text(&bound->node).text);
    return refuse(coordinator, event, error);
  }
  if (!node) return join_first(coordinator, run, event, error);
  if (!same_token(node->token, session->token)) {
    error_set(error, RDZV_E_IN_USE, "node '%s' has another session here", node_text(&node->node).text);
    return refuse(coordinator, event, error);
  }
  return join_again(node, event, error);
}

int sessions_resume(struct coordinator *coordinator, const struct coordinator_event *event, rdzv_error *error) {
  const struct native_session *session = event->session;
  if (check_node(&session->node, error) < 0) return refuse(coordinator, event, error);
  struct coordinator_run *run = coordinator_find(coordinator, event->run_id, strlen(event->run_id));
  struct native_node *node = run ? native_find(run, &session->node) : NULL;
  const struct native_node *bound = native_find_link(coordinator, event->link);
  if (!node || (bound && bound != node) || !same_token(node->token, session->token)) {
    error_set(error, RDZV_E_STALE, "the session of node '%s' is over", node_text(&session->node).text);
    return refuse(coordinator, event, error);
  }
  int result;
  if (!take_connection(node, event, session->epoch, &result, error)) return result;
  native_emit(node, (struct coordinator_effect){.kind = COORDINATOR_DO_RESUMED, .run = run, .number = node->number});
  catch_up(node);
  return 0;
}

/* ---- restoring ------------------------------------------------------------------------------------------------ */

/* Until its client has tried to connect once more. */
static int64_t longest_absence(const struct native_node *node) {
  enum { TO_CONNECT_MS = 1000 };
  return liveness_look_interval(&node->settings) + TO_CONNECT_MS;
}

static void restore_join(struct native_node *node, const struct native_node_snapshot *snapshot, struct moment now) {
  struct coordinator_run *run = node->run;
  const int64_t left = (snapshot->over_us - now.wall_us) / 1000, most = node->settings.join_timeout;
  node->over_us = snapshot->over_us;
  node->deadline_ms = now.mono_ms + (left < 0 ? 0 : left > most ? most : left);
  node->wish = (enum native_wish)snapshot->wish;
  if (node->wish == NATIVE_NOTHING) return;
  if (node->deadline_ms < run->deadline_ms) run->deadline_ms = node->deadline_ms;
  DL_APPEND(run->pending, node);
  run->pending_count++;
}

int sessions_restore(struct coordinator_run *run, uint64_t serial, const struct native_node_snapshot *snapshot,
                     struct moment now, rdzv_error *error) {
  const struct native_join *join = &snapshot->join;
  struct coordinator *coordinator = run->coordinator;
  if (check_join(join, error) < 0 || native_find(run, &join->session.node))
    return error_set(error, RDZV_E_CORRUPT, "a node of run '%s' is invalid", run->id);
  struct native_node *node = new_node(run, &join->session);
  if (!node || take_join(node, join, error) < 0) return error_no_memory(error);
  node->serial = serial;
  node->order = snapshot->order;
  node->joined = snapshot->joined;
  node->in_round = snapshot->in_round;
  node->unanswered = snapshot->unanswered;
  node->missed = snapshot->missed ? ENGINE_NEWS_EVICTED : 0;
  node->ranks = snapshot->ranks;
  if (serial > coordinator->serials) coordinator->serials = serial;
  if (node->order > coordinator->orders) coordinator->orders = node->order;
  restore_join(node, snapshot, now);
  sessions_lost(node, now);
  node->lost += longest_absence(node);
  return 0;
}

/* ---- dying ---------------------------------------------------------------------------------------------------- */

void sessions_lost(struct native_node *node, struct moment now) {
  struct coordinator_run *run = node->run;
  detach(node);
  node->lost = run->coordinator->credit;
  DL_APPEND2(run->lost, node, lost_prev, lost_next);
  const int64_t due = node->lost + node->times.grace_ms;
  if (due < run->due) run->due = due;
  coordinator_wake_by(run->coordinator, now.mono_ms + 1 + node->times.grace_ms);
}

static size_t judge_lost(struct coordinator_run *run, int64_t credit) {
  size_t dead = 0;
  struct native_node *node;
  if (credit <= run->due) return 0;
  run->due = INT64_MAX;
  DL_FOREACH2(run->lost, node, lost_next) {
    const int64_t due = node->lost + node->times.grace_ms;
    node->dying = credit > due;
    dead += node->dying;
    if (!node->dying && due < run->due) run->due = due;
  }
  return dead;
}

size_t sessions_judge(struct coordinator_run *run, bool all) {
  const int64_t credit = run->coordinator->credit;
  size_t dead = judge_lost(run, credit);
  if (!all) return dead;
  for (struct native_node *node = run->nodes; node; node = node->by_node.next) {
    if (node->dying || !node->link || credit - node->heard <= NATIVE_SILENT_INTERVALS * node->times.keep_alive_ms)
      continue;
    node->dying = true;
    dead++;
  }
  return dead;
}
