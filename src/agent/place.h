/* SPDX-License-Identifier: BSD-3-Clause */
/* Can the nodes of a job find each other at its endpoint? */
#ifndef RDZV_AGENT_PLACE_H
#define RDZV_AGENT_PLACE_H

#include <rdzv/params.h>

/* A store at a loopback address is for the nodes of one machine. RDZV_E_INVALID: there is reason to believe that this
 * job's are on several, where each would wait for the others for ever. */
int place_check(const rdzv_params *params, const rdzv_log *log, rdzv_error *error);

#endif
