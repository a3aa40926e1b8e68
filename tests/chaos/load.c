/* SPDX-License-Identifier: BSD-3-Clause */
#include "load.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  REQUEST_MS = 400,  /* the timeout that stores are opened with */
  CLUSTER_MS = 3000, /* where another member has to be found, or elected */
  UNHARMED_MS = 60000,
  BLOCK_MS = 20,   /* of calls that wait for a key */
  MOST_TEXT = 128, /* values that are longer are not appended to */
};

int64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void pause_ms(int64_t ms) {
  const struct timespec moment = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&moment, NULL);
}

/* Of a list of servers, each client has another one in front: where two of them take themselves for the active one,
 * both have clients. */
static void turn_list(const char *list, char out[256]) {
  static atomic_int opened;
  snprintf(out, 256, "%s", list);
  for (int turns = atomic_fetch_add(&opened, 1) % 16; turns > 0; turns--) {
    char one[256];
    const size_t len = strcspn(out, ",");
    if (!out[len]) return;
    snprintf(one, sizeof one, "%s,%.*s", out + len + 1, (int)len, out);
    memcpy(out, one, sizeof one);
  }
}

rdzv_store *place_open(const struct place *place, int *code) {
  char endpoint[256];
  turn_list(place->endpoint, endpoint);
  rdzv_store *store = NULL;
  const int64_t usual_ms = strchr(place->endpoint, ',') ? CLUSTER_MS : REQUEST_MS;
  const int64_t request_ms = place->patience ? place->patience : usual_ms;
  const rdzv_file_options file = {.size = sizeof file, .timeout_ms = request_ms};
  const rdzv_tcp_options tcp = {.size = sizeof tcp, .timeout_ms = request_ms, .dialect = place->dialect};
  const rdzv_etcd_store_options etcd = {
      .size = sizeof etcd,
      .timeout_ms = request_ms,
      .etcd = &(rdzv_etcd_options){
          .size = sizeof(rdzv_etcd_options), .endpoints = place->endpoint, .read_timeout_ms = request_ms}};
  const rdzv_etcd3_store_options etcd3 = {.size = sizeof etcd3, .timeout_ms = request_ms, .etcd = etcd.etcd};
  switch (place->type) {
    case STORE_HASH: *code = rdzv_store_clone(place->hash, &store, NULL); break;
    case STORE_FILE: *code = rdzv_store_open_file(place->endpoint, &file, &store, NULL); break;
    case STORE_TCP: *code = rdzv_store_open_tcp(endpoint, &tcp, &store, NULL); break;
    case STORE_ETCD: *code = rdzv_store_open_etcd("/chaos", &etcd, &store, NULL); break;
    case STORE_ETCD3: *code = rdzv_store_open_etcd3("/chaos", &etcd3, &store, NULL); break;
  }
  if (*code == 0) rdzv_store_set_timeout(store, BLOCK_MS, NULL);
  return *code == 0 ? store : NULL;
}

rdzv_store *place_open_unharmed(const struct place *place, int *code) {
  struct place unharmed = *place;
  unharmed.patience = UNHARMED_MS;
  return place_open(&unharmed, code);
}

bool is_unexpected(int code, bool restarts) {
  switch (code) {
    case RDZV_OK:
    case RDZV_E_TIMEOUT:
    case RDZV_E_CONNECTION:
    case RDZV_E_OUTCOME_UNKNOWN:
    case RDZV_E_NOT_A_NUMBER:
    case RDZV_E_EMPTY: return false;
    case RDZV_E_STOPPED:
    case RDZV_E_DATA_LOST: return !restarts;
    default: return true;
  }
}

/* What the contract of rdzv/store.h says of a call that returned this. */
static enum outcome outcome_of(int code) {
  switch (code) {
    case RDZV_OK: return DONE;
    case RDZV_E_NOT_A_NUMBER: return NOT_A_NUMBER;
    case RDZV_E_EMPTY: return EMPTY;
    case RDZV_E_TIMEOUT:
    case RDZV_E_CONNECTION:
    case RDZV_E_ADDRESS:
    case RDZV_E_STOPPED:
    case RDZV_E_INVALID:
    case RDZV_E_LIMIT:
    case RDZV_E_UNSUPPORTED:
    case RDZV_E_NO_MEMORY: return FAILED;
    default: return UNKNOWN; /* RDZV_E_DATA_LOST, too: it may have been done before the restart */
  }
}

/* ---- writing down ------------------------------------------------------------------------------------------------ */

static struct op *begin(struct book *book, int worker, int key, enum op_kind kind) {
  struct log *log = &book->logs[worker];
  const int at = atomic_load(&log->count);
  struct op *op = &log->ops[at];
  *op = (struct op){.worker = worker, .key = key, .kind = kind, .outcome = UNKNOWN};
  op->call_us = now_us();
  atomic_store(&log->count, at + 1);
  return op;
}

static void end(struct op *op, int code, const rdzv_error *error) {
  op->return_us = now_us();
  op->code = code;
  if (code < 0) snprintf(op->message, sizeof op->message, "%.*s", (int)sizeof op->message - 1, error->message);
  atomic_thread_fence(memory_order_release); /* a worker that is killed here has written all or nothing of its answer */
  op->outcome = outcome_of(code);
}

static void keep(char *to, rdzv_value *value, int code) {
  if (code < 0) return;
  snprintf(to, HISTORY_TEXT, "%.*s", (int)value->len, value->data);
  rdzv_value_free(value);
}

/* ---- what a client does
 * ---------------------------------------------------------------------------------------------- */

struct client {
  struct book *book;
  rdzv_store *store;
  int worker;
  struct random random;
  unsigned features;
  int written;             /* values so far, so that no two are the same */
  int last_key;            /* that `seen` is of */
  char seen[HISTORY_TEXT]; /* what it saw last */
  uint64_t version;
};

struct name {
  char text[128];
};

static struct name name_of(const struct book *book, int key) {
  struct name name;
  snprintf(name.text, sizeof name.text, "%s%d", book->prefix, key);
  return name;
}

static void new_value(struct client *client, enum key_kind kind, char *to) {
  if (kind == KEY_NUMBER)
    snprintf(to, HISTORY_TEXT, "%d", (client->worker + 1) * 1000 + ++client->written);
  else if (kind == KEY_REGISTER && random_chance(&client->random, 5))
    to[0] = '\0';
  else
    snprintf(to, HISTORY_TEXT, "%c%d.", 'a' + client->worker, ++client->written);
}

static void see(struct client *client, const char *text) { memcpy(client->seen, text, HISTORY_TEXT); }

static void do_set(struct client *client, int key, rdzv_bytes name, enum key_kind kind) {
  rdzv_error error;
  char value[HISTORY_TEXT];
  new_value(client, kind, value);
  struct op *op = begin(client->book, client->worker, key, OP_SET);
  memcpy(op->value, value, sizeof value);
  const int code = rdzv_store_set(client->store, name, rdzv_str(op->value), &error);
  end(op, code, &error);
}

static void do_get(struct client *client, int key, rdzv_bytes name) {
  rdzv_error error;
  rdzv_value value;
  struct op *op = begin(client->book, client->worker, key, OP_GET);
  const int code = rdzv_store_get(client->store, name, &value, &error);
  keep(op->out, &value, code);
  end(op, code, &error);
  if (code == 0) see(client, op->out);
}

static void do_check(struct client *client, int key, rdzv_bytes name) {
  rdzv_error error;
  struct op *op = begin(client->book, client->worker, key, OP_CHECK);
  const int code = rdzv_store_check(client->store, &name, 1, &op->flag, &error);
  end(op, code, &error);
}

static void do_wait(struct client *client, int key, rdzv_bytes name) {
  rdzv_error error;
  struct op *op = begin(client->book, client->worker, key, OP_CHECK);
  op->flag = true;
  const int code = rdzv_store_wait(client->store, &name, 1, random_below(&client->random, 30), &error);
  end(op, code, &error);
}

static void do_add(struct client *client, int key, rdzv_bytes name) {
  rdzv_error error;
  struct op *op = begin(client->book, client->worker, key, OP_ADD);
  op->number = 1 + random_below(&client->random, 9);
  const int code = rdzv_store_add(client->store, name, op->number, &op->sum, &error);
  end(op, code, &error);
}

static void do_append(struct client *client, int key, rdzv_bytes name, enum key_kind kind) {
  rdzv_error error;
  char value[HISTORY_TEXT];
  new_value(client, kind, value);
  if (client->last_key == key && strlen(client->seen) > MOST_TEXT) return;
  struct op *op = begin(client->book, client->worker, key, OP_APPEND);
  memcpy(op->value, value, sizeof value);
  const int code = rdzv_store_append(client->store, name, rdzv_str(op->value), &error);
  end(op, code, &error);
}

static void do_compare_set(struct client *client, int key, rdzv_bytes name, enum key_kind kind) {
  rdzv_error error;
  char value[HISTORY_TEXT];
  rdzv_value out;
  new_value(client, kind, value);
  struct op *op = begin(client->book, client->worker, key, OP_COMPARE_SET);
  memcpy(op->value, value, sizeof value);
  memcpy(op->expected, client->seen, sizeof op->expected);
  const int code =
      rdzv_store_compare_set(client->store, name, rdzv_str(op->expected), rdzv_str(op->value), &out, &error);
  keep(op->out, &out, code);
  end(op, code, &error);
  if (code == 0) see(client, op->out);
}

static void do_delete(struct client *client, int key, rdzv_bytes name) {
  rdzv_error error;
  struct op *op = begin(client->book, client->worker, key, OP_DELETE);
  const int code = rdzv_store_delete_key(client->store, name, &op->flag, &error);
  end(op, code, &error);
  if (op->outcome == DONE) client->seen[0] = '\0';
}

static void do_get_version(struct client *client, int key, rdzv_bytes name) {
  rdzv_error error;
  rdzv_value value;
  const bool waits = client->version != 0 && random_chance(&client->random, 30);
  struct op *op = begin(client->book, client->worker, key, OP_GET_VERSION);
  const int code =
      waits ? rdzv_store_wait_changed(client->store, name, client->version, BLOCK_MS, &value, &op->version, &error)
            : rdzv_store_get_version(client->store, name, &value, &op->version, &error);
  keep(op->out, &value, code);
  end(op, code, &error);
  if (code == 0) client->version = op->version;
}

static void do_compare_set_version(struct client *client, int key, rdzv_bytes name) {
  rdzv_error error;
  char value[HISTORY_TEXT];
  rdzv_value out;
  new_value(client, KEY_VERSIONS, value);
  struct op *op = begin(client->book, client->worker, key, OP_COMPARE_SET_VERSION);
  memcpy(op->value, value, sizeof value);
  op->expected_version = client->version;
  const int code = rdzv_store_compare_set_version(client->store, name, client->version, rdzv_str(op->value), &op->flag,
                                                  &out, &op->version, &error);
  keep(op->out, &out, code);
  end(op, code, &error);
  if (code == 0) client->version = op->version;
}

static void do_push(struct client *client, int key, rdzv_bytes name) {
  rdzv_error error;
  char value[HISTORY_TEXT];
  new_value(client, KEY_QUEUE, value);
  struct op *op = begin(client->book, client->worker, key, OP_PUSH);
  memcpy(op->value, value, sizeof value);
  const int code = rdzv_store_queue_push(client->store, name, rdzv_str(op->value), &error);
  end(op, code, &error);
}

static void do_pop(struct client *client, int key, rdzv_bytes name, bool block) {
  rdzv_error error;
  rdzv_value value;
  struct op *op = begin(client->book, client->worker, key, OP_POP);
  const int code = rdzv_store_queue_pop(client->store, name, block, &value, &error);
  keep(op->out, &value, code);
  end(op, code, &error);
}

static void do_len(struct client *client, int key, rdzv_bytes name) {
  rdzv_error error;
  struct op *op = begin(client->book, client->worker, key, OP_LEN);
  const int code = rdzv_store_queue_len(client->store, name, &op->number, &error);
  end(op, code, &error);
}

/* Two keys of the window with one request. Each key's history has it as an operation of its own. */
static void do_multi(struct client *client, int key, enum key_kind kind, bool sets) {
  rdzv_error error;
  const int first = key - key % WINDOW_KEYS, other = first + (key + 1) % WINDOW_KEYS;
  if (key_kind_of(client->book, other) != kind) return;
  const struct name names[2] = {name_of(client->book, key), name_of(client->book, other)};
  const rdzv_bytes keys[2] = {rdzv_str(names[0].text), rdzv_str(names[1].text)};
  char value[2][HISTORY_TEXT];
  rdzv_value *out = NULL;
  for (int i = 0; i < 2; i++) new_value(client, kind, value[i]);
  struct op *ops[2];
  for (int i = 0; i < 2; i++) ops[i] = begin(client->book, client->worker, i ? other : key, sets ? OP_SET : OP_GET);
  for (int i = 0; i < 2 && sets; i++) memcpy(ops[i]->value, value[i], HISTORY_TEXT);
  const rdzv_bytes values[2] = {rdzv_str(value[0]), rdzv_str(value[1])};
  const int code = sets ? rdzv_store_multi_set(client->store, keys, values, 2, &error)
                        : rdzv_store_multi_get(client->store, keys, 2, &out, &error);
  for (int i = 0; i < 2 && !sets && code == 0; i++)
    snprintf(ops[i]->out, HISTORY_TEXT, "%.*s", (int)out[i].len, out[i].data);
  for (int i = 0; i < 2; i++) end(ops[i], code, &error);
  if (out) rdzv_values_free(out, 2);
}

/* ---- which of these
 * -------------------------------------------------------------------------------------------------- */

int key_count(const struct book *book) { return (book->budget / WINDOW_OPS + 1) * WINDOW_KEYS; }

enum key_kind key_kind_of(const struct book *book, int key) {
  struct random random = random_of(book->seed, 1000 + (uint64_t)key);
  enum key_kind kind;
  do kind = (enum key_kind)random_below(&random, KEY_KINDS);
  while (!(book->kinds & 1u << kind));
  return kind;
}

/* Some keys are never set, or never deleted, …: what one operation does wrong, another may hide. */
static bool is_left_out(const struct book *book, int key, enum op_kind kind) {
  struct random random = random_of(book->seed, 2000 + (uint64_t)key);
  if (kind == OP_SET && book->no_set) return true;
  if (kind == OP_ADD && book->no_nan && key_kind_of(book, key) == KEY_REGISTER) return true;
  const uint64_t mask = random_next(&random) & random_next(&random);
  return mask >> kind & 1;
}

static enum op_kind choose(struct client *client, int key, enum key_kind kind) {
  static const unsigned char mixes[KEY_KINDS][16] = {
      [KEY_REGISTER] = {OP_SET, OP_SET, OP_SET, OP_SET, OP_GET, OP_GET, OP_GET, OP_GET, OP_CHECK, OP_COMPARE_SET,
                        OP_COMPARE_SET, OP_APPEND, OP_APPEND, OP_DELETE, OP_DELETE, OP_ADD},
      [KEY_NUMBER] = {OP_ADD, OP_ADD, OP_ADD, OP_ADD, OP_ADD, OP_ADD, OP_ADD, OP_GET, OP_GET, OP_GET, OP_SET, OP_SET,
                      OP_COMPARE_SET, OP_COMPARE_SET, OP_DELETE, OP_CHECK},
      [KEY_VERSIONS] = {OP_GET_VERSION, OP_GET_VERSION, OP_GET_VERSION, OP_GET_VERSION, OP_COMPARE_SET_VERSION,
                        OP_COMPARE_SET_VERSION, OP_COMPARE_SET_VERSION, OP_COMPARE_SET_VERSION, OP_COMPARE_SET_VERSION,
                        OP_GET, OP_GET, OP_SET, OP_SET, OP_DELETE, OP_DELETE, OP_CHECK},
      [KEY_QUEUE] = {OP_PUSH, OP_PUSH, OP_PUSH, OP_PUSH, OP_PUSH, OP_PUSH, OP_PUSH, OP_POP, OP_POP, OP_POP, OP_POP,
                     OP_POP, OP_POP, OP_LEN, OP_LEN, OP_CHECK}};
  for (int i = 0; i < 100; i++) {
    const enum op_kind op = (enum op_kind)mixes[kind][random_below(&client->random, 16)];
    if (op == OP_APPEND && !(client->features & RDZV_FEATURE_APPEND)) continue;
    if (!is_left_out(client->book, key, op)) return op;
  }
  return kind == KEY_QUEUE ? OP_LEN : OP_CHECK;
}

static void do_one(struct client *client, int key) {
  const enum key_kind kind = key_kind_of(client->book, key);
  const struct name name = name_of(client->book, key);
  const rdzv_bytes bytes = rdzv_str(name.text);
  if (client->last_key != key) client->seen[0] = '\0', client->version = 0;
  client->last_key = key;
  const enum op_kind op = choose(client, key, kind);
  const bool other_way = random_chance(&client->random, 15);
  switch (op) {
    case OP_SET: other_way ? do_multi(client, key, kind, true) : do_set(client, key, bytes, kind); break;
    case OP_GET: other_way ? do_multi(client, key, kind, false) : do_get(client, key, bytes); break;
    case OP_CHECK: other_way ? do_wait(client, key, bytes) : do_check(client, key, bytes); break;
    case OP_ADD: do_add(client, key, bytes); break;
    case OP_APPEND: do_append(client, key, bytes, kind); break;
    case OP_COMPARE_SET: do_compare_set(client, key, bytes, kind); break;
    case OP_DELETE: do_delete(client, key, bytes); break;
    case OP_GET_VERSION: do_get_version(client, key, bytes); break;
    case OP_COMPARE_SET_VERSION: do_compare_set_version(client, key, bytes); break;
    case OP_PUSH: do_push(client, key, bytes); break;
    case OP_POP: do_pop(client, key, bytes, random_chance(&client->random, 50)); break;
    default: do_len(client, key, bytes);
  }
}

/* ---- workers
 * --------------------------------------------------------------------------------------------------------- */

/* It may take some tries through a proxy that cuts. */
static bool open_again(struct client *client, const struct place *place) {
  int code = 0;
  rdzv_store_free(client->store);
  do client->store = place_open(place, &code);
  while (!client->store && !atomic_load(&client->book->stop));
  client->version = 0; /* one that this handle has not seen may be of another server */
  return client->store != NULL;
}

void worker_run(struct book *book, const struct place *place, int worker) {
  struct client client = {.book = book, .worker = worker, .features = place->features, .last_key = -1};
  struct log *log = &book->logs[worker];
  client.random = random_of(book->seed, 100 + (uint64_t)worker);
  if (!open_again(&client, place)) goto ended;
  while (!atomic_load(&book->stop) && atomic_load(&log->count) < MOST_OPS - 2) {
    const int done = atomic_fetch_add(&book->done, 1);
    if (done >= book->budget) break;
    do_one(&client, done / WINDOW_OPS * WINDOW_KEYS + (int)random_below(&client.random, WINDOW_KEYS));
    const int code = log->ops[atomic_load(&log->count) > 0 ? atomic_load(&log->count) - 1 : 0].code;
    if (code == RDZV_E_DATA_LOST) client.version = 0;
    if (random_chance(&client.random, 2) && !open_again(&client, place)) break;
    if (book->rest_ms > 0) pause_ms(random_below(&client.random, book->rest_ms));
  }
ended:
  rdzv_store_free(client.store);
  atomic_store(&log->ended, true);
}

/* ---- the end
 * --------------------------------------------------------------------------------------------------------- */

static void read_queue(struct client *client, int key, rdzv_bytes name) {
  const struct log *log = &client->book->logs[LOG_OF_END];
  do do_pop(client, key, name, false);
  while (log->ops[atomic_load(&log->count) - 1].outcome == DONE && atomic_load(&log->count) < MOST_OPS - 2);
}

bool read_all(struct book *book, const struct place *place) {
  int code;
  struct client client = {.book = book, .worker = LOG_OF_END, .last_key = -1};
  client.store = place_open_unharmed(place, &code);
  if (!client.store) return false;
  const struct log *log = &book->logs[LOG_OF_END];
  for (int key = 0; key < key_count(book) && atomic_load(&log->count) < MOST_OPS - 4; key++) {
    const struct name name = name_of(book, key);
    if (key_kind_of(book, key) == KEY_QUEUE) {
      read_queue(&client, key, rdzv_str(name.text));
      continue;
    }
    do_check(&client, key, rdzv_str(name.text));
    const struct op *check = &log->ops[atomic_load(&log->count) - 1];
    if (check->outcome == DONE && check->flag) do_get(&client, key, rdzv_str(name.text));
  }
  rdzv_store_free(client.store);
  bool all = true;
  for (int i = 0; i < atomic_load(&log->count); i++)
    all &= log->ops[i].outcome != FAILED && log->ops[i].outcome != UNKNOWN;
  return all;
}

void note_wipe(struct book *book, int64_t from_us, int64_t to_us) {
  const struct log *log = &book->logs[LOG_OF_NEMESIS];
  for (int key = 0; key < key_count(book) && atomic_load(&log->count) < MOST_OPS; key++) {
    struct op *op = begin(book, LOG_OF_NEMESIS, key, OP_WIPE);
    op->call_us = from_us;
    op->return_us = to_us;
    op->outcome = DONE;
  }
}
