/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/worker/streams.h"

#include "base/buf.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_PREFIX "[${role_name}${rank}]:"

/* ---- the prefix ----------------------------------------------------------------------------------------------- */

static char *make_prefix(const struct streams_settings *settings, int64_t local_rank, int64_t rank) {
  char numbers[2][24];
  snprintf(numbers[0], sizeof numbers[0], "%" PRId64, rank);
  snprintf(numbers[1], sizeof numbers[1], "%" PRId64, local_rank);
  const char *names[] = {"${role_name}", "${rank}", "${local_rank}"};
  const char *values[] = {settings->role, numbers[0], numbers[1]};
  struct buf text = {0};
  for (const char *at = settings->line_prefix ? settings->line_prefix : DEFAULT_PREFIX; *at;) {
    size_t which = 0;
    while (which < 3 && strncmp(at, names[which], strlen(names[which])) != 0) which++;
    if (which < 3)
      buf_append(&text, values[which], strlen(values[which]));
    else
      buf_append(&text, at, 1);
    at += which < 3 ? strlen(names[which]) : 1;
  }
  if (!buf_append(&text, "", 1)) buf_free(&text);
  return (char *)text.data;
}

/* ---- filters -------------------------------------------------------------------------------------------------- */

char *needles_parse(const char *text) {
  char *out = strdup(text), *to = out;
  for (const char *at = text; out && *at; at++) {
    const bool comma = at[0] == ',' && at[1] == ',';
    *to++ = *at == ',' && !comma ? '\n' : *at;
    at += comma;
  }
  if (out) *to = '\0';
  return out;
}

/* In the folder of the attempt, for all its workers. */
static char *match_path(const char *folder, const char *name) {
  char *path = NULL;
  const char *end = strrchr(folder, '/');
  return end && asprintf(&path, "%.*s/filtered_%s", (int)(end - folder), folder, name) >= 0 ? path : NULL;
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

static int open_file(const char *path, int *fd, rdzv_error *error) {
  *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (*fd >= 0) return 0;
  return error_errno(error, RDZV_E_IO, errno, "cannot open '%s' for a worker's output", path);
}

struct plan {
  bool tee, redirect, shown, keep; /* keep: the last lines, for the report */
  int own_fd;
  const char *prefix, *needles;
};

/* "" stands for no file. */
static int open_one(const struct streams_settings *settings, const struct plan *plan, const char *path,
                    const char *match, int *fd, struct pump_stream **stream, rdzv_error *error) {
  const bool file = (plan->tee || plan->redirect) && *path, only_file = plan->redirect && !plan->tee;
  struct pump_to to = {.file_fd = -1,
                       .file = path,
                       .match_fd = -1,
                       .match = match,
                       .needles = match ? plan->needles : NULL,
                       .show_fd = -1,
                       .prefix = plan->tee ? plan->prefix : ""};
  if (plan->shown && !only_file) to.show_fd = plan->own_fd;
  if (!file && !plan->tee && !plan->keep) return to.show_fd >= 0 ? 0 : open_file("/dev/null", fd, error);
  int result = file ? open_file(path, &to.file_fd, error) : 0;
  if (result == 0 && to.needles) result = open_file(match, &to.match_fd, error);
  if (result == 0) result = pump_add(settings->pump, &to, fd, stream, error);
  if (result < 0 && to.file_fd >= 0) close(to.file_fd);
  if (result < 0 && to.match_fd >= 0) close(to.match_fd);
  return result;
}

/* What people look at on a terminal stays there: programs find out, and draw. Otherwise the last lines are kept. */
static struct plan plan_of(const struct streams_settings *settings, int64_t local_rank, unsigned which,
                           const char *prefix) {
  const int own_fd = which == STD_OUT ? STDOUT_FILENO : STDERR_FILENO;
  return (struct plan){.tee = std_map_of(&settings->tee, local_rank) & which,
                       .redirect = std_map_of(&settings->redirects, local_rank) & which,
                       .shown = rank_list_has(&settings->filter, local_rank),
                       .keep = which == STD_ERR && !isatty(own_fd),
                       .own_fd = own_fd,
                       .prefix = prefix,
                       .needles = settings->needles[which == STD_ERR]};
}

/* "" stands for no folder. */
static int open_in(const struct streams_settings *settings, const struct plan *plan, const char *folder,
                   const char *name, int *fd, struct pump_stream **stream, rdzv_error *error) {
  char *path = NULL, *match = NULL;
  const bool filters = plan->needles && plan->tee && plan->shown && *folder;
  if (asprintf(&path, "%s%s%s", folder, *folder ? "/" : "", *folder ? name : "") < 0) return error_no_memory(error);
  if (filters) match = match_path(folder, name);
  const int result =
      filters && !match ? error_no_memory(error) : open_one(settings, plan, path, match, fd, stream, error);
  free(path);
  free(match);
  return result;
}

int streams_open(const struct streams_settings *settings, int64_t local_rank, int64_t rank, const char *folder,
                 struct streams *out, rdzv_error *error) {
  char *prefix = make_prefix(settings, local_rank, rank);
  *out = (struct streams){.out = -1, .err = -1};
  if (!prefix) return error_no_memory(error);
  const struct plan plans[] = {plan_of(settings, local_rank, STD_OUT, prefix),
                               plan_of(settings, local_rank, STD_ERR, prefix)};
  int result = open_in(settings, &plans[0], folder, "stdout.log", &out->out, &out->out_stream, error);
  if (result == 0) result = open_in(settings, &plans[1], folder, "stderr.log", &out->err, &out->err_stream, error);
  free(prefix);
  if (result < 0) free(streams_close(settings, out, deadline_after(0)));
  return result;
}

void streams_started(struct streams *streams) {
  if (streams->out >= 0) close(streams->out);
  if (streams->err >= 0) close(streams->err);
  streams->out = streams->err = -1;
}

/* ---- closing -------------------------------------------------------------------------------------------------- */

void streams_finish(const struct streams_settings *settings, struct streams *streams) {
  if (streams->out_stream) pump_finish(settings->pump, streams->out_stream);
  if (streams->err_stream) pump_finish(settings->pump, streams->err_stream);
}

char *streams_close(const struct streams_settings *settings, struct streams *streams, deadline until) {
  char *last = NULL;
  streams_started(streams);
  if (streams->out_stream) pump_end(settings->pump, streams->out_stream, until, NULL);
  if (streams->err_stream) pump_end(settings->pump, streams->err_stream, until, &last);
  *streams = (struct streams){.out = -1, .err = -1};
  return last;
}
