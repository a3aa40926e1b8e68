/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text/signal_name.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

struct signal_name signal_name(int number) {
  struct signal_name name;
  const char *abbreviation = sigabbrev_np(number);
  if (abbreviation)
    snprintf(name.text, sizeof name.text, "SIG%s", abbreviation);
  else if (number >= SIGRTMIN && number <= SIGRTMAX)
    snprintf(name.text, sizeof name.text, "SIGRTMIN+%d", number - SIGRTMIN);
  else
    snprintf(name.text, sizeof name.text, "signal %d", number);
  return name;
}
