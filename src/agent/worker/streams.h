/* SPDX-License-Identifier: BSD-3-Clause */
/* The stdout and stderr of a worker. */
#ifndef RDZV_AGENT_WORKER_STREAMS_H
#define RDZV_AGENT_WORKER_STREAMS_H

#include "agent/worker/pump.h"
#include "agent/worker/std_map.h"

struct streams_settings {
  struct std_map redirects, tee, filter;
  const char *role, *line_prefix;
  char *needles[2]; /* for stdout and stderr: texts of lines that also go to filtered_*.log; NULL: none */
  struct pump *pump;
};

/* One worker's. */
struct streams {
  int out, err; /* for the worker, closed by streams_started; -1: ours */
  struct pump_stream *out_stream, *err_stream;
};

/* "a,b", where ",," is a comma in a text: one text on each line, to be freed. NULL: no memory. */
char *needles_parse(const char *text);

/* `folder` "": there are no files, and output for files is dropped. */
int streams_open(const struct streams_settings *settings, int64_t local_rank, int64_t rank, const char *folder,
                 struct streams *out, rdzv_error *error);

/* Closes our copies, once the worker has its own. */
void streams_started(struct streams *streams);

/* After the worker's end: lets the pump pass on what is left, while other streams are closed. */
void streams_finish(const struct streams_settings *settings, struct streams *streams);

/* Passes on what is left, until then. Returns the last lines of stderr, to be freed; NULL: none are known. */
char *streams_close(const struct streams_settings *settings, struct streams *streams, deadline until);

#endif
