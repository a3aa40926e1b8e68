/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the agent of a node does next: a machine of step(event) -> request. It knows no processes and no rendezvous.
 *
 *   JOIN     -> started: WATCH; failed: END
 *   WATCH    a worker failed, members come or go, told to stop, closed for a failure: STOP; all workers done: BARRIER
 *   STOP     the workers' end is waited for, and then what they were stopped for is done: JOIN, CLOSE, END
 *   BARRIER  until the other agents are done, too: CLOSE
 *   LEAVE    told to stop: the others hear of it before our workers end, so that they do not take it for a failure
 *   CLOSE    the rendezvous is closed for all: the job is done, or cannot go on
 */
#ifndef RDZV_AGENT_SUPERVISOR_H
#define RDZV_AGENT_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>

enum supervisor_event_kind {
  SUPERVISOR_STARTED,     /* JOIN: a round, ranks, workers that run */
  SUPERVISOR_JOIN_FAILED, /* JOIN: no round, or no workers */
  SUPERVISOR_ROUND_OVER,  /* JOIN: the round ended before its workers were started */
  SUPERVISOR_WORKER_FAILED,
  SUPERVISOR_WORKERS_DONE, /* all of them, and none failed */
  SUPERVISOR_MEMBERS,      /* of the round come or go */
  SUPERVISOR_CLOSED,       /* by somebody else, for a failure that was told */
  SUPERVISOR_EVICTED,      /* this node's place in the round is lost */
  SUPERVISOR_STORE_LOST,   /* it has been silent for so long that the others must take us for dead */
  SUPERVISOR_SIGNAL,       /* told to stop, by `signal` */
  SUPERVISOR_STOPPED,      /* STOP: no worker is left */
  SUPERVISOR_DONE,         /* BARRIER, LEAVE, CLOSE: over, whatever came of it */
  SUPERVISOR_AGREED,       /* JOIN: with the other agents; a restart of one node is a restart of all */
};

struct supervisor_event {
  enum supervisor_event_kind kind;
  int signal;
  int64_t restarts; /* AGREED: the most that any agent has used up */
  bool others_done; /* MEMBERS: the workers of another agent are done already, so nobody can begin anew */
};

enum supervisor_request {
  SUPERVISOR_JOIN,
  SUPERVISOR_WATCH,
  SUPERVISOR_STOP, /* with `signal` first */
  SUPERVISOR_KILL, /* at once */
  SUPERVISOR_BARRIER,
  SUPERVISOR_LEAVE,
  SUPERVISOR_CLOSE,
  SUPERVISOR_END, /* with `outcome` */
};

enum supervisor_outcome {
  SUPERVISOR_SUCCEEDED,
  SUPERVISOR_FAILED, /* workers of ours */
  SUPERVISOR_LEFT,   /* told to stop */
  SUPERVISOR_CLOSED_ON_US,
  SUPERVISOR_NOT_JOINED, /* or out again, for the store was lost */
};

/* Changed by supervisor_step alone. */
struct supervisor {
  enum supervisor_request request; /* what to do now */
  enum supervisor_outcome outcome; /* with END */
  int signal;                      /* that we were told to stop by; 0: none. STOP passes it on */
  int64_t restarts, max_restarts;  /* used up, and to be used up */
  enum supervisor_request then;    /* after STOP; private */
};

void supervisor_init(struct supervisor *supervisor, int64_t max_restarts);

/* True: the request is a new one. An event that comes too late, or changes nothing, leaves the one that there is. */
bool supervisor_step(struct supervisor *supervisor, const struct supervisor_event *event);

#endif
