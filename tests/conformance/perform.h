/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONFORMANCE_PERFORM_H
#define CONFORMANCE_PERFORM_H

/* A step of cases.txt as a call of the public API, and its results as words. For run.c alone. */
#include "script.h"

#include <inttypes.h>
#include <rdzv/store.h>
#include <time.h>
#include <unistd.h>

enum { MAX_VIEWS = 4 };

/* What a step has to know of its case. */
struct scene {
  char *name;
  bool raw;
  int64_t keys_before;
  uint64_t versions[26]; /* of the letters; 0: not met yet */
};

/* What a step gave. */
struct outcome {
  int code;
  int64_t ms;
  struct words words;
  bool has_version; /* the last word is one */
  rdzv_error error;
};

/* One step, ready to be performed: the keys are unique. */
struct call {
  const struct scene *scene;
  rdzv_store *store;
  const char *unique; /* what stands before the case's keys */
  rdzv_bytes args[MAX_WORDS];
  size_t count;
  struct outcome *out;
};

static int64_t now_ms(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (int64_t)at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

/* ---- the operations ---------------------------------------------------------------------------------------- */

static int64_t number_of(rdzv_bytes word) { return strtoll(word.data, NULL, 10); }

static bool is_letter(rdzv_bytes word) { return word.len == 1 && isupper(*(const unsigned char *)word.data); }

static uint64_t version_of(const struct scene *scene, rdzv_bytes word) {
  return is_letter(word) ? scene->versions[*(const char *)word.data - 'A'] : strtoull(word.data, NULL, 10);
}

static int give_done(struct call *call, int code) {
  if (code == 0) put_text(&call->out->words, "ok");
  return code;
}

static int give_yes(struct call *call, int code, bool yes) {
  if (code == 0) put_text(&call->out->words, yes ? "yes" : "no");
  return code;
}

static int give_number(struct call *call, int code, const char *sign, int64_t number) {
  char text[32];
  snprintf(text, sizeof text, "%s%" PRId64, number < 0 ? "" : sign, number);
  if (code == 0) put_text(&call->out->words, text);
  return code;
}

static int give_value(struct call *call, int code, rdzv_value *value) {
  if (code == 0) put(&call->out->words, rdzv_value_bytes(value));
  rdzv_value_free(value);
  return code;
}

static int give_version(struct call *call, int code, rdzv_value *value, uint64_t version) {
  if (give_value(call, code, value) != 0) return code;
  char text[32];
  snprintf(text, sizeof text, "%" PRIu64, version);
  put_text(&call->out->words, text);
  call->out->has_version = true;
  return 0;
}

#define OP(name) static int op_##name(struct call *call)
#define STORE call->store
#define ARG(i) call->args[i]
#define ERROR &call->out->error

OP(set) { return give_done(call, rdzv_store_set(STORE, ARG(0), ARG(1), ERROR)); }
OP(append) { return give_done(call, rdzv_store_append(STORE, ARG(0), ARG(1), ERROR)); }
OP(push) { return give_done(call, rdzv_store_queue_push(STORE, ARG(0), ARG(1), ERROR)); }

OP(wait) { return give_done(call, rdzv_store_wait(STORE, call->args, call->count, RDZV_TIMEOUT_STORE, ERROR)); }

OP(waitfor) { return give_done(call, rdzv_store_wait(STORE, &ARG(1), call->count - 1, number_of(ARG(0)), ERROR)); }

OP(get) {
  rdzv_value value = {0};
  return give_value(call, rdzv_store_get(STORE, ARG(0), &value, ERROR), &value);
}

OP(cas) {
  rdzv_value value = {0};
  return give_value(call, rdzv_store_compare_set(STORE, ARG(0), ARG(1), ARG(2), &value, ERROR), &value);
}

OP(pop) {
  rdzv_value value = {0};
  return give_value(call, rdzv_store_queue_pop(STORE, ARG(0), false, &value, ERROR), &value);
}

OP(popw) {
  rdzv_value value = {0};
  return give_value(call, rdzv_store_queue_pop(STORE, ARG(0), true, &value, ERROR), &value);
}

OP(add) {
  int64_t sum = 0;
  const int code = rdzv_store_add(STORE, ARG(0), number_of(ARG(1)), &sum, ERROR);
  return give_number(call, code, "", sum);
}

OP(len) {
  int64_t len = 0;
  const int code = rdzv_store_queue_len(STORE, ARG(0), &len, ERROR);
  return give_number(call, code, "", len);
}

OP(num_keys) {
  int64_t count = 0;
  const int code = rdzv_store_num_keys(STORE, &count, ERROR);
  return give_number(call, code, "+", count - call->scene->keys_before);
}

OP(check) {
  bool all = false;
  const int code = rdzv_store_check(STORE, call->args, call->count, &all, ERROR);
  return give_yes(call, code, all);
}

OP(delete) {
  bool deleted = false;
  const int code = rdzv_store_delete_key(STORE, ARG(0), &deleted, ERROR);
  return give_yes(call, code, deleted);
}

OP(mget) {
  rdzv_value *values;
  const int code = rdzv_store_multi_get(STORE, call->args, call->count, &values, ERROR);
  if (code < 0) return code;
  for (size_t i = 0; i < call->count; i++) put(&call->out->words, rdzv_value_bytes(&values[i]));
  rdzv_values_free(values, call->count);
  return 0;
}

OP(mset) {
  rdzv_bytes keys[MAX_WORDS], values[MAX_WORDS];
  for (size_t i = 0; i < call->count; i++) *(i % 2 ? &values[i / 2] : &keys[i / 2]) = ARG(i);
  return give_done(call, rdzv_store_multi_set(STORE, keys, values, call->count / 2, ERROR));
}

static int compare_words(const void *left, const void *right) {
  const struct word *a = left, *b = right;
  const int order = memcmp(a->data, b->data, a->len < b->len ? a->len : b->len);
  return order ? order : (a->len > b->len) - (a->len < b->len);
}

OP(keys) {
  rdzv_value *keys;
  size_t count;
  const size_t skip = strlen(call->unique);
  struct words *words = &call->out->words;
  const int code = rdzv_store_list_keys(STORE, &keys, &count, ERROR);
  if (code < 0) return code;
  for (size_t i = 0; i < count; i++)
    if (keys[i].len >= skip && memcmp(keys[i].data, call->unique, skip) == 0)
      put(words, (rdzv_bytes){keys[i].data + skip, keys[i].len - skip});
  rdzv_values_free(keys, count);
  qsort(words->word, words->count, sizeof *words->word, compare_words);
  return 0;
}

static const struct {
  const char *name;
  unsigned flag;
} features[] = {{"append", RDZV_FEATURE_APPEND},
                {"queues", RDZV_FEATURE_QUEUES},
                {"list_keys", RDZV_FEATURE_LIST_KEYS},
                {"versions", RDZV_FEATURE_VERSIONS}};
enum { FEATURES = sizeof features / sizeof *features };

OP(features) {
  const unsigned flags = rdzv_store_features(STORE);
  for (size_t i = 0; i < FEATURES; i++)
    if (flags & features[i].flag) put_text(&call->out->words, features[i].name);
  return 0;
}

OP(getv) {
  rdzv_value value = {0};
  uint64_t version = 0;
  const int code = rdzv_store_get_version(STORE, ARG(0), &value, &version, ERROR);
  return give_version(call, code, &value, version);
}

OP(casv) {
  rdzv_value value = {0};
  uint64_t version = 0;
  bool swapped = false;
  const int code = rdzv_store_compare_set_version(STORE, ARG(0), version_of(call->scene, ARG(1)), ARG(2), &swapped,
                                                  &value, &version, ERROR);
  if (code == 0) put_text(&call->out->words, swapped ? "swapped" : "refused");
  return give_version(call, code, &value, version);
}

OP(waitv) {
  rdzv_value value = {0};
  uint64_t version = 0;
  const int code = rdzv_store_wait_changed(STORE, ARG(0), version_of(call->scene, ARG(1)), RDZV_TIMEOUT_STORE, &value,
                                           &version, ERROR);
  return give_version(call, code, &value, version);
}

/* What the arguments are: k a key, v a value, n a number; those behind a + may come any number of times. */
static const struct op {
  const char *name;
  const char *kinds;
  int (*run)(struct call *call);
} ops[] = {{"set", "kv", op_set},         {"get", "k", op_get},           {"cas", "kvv", op_cas},
           {"add", "kn", op_add},         {"check", "+k", op_check},      {"delete", "k", op_delete},
           {"wait", "+k", op_wait},       {"waitfor", "n+k", op_waitfor}, {"append", "kv", op_append},
           {"mset", "+kv", op_mset},      {"mget", "+k", op_mget},        {"push", "kv", op_push},
           {"pop", "k", op_pop},          {"popw", "k", op_popw},         {"len", "k", op_len},
           {"num_keys", "", op_num_keys}, {"keys", "", op_keys},          {"features", "", op_features},
           {"getv", "k", op_getv},        {"casv", "knv", op_casv},       {"waitv", "kn", op_waitv}};

static const struct op *find_op(const struct step *step) {
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
    if (word_is(&step->words.word[step->op], ops[i].name)) return &ops[i];
  give_up(step->line, "unknown step");
}

/* ---- performing a step ------------------------------------------------------------------------------------- */

static rdzv_bytes join(const char *front, rdzv_bytes back) {
  const size_t len = strlen(front);
  char *both = malloc(len + back.len + 1);
  if (!both) give_up(0, "out of memory");
  memcpy(both, front, len);
  if (back.len) memcpy(both + len, back.data, back.len);
  both[len + back.len] = '\0'; /* some are read as numbers */
  return (rdzv_bytes){both, len + back.len};
}

/* Copies the arguments, the keys among them with the unique part in front. */
static void take_arguments(const struct op *op, const struct step *step, struct call *call) {
  const char *kind = op->kinds, *again = NULL;
  for (size_t i = step->op + 1; i < step->end; i++) {
    if (*kind == '+') again = ++kind;
    if (!*kind) give_up(step->line, "too many arguments");
    const rdzv_bytes word = bytes_of(&step->words.word[i]);
    ARG(call->count++) = join(*kind == 'k' ? call->unique : "", word);
    if (!*++kind && again) kind = again;
  }
  if (*kind && *kind != '+' && kind != again) give_up(step->line, "too few arguments");
}

static void free_joined(rdzv_bytes bytes) { free((void *)(uintptr_t)bytes.data); }

/* Opens the views of "a/b", each over the one before; the first has the unique part in its name. */
static size_t open_views(struct call *call, const struct step *step, rdzv_store *views[MAX_VIEWS]) {
  size_t count = 0, part;
  if (!step->path) return 0;
  for (const char *at = step->words.word[step->path].data;; at += part + 1) {
    part = strcspn(at, "/");
    const rdzv_bytes prefix = join(call->unique, (rdzv_bytes){at, part});
    if (count == MAX_VIEWS || rdzv_store_open_prefix(STORE, prefix, &views[count], ERROR) < 0)
      give_up(step->line, "cannot open the view");
    free_joined(prefix);
    STORE = views[count++];
    call->unique = "";
    if (!at[part]) return count;
  }
}

static void put_error(struct outcome *out) {
  char text[64] = "!";
  const char *name = rdzv_error_name(out->code);
  for (size_t i = 0; name[i] && i + 2 < sizeof text; i++) text[i + 1] = (char)tolower((unsigned char)name[i]);
  words_free(&out->words);
  put_text(&out->words, text);
}

static void perform(const struct scene *scene, const struct step *step, rdzv_store *store, struct outcome *out) {
  char unique[128];
  snprintf(unique, sizeof unique, "%ld.%s.", (long)getpid(), scene->name);
  *out = (struct outcome){0};
  struct call call = {.scene = scene, .store = store, .unique = scene->raw ? "" : unique, .out = out};
  rdzv_store *views[MAX_VIEWS];
  size_t views_count = open_views(&call, step, views);
  const struct op *op = find_op(step);
  take_arguments(op, step, &call);
  const int64_t start = now_ms();
  out->code = op->run(&call);
  out->ms = now_ms() - start;
  if (out->code < 0) put_error(out);
  while (call.count > 0) free_joined(call.args[--call.count]);
  while (views_count > 0) rdzv_store_free(views[--views_count]);
}

#endif
