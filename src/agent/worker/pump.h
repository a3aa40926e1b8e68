/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What workers write, on its way: a thread reads it from pipes and passes it on, to a file, to a descriptor of ours
 * that all share, and into a memory of the last lines. On the shared one, lines are never torn.
 *
 * A thread of its own, since a terminal or a disk may take its time, and the agent must not wait for it.
 */
#ifndef RDZV_AGENT_WORKER_PUMP_H
#define RDZV_AGENT_WORKER_PUMP_H

#include "base/wait/clock.h"

#include <rdzv/error.h>
#include <rdzv/log.h>

struct pump;
struct pump_stream;

/* Output that cannot be written, as on a full disk, is logged for each stream: when that begins, and how many bytes it
 * was in the end. */
int pump_open(struct pump **out, const rdzv_log *log, rdzv_error *error);

/* Ends all that is left; NULL is fine. pump_close waits for that, but not for a disk that does not answer. */
void pump_quit(struct pump *pump);
void pump_close(struct pump *pump);

struct pump_to {
  int file_fd;      /* -1: none. Taken over */
  const char *file; /* its path; copied. NULL: none */
  int show_fd;      /* the shared one; -1: none. Borrowed */
  const char
      *prefix; /* of each line that is shown; "" shows what comes without a line end, too, when no more follows.
                  A line of more than 1 MiB is broken: the part before ends, and the one behind begins, with "…" */
};

/* A pipe to write into, for the worker: *write_fd is the caller's to close. */
int pump_add(struct pump *pump, const struct pump_to *to, int *write_fd, struct pump_stream **out, rdzv_error *error);

/* The next pump_end, of any stream, ends this one, too. It is to be ended by a pump_end of its own, which then need not
 * wait for the thread. */
void pump_finish(struct pump *pump, struct pump_stream *stream);

/* The writer is gone: passes on what is there, also a last line without an end, and forgets the stream. Waits for that
 * until then; what nobody has read by that time is lost. `last` gets the last lines, to be freed; it may be NULL. */
void pump_end(struct pump *pump, struct pump_stream *stream, deadline until, char **last);

#endif
