/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the agent of a node does next: a machine of step(event) -> request. It knows no processes and no rendezvous.
 *
 *   JOIN          workers started: MONITOR; no round: END; no workers: END for the first ones, else as a failed worker
 *   MONITOR       a worker failed, nodes joined or left, a signal, closed for a failure: STOP; all workers done:
 *                 EXIT_BARRIER
 *   STOP          the workers end; then what they were stopped for follows: BACK_OFF, JOIN, CLOSE or END
 *   BACK_OFF      workers failed again soon after their start: wait for delay_ms, then JOIN
 *   EXIT_BARRIER  the workers of the other agents are done: CLOSE
 *   LEAVE         after a signal: the other agents hear of it before our workers end, so they do not see a failure
 *   CLOSE         the rendezvous is closed for all nodes: the job is done, or cannot go on
 */
#ifndef RDZV_AGENT_SUPERVISOR_H
#define RDZV_AGENT_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>

enum supervisor_event_kind {
  SUPERVISOR_EV_STARTED,      /* JOIN: a round, ranks, workers that run */
  SUPERVISOR_EV_JOIN_FAILED,  /* JOIN: no round */
  SUPERVISOR_EV_START_FAILED, /* JOIN: a round, but not all workers can be started */
  SUPERVISOR_EV_ROUND_OVER,   /* JOIN: the round ended before its workers were started */
  SUPERVISOR_EV_WORKER_FAILED,
  SUPERVISOR_EV_WORKERS_DONE, /* all of them, and none failed */
  SUPERVISOR_EV_NODES,        /* joined or left the round */
  SUPERVISOR_EV_CLOSED,       /* by another node, for a failure that it published */
  SUPERVISOR_EV_EVICTED,      /* this node's place in the round is lost */
  SUPERVISOR_EV_STORE_LOST,   /* silent for so long that other nodes consider this node dead */
  SUPERVISOR_EV_SIGNAL,       /* `signal` asks this node to leave */
  SUPERVISOR_EV_STOPPED,      /* STOP: no worker is left */
  SUPERVISOR_EV_DONE,         /* BACK_OFF, EXIT_BARRIER, LEAVE, CLOSE: over, in whatever way */
  SUPERVISOR_EV_AGREED,       /* JOIN: with the other agents; a restart of one node is a restart of all */
};

struct supervisor_event {
  enum supervisor_event_kind kind;
  int64_t now_ms; /* the time */
  int signal;
  int64_t restarts; /* AGREED: the most that any agent has used up */
  bool others_done; /* NODES: the workers of another agent are done already, so a new round would not be complete */
};

enum supervisor_request {
  SUPERVISOR_DO_JOIN,
  SUPERVISOR_DO_MONITOR,
  SUPERVISOR_DO_STOP, /* with `signal` first */
  SUPERVISOR_DO_KILL, /* at once */
  SUPERVISOR_DO_BACK_OFF,
  SUPERVISOR_DO_EXIT_BARRIER,
  SUPERVISOR_DO_LEAVE,
  SUPERVISOR_DO_CLOSE,
  SUPERVISOR_DO_END, /* with `outcome` */
};

enum supervisor_outcome {
  SUPERVISOR_OUTCOME_SUCCEEDED,
  SUPERVISOR_OUTCOME_FAILED, /* workers of this node */
  SUPERVISOR_OUTCOME_LEFT,   /* after a signal */
  SUPERVISOR_OUTCOME_CLOSED_ON_US,
  SUPERVISOR_OUTCOME_NOT_JOINED, /* or the store was lost */
};

/*
 * The delay before a restart: none after the first failure, 0.1 s after the second in a row, then twice as long each
 * time, up to 10 s. Workers that ran for a minute begin a new row.
 */
enum { SUPERVISOR_FIRST_DELAY_MS = 100, SUPERVISOR_LONGEST_DELAY_MS = 10000, SUPERVISOR_STEADY_MS = 60000 };

/* Changed by supervisor_step alone. */
struct supervisor {
  enum supervisor_request request; /* what to do now */
  enum supervisor_outcome outcome; /* with END */
  int signal;                      /* the last one; 0: none. STOP sends it to the workers */
  int64_t restarts, max_restarts;  /* used, and allowed */
  int64_t delay_ms;                /* with BACK_OFF */
  int64_t row;                     /* failures in a row, each soon after the start of the workers */
  enum supervisor_request then;    /* after STOP; private */
  bool has_started;                /* workers, once; private */
  int64_t started_ms;              /* the last ones; private */
};

void supervisor_init(struct supervisor *supervisor, int64_t max_restarts);

/* True: there is a new request. An event that does not apply to the current request changes nothing. */
bool supervisor_step(struct supervisor *supervisor, const struct supervisor_event *event);

#endif
