/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * getaddrinfo has neither a deadline nor a way to stop it, so a name is looked up in a thread:
 * - the caller makes a look-up with two owners, itself and the thread, and waits for the thread's signal;
 * - the thread stores the result, signals, and gives up its half;
 * - the last owner frees it.
 * Failure modes: the deadline passes or the call is canceled: the caller lets go, the thread frees later. The thread
 * cannot be made: an error, nothing left behind.
 */
#include "base/net/resolve.h"

#include "base/error.h"
#include "base/wait/thread.h"
#include "base/wait/waiting.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lookup {
  atomic_int owners;
  struct flag done;     /* raised by the thread when the rest is there */
  atomic_bool is_there; /* the same for the memory model, which knows nothing of descriptors */
  char host[256];
  char port[8];
  int status; /* getaddrinfo's */
  int errnum;
  struct addrinfo *result;
};

static void let_go(struct lookup *lookup) {
  if (atomic_fetch_sub(&lookup->owners, 1) > 1) return;
  if (lookup->result) freeaddrinfo(lookup->result);
  flag_close(&lookup->done);
  free(lookup);
}

static void look_up(struct lookup *lookup, int flags) {
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
  lookup->status = getaddrinfo(lookup->host, lookup->port, &hints, &lookup->result);
  lookup->errnum = errno;
}

static void *look_up_thread(void *arg) {
  struct lookup *lookup = arg;
  look_up(lookup, 0);
  atomic_store(&lookup->is_there, true);
  flag_raise(&lookup->done);
  let_go(lookup);
  return NULL;
}

static int start_thread(struct lookup *lookup) {
  pthread_t thread;
  const int failed = thread_start(&thread, look_up_thread, lookup);
  if (!failed) pthread_detach(thread);
  return failed;
}

static int lookup_new(const struct endpoint *endpoint, struct lookup **out, rdzv_error *error) {
  struct lookup *lookup = calloc(1, sizeof *lookup);
  if (!lookup) return error_no_memory(error);
  const int result = flag_open(&lookup->done, error);
  if (result < 0) {
    free(lookup);
    return result;
  }
  atomic_init(&lookup->owners, 1);
  memcpy(lookup->host, endpoint->host, sizeof lookup->host);
  snprintf(lookup->port, sizeof lookup->port, "%d", endpoint->port);
  *out = lookup;
  return 0;
}

static const char *cure(int status) {
  if (status == EAI_NONAME) return " (is the name right, and known to this machine?)";
  if (status == EAI_AGAIN) return " (does this machine reach its name server?)";
  return "";
}

static int refusal(const struct lookup *lookup, rdzv_error *error) {
  if (lookup->status == EAI_SYSTEM)
    return error_errno(error, RDZV_E_ADDRESS, lookup->errnum, "cannot resolve '%s'", lookup->host);
  return error_set(error, RDZV_E_ADDRESS, "cannot resolve '%s': %s%s", lookup->host, gai_strerror(lookup->status),
                   cure(lookup->status));
}

static int wait_for_thread(struct lookup *lookup, deadline until, const struct flag *cancel, rdzv_error *error) {
  atomic_store(&lookup->owners, 2);
  const int failed = start_thread(lookup);
  if (failed) {
    atomic_store(&lookup->owners, 1);
    return error_errno(error, RDZV_E_NO_MEMORY, failed, "cannot start a thread to resolve '%s'", lookup->host);
  }
  waiting_for(flag_waiting(cancel), "looking up the name '%s'", lookup->host);
  struct pollfd fds[2] = {{.fd = flag_fd(&lookup->done), .events = POLLIN}};
  const int result = flag_poll(cancel, fds, 1, until);
  if (result == RDZV_E_TIMEOUT)
    return error_set(error, result, "cannot resolve '%s': the resolver did not answer in time", lookup->host);
  if (result < 0) return error_set(error, result, "resolving '%s' was canceled", lookup->host);
  return atomic_load(&lookup->is_there) && lookup->status == 0 ? 0 : refusal(lookup, error);
}

int resolve(const struct endpoint *endpoint, deadline until, const struct flag *cancel, struct addrinfo **out,
            rdzv_error *error) {
  struct lookup *lookup = NULL;
  int result = lookup_new(endpoint, &lookup, error);
  if (!lookup) return result;
  look_up(lookup, AI_NUMERICHOST);
  if (lookup->status == EAI_NONAME)
    result = wait_for_thread(lookup, until, cancel, error);
  else if (lookup->status != 0)
    result = refusal(lookup, error);
  if (result == 0) {
    *out = lookup->result;
    lookup->result = NULL;
  }
  let_go(lookup);
  return result;
}
