/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_BASE_TEXT_SIGNAL_NAME_H
#define RDZV_BASE_TEXT_SIGNAL_NAME_H

/* "SIGKILL", "SIGRTMIN+3"; "signal 99" for a number without a name. */
struct signal_name {
  char text[32];
};
struct signal_name signal_name(int number);

#endif
