/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_HANDLER_STATUS_H
#define RDZV_HANDLER_STATUS_H

#include <rdzv/handler.h>

/* What rdzv_handler_status gives, with its private part. */
struct status {
  rdzv_status base;
  rdzv_node_status *nodes;
  char *reason; /* NULL: none */
};

/* Takes the text over as the reason for closing; NULL is fine. */
void status_set_reason(rdzv_status *status, char *reason);

#endif
