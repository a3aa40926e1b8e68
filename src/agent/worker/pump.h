/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Passes the output of workers on: a thread reads it from pipes and writes it to a file, to a descriptor that all
 * workers share, and to a buffer of the last lines. Lines on the shared descriptor are never torn.
 *
 * It is a thread because a terminal or a disk may block, and the agent must not.
 */
#ifndef RDZV_AGENT_WORKER_PUMP_H
#define RDZV_AGENT_WORKER_PUMP_H

#include "base/wait/clock.h"

#include <rdzv/error.h>
#include <rdzv/log.h>

struct pump;
struct pump_stream;

/* If output cannot be written, on a full disk say, that is logged for each stream: when it begins, and the number of
 * lost bytes at the end. */
int pump_open(struct pump **out, const rdzv_log *log, rdzv_error *error);

/* The bytes that the streams that have ended could not write. `to` gets where, and why, of the first ones; "" if there
 * are none. */
uint64_t pump_lost(struct pump *pump, char *to, size_t size);

/* Ends all streams and the thread; NULL is fine. pump_close waits for that, but not for a disk that does not answer. */
void pump_quit(struct pump *pump);
void pump_close(struct pump *pump);

struct pump_to {
  int file_fd;         /* -1: none. Taken over */
  int match_fd;        /* the same, for shown lines with one of the needles, each with its prefix */
  const char *match;   /* the path of that; copied. NULL: none */
  const char *needles; /* one on each line; copied. NULL: none */
  const char *file;    /* its path; copied. NULL: none */
  int show_fd;         /* the shared one; -1: none. Borrowed */
  const char
      *prefix; /* of each line that is shown; "" shows what comes without a line end, too, when nothing follows.
                  A line of more than 1 MiB is broken: the part before ends, and the one behind begins, with "…" */
};

/* A pipe to write into, for the worker: *write_fd is the caller's to close. */
int pump_add(struct pump *pump, const struct pump_to *to, int *write_fd, struct pump_stream **out, rdzv_error *error);

/* Lets the next pump_end, of any stream, end this one as well. The stream still needs its own pump_end, which then does
 * not wait. */
void pump_finish(struct pump *pump, struct pump_stream *stream);

/* After the writer's end: passes on what is in the pipe, including a last line without an end, and frees the stream.
 * Output that cannot be written until then is lost. `last` gets the last lines, to be freed; it may be NULL. */
void pump_end(struct pump *pump, struct pump_stream *stream, deadline until, char **last);

#endif
