/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/exchange.h"

#include "base/error.h"
#include "base/wait/waiting.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_SLICE_MS = 50, LAST_SLICE_MS = 1000, KEY_SIZE = 80, MOST_NAMED = 8, ALIKE_MS = 2000 };

#define ROLE_OLD "torchelastic/role_info"
#define ROLE_NEW "torchelastic/role_info/"
#define ASSIGNED "torchelastic/assigned_ranks/"
#define TERMINAL "torchelastic/agent/terminal_state"
#define DONE_COUNT rdzv_str(TERMINAL "/num_members")
#define DONE_ALL rdzv_str(TERMINAL "/last_member")
#define TERMS rdzv_str("rdzv/terms")
#define FAILURE "rdzv/failure/"

struct key {
  char text[KEY_SIZE];
};

static struct key key_of(const char *prefix, int64_t rank, const char *suffix) {
  struct key key;
  snprintf(key.text, sizeof key.text, "%s%" PRId64 "%s", prefix, rank, suffix);
  return key;
}

/* ---- waiting in slices, between which we look up -------------------------------------------------------------- */

static bool is_interrupted(const struct exchange *exchange) {
  struct pollfd fds[] = {{.fd = exchange->interrupt_fds[0], .events = POLLIN},
                         {.fd = exchange->interrupt_fds[1], .events = POLLIN}};
  return poll(fds, 2, 0) > 0;
}

struct slices {
  deadline until;
  int64_t slice;
  struct waiting waiting;
};

static void slices_begin(struct slices *slices, const struct exchange *exchange, deadline until) {
  slices->until = until;
  slices->slice = FIRST_SLICE_MS;
  waiting_begin(&slices->waiting, exchange->log, until);
}

/* 0: all are there. 1: not yet. */
static int wait_slice(const struct exchange *exchange, struct slices *slices, const rdzv_bytes *keys, size_t count,
                      rdzv_error *error) {
  const int64_t left = deadline_left(slices->until), slice = slices->slice < left ? slices->slice : left;
  const int result = rdzv_store_wait(exchange->store, keys, count, slice, error);
  waiting_tick(&slices->waiting);
  slices->slice = 2 * slices->slice < LAST_SLICE_MS ? 2 * slices->slice : LAST_SLICE_MS;
  if (result != RDZV_E_TIMEOUT) return result;
  if (is_interrupted(exchange)) return error_set(error, RDZV_E_CANCELED, "canceled");
  return left > 0 ? 1 : result;
}

static int is_there(const struct exchange *exchange, rdzv_bytes key, bool *there, rdzv_error *error) {
  return rdzv_store_check(exchange->store, &key, 1, there, error);
}

static int get(const struct exchange *exchange, const char *key, rdzv_value *out, rdzv_error *error) {
  return rdzv_store_get(exchange->store, rdzv_str(key), out, error);
}

/* ---- what we say of ourselves --------------------------------------------------------------------------------- */

static int tell_role(const struct exchange *exchange, const struct role_info *own, rdzv_error *error) {
  const struct key old = key_of(ROLE_OLD, exchange->rank, ""), new = key_of(ROLE_NEW, exchange->rank, "");
  char *text = role_info_write(own);
  if (!text) return error_no_memory(error);
  /* the older key last: an agent that finds it alone takes this one for an older agent */
  const rdzv_bytes keys[] = {rdzv_str(new.text), rdzv_str(old.text)}, values[] = {rdzv_str(text), rdzv_str(text)};
  const int result = rdzv_store_publish(exchange->store, keys, values, 2, error);
  free(text);
  return result;
}

/* ---- as rank 0 ------------------------------------------------------------------------------------------------ */

struct roles {
  struct role_info *infos;
  struct worker_ranks *ranks; /* once all are known */
  bool *known;
  size_t count, missing;
  bool old_ones; /* agents of PyTorch before 2.4 are among them */
};

static int roles_open(struct roles *roles, const struct exchange *exchange, rdzv_error *error) {
  const size_t count = (size_t)exchange->world_size;
  *roles = (struct roles){.infos = calloc(count, sizeof *roles->infos),
                          .ranks = calloc(count, sizeof *roles->ranks),
                          .known = calloc(count, sizeof *roles->known),
                          .count = count,
                          .missing = count};
  return roles->infos && roles->ranks && roles->known ? 0 : error_no_memory(error);
}

static void roles_close(struct roles *roles) {
  free(roles->infos);
  free(roles->ranks);
  free(roles->known);
}

static int take_role(struct roles *roles, size_t which, const rdzv_value *text, rdzv_error *error) {
  const int result = role_info_read(rdzv_value_bytes(text), &roles->infos[which], error);
  if (result == 0 && !roles->known[which]) {
    roles->known[which] = true;
    roles->missing--;
  }
  return result;
}

/* All of the newer keys in one request; they are there. */
static int read_roles(const struct exchange *exchange, const rdzv_bytes *keys, struct roles *roles, rdzv_error *error) {
  rdzv_value *values = NULL;
  int result = rdzv_store_multi_get(exchange->store, keys, roles->count, &values, error);
  for (size_t i = 0; result == 0 && i < roles->count; i++) result = take_role(roles, i, &values[i], error);
  if (values) rdzv_values_free(values, roles->count);
  return result;
}

/* An agent is missing: looks for each, under both keys. */
static int look_for_one(const struct exchange *exchange, size_t which, struct roles *roles, rdzv_error *error) {
  const char *const prefixes[] = {ROLE_NEW, ROLE_OLD};
  for (int old = 0; old < 2 && !roles->known[which]; old++) {
    const struct key key = key_of(prefixes[old], (int64_t)which, "");
    rdzv_value value;
    bool there;
    int result = is_there(exchange, rdzv_str(key.text), &there, error);
    if (result == 0 && there) {
      result = get(exchange, key.text, &value, error);
      if (result == 0) {
        result = take_role(roles, which, &value, error);
        rdzv_value_free(&value);
        roles->old_ones |= old == 1;
      }
    }
    if (result < 0) return result;
  }
  return 0;
}

static int look_for_all(const struct exchange *exchange, struct roles *roles, rdzv_error *error) {
  int result = 0;
  for (size_t i = 0; i < roles->count && result == 0; i++)
    if (!roles->known[i]) result = look_for_one(exchange, i, roles, error);
  return result;
}

struct missing_text {
  char text[MOST_NAMED * 24 + 160];
};

static struct missing_text name_missing(const struct roles *roles) {
  char list[MOST_NAMED * 24] = "";
  struct missing_text missing;
  size_t named = 0, len = 0;
  for (size_t i = 0; i < roles->count && named < MOST_NAMED; i++)
    if (!roles->known[i]) len += (size_t)snprintf(list + len, sizeof list - len, "%s%zu", named++ ? ", " : "", i);
  snprintf(missing.text, sizeof missing.text, "%zu of %zu agents to report %s workers: group rank%s %s%s",
           roles->missing, roles->count, roles->missing == 1 ? "its" : "their", roles->missing == 1 ? "" : "s", list,
           roles->missing > named ? ", …" : "");
  return missing;
}

static void tell_missing(struct waiting *waiting, void *roles) {
  waiting_about(waiting, "waiting for %s", name_missing(roles).text);
}

static int gather(const struct exchange *exchange, struct roles *roles, rdzv_error *error) {
  struct key *texts = calloc(roles->count, sizeof *texts);
  rdzv_bytes *keys = calloc(roles->count, sizeof *keys);
  struct slices slices;
  slices_begin(&slices, exchange, deadline_after(exchange->timeout_ms));
  slices.waiting.refresh = tell_missing;
  slices.waiting.user = roles;
  int result = texts && keys ? 1 : error_no_memory(error);
  for (size_t i = 0; texts && keys && i < roles->count; i++) {
    texts[i] = key_of(ROLE_NEW, (int64_t)i, "");
    keys[i] = rdzv_str(texts[i].text);
  }
  while (result == 1 && roles->missing > 0) {
    result = wait_slice(exchange, &slices, keys, roles->count, error);
    if (result == 0) result = read_roles(exchange, keys, roles, error);
    if (result == 1) {
      const int looked = look_for_all(exchange, roles, error);
      if (looked < 0) result = looked;
    }
  }
  free(texts);
  free(keys);
  if (result == RDZV_E_TIMEOUT && roles->missing > 0)
    return error_set(error, result, "timed out waiting for %s", name_missing(roles).text);
  if (result < 0) return result;
  return assign_ranks(roles->infos, roles->count, roles->ranks) ? 0 : error_no_memory(error);
}

/* All agents must agree which one serves the workers' store: with USE_AGENT_STORE their keys have another prefix. */
static bool agent_serves(const struct exchange *exchange, bool torch, bool old) {
  const char *private_stores = getenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
  const bool shares = !private_stores || strcmp(private_stores, "1") != 0;
  if (strcmp(exchange->backend, "static") == 0) return true;
  if (!shares) return false;
  if (strncmp(exchange->backend, "etcd", 4) == 0 && strcmp(exchange->backend, "etcd-v2") != 0) return !torch;
  return !torch || !old;
}

/* The workers of a node that was cut off from the round before go on for a while, and must not find the store of this
 * one. But PyTorch's agents take the port that is published, those of 2.4 and newer the first one that they hear. */
static struct round_terms terms_of(const struct exchange *exchange, const struct roles *roles) {
  struct round_terms terms = {0};
  bool torch = false;
  for (size_t i = 0; i < roles->count; i++) {
    if (roles->infos[i].restart_count > terms.restart_count) terms.restart_count = roles->infos[i].restart_count;
    torch |= !roles->infos[i].ours;
  }
  terms.agent_store = agent_serves(exchange, torch, roles->old_ones);
  terms.master_port = torch ? 0 : exchange->fresh_port;
  return terms;
}

/* Ranks for all, and the terms, in one request. */
static int assign(const struct exchange *exchange, const struct roles *roles, const struct round_terms *terms,
                  rdzv_error *error) {
  const size_t count = roles->count + 1;
  struct key *texts = calloc(count, sizeof *texts);
  rdzv_bytes *keys = calloc(count, sizeof *keys), *values = calloc(count, sizeof *values);
  char **owned = calloc(count, sizeof *owned);
  bool done = texts && keys && values && owned;
  for (size_t i = 0; done && i < count; i++) {
    const bool is_terms = i == 0; /* first: an agent that has its ranks can read the terms, too */
    if (!is_terms) texts[i] = key_of(ASSIGNED, (int64_t)i - 1, "");
    owned[i] = is_terms ? round_terms_write(terms) : worker_ranks_write(&roles->ranks[i - 1]);
    done = owned[i] != NULL;
    keys[i] = is_terms ? TERMS : rdzv_str(texts[i].text);
    if (done) values[i] = rdzv_str(owned[i]);
  }
  const int result = done ? rdzv_store_publish(exchange->store, keys, values, count, error) : error_no_memory(error);
  for (size_t i = 0; owned && i < count; i++) free(owned[i]);
  free(owned);
  free(texts);
  free(keys);
  free(values);
  return result;
}

static int lead(const struct exchange *exchange, struct worker_ranks *ranks, struct round_terms *terms,
                rdzv_error *error) {
  struct roles roles;
  int result = roles_open(&roles, exchange, error);
  if (result == 0) result = gather(exchange, &roles, error);
  if (result == 0) {
    *ranks = roles.ranks[0];
    *terms = terms_of(exchange, &roles);
    result = assign(exchange, &roles, terms, error);
  }
  roles_close(&roles);
  return result;
}

/* ---- as another ----------------------------------------------------------------------------------------------- */

/* The agent of rank 0 is of PyTorch before 2.4: each agent reads all keys, and then reports that it has. */
static int follow_old(const struct exchange *exchange, struct worker_ranks *ranks, rdzv_error *error) {
  struct roles roles;
  int result = roles_open(&roles, exchange, error);
  if (result == 0) result = gather(exchange, &roles, error);
  if (result == 0) {
    const struct key fin = key_of(ROLE_OLD, exchange->rank, ".FIN");
    const rdzv_bytes key = rdzv_str(fin.text), value = rdzv_str("FIN");
    *ranks = roles.ranks[exchange->rank];
    result = rdzv_store_publish(exchange->store, &key, &value, 1, error);
  }
  roles_close(&roles);
  return result;
}

static int is_led_by_old(const struct exchange *exchange, bool *old, rdzv_error *error) {
  bool has_old = false, has_new = false;
  int result = is_there(exchange, rdzv_str(ROLE_OLD "0"), &has_old, error);
  if (result == 0 && has_old) result = is_there(exchange, rdzv_str(ROLE_NEW "0"), &has_new, error);
  *old = has_old && !has_new;
  return result;
}

/* What our agent of rank 0 says, in one request. */
static int follow_ours(const struct exchange *exchange, const rdzv_bytes keys[2], struct worker_ranks *ranks,
                       struct round_terms *terms, rdzv_error *error) {
  rdzv_value *values = NULL;
  int result = rdzv_store_multi_get(exchange->store, keys, 2, &values, error);
  if (result < 0) return result;
  result = round_terms_read(rdzv_value_bytes(&values[0]), terms, error);
  if (result == 0) result = worker_ranks_read(rdzv_value_bytes(&values[1]), ranks, error);
  rdzv_values_free(values, 2);
  return result;
}

static int follow_torch(const struct exchange *exchange, const char *assigned, struct worker_ranks *ranks,
                        rdzv_error *error) {
  rdzv_value value;
  int result = get(exchange, assigned, &value, error);
  if (result < 0) return result;
  result = worker_ranks_read(rdzv_value_bytes(&value), ranks, error);
  rdzv_value_free(&value);
  return result;
}

enum leader { LEADER_UNKNOWN, LEADER_OURS, LEADER_TORCH, LEADER_OLD };

/* The kind of the leader, while ranks and terms are not both there. An rdzv leader writes the terms first. */
static int find_leader(const struct exchange *exchange, rdzv_bytes assigned, enum leader *leader, rdzv_error *error) {
  bool old = false, has_ranks = false, has_terms = false;
  int result = is_there(exchange, assigned, &has_ranks, error);
  if (result == 0 && has_ranks) result = is_there(exchange, TERMS, &has_terms, error);
  if (result == 0 && !has_ranks) result = is_led_by_old(exchange, &old, error);
  if (old) *leader = LEADER_OLD;
  if (has_ranks) *leader = has_terms ? LEADER_OURS : LEADER_TORCH;
  return result;
}

/* A PyTorch says no terms, and we guess them as it would. */
static int follow(const struct exchange *exchange, const struct role_info *own, struct worker_ranks *ranks,
                  struct round_terms *terms, rdzv_error *error) {
  const struct key assigned = key_of(ASSIGNED, exchange->rank, "");
  const rdzv_bytes keys[] = {TERMS, rdzv_str(assigned.text)};
  struct slices slices;
  slices_begin(&slices, exchange, deadline_after(exchange->timeout_ms));
  waiting_about(&slices.waiting, "waiting for the agent of group rank 0 to assign ranks to the workers of this node");
  enum leader leader = LEADER_UNKNOWN;
  int result = 1;
  while (leader == LEADER_UNKNOWN && result == 1) {
    result = wait_slice(exchange, &slices, keys, 2, error);
    if (result == 0) leader = LEADER_OURS;
    const int looked = result == 1 ? find_leader(exchange, keys[1], &leader, error) : 0;
    if (looked < 0) return looked;
  }
  if (result == RDZV_E_TIMEOUT)
    return error_set(error, result,
                     "timed out waiting for the agent of group rank 0 to assign ranks to the workers of this node");
  if (result < 0) return result;
  *terms = (struct round_terms){.restart_count = own->restart_count,
                                .agent_store = agent_serves(exchange, true, leader == LEADER_OLD)};
  terms->torch_serves = terms->agent_store && leader == LEADER_TORCH;
  if (leader == LEADER_OURS) return follow_ours(exchange, keys, ranks, terms, error);
  return leader == LEADER_OLD ? follow_old(exchange, ranks, error)
                              : follow_torch(exchange, assigned.text, ranks, error);
}

/* PyTorch's promise that all agents have the same role and number of workers: its newer ones then tell nothing, and are
 * not waited for long. */
static bool all_alike(void) {
  const char *alike = getenv("TORCH_ELASTIC_WORKER_IDENTICAL");
  return alike && strcmp(alike, "1") == 0;
}

/* The ranks of agents that are alike, as one that is alone is, and terms that no agent needs to hear. */
static void assign_alike(const struct exchange *exchange, const struct role_info *own, struct worker_ranks *ranks,
                         struct round_terms *terms) {
  const int64_t base = exchange->rank * own->local_world_size, all = exchange->world_size * own->local_world_size;
  const bool alone = exchange->world_size == 1;
  *ranks = (struct worker_ranks){base, all, base, all};
  *terms = (struct round_terms){.restart_count = own->restart_count,
                                .agent_store = agent_serves(exchange, !alone, false),
                                .master_port = alone ? exchange->fresh_port : 0};
}

bool exchange_is_told(const struct exchange *exchange, const rdzv_result *round, struct worker_ranks *ranks,
                      struct round_terms *terms) {
  const rdzv_worker_ranks *told = rdzv_result_worker_ranks(round);
  if (!told) return false;
  *ranks = (struct worker_ranks){told->base, told->world_size, told->role_base, told->role_world_size};
  *terms = (struct round_terms){.restart_count = told->restarts, .agent_store = agent_serves(exchange, false, false)};
  return true;
}

int exchange_ranks(const struct exchange *exchange, const struct role_info *own, struct worker_ranks *ranks,
                   struct round_terms *terms, rdzv_error *error) {
  if (exchange->world_size == 1) {
    assign_alike(exchange, own, ranks, terms);
    return 0;
  }
  const bool alike = all_alike();
  struct exchange hasty = *exchange;
  if (alike) hasty.timeout_ms = ALIKE_MS;
  int result = tell_role(exchange, own, error);
  if (result == 0)
    result = exchange->rank == 0 ? lead(&hasty, ranks, terms, error) : follow(&hasty, own, ranks, terms, error);
  if (alike && result == RDZV_E_TIMEOUT) {
    assign_alike(exchange, own, ranks, terms);
    return 0;
  }
  return result < 0 ? error_prefix(error, result, "cannot agree on the workers' ranks") : 0;
}

/* ---- the exit barrier ----------------------------------------------------------------------------------------- */

int exchange_tell_exit(const struct exchange *exchange, rdzv_error *error) {
  const struct key done = key_of(TERMINAL, exchange->rank, ""), fin = key_of(TERMINAL, exchange->rank, ".FIN");
  const rdzv_bytes all = DONE_ALL, yes = rdzv_str("done");
  char rank[24];
  int64_t count;
  snprintf(rank, sizeof rank, "%" PRId64, exchange->rank);
  const rdzv_bytes keys[] = {rdzv_str(done.text), rdzv_str(fin.text)}, values[] = {rdzv_str(rank), rdzv_str("FIN")};
  int result = rdzv_store_publish(exchange->store, keys, values, 2, error);
  if (result == 0) result = rdzv_store_add(exchange->store, DONE_COUNT, 1, &count, error);
  if (result == 0 && count == exchange->world_size) result = rdzv_store_publish(exchange->store, &all, &yes, 1, error);
  return result < 0 ? error_prefix(error, result, "cannot report that the workers of this node are done") : 0;
}

/* Agents of PyTorch before 2.4 do not count themselves. `missing` is the first that is not done. */
static int find_not_done(const struct exchange *exchange, int64_t *missing, rdzv_error *error) {
  for (; *missing < exchange->world_size; (*missing)++) {
    const struct key key = key_of(TERMINAL, *missing, "");
    bool there;
    const int result = is_there(exchange, rdzv_str(key.text), &there, error);
    if (result < 0 || !there) return result;
  }
  return 0;
}

int exchange_await_exit(const struct exchange *exchange, deadline until, rdzv_error *error) {
  const rdzv_bytes all = DONE_ALL;
  struct slices slices;
  int64_t missing = 0;
  int result;
  slices_begin(&slices, exchange, until);
  slices.waiting.level = RDZV_LOG_INFO; /* theirs may have more to do */
  while ((result = wait_slice(exchange, &slices, &all, 1, error)) == 1 || result == RDZV_E_CANCELED) {
    const int looked = find_not_done(exchange, &missing, error);
    waiting_about(&slices.waiting, "waiting for the workers of other nodes, among them those of group rank %" PRId64,
                  missing);
    if (looked < 0 || missing == exchange->world_size) return looked;
    if (result == RDZV_E_CANCELED) return error_set(error, result, "canceled");
  }
  if (result == RDZV_E_TIMEOUT)
    return error_set(error, result,
                     "the workers of other agents are not done after %" PRId64
                     " ms, among them those of group rank %" PRId64,
                     exchange->timeout_ms, missing);
  return result;
}

bool exchange_any_done(const struct exchange *exchange) {
  bool there = false;
  if (is_there(exchange, DONE_COUNT, &there, NULL) == 0 && there) return true;
  int64_t other = exchange->rank == 0 ? 1 : 0; /* one of before 2.4: at least the first other one is asked for */
  const struct key key = key_of(TERMINAL, other, "");
  return other < exchange->world_size && is_there(exchange, rdzv_str(key.text), &there, NULL) == 0 && there;
}

/* ---- failures ------------------------------------------------------------------------------------------------- */

int exchange_tell_more(const struct exchange *exchange, const char *before, const char *text, rdzv_error *error) {
  const struct key key = key_of(FAILURE, exchange->attempt, "");
  rdzv_value value;
  const int result =
      rdzv_store_compare_set(exchange->store, rdzv_str(key.text), rdzv_str(before), rdzv_str(text), &value, error);
  if (result == 0) rdzv_value_free(&value);
  return result;
}

int exchange_tell_failure(const struct exchange *exchange, const char *text, rdzv_error *error) {
  return exchange_tell_more(exchange, "", text, error);
}

void exchange_withdraw_failure(const struct exchange *exchange) {
  rdzv_store_delete_key(exchange->store, rdzv_str(key_of(FAILURE, exchange->attempt, "").text), NULL, NULL);
}

char *exchange_failure(const struct exchange *exchange) {
  const struct key key = key_of(FAILURE, exchange->attempt, "");
  rdzv_value value;
  bool there;
  if (is_there(exchange, rdzv_str(key.text), &there, NULL) < 0 || !there) return NULL;
  return get(exchange, key.text, &value, NULL) < 0 ? NULL : value.data;
}
