/* SPDX-License-Identifier: BSD-3-Clause */
/* SIGTERM, SIGINT and others, taken by a thread that waits for them: no code runs in a signal handler. */
#ifndef RDZV_CLI_SIGNALS_H
#define RDZV_CLI_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

/* From here on SIGTERM, SIGINT and SIGHUP are blocked in all threads, and `act` is called with each that comes;
 * by_terminal: the processes of the same group got it, too. Before other threads are started. Gives false when it has
 * said what is wrong. */
bool signals_begin(const char *command, void (*act)(void *user, int number, bool by_terminal), void *user);

/* The same for any signals; those that this process was started to ignore, it ignores. */
bool signals_begin_set(const char *command, const sigset_t *set, void (*act)(void *user, int number, bool by_terminal),
                       void *user);

/* When this returns, `act` is not called again; later signals are ignored. */
void signals_end(void);

/* The signals that were blocked before, for processes that are started. */
const sigset_t *signals_before(void);

/* Stops this process as SIGTSTP does, which is one of the handled signals, until SIGCONT. Where there is
 * no job control it goes on at once. */
void signals_stop_here(void);

/* Ends this process by the signal, with its default action. */
void signals_default(int number);

#endif
