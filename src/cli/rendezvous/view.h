/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_CLI_RENDEZVOUS_VIEW_H
#define RDZV_CLI_RENDEZVOUS_VIEW_H

#include "cli/rendezvous/rendezvous.h"

struct view {
  const char *command, *run_id;
  bool is_terminal;
  rdzv_status *now, *before; /* before the last change; NULL: none */
  int64_t changed_us;
  int64_t lost_us; /* since when there is no answer; 0: there is one */
  char why[256];   /* there is none */
  size_t lines;    /* on the terminal */
};

/* Hides the cursor of a terminal; view_end shows it again, whatever ended the view. */
void view_begin(struct view *view, const char *command, const char *run_id);
void view_end(struct view *view);

/* Takes the status over. Gives an exit code. */
int view_show(struct view *view, rdzv_status *status);

/* There is no answer, after at least one status was shown. Gives an exit code. */
int view_lost(struct view *view, const char *why);

#endif
