/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the agent of a node does next: a machine of step(event) -> request. It knows no processes and no rendezvous.
 *
 *   JOIN          workers started: MONITOR; no round, or no workers: END
 *   MONITOR       a worker failed, nodes joined or left, a signal, closed for a failure: STOP; all workers done:
 *                 EXIT_BARRIER
 *   STOP          the workers end; then what they were stopped for follows: JOIN, CLOSE or END
 *   EXIT_BARRIER  the workers of the other agents are done: CLOSE
 *   LEAVE         after a signal: the other agents hear of it before our workers end, so they do not see a failure
 *   CLOSE         the rendezvous is closed for all nodes: the job is done, or cannot go on
 */
#ifndef RDZV_AGENT_SUPERVISOR_H
#define RDZV_AGENT_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>

enum supervisor_event_kind {
  SUPERVISOR_EV_STARTED,     /* JOIN: a round, ranks, workers that run */
  SUPERVISOR_EV_JOIN_FAILED, /* JOIN: no round, or no workers */
  SUPERVISOR_EV_ROUND_OVER,  /* JOIN: the round ended before its workers were started */
  SUPERVISOR_EV_WORKER_FAILED,
  SUPERVISOR_EV_WORKERS_DONE, /* all of them, and none failed */
  SUPERVISOR_EV_NODES,        /* joined or left the round */
  SUPERVISOR_EV_CLOSED,       /* by another node, for a failure that it published */
  SUPERVISOR_EV_EVICTED,      /* this node's place in the round is lost */
  SUPERVISOR_EV_STORE_LOST,   /* silent for so long that other nodes consider this node dead */
  SUPERVISOR_EV_SIGNAL,       /* `signal` asks this node to leave */
  SUPERVISOR_EV_STOPPED,      /* STOP: no worker is left */
  SUPERVISOR_EV_DONE,         /* EXIT_BARRIER, LEAVE, CLOSE: over, in whatever way */
  SUPERVISOR_EV_AGREED,       /* JOIN: with the other agents; a restart of one node is a restart of all */
};

struct supervisor_event {
  enum supervisor_event_kind kind;
  int signal;
  int64_t restarts; /* AGREED: the most that any agent has used up */
  bool others_done; /* NODES: the workers of another agent are done already, so a new round would not be complete */
};

enum supervisor_request {
  SUPERVISOR_DO_JOIN,
  SUPERVISOR_DO_MONITOR,
  SUPERVISOR_DO_STOP, /* with `signal` first */
  SUPERVISOR_DO_KILL, /* at once */
  SUPERVISOR_DO_EXIT_BARRIER,
  SUPERVISOR_DO_LEAVE,
  SUPERVISOR_DO_CLOSE,
  SUPERVISOR_DO_END, /* with `outcome` */
};

enum supervisor_outcome {
  SUPERVISOR_OUTCOME_SUCCEEDED,
  SUPERVISOR_OUTCOME_FAILED, /* workers of ours */
  SUPERVISOR_OUTCOME_LEFT,   /* after a signal */
  SUPERVISOR_OUTCOME_CLOSED_ON_US,
  SUPERVISOR_OUTCOME_NOT_JOINED, /* or the store was lost */
};

/* Changed by supervisor_step alone. */
struct supervisor {
  enum supervisor_request request; /* what to do now */
  enum supervisor_outcome outcome; /* with END */
  int signal;                      /* the last one; 0: none. STOP sends it to the workers */
  int64_t restarts, max_restarts;  /* used, and allowed */
  enum supervisor_request then;    /* after STOP; private */
};

void supervisor_init(struct supervisor *supervisor, int64_t max_restarts);

/* True: there is a new request. An event that does not apply to the current request changes nothing. */
bool supervisor_step(struct supervisor *supervisor, const struct supervisor_event *event);

#endif
