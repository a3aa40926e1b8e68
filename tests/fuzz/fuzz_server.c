/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several clients on one keyspace with a small budget, so that refusals happen in the middle of everything. The input
 * is a row of frames: who (1 byte), how many bytes (1 byte), the bytes, which are the next piece of that client's
 * stream. Client 0 speaks V1, the others our own dialect. A client that breaks the protocol goes, with its waits. Each
 * input is taken twice: with wakes and news at once, and with some of them after each request, as the server has them.
 */
#include "fuzz_execute.h"

enum { CLIENTS = 4, BUDGET = 4096, STREAM = 1024, SETTLED = 2 };

struct client {
  struct wire_decoder decoder;
  uint8_t in[STREAM];
  size_t in_len;
  struct waits waits;
  bool gone;
};

struct world {
  struct client clients[CLIENTS];
  struct budget budget;
  struct keyspace *ks;
  bool deferred;
};

static const struct wire_limits limits = {
    .max_key = 32, .max_value = 512, .max_count = MAX_KEYS, .max_message = STREAM};

static void wake(void *user, struct ks_waiter *waiter) {
  (void)user;
  CHECK(!waiter->links && !waiter->missing && !waiter->watching);
}

static void changed(void *user, struct ks_waiter *waiter, const struct ks_news *news) {
  const struct world *world = user;
  rdzv_bytes now;
  CHECK(waiter->watching && (news || world->deferred));
  if (world->deferred) return; /* the key may have changed since */
  CHECK(ks_get(world->ks, news->key, &now) != 0 || news->change == KS_CHANGE_DELETED);
  CHECK(!news->before || news->change != KS_CHANGE_CREATED);
  CHECK(blob_bytes(news->after).len == (news->change == KS_CHANGE_DELETED ? 0 : now.len));
}

static void check_world(const struct world *world) {
  size_t keys = 0;
  rdzv_bytes key, value;
  for (const void *at = NULL; (at = ks_next(world->ks, at, &key)) != NULL; keys++)
    CHECK(ks_get(world->ks, key, &value) != 0 && ((const char *)value.data)[value.len] == '\0');
  CHECK(keys == ks_count(world->ks));
  CHECK(world->budget.used <= world->budget.max);
}

static void leave(struct world *world, struct client *client) {
  cancel_waits(world->ks, &client->waits);
  client->gone = true;
}

static void take_requests(struct world *world, struct client *client) {
  struct wire_request request;
  enum wire_result result;
  size_t used = 0;
  while ((result = wire_decode(&client->decoder, &limits, client->in + used, client->in_len - used, &request)) ==
         WIRE_RESULT_DONE) {
    const int code = execute(world->ks, &client->waits, &request);
    CHECK(code == 0 || code == RDZV_E_LIMIT || code == RDZV_E_NOT_A_NUMBER);
    if (world->deferred) ks_settle(world->ks, SETTLED);
    check_world(world);
    used += request.size;
  }
  client->in_len -= used;
  memmove(client->in, client->in + used, client->in_len);
  if (result == WIRE_RESULT_BAD) leave(world, client);
}

static void run(const uint8_t *data, size_t len, bool deferred) {
  struct world world = {.budget = {.max = BUDGET}, .deferred = deferred};
  const struct ks_events events = {.wake = wake, .changed = changed};
  world.ks = ks_new(&world.budget, &events, &world);
  CHECK(world.ks);
  if (deferred) ks_defer(world.ks);
  for (int i = 0; i < CLIENTS; i++) world.clients[i].decoder.dialect = i == 0 ? WIRE_DIALECT_V1 : WIRE_DIALECT_RDZV;
  for (size_t at = 0; at + 2 <= len;) {
    struct client *client = &world.clients[data[at] % CLIENTS];
    const size_t size = data[at + 1] < len - at - 2 ? data[at + 1] : len - at - 2;
    if (size > STREAM - client->in_len) leave(&world, client);
    if (!client->gone) {
      memcpy(client->in + client->in_len, data + at + 2, size);
      client->in_len += size;
      take_requests(&world, client);
    }
    at += 2 + size;
  }
  for (int i = 0; i < CLIENTS; i++) cancel_waits(world.ks, &world.clients[i].waits);
  ks_free(world.ks);
  CHECK(world.budget.used == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len) {
  run(data, len, false);
  run(data, len, true);
  return 0;
}
