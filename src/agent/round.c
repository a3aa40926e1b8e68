/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/agent.h"
#include "agent/relay/relay.h"
#include "base/error.h"
#include "base/log.h"
#include "base/net/host.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXCHANGE_MS = 300000, REQUEST_MS = 3000, RESOLVE_MS = 5000 };

/* ---- the workers' store --------------------------------------------------------------------------------------- */

/* As rank 0: another port than in the round before. The workers' store of this round is unknown to workers of before,
 * and theirs is gone. */
static int reserve_port(rdzv_agent *agent, rdzv_error *error) {
  if (agent->round->rank != 0 || strcmp(agent->round->backend, "static") == 0) return 0;
  return host_renew_port(&agent->port_fd, &agent->exchange.fresh_port, error);
}

/* Is the rendezvous protected, and the workers' store with it? */
static bool is_protected(const rdzv_agent *agent) {
  const rdzv_protection *protection = rdzv_handler_protection(agent->handler);
  return !agent->direct_master && (*protection->secret_file || *protection->tls_ca || *protection->tls_cert);
}

static const char *if_protected(const rdzv_agent *agent, const char *path) { return is_protected(agent) ? path : ""; }

/* Where others know us by, unless an option says otherwise. */
static const char *bind_address(const rdzv_agent *agent, struct host_bind *at) {
  const rdzv_protection *protection = rdzv_handler_protection(agent->handler);
  struct endpoint master = {.port = agent->attempt.master_port};
  if (*protection->bind) return protection->bind;
  snprintf(master.host, sizeof master.host, "%s", agent->attempt.master_addr);
  host_bind(&master, deadline_after(RESOLVE_MS), &agent->stop, at);
  if (at->why)
    log_line(&agent->server_log, RDZV_LOG_INFO,
             "the workers' store listens on all addresses of this machine: %s (choose one with option bind=ADDR)",
             at->why);
  return at->address;
}

/* On the port that was told, which has been kept from being given to others by chance since before. In each round
 * another server: what workers of before wrote is not to be found. */
static int serve_workers(rdzv_agent *agent, rdzv_error *error) {
  const rdzv_protection *protection = rdzv_handler_protection(agent->handler);
  struct host_bind at;
  const rdzv_server_options options = {.size = sizeof options,
                                       .bind = bind_address(agent, &at),
                                       .port = agent->attempt.master_port,
                                       .log = &agent->server_log,
                                       .renew_groups = true,
                                       .secret_file = if_protected(agent, protection->secret_file),
                                       .tls_cert = if_protected(agent, protection->tls_cert),
                                       .tls_key = if_protected(agent, protection->tls_key),
                                       .tls_client_ca = if_protected(agent, protection->tls_client_ca)};
  int result = rdzv_server_open(&options, &agent->workers_store, error);
  if (result == 0) result = rdzv_server_start(agent->workers_store, error);
  return result < 0 ? error_prefix(error, result, "cannot serve the workers' store") : 0;
}

static bool is_ours_to_serve(const rdzv_agent *agent) {
  return agent->round->rank == 0 && agent->attempt.terms.agent_store && strcmp(agent->round->backend, "static") != 0;
}

/* Workers of a protected job reach their store through a relay in the agent. A store that a worker serves
 * cannot be protected. */
static int relay_workers(rdzv_agent *agent, rdzv_error *error) {
  struct attempt *attempt = &agent->attempt;
  if (!is_protected(agent)) return 0;
  if (!attempt->terms.agent_store)
    return error_set(error, RDZV_E_INVALID,
                     "the rendezvous is protected, but the workers' store would be served by a worker, without TLS "
                     "(unset TORCH_DISABLE_SHARE_RDZV_TCP_STORE, or use --direct-master)");
  const int result = relay_open(attempt->master_addr, attempt->master_port, rdzv_handler_protection(agent->handler),
                                &agent->log, &agent->relay, error);
  if (result < 0) return result;
  attempt->master_addr = "127.0.0.1";
  attempt->master_port = relay_port(agent->relay);
  return 0;
}

/* ---- ranks ---------------------------------------------------------------------------------------------------- */

static void describe_exchange(rdzv_agent *agent) {
  rdzv_store_set_request_timeout(agent->round->store, REQUEST_MS, NULL); /* a store that is lost must not hold us */
  agent->exchange = (struct exchange){.store = agent->round->store,
                                      .log = &agent->log,
                                      .rank = agent->round->rank,
                                      .world_size = agent->round->world_size,
                                      .backend = agent->round->backend,
                                      .interrupt_fds = {flag_fd(&agent->stop), rdzv_handler_ended_fd(agent->handler)},
                                      .timeout_ms = EXCHANGE_MS};
}

static const char *leader_of(const rdzv_result *round) {
  const rdzv_participant *leader = rdzv_result_participant(round, 0);
  return leader ? leader->node : "";
}

static int agree(rdzv_agent *agent, rdzv_error *error) {
  struct attempt *attempt = &agent->attempt;
  struct role_info own = {.rank = agent->round->rank,
                          .local_world_size = agent->local_world_size,
                          .restart_count = agent->supervisor.restarts};
  snprintf(own.role, sizeof own.role, "%s", agent->role);
  *attempt = (struct attempt){.run_id = agent->run_id,
                              .role = agent->role,
                              .group_rank = agent->round->rank,
                              .group_world_size = agent->round->world_size,
                              .local_world_size = agent->local_world_size,
                              .max_restarts = agent->max_restarts,
                              .virtual_local_rank = agent->virtual_local_rank,
                              .numa = agent->numa};
  int result = 0;
  if (!exchange_is_told(&agent->exchange, agent->round, &attempt->ranks, &attempt->terms)) {
    if (agent->leftovers.node)
      leftovers_clear(&agent->leftovers, leader_of(agent->round), flag_fd(&agent->stop), &agent->log);
    result = reserve_port(agent, error);
    if (result == 0) result = exchange_ranks(&agent->exchange, &own, &attempt->ranks, &attempt->terms, error);
  }
  if (result == 0) result = rdzv_handler_find_master(agent->handler, agent->round, error);
  if (result < 0) return result;
  supervisor_step(&agent->supervisor,
                  &(struct supervisor_event){.kind = SUPERVISOR_EV_AGREED, .restarts = attempt->terms.restart_count});
  /* A static rendezvous has one round, and its terms may be older than our own count. */
  attempt->terms.restart_count = agent->exchange.attempt = agent->supervisor.restarts;
  attempt->master_addr = agent->round->master_addr;
  attempt->master_port = attempt->terms.master_port ? attempt->terms.master_port : agent->round->master_port;
  if (attempt->terms.torch_serves && agent->round->master_port > 0 && *leader_of(agent->round))
    leftovers_note(&agent->leftovers, leader_of(agent->round), attempt->master_addr, attempt->master_port,
                   attempt->ranks.world_size);
  struct pollfd ended = {.fd = rdzv_handler_ended_fd(agent->handler), .events = POLLIN};
  if (agent->round->master_port == 0 && poll(&ended, 1, 0) > 0)
    return error_set(error, RDZV_E_CANCELED, "the round ended before the agent of group rank 0 has published");
  if (agent->round->master_port == 0)
    return error_set(error, RDZV_E_TIMEOUT, "the agent of group rank 0 has not published the address of its workers");
  return 0;
}

/* ---- starting ------------------------------------------------------------------------------------------------- */

/* "rank 1", "ranks 2 to 3". */
static void ranks_text(const struct attempt *attempt, char *out, size_t size) {
  const int64_t first = attempt->ranks.base, last = first + attempt->local_world_size - 1;
  if (first == last)
    snprintf(out, size, "rank %" PRId64, first);
  else
    snprintf(out, size, "ranks %" PRId64 " to %" PRId64, first, last);
}

static int start(rdzv_agent *agent, rdzv_error *error) {
  const struct attempt *attempt = &agent->attempt;
  char ranks[64], master[ENDPOINT_TEXT_SIZE];
  ranks_text(attempt, ranks, sizeof ranks);
  endpoint_format(attempt->master_addr, attempt->master_port, master);
  agent_note(agent, RDZV_AGENT_STARTING,
             "round %" PRId64 ": node %" PRId64 " of %" PRId64 ", %s of %" PRId64 ", attempt %" PRId64 ", master %s",
             agent->round->round, attempt->group_rank, attempt->group_world_size, ranks, attempt->ranks.world_size,
             attempt->terms.restart_count, master);
  const bool first = !agent->log_dir.run[0];
  int result = is_ours_to_serve(agent) ? serve_workers(agent, error) : 0;
  if (result == 0) result = relay_workers(agent, error);
  if (result == 0) result = group_start(&agent->group, agent->argv, attempt, &agent->log_dir, error);
  if (first && agent->log_dir.run[0] && agent_has_output(agent))
    log_line(&agent->log, RDZV_LOG_INFO, "the workers' output goes to files in '%s'", agent->log_dir.run);
  for (size_t i = 0; i < agent->group.count; i++)
    if (agent->group.workers[i].pid > 0)
      agent_note_worker(agent, RDZV_WORKER_STARTED, &agent->group.workers[i], "started");
  return result;
}

/* What the agents told each other may be lost, and the others may wait for it: they hear of us in the next round.
 * The handler, not one failed request, decides whether the store is gone for good. A static rendezvous has one
 * round. */
static bool is_lost(const rdzv_agent *agent, int result) {
  return strcmp(agent->round->backend, "static") != 0 &&
         (result == RDZV_E_DATA_LOST || result == RDZV_E_CONNECTION || result == RDZV_E_OUTCOME_UNKNOWN);
}

/* Did others go before the workers were started? Then there is another round to come, unless we are to stop. */
static int is_over(rdzv_agent *agent, int result, rdzv_error *error) {
  if (is_lost(agent, result) && !flag_raised(&agent->stop)) {
    log_line(&agent->log, RDZV_LOG_WARNING, "round %" PRId64 " ended before its workers started: %s",
             agent->round->round, error->message);
    return 1;
  }
  rdzv_change *change = NULL;
  const bool gave_up = result == RDZV_E_CANCELED;
  if ((!gave_up && result != RDZV_E_TIMEOUT) || flag_raised(&agent->stop)) return result;
  rdzv_error why;
  const int heard = rdzv_handler_wait_change(agent->handler, 0, &change, &why);
  if (heard < 0 && !(gave_up && heard == RDZV_E_TIMEOUT)) {
    if (gave_up && error) *error = why;
    return gave_up ? heard : result;
  }
  const char *who = change ? rdzv_change_node(change, 0) : NULL;
  log_line(&agent->log, RDZV_LOG_INFO, "round %" PRId64 " ended before its workers started%s%s", agent->round->round,
           who ? ", without " : "", who ? who : "");
  rdzv_change_free(change);
  return 1;
}

int round_begin(rdzv_agent *agent, rdzv_error *error) {
  agent_note(agent, RDZV_AGENT_RENDEZVOUS, "joining the next round");
  agent->has_left = false;
  int result =
      rdzv_handler_set_workers(agent->handler, agent->role, agent->local_world_size, agent->supervisor.restarts, error);
  if (result == 0) result = rdzv_handler_next(agent->handler, &agent->round, error);
  if (result < 0) return result;
  if (!agent->round->store)
    return error_set(error, RDZV_E_UNSUPPORTED, "the rendezvous '%s' has no store for agents", agent->round->backend);
  describe_exchange(agent);
  result = agree(agent, error);
  return result < 0 ? is_over(agent, result, error) : start(agent, error);
}

/* Each agent of the round has read the failures of the one before. Without this the store would grow with each restart.
 */
void round_begun(rdzv_agent *agent) {
  if (!agent->failed_round) return;
  exchange_withdraw_failure(&agent->failed_exchange);
  rdzv_result_free(agent->failed_round);
  agent->failed_round = NULL;
}

/* A round in which this node failed is kept until the next one has begun. */
static void end_result(rdzv_agent *agent) {
  if (agent->published) {
    rdzv_result_free(agent->failed_round);
    agent->failed_round = agent->round;
    agent->failed_exchange = agent->exchange;
  } else {
    rdzv_result_free(agent->round);
  }
  free(agent->published);
  agent->published = NULL;
  agent->round = NULL;
}

void round_end(rdzv_agent *agent) {
  relay_close(agent->relay);
  agent->relay = NULL;
  rdzv_server_free(agent->workers_store);
  agent->workers_store = NULL;
  end_result(agent);
}
