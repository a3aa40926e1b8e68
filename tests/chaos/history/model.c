/* SPDX-License-Identifier: BSD-3-Clause */
#include "history.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void model_init(struct model *model, struct dialect_rules rules) {
  *model = (struct model){.rules = rules};
  memset(model->first, -1, sizeof model->first);
}

void model_free(struct model *model) {
  for (size_t i = 0; i < model->count; i++) free(model->texts[i]);
  free(model->texts);
  free(model->next);
}

struct model_state model_start(void) {
  return (struct model_state){ABSENT, 0};
}

bool model_is_read(enum op_kind kind) {
  return kind == OP_GET || kind == OP_CHECK || kind == OP_GET_VERSION || kind == OP_LEN;
}

static size_t hash_of(const char *text) {
  uint64_t hash = 14695981039346656037u;
  for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 1099511628211u;
  return (size_t)(hash ^ hash >> 32);
}

static void make_room(struct model *model) {
  if (model->count < model->room) return;
  model->room = model->room ? 2 * model->room : 64;
  model->texts = realloc(model->texts, model->room * sizeof *model->texts);
  model->next = realloc(model->next, model->room * sizeof *model->next);
  if (!model->texts || !model->next) abort();
}

/* The number of that text: equal texts have equal numbers. */
static int32_t number_of(struct model *model, const char *text) {
  int32_t *first = &model->first[hash_of(text) % (sizeof model->first / sizeof *model->first)];
  for (int32_t i = *first; i >= 0; i = model->next[i])
    if (strcmp(model->texts[i], text) == 0) return i;
  make_room(model);
  const int32_t number = (int32_t)model->count++;
  model->texts[number] = strdup(text);
  if (!model->texts[number]) abort();
  model->next[number] = *first;
  return *first = number;
}

static bool is_there(struct model_state state) { return state.value != ABSENT; }

static const char *text_of(const struct model *model, struct model_state state) {
  return is_there(state) ? model->texts[state.value] : "";
}

static bool becomes(struct model *model, const char *text, struct model_state *next) {
  *next = (struct model_state){number_of(model, text), VERSION_NEW};
  return true;
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

static bool step_get(struct model *model, struct model_state state, const struct op *op) {
  return is_there(state) && strcmp(text_of(model, state), op->out) == 0;
}

/* As strtoll reads it. */
static bool read_number(const struct model *model, struct model_state state, int64_t *number) {
  const char *text = text_of(model, state);
  char *end;
  *number = 0;
  if (!is_there(state) || (*text == '\0' && model->rules.empty_is_a_zero)) return true;
  errno = 0;
  *number = strtoll(text, &end, 10);
  return end != text && errno == 0;
}

static bool step_add(struct model *model, struct model_state state, const struct op *op, struct model_state *next) {
  int64_t number;
  char text[32];
  const bool is_number = read_number(model, state, &number);
  if (!is_number || op->outcome == NOT_A_NUMBER) return !is_number && op->outcome == NOT_A_NUMBER;
  const int64_t sum = (int64_t)((uint64_t)number + (uint64_t)op->number);
  if (op->outcome == DONE && sum != op->sum) return false;
  snprintf(text, sizeof text, "%" PRId64, sum);
  return becomes(model, text, next);
}

static bool step_append(struct model *model, struct model_state state, const struct op *op, struct model_state *next) {
  char text[2 * HISTORY_TEXT];
  snprintf(text, sizeof text, "%s%s", text_of(model, state), op->value);
  return becomes(model, text, next);
}

static bool step_compare_set(struct model *model, struct model_state state, const struct op *op,
                             struct model_state *next) {
  const bool swaps = strcmp(text_of(model, state), op->expected) == 0; /* an absent key is as an empty value */
  if (op->outcome == UNKNOWN) return swaps && becomes(model, op->value, next);
  if (swaps) return strcmp(op->out, op->value) == 0 && becomes(model, op->value, next);
  return strcmp(op->out, is_there(state) ? text_of(model, state) : op->expected) == 0;
}

static bool step_delete(struct model *model, struct model_state state, const struct op *op, struct model_state *next) {
  const bool says = is_there(state) || model->rules.delete_says_yes;
  *next = model_start();
  return op->outcome == UNKNOWN ? is_there(state) : op->flag == says;
}

/* ---- versions -------------------------------------------------------------------------------------------------- */

/* Is this the value and version that hold? A new version is known from then on. */
static bool sees_version(struct model *model, struct model_state state, const struct op *op, struct model_state *next) {
  if (strcmp(text_of(model, state), op->out) != 0) return false;
  if (state.version != VERSION_NEW) return state.version == op->version;
  next->version = op->version;
  return op->version != 0;
}

/* A version that nobody has seen yet cannot be the expected one, which this client has seen before. */
static bool step_compare_set_version(struct model *model, struct model_state state, const struct op *op,
                                     struct model_state *next) {
  const bool swaps = state.version == op->expected_version;
  if (op->outcome == UNKNOWN) return swaps && becomes(model, op->value, next);
  if (swaps != op->flag) return false;
  if (!swaps) return sees_version(model, state, op, next);
  becomes(model, op->value, next);
  next->version = op->version;
  return op->version != 0 && op->version != op->expected_version;
}

/* ---- queues ---------------------------------------------------------------------------------------------------- */

void model_expect(struct model *model, const struct op *op) {
  if (op->kind == OP_POP && op->outcome == DONE) model->pops[model->pop_count++] = op;
}

static const struct op *pop_of(const struct model *model, const char *value, size_t len) {
  for (size_t i = 0; i < model->pop_count; i++)
    if (strncmp(model->pops[i]->out, value, len) == 0 && model->pops[i]->out[len] == '\0') return model->pops[i];
  return NULL;
}

/* Could this value stand behind the last one? Not if it was popped before that. */
static bool may_stand_behind(const struct model *model, const char *queue, const char *value) {
  const size_t len = strlen(queue);
  if (len == 0) return true;
  size_t from = len - 1;
  while (from > 0 && queue[from - 1] != '\n') from--;
  const struct op *before = pop_of(model, queue + from, len - 1 - from), *own = pop_of(model, value, strlen(value));
  return !before || !own || own->return_us >= before->call_us;
}

static bool step_push(struct model *model, struct model_state state, const struct op *op, struct model_state *next) {
  const char *old = text_of(model, state);
  if (!may_stand_behind(model, old, op->value)) return false;
  const size_t size = strlen(old) + strlen(op->value) + 2;
  char *text = malloc(size);
  if (!text) abort();
  snprintf(text, size, "%s%s\n", old, op->value);
  becomes(model, text, next);
  free(text);
  return true;
}

static bool step_pop(struct model *model, struct model_state state, const struct op *op, struct model_state *next) {
  const char *text = text_of(model, state);
  const size_t first = strcspn(text, "\n");
  if (*text == '\0' || op->outcome == EMPTY) return *text == '\0' && op->outcome == EMPTY;
  if (op->outcome == DONE && (strlen(op->out) != first || strncmp(text, op->out, first) != 0)) return false;
  if (text[first + 1] != '\0') return becomes(model, text + first + 1, next);
  *next = model_start();
  return true;
}

static bool step_len(const struct model *model, struct model_state state, const struct op *op) {
  int64_t count = 0;
  for (const char *text = text_of(model, state); *text; text++) count += *text == '\n';
  return count == op->number;
}

bool model_step(struct model *model, struct model_state state, const struct op *op, struct model_state *next) {
  *next = state;
  switch (op->kind) {
    case OP_SET: return becomes(model, op->value, next);
    case OP_GET: return step_get(model, state, op);
    case OP_CHECK: return op->flag == is_there(state);
    case OP_ADD: return step_add(model, state, op, next);
    case OP_APPEND: return step_append(model, state, op, next);
    case OP_COMPARE_SET: return step_compare_set(model, state, op, next);
    case OP_DELETE: return step_delete(model, state, op, next);
    case OP_GET_VERSION: return sees_version(model, state, op, next);
    case OP_COMPARE_SET_VERSION: return step_compare_set_version(model, state, op, next);
    case OP_PUSH: return step_push(model, state, op, next);
    case OP_POP: return step_pop(model, state, op, next);
    case OP_LEN: return step_len(model, state, op);
    case OP_WIPE: *next = model_start(); return true;
    default: abort();
  }
}
