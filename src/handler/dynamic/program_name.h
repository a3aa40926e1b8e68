/* SPDX-License-Identifier: BSD-3-Clause */
/* Which program a rendezvous without a name of its own is for. */
#ifndef RDZV_HANDLER_DYNAMIC_PROGRAM_NAME_H
#define RDZV_HANDLER_DYNAMIC_PROGRAM_NAME_H

#include <rdzv/params.h>
#include <rdzv/store.h>

/* torchrun's run id where none was given: two jobs that have nothing to do with each other may both have it. */
#define UNNAMED_RUN "none"

/* Notes the program in the store, if the run is unnamed and nobody has. RDZV_E_INVALID: it is another one's. */
int program_name_check(rdzv_store *store, const rdzv_params *params, rdzv_error *error);

#endif
