/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/signals.h"

#include "cli/cli.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the next two */
static void (*on_signal)(void *user, int number, bool by_terminal);
static void *on_signal_user;
static sigset_t awaited, before;

static void *await(void *unused) {
  (void)unused;
  for (;;) {
    siginfo_t info;
    const int number = sigwaitinfo(&awaited, &info);
    if (number < 0) continue; /* interrupted by a debugger */
    pthread_mutex_lock(&lock);
    if (on_signal) on_signal(on_signal_user, number, info.si_code == SI_KERNEL);
    pthread_mutex_unlock(&lock);
  }
  return NULL;
}

static bool is_ignored(int number) {
  struct sigaction action;
  return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

bool signals_begin_set(const char *command, const sigset_t *set, void (*act)(void *user, int number, bool by_terminal),
                       void *user) {
  pthread_t thread;
  sigemptyset(&awaited);
  for (int number = 1; number < NSIG; number++)
    if (sigismember(set, number) == 1 && !is_ignored(number)) sigaddset(&awaited, number);
  on_signal = act;
  on_signal_user = user;
  pthread_sigmask(SIG_BLOCK, &awaited, &before);
  const int errnum = pthread_create(&thread, NULL, await, NULL);
  if (errnum == 0) {
    pthread_detach(thread);
    return true;
  }
  complain(command, "cannot start a thread for signals: %s", strerror(errnum));
  return false;
}

bool signals_begin(const char *command, void (*act)(void *user, int number, bool by_terminal), void *user) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  return signals_begin_set(command, &set, act, user);
}

void signals_end(void) {
  pthread_mutex_lock(&lock);
  on_signal = NULL;
  pthread_mutex_unlock(&lock);
}

const sigset_t *signals_before(void) { return &before; }

/* It is not blocked while it is raised. */
static void raise_open(int number) {
  sigset_t only;
  sigemptyset(&only);
  sigaddset(&only, number);
  pthread_sigmask(SIG_UNBLOCK, &only, NULL);
  raise(number);
  pthread_sigmask(SIG_BLOCK, &only, NULL);
}

void signals_stop_here(void) { raise_open(SIGTSTP); }

void signals_default(int number) {
  signal(number, SIG_DFL);
  raise_open(number);
}
