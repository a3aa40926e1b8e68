/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_EVENT_H
#define RDZV_EVENT_H

#include <rdzv/api.h>
#include <stdint.h>

/* PyTorch's NodeState. */
typedef enum rdzv_node_state {
  RDZV_NODE_STATE_INIT = 0,
  RDZV_NODE_STATE_RUNNING,
  RDZV_NODE_STATE_SUCCEEDED,
  RDZV_NODE_STATE_FAILED,
} rdzv_node_state;

/* A step that somebody would want to read of after the fact: PyTorch's rendezvous event. The texts are valid during
 * the call only, and never NULL. */
typedef struct rdzv_event {
  int64_t time_us; /* since 1970, by this machine's clock */
  const char *run_id;
  const char *node; /* as PyTorch prints it, addr_pid_localid; "" before there is one */
  const char *host; /* the machine's name */
  int64_t pid;
  int64_t local_id; /* of this handler among those of the process */
  int64_t round;    /* -1: in none */
  int64_t rank;     /* -1: none */
  rdzv_node_state state;
  const char *message;
} rdzv_event;

/* Called from threads that use the handler and from the handler's own, one at a time; it must not call back into the
 * handler. */
typedef void rdzv_on_event(void *user, const rdzv_event *event);

RDZV_BEGIN

/* "INIT", "RUNNING", "SUCCEEDED", "FAILED". Static storage. */
RDZV_API const char *rdzv_node_state_name(rdzv_node_state state);

RDZV_END

#endif
