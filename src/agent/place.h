/* SPDX-License-Identifier: BSD-3-Clause */
/* Can the nodes of a job find each other at its endpoint? */
#ifndef RDZV_AGENT_PLACE_H
#define RDZV_AGENT_PLACE_H

#include <rdzv/params.h>

/* A store at a loopback address serves the nodes of one machine. RDZV_E_INVALID: the environment says that the job runs
 * on several machines; each node would wait for ever at its own store. */
int place_check(const rdzv_params *params, const rdzv_log *log, rdzv_error *error);

#endif
