/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/worker/environment.h"

#include "base/buf.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

/* ---- lists of texts ------------------------------------------------------------------------------------------- */

void list_free(char **list) {
  for (size_t i = 0; list && list[i]; i++) free(list[i]);
  free(list);
}

static size_t length(char *const *list) {
  size_t count = 0;
  while (list[count]) count++;
  return count;
}

/* ---- the environment ------------------------------------------------------------------------------------------ */

struct variables {
  char **list;
  char *const *common; /* what the list borrows from; NULL: nothing */
  size_t count;
  bool failed;
};

/* Sets it, in place of what there is of that name. */
static void set(struct variables *variables, const char *name, const char *format, ...)
    __attribute__((__format__(__printf__, 3, 4)));

static void set(struct variables *variables, const char *name, const char *format, ...) {
  char *value = NULL, *text = NULL;
  va_list args;
  va_start(args, format);
  if (vasprintf(&value, format, args) < 0) value = NULL;
  va_end(args);
  const int len = value ? asprintf(&text, "%s=%s", name, value) : -1;
  free(value);
  if (len < 0) {
    variables->failed = true;
    return;
  }
  size_t at = 0;
  while (at < variables->count && strncmp(variables->list[at], text, strlen(name) + 1) != 0) at++;
  if (!variables->common) free(variables->list[at]);
  variables->list[at] = text;
  if (at == variables->count) variables->count++;
}

static void set_default(struct variables *variables, const char *name, const char *value) {
  if (!getenv(name)) set(variables, name, "%s", value);
}

/* The worker sees its own GPU only, which is then number 0. */
static void set_gpu(struct variables *to, int64_t local_rank) {
  char number[24];
  const char *at = getenv("CUDA_VISIBLE_DEVICES");
  snprintf(number, sizeof number, "%" PRId64, local_rank);
  for (int64_t i = 0; at && i < local_rank; i++) {
    at += strcspn(at, ",");
    at += *at == ',';
  }
  if (!at) at = number;
  set(to, "CUDA_VISIBLE_DEVICES", "%.*s", (int)strcspn(at, ","), at);
}

static void set_own(struct variables *to, const struct attempt *attempt, int64_t local_rank, const char *error_file) {
  set(to, "LOCAL_RANK", "%" PRId64, attempt->virtual_local_rank ? 0 : local_rank);
  set(to, "RANK", "%" PRId64, attempt->ranks.base + local_rank);
  set(to, "ROLE_RANK", "%" PRId64, attempt->ranks.role_base + local_rank);
  set(to, "TORCHELASTIC_ERROR_FILE", "%s", error_file);
  if (attempt->virtual_local_rank) set_gpu(to, local_rank);
}

static void set_common(struct variables *to, const struct attempt *attempt) {
  set(to, "WORLD_SIZE", "%" PRId64, attempt->ranks.world_size);
  set(to, "LOCAL_WORLD_SIZE", "%" PRId64, attempt->local_world_size);
  set(to, "GROUP_RANK", "%" PRId64, attempt->group_rank);
  set(to, "GROUP_WORLD_SIZE", "%" PRId64, attempt->group_world_size);
  set(to, "ROLE_WORLD_SIZE", "%" PRId64, attempt->ranks.role_world_size);
  set(to, "ROLE_NAME", "%s", attempt->role);
  set(to, "MASTER_ADDR", "%s", attempt->master_addr);
  set(to, "MASTER_PORT", "%d", attempt->master_port);
  set(to, "TORCHELASTIC_RESTART_COUNT", "%" PRId64, attempt->terms.restart_count);
  set(to, "TORCHELASTIC_MAX_RESTARTS", "%" PRId64, attempt->max_restarts);
  set(to, "TORCHELASTIC_RUN_ID", "%s", attempt->run_id);
  set(to, "TORCHELASTIC_USE_AGENT_STORE", "%s", attempt->terms.agent_store ? "True" : "False");
  set_default(to, "NCCL_ASYNC_ERROR_HANDLING", "1"); /* PyTorch before 2.2 */
  set_default(to, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (attempt->local_world_size > 1) set_default(to, "OMP_NUM_THREADS", "1");
}

enum { MOST_OWN = 32 };

/* What is the agent's: workers have no part in the secret, and their own stores are not protected by it. */
static bool is_private(const char *variable) {
  static const char *const names[] = {"RDZV_SECRET_FILE=", "PET_SECRET_FILE="};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strncmp(variable, names[i], strlen(names[i])) == 0) return true;
  return false;
}

/* The variables of the first worker are in it, so that those of others have their places. */
char **environment_common(const struct attempt *attempt) {
  struct variables variables = {.list = calloc(length(environ) + MOST_OWN, sizeof(char *))};
  if (!variables.list) return NULL;
  for (size_t i = 0; environ[i] && !variables.failed; i++) {
    if (is_private(environ[i])) continue;
    variables.list[variables.count] = strdup(environ[i]);
    variables.failed = !variables.list[variables.count++];
  }
  if (!variables.failed) set_common(&variables, attempt);
  if (!variables.failed) set_own(&variables, attempt, 0, "");
  if (!variables.failed) return variables.list;
  list_free(variables.list);
  return NULL;
}

char **environment_of(char *const *common, const struct attempt *attempt, int64_t local_rank, const char *error_file) {
  const size_t count = length(common);
  struct variables variables = {.list = calloc(count + 1, sizeof(char *)), .common = common, .count = count};
  if (!variables.list) return NULL;
  memcpy(variables.list, common, count * sizeof(char *));
  set_own(&variables, attempt, local_rank, error_file);
  if (!variables.failed) return variables.list;
  environment_free(variables.list, common);
  return NULL;
}

void environment_free(char **list, char *const *common) {
  for (size_t i = 0; list && list[i]; i++)
    if (list[i] != common[i]) free(list[i]);
  free(list);
}

/* ---- arguments ------------------------------------------------------------------------------------------------ */

#define LOCAL_RANK "${local_rank}"

static char *substitute(const char *text, int64_t local_rank) {
  struct buf out = {0};
  char number[24];
  const int digits = snprintf(number, sizeof number, "%" PRId64, local_rank);
  bool done = true;
  for (const char *at = text; done && *at;) {
    const char *next = strstr(at, LOCAL_RANK);
    done = buf_append(&out, at, next ? (size_t)(next - at) : strlen(at));
    if (done && next) done = buf_append(&out, number, (size_t)digits);
    at = next ? next + strlen(LOCAL_RANK) : at + strlen(at);
  }
  if (done && buf_append(&out, "", 1)) return (char *)out.data;
  buf_free(&out);
  return NULL;
}

char **arguments_of(char *const *argv, int64_t local_rank) {
  const size_t count = length(argv);
  char **list = calloc(count + 1, sizeof *list);
  for (size_t i = 0; list && i < count; i++) {
    list[i] = substitute(argv[i], local_rank);
    if (list[i]) continue;
    list_free(list);
    return NULL;
  }
  return list;
}
