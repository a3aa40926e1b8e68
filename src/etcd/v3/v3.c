/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/v3/v3.h"

#include "base/error.h"
#include "etcd/v3/call.h"
#include "etcd/v3/write.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { UNSURE_PAUSE_MS = 20 }; /* before a request is sent again of which the answer got lost */

/* ---- one user ------------------------------------------------------------------------------------------------- */

int etcd3_open(struct etcd_client *client, struct etcd3 **out, rdzv_error *error) {
  struct etcd3 *etcd = calloc(1, sizeof *etcd);
  if (!etcd) {
    etcd_close(client);
    return error_no_memory(error);
  }
  etcd->client = client;
  pthread_mutex_init(&etcd->lock, NULL);
  etcd->pauses = ETCD3_FIRST_PAUSE;
  *out = etcd;
  return 0;
}

int etcd3_for_one_thread(struct etcd3 *etcd, rdzv_error *error) {
  return etcd->line ? 0 : etcd_line_take(etcd->client, &etcd->line, error);
}

void etcd3_close(struct etcd3 *etcd) {
  if (!etcd) return;
  etcd_line_give(etcd->client, etcd->line);
  etcd_close(etcd->client);
  pthread_mutex_destroy(&etcd->lock);
  free(etcd);
}

struct etcd_client *etcd3_client(const struct etcd3 *etcd) {
  return etcd->client;
}

int64_t etcd3_known_revision(struct etcd3 *etcd) {
  pthread_mutex_lock(&etcd->lock);
  const int64_t revision = etcd->revision;
  pthread_mutex_unlock(&etcd->lock);
  return revision;
}

int etcd3_learn(struct etcd3 *etcd, int64_t known, int64_t revision, rdzv_error *error) {
  pthread_mutex_lock(&etcd->lock);
  const bool lost = revision < known;
  if (lost || revision > etcd->revision) etcd->revision = revision;
  pthread_mutex_unlock(&etcd->lock);
  if (!lost) return 0;
  return error_set(error, RDZV_E_DATA_LOST,
                   "etcd at %s has lost its data: it is at revision %" PRId64 " and was at %" PRId64,
                   etcd_describe(etcd->client), revision, known);
}

/* Each answer names its cluster. */
static int check_cluster(struct etcd3 *etcd, const struct http_response *response, rdzv_error *error) {
  const uint64_t now = response->cluster;
  pthread_mutex_lock(&etcd->lock);
  const uint64_t before = etcd->cluster;
  const bool lost = now != 0 && before != 0 && now != before;
  if (now != 0) etcd->cluster = now;
  if (lost) etcd->revision = 0;
  etcd->answered_ms = clock_now_ms();
  pthread_mutex_unlock(&etcd->lock);
  if (!lost) return 0;
  return error_set(error, RDZV_E_DATA_LOST,
                   "etcd at %s has lost its data: it is cluster %" PRIx64 " and was cluster %" PRIx64,
                   etcd_describe(etcd->client), now, before);
}

/* ---- refusals ------------------------------------------------------------------------------------------------- */

int etcd3_refused(const struct etcd3 *etcd, long status, rdzv_bytes body, rdzv_error *error) {
  const char *where = etcd_describe(etcd->client);
  struct etcd3_error refused;
  if (!etcd3_read_error(body, &refused))
    return error_set(error, RDZV_E_PROTOCOL, "etcd at %s answers with status %ld, and does not say why", where, status);
  const char *text = refused.text;
  switch (refused.refusal) {
    case ETCD3_REFUSAL_COMPACTED: error_set(error, RDZV_E_STALE, "etcd at %s: %s", where, text); return ETCD3_COMPACTED;
    case ETCD3_REFUSAL_LEASE_GONE:
      error_set(error, RDZV_E_STALE, "etcd at %s: the lease has ended: %s", where, text);
      return ETCD3_LEASE_GONE;
    case ETCD3_REFUSAL_FUTURE:
      return error_set(error, RDZV_E_DATA_LOST, "etcd at %s has lost its data: %s", where, text);
    case ETCD3_REFUSAL_NO_SPACE:
      return error_set(error, RDZV_E_NO_SPACE,
                       "etcd at %s is full (compact and defragment it, then etcdctl alarm disarm): %s", where, text);
    case ETCD3_REFUSAL_CORRUPT:
      return error_set(error, RDZV_E_CORRUPT, "etcd at %s has raised its alarm of corrupt data: %s", where, text);
    case ETCD3_REFUSAL_TOO_LARGE:
      return error_set(error, RDZV_E_LIMIT, "etcd at %s refuses the size (its --max-request-bytes, --max-txn-ops): %s",
                       where, text);
    case ETCD3_REFUSAL_NO_PERMISSION:
      return error_set(error, RDZV_E_INVALID, "this user lacks permission in etcd at %s: %s", where, text);
    case ETCD3_REFUSAL_NO_USER:
      return error_set(error, RDZV_E_INVALID,
                       "etcd at %s requires a user and password (the name in a client certificate does not count, as "
                       "etcd's gateway ignores it): %s",
                       where, text);
    case ETCD3_REFUSAL_LOGIN:
    case ETCD3_REFUSAL_TOKEN: return error_set(error, RDZV_E_INVALID, "etcd at %s denies access: %s", where, text);
    case ETCD3_REFUSAL_LEASE_EXISTS:
    case ETCD3_REFUSAL_NO_AUTH:
    case ETCD3_REFUSAL_BUSY:
    case ETCD3_REFUSAL_OTHER: break;
  }
  return error_set(error, RDZV_E_PROTOCOL, "etcd at %s says: %s", where, text);
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

static int perform_once(struct etcd3 *etcd, const struct etcd3_request *request, unsigned tried, rdzv_error *cause,
                        const struct etcd_call *call, struct buf *body, bool *too_large) {
  const struct etcd_request http = {.method = "POST",
                                    .path = request->path,
                                    .form = (const char *)request->body.data,
                                    .v3 = true,
                                    .of_keys = true,
                                    .once = request->repeat != ETCD3_REPEAT_FREELY,
                                    .resolvable = request->repeat == ETCD3_REPEAT_FENCED,
                                    .tried = tried,
                                    .cause = cause,
                                    .line = etcd->line};
  struct http_response response;
  int result = etcd_perform(etcd->client, &http, call, &response);
  if (result < 0) return result;
  result = check_cluster(etcd, &response, call->error);
  if (result == 0 && response.status != 200)
    result = etcd3_refused(etcd, response.status, (rdzv_bytes){response.body.data, response.body.len}, call->error);
  *too_large = result == RDZV_E_LIMIT; /* and was at each try */
  if (result == 0)
    *body = response.body;
  else
    buf_free(&response.body);
  return result;
}

/* A request that may have been done stays so, whatever the next try returns. */
static int fail_unsure(int result, const struct etcd_call *call) {
  if (result == RDZV_E_CANCELED || result == RDZV_E_DATA_LOST) return result;
  if (call->error) call->error->code = RDZV_E_OUTCOME_UNKNOWN;
  return RDZV_E_OUTCOME_UNKNOWN;
}

int etcd3_perform(struct etcd3 *etcd, struct etcd3_request request, const struct etcd_call *call, struct buf *body,
                  bool *unsure) {
  rdzv_error cause = {0};
  unsigned tried = 0;
  bool too_large = false;
  int result = request.made ? 0 : error_no_memory(call->error);
  for (; request.made; tried++) {
    result = perform_once(etcd, &request, tried, &cause, call, body, &too_large);
    const bool again = result == RDZV_E_OUTCOME_UNKNOWN && request.repeat == ETCD3_REPEAT_FENCED;
    if (!again || deadline_left(call->until) == 0) break;
    if (flag_pause(call->cancel, deadline_after(jitter(UNSURE_PAUSE_MS))) == 0) continue;
    result = error_set(call->error, RDZV_E_CANCELED, "canceled");
    break;
  }
  buf_free(&request.body);
  if (unsure) *unsure = tried > 0;
  return tried > 0 && result < 0 && !too_large ? fail_unsure(result, call) : result;
}

/* A request on keys, read as `kind` or as a transaction. */
static int perform_keys(struct etcd3 *etcd, struct etcd3_request request, bool txn, enum etcd3_op_kind kind,
                        const struct etcd_call *call, struct etcd3_reply *reply) {
  const int64_t known = etcd3_known_revision(etcd);
  struct buf body = {0};
  bool unsure = false;
  *reply = (struct etcd3_reply){0};
  int result = etcd3_perform(etcd, request, call, &body, &unsure);
  if (result != 0) return result;
  const rdzv_bytes bytes = {body.data, body.len};
  result = txn ? etcd3_read_txn(bytes, reply, call->error) : etcd3_read_result(bytes, kind, reply, call->error);
  buf_free(&body);
  if (result < 0) return result;
  reply->unsure = unsure;
  result = etcd3_learn(etcd, known, reply->revision, call->error);
  if (result < 0) etcd3_reply_free(reply);
  return result;
}

/* ---- keys ----------------------------------------------------------------------------------------------------- */

struct etcd3_keys etcd3_prefix(rdzv_bytes prefix, char *end) {
  size_t len = prefix.len;
  bytes_copy(end, prefix.data, len);
  while (len > 0 && (unsigned char)end[len - 1] == 0xff) len--;
  if (len == 0) return (struct etcd3_keys){prefix, {"", 1}}; /* up to the last key */
  end[len - 1] = (char)((unsigned char)end[len - 1] + 1);
  return (struct etcd3_keys){prefix, {end, len}};
}

bool etcd3_holds(const struct etcd3_result *result, rdzv_bytes value) {
  return result->kind == ETCD3_OP_RANGE && result->kv_count == 1 &&
         bytes_equal(rdzv_value_bytes(&result->kvs[0].value), value);
}

int etcd3_range(struct etcd3 *etcd, const struct etcd3_range *range, const struct etcd_call *call,
                struct etcd3_reply *reply) {
  struct etcd3_request request = {.path = "/v3/kv/range", .repeat = ETCD3_REPEAT_FREELY};
  request.made = etcd3_write_range(range, &request.body);
  return perform_keys(etcd, request, false, ETCD3_OP_RANGE, call, reply);
}

int etcd3_put(struct etcd3 *etcd, const struct etcd3_put *put, enum etcd3_repeat repeat, const struct etcd_call *call,
              int64_t *revision) {
  struct etcd3_request request = {.path = "/v3/kv/put", .repeat = repeat};
  struct etcd3_reply reply;
  request.made = etcd3_write_put(put, &request.body);
  const int result = perform_keys(etcd, request, false, ETCD3_OP_PUT, call, &reply);
  if (result == 0 && revision) *revision = reply.revision;
  if (result == 0) etcd3_reply_free(&reply);
  return result;
}

int etcd3_delete(struct etcd3 *etcd, const struct etcd3_delete *what, enum etcd3_repeat repeat,
                 const struct etcd_call *call, struct etcd3_reply *reply) {
  struct etcd3_request request = {.path = "/v3/kv/deleterange", .repeat = repeat};
  request.made = etcd3_write_delete(what, &request.body);
  return perform_keys(etcd, request, false, ETCD3_OP_DELETE, call, reply);
}

static bool only_reads(const struct etcd3_op *ops, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (ops[i].kind != ETCD3_OP_RANGE) return false;
  return true;
}

int etcd3_txn(struct etcd3 *etcd, const struct etcd3_txn *txn, const struct etcd_call *call,
              struct etcd3_reply *reply) {
  if (txn->compare_count > ETCD3_MAX_OPS || txn->then_count > ETCD3_MAX_OPS || txn->otherwise_count > ETCD3_MAX_OPS)
    return error_set(call->error, RDZV_E_LIMIT, "a transaction of etcd has at most %d operations", ETCD3_MAX_OPS);
  const bool reads = only_reads(txn->then, txn->then_count) && only_reads(txn->otherwise, txn->otherwise_count);
  struct etcd3_request request = {.path = "/v3/kv/txn", .repeat = reads ? ETCD3_REPEAT_FREELY : txn->repeat};
  request.made = etcd3_write_txn(txn, &request.body);
  return perform_keys(etcd, request, true, ETCD3_OP_RANGE, call, reply);
}

/* ---- the cluster ---------------------------------------------------------------------------------------------- */

static int ask(struct etcd3 *etcd, const char *path, const struct etcd_call *call, struct buf *body) {
  struct etcd3_request request = {.path = path, .repeat = ETCD3_REPEAT_FREELY};
  request.made = buf_append(&request.body, "{}", 3);
  return etcd3_perform(etcd, request, call, body, NULL);
}

int etcd3_status(struct etcd3 *etcd, const struct etcd_call *call, struct etcd3_status *status) {
  struct buf body = {0};
  int result = ask(etcd, "/v3/maintenance/status", call, &body);
  if (result == 0) result = etcd3_read_status((rdzv_bytes){body.data, body.len}, status, call->error);
  buf_free(&body);
  return result;
}

int etcd3_quota(struct etcd3 *etcd, const struct etcd_call *call, int64_t *bytes) {
  static const char name[] = "\netcd_server_quota_backend_bytes ";
  const struct etcd_request request = {.method = "GET", .path = "/metrics", .quiet = true, .line = etcd->line};
  struct http_response response;
  const int result = etcd_perform(etcd->client, &request, call, &response);
  if (result < 0) return result;
  const char *found = response.status == 200 && buf_append(&response.body, "", 1)
                          ? strstr((const char *)response.body.data, name)
                          : NULL;
  const double quota = found ? strtod(found + sizeof name - 1, NULL) : 0;
  buf_free(&response.body);
  if (!(quota >= 1 && quota < 1e18))
    return error_set(call->error, RDZV_E_UNSUPPORTED, "cannot read the quota of etcd at %s",
                     etcd_describe(etcd->client));
  *bytes = (int64_t)quota;
  return 0;
}

int etcd3_member_list(struct etcd3 *etcd, const struct etcd_call *call, char **urls) {
  struct buf body = {0};
  int result = ask(etcd, "/v3/cluster/member/list", call, &body);
  if (result == 0) result = etcd3_read_members((rdzv_bytes){body.data, body.len}, urls, call->error);
  buf_free(&body);
  return result;
}
