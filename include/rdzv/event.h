/* SPDX-License-Identifier: BSD-3-Clause */
/** \file
 * Events of a rendezvous, for a record: PyTorch's rendezvous events. */
#ifndef RDZV_EVENT_H
#define RDZV_EVENT_H

#include <rdzv/api.h>
#include <stdint.h>

/** The state of a node in an event: PyTorch's NodeState. */
typedef enum rdzv_node_state {
  RDZV_NODE_STATE_INIT = 0,  /**< The node opened the rendezvous. */
  RDZV_NODE_STATE_RUNNING,   /**< The node joins or is in a round. */
  RDZV_NODE_STATE_SUCCEEDED, /**< What the node tried is done. */
  RDZV_NODE_STATE_FAILED,    /**< What the node tried failed. */
} rdzv_node_state;

/** One step of a node. The library creates it; a later version may add fields at its end. The texts are valid during
 * the callback only, and never NULL. */
typedef struct rdzv_event {
  int64_t time_us;       /**< Microseconds since 1970 by the clock of this machine. */
  const char *run_id;    /**< The run. */
  const char *node;      /**< This node as PyTorch prints it: addr_pid_localid. "" before it has a name. */
  const char *host;      /**< The name of the machine. */
  int64_t pid;           /**< The process. */
  int64_t local_id;      /**< The number of this handler in the process. */
  int64_t round;         /**< The round; -1 if there is none. */
  int64_t rank;          /**< The rank; -1 if there is none. */
  rdzv_node_state state; /**< The state. */
  const char *message;   /**< A sentence. */
} rdzv_event;

/** Receives events. It is called from threads that use the handler and from the thread of the handler, one call at a
 * time. It must not call back into the handler. */
typedef void rdzv_on_event(void *user, const rdzv_event *event);

RDZV_BEGIN

/** Returns the name of a state: "INIT", "RUNNING", "SUCCEEDED", "FAILED". Static storage. */
RDZV_API const char *rdzv_node_state_name(rdzv_node_state state);

RDZV_END

#endif
