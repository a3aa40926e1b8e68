/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where rank 0 of a round can be reached: rank 0 publishes it in the round's store, under PyTorch's names.
 *
 * PyTorch 2.4 and later publishes it once in the life of a handler, in its first round, and reads it once, too, unless
 * TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 is set. Earlier versions publish it above the rendezvous, in each round. So
 * where such nodes may take part, a node of this library keeps one port for its life; and where a round has no address,
 * it takes what the node that is rank 0 has published before. Otherwise the port is another one in each round, which
 * workers of earlier rounds do not know.
 *
 * A rank 0 of this library, which a mark in the state identifies, publishes in each round, with its name, so that keys
 * which an earlier round of that number left in the store are not mistaken for it. If it leaves before, the round is
 * over and the others join the next one. A round without an address is returned only where rank 0 is a PyTorch node.
 */
#include "handler/master.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait/waiting.h"
#include "handler/dynamic/dynamic.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  OWN_MS = 5000,    /* our own nodes say so at once, an agent of PyTorch 1.13 when it has seen the round */
  TORCH_MS = 30000, /* a PyTorch of which we have not heard before */
  EARLIER_ROUNDS = 16,
};

/* ---- remembering ---------------------------------------------------------------------------------------------- */

void dynamic_forget_master(struct dynamic *handler) {
  if (handler->master.port_fd >= 0) close(handler->master.port_fd);
  free(handler->master.node);
  free(handler->master.addr);
}

static bool remember(struct dynamic *handler, const struct round_result *result) {
  char *node = strdup(result->rank0), *addr = strdup(result->base.master_addr);
  if (!node || !addr) {
    free(node);
    free(addr);
    return false;
  }
  free(handler->master.node);
  free(handler->master.addr);
  handler->master.node = node;
  handler->master.addr = addr;
  handler->master.port = result->base.master_port;
  return true;
}

static bool is_remembered(const struct dynamic *handler, const struct round_result *result) {
  return handler->master.node && strcmp(handler->master.node, result->rank0) == 0;
}

static int take_remembered(const struct dynamic *handler, struct round_result *result, rdzv_error *error) {
  return result_set_master(result, handler->master.addr, handler->master.port) ? 0 : error_no_memory(error);
}

/* May there be nodes that hear of it once only? */
static bool is_said_once(struct dynamic *handler, const struct round_result *result) {
  if (result->all_ours) return false;
  const char *private_stores = getenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
  const bool old = driver_facts(handler->driver).layout < TORCH_2_3;
  return !old && (!private_stores || strcmp(private_stores, "1") != 0);
}

/* ---- rounds before this one ----------------------------------------------------------------------------------- */

static int open_round(const struct dynamic *handler, const struct round_result *result, int64_t round, rdzv_store **out,
                      rdzv_error *error) {
  char *prefix = dynamic_round_prefix(handler, round);
  if (!prefix) return error_no_memory(error);
  const int outcome = rdzv_store_open_prefix(result->store, rdzv_str(prefix), out, error);
  free(prefix);
  return outcome;
}

static void remove_master(const struct dynamic *handler, const struct round_result *result, int64_t round) {
  rdzv_store *store = NULL;
  rdzv_error error;
  int outcome = open_round(handler, result, round, &store, &error);
  if (outcome == 0) {
    outcome = master_remove(store, &error);
    rdzv_store_free(store);
  }
  if (outcome < 0)
    log_line(&handler->base.log, RDZV_LOG_DEBUG, "the address of rank 0 of round %" PRId64 " stays in the store: %s",
             round, error.message);
}

/* A round begins when all participants of the one before have left it or are dead. An rdzv node that was taken for dead
 * and still waits for the address notices that its round is over; a PyTorch node does not: what it may read stays. */
void dynamic_remove_past_master(struct dynamic *handler, const struct round_result *result) {
  const int64_t past = handler->master.past_round;
  const bool is_rank_0 = result->base.rank == 0;
  if (past >= 0 && past < result->base.round && (handler->master.past_is_own || is_rank_0))
    remove_master(handler, result, past);
  handler->master.past_round = result->all_ours ? result->base.round : -1;
  handler->master.past_is_own = is_rank_0;
}

/* ---- as rank 0 ------------------------------------------------------------------------------------------------ */

static int renew_port(struct dynamic *handler, rdzv_error *error) {
  return host_renew_port(&handler->master.port_fd, &handler->master.own_port, error);
}

/* The address is looked for once: the name of the endpoint may have to be looked up. */
static const char *own_address(struct dynamic *handler) {
  char *addr = handler->master.own_addr;
  if (!*addr) master_own_address(&handler->base, RDZV_DEFAULT_PORT, addr);
  return addr;
}

int dynamic_offer_master(struct dynamic *handler, struct driver_words *words, rdzv_error *error) {
  const bool kept = handler->master.keeps && handler->master.port_fd >= 0;
  const int outcome = kept ? 0 : renew_port(handler, error);
  if (outcome < 0) return outcome;
  *words = (struct driver_words){.master_port = handler->master.own_port};
  snprintf(words->master_addr, sizeof words->master_addr, "%s", own_address(handler));
  pthread_mutex_lock(&handler->lock);
  snprintf(words->role, sizeof words->role, "%s", handler->workers.role);
  words->local_world_size = handler->workers.local_world_size;
  words->restart_count = handler->workers.restart_count;
  pthread_mutex_unlock(&handler->lock);
  return 0;
}

/* Our address and port. A port that is kept is ours from the first time on, also while others are rank 0. A native node
 * has another one since it joined. */
static int own_master(struct dynamic *handler, struct round_result *result, rdzv_error *error) {
  const bool keeps = handler->master.keeps = is_said_once(handler, result);
  if (keeps && is_remembered(handler, result)) return take_remembered(handler, result, error);
  const bool fresh = keeps || handler->driver->ops->native;
  if (!fresh || handler->master.port_fd < 0) {
    const int outcome = renew_port(handler, error);
    if (outcome < 0) return outcome;
  }
  const bool done =
      result_set_master(result, own_address(handler), handler->master.own_port) && remember(handler, result);
  return done ? 0 : error_no_memory(error);
}

static int publish(struct dynamic *handler, struct round_result *result, rdzv_error *error) {
  const int outcome = own_master(handler, result, error);
  if (outcome < 0) return outcome;
  return master_publish(result, result->rank0, handler->master.addr, handler->master.port, error);
}

/* ---- as another ----------------------------------------------------------------------------------------------- */

typedef int wait_in_store(struct round_result *result, struct store_call *call);

static int await_torch(struct round_result *result, struct store_call *call) {
  const rdzv_bytes keys[] = {MASTER_ADDR, MASTER_PORT};
  return result->base.store->ops->wait(result->base.store, keys, 2, call);
}

/* Waits for it, unless the round ends before: rank 0 may be the one that is gone. */
static int await(struct dynamic *handler, struct round_result *result, wait_in_store *wait, int64_t timeout_ms,
                 struct waiting *waiting, rdzv_error *error) {
  struct flag stop;
  int outcome = flag_open_with(&stop, rdzv_handler_ended_fd(&handler->base), error);
  if (outcome < 0) return outcome;
  const struct flag telling = flag_with(&stop, waiting);
  struct store_call call = {timeout_ms, deadline_after(timeout_ms), &telling, error};
  waiting->until = call.until;
  if (!flag_also(&stop, flag_fd(&handler->base.cancel)))
    outcome = error_no_memory(error);
  else if (flag_raised(&stop))
    outcome = RDZV_E_CANCELED;
  else
    outcome = wait(result, &call);
  flag_close(&stop);
  return outcome;
}

static int remember_taken(struct dynamic *handler, const struct round_result *result, int outcome, rdzv_error *error) {
  return outcome < 0 || remember(handler, result) ? outcome : error_no_memory(error);
}

static int take_from(struct dynamic *handler, struct round_result *result, rdzv_store *store, const char *addr,
                     rdzv_error *error) {
  return remember_taken(handler, result, master_take(result, store, addr, error), error);
}

/* A round before this one. RDZV_E_TIMEOUT: it says nothing of that rank 0. */
static int look_into(struct dynamic *handler, struct round_result *result, int64_t round, rdzv_error *error) {
  const rdzv_bytes keys[] = {MASTER_ADDR, MASTER_PORT};
  rdzv_store *store = NULL;
  bool there = false;
  int outcome = open_round(handler, result, round, &store, error);
  if (outcome < 0) return outcome;
  outcome = rdzv_store_check(store, keys, 2, &there, error);
  if (outcome == 0) outcome = there ? take_from(handler, result, store, result->rank0_addr, error) : RDZV_E_TIMEOUT;
  rdzv_store_free(store);
  return outcome;
}

static int look_back(struct dynamic *handler, struct round_result *result, rdzv_error *error) {
  int outcome = RDZV_E_TIMEOUT;
  for (int64_t back = 1; back <= EARLIER_ROUNDS && back <= result->base.round && outcome == RDZV_E_TIMEOUT; back++)
    outcome = look_into(handler, result, result->base.round - back, error);
  return outcome;
}

/* An agent asks after the agent of rank 0 has assigned the ranks: what that one publishes in this round is there. */
static int find_said_before(struct dynamic *handler, struct round_result *result, rdzv_error *error) {
  const rdzv_bytes keys[] = {MASTER_ADDR, MASTER_PORT};
  bool there = false;
  const int outcome = rdzv_store_check(result->base.store, keys, 2, &there, error);
  if (outcome < 0) return outcome;
  return there ? take_from(handler, result, result->base.store, NULL, error) : take_remembered(handler, result, error);
}

/* A PyTorch says so late, or not at all. */
static int find_torch(struct dynamic *handler, struct round_result *result, struct waiting *waiting,
                      rdzv_error *error) {
  const bool once = is_said_once(handler, result);
  const bool known = once && is_remembered(handler, result);
  if (known && handler->base.master_later) return find_said_before(handler, result, error);
  int outcome = await(handler, result, await_torch, OWN_MS, waiting, error);
  if (outcome == RDZV_E_TIMEOUT && known) return take_remembered(handler, result, error);
  if (outcome == RDZV_E_TIMEOUT && once) {
    outcome = look_back(handler, result, error);
    if (outcome != RDZV_E_TIMEOUT) return outcome;
    outcome = await(handler, result, await_torch, TORCH_MS, waiting, error);
  }
  return outcome == 0 ? take_from(handler, result, result->base.store, NULL, error) : outcome;
}

/* A node of this library publishes in each round before it goes on, or leaves the round, or dies and is found dead. */
static int find_ours(struct dynamic *handler, struct round_result *result, struct waiting *waiting, rdzv_error *error) {
  const int64_t dead_time = rendezvous_dead_time(driver_settings(handler->driver));
  const int64_t longest = rdzv_store_get_timeout(result->base.store) + dead_time;
  const int64_t timeout_ms = longest < INT32_MAX ? longest : INT32_MAX;
  const int outcome = await(handler, result, master_await_named, timeout_ms, waiting, error);
  return remember_taken(handler, result, outcome, error);
}

/* The round is over; rank 0 may have published before. */
static int find_what_is_there(struct dynamic *handler, struct round_result *result, rdzv_error *error) {
  const rdzv_bytes keys[] = {MASTER_ADDR, MASTER_PORT};
  struct store_call look = {0, deadline_after(0), &handler->base.cancel, error};
  bool there = false;
  if (result->master_is_ours) {
    const int outcome = master_await_named(result, &look);
    return outcome == RDZV_E_TIMEOUT ? RDZV_E_CANCELED : remember_taken(handler, result, outcome, error);
  }
  const int outcome = rdzv_store_check(result->base.store, keys, 2, &there, error);
  if (outcome < 0) return outcome;
  return there ? take_from(handler, result, result->base.store, NULL, error) : RDZV_E_CANCELED;
}

static int find(struct dynamic *handler, struct round_result *result, rdzv_error *error) {
  struct waiting waiting;
  waiting_begin(&waiting, &handler->base.log, INT64_MAX);
  waiting_about(&waiting, "waiting for rank 0, '%s', to publish its address", result->rank0);
  const int outcome = result->master_is_ours ? find_ours(handler, result, &waiting, error)
                                             : find_torch(handler, result, &waiting, error);
  const bool over = outcome == RDZV_E_CANCELED && !flag_raised(&handler->base.cancel);
  return over ? find_what_is_there(handler, result, error) : outcome;
}

static int fetch(struct dynamic *handler, struct round_result *result, rdzv_error *error) {
  rdzv_error own = {0};
  const int outcome = find(handler, result, &own);
  if (outcome == 0) return 0;
  if (outcome == RDZV_E_CANCELED && flag_raised(&handler->base.cancel))
    return error_set(error, outcome, "cannot join the rendezvous: canceled");
  if (outcome != RDZV_E_TIMEOUT && outcome != RDZV_E_CANCELED) {
    if (error) *error = own;
    return error_prefix(error, outcome, "cannot get the address of rank 0");
  }
  error_set(&own, outcome, "rank 0, '%s', has not published its address", result->rank0);
  if (result->master_is_ours) {
    if (error) *error = own;
    return outcome;
  }
  log_line(&handler->base.log, RDZV_LOG_WARNING, "%s", own.message);
  return 0;
}

int dynamic_find_master(struct dynamic *handler, struct round_result *result, rdzv_error *error) {
  return result->base.rank == 0 ? publish(handler, result, error) : fetch(handler, result, error);
}
