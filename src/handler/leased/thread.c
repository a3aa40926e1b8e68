/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/wait/thread.h"

#include "base/error.h"
#include "handler/leased/leased_handler.h"

#include <stdlib.h>
#include <string.h>

/* Takes what is asked; false: the thread is to end. */
static bool take_asked(struct leased_handler *handler) {
  static const enum leased_event_kind kinds[] = {LEASED_EV_ASK_LEAVE, LEASED_EV_ASK_JOIN, LEASED_EV_ASK_CLOSE};
  for (int i = 0; i < LEASED_ASKS; i++) {
    pthread_mutex_lock(&handler->lock);
    if (i == 0) flag_lower(&handler->wake);
    const bool stopping = handler->stopping, asked = handler->asked[i];
    char *reason = i == LEASED_CLOSE && asked ? handler->reason : NULL;
    char master[HOST_NAME_SIZE];
    memcpy(master, handler->master, sizeof master);
    const int port = handler->port;
    if (i == LEASED_CLOSE && asked) handler->reason = NULL;
    handler->asked[i] = false;
    pthread_mutex_unlock(&handler->lock);
    struct leased_event event = {.kind = kinds[i], .text = reason, .master_addr = master, .master_port = port};
    if (asked && !stopping) leased_feed(handler, &event);
    free(reason);
    if (stopping) return false;
  }
  return true;
}

static void *run(void *argument) {
  struct leased_handler *handler = argument;
  while (take_asked(handler)) {
    events_flush(&handler->events);
    leased_carry_out(handler);
    events_flush(&handler->events);
  }
  return NULL;
}

int leased_start(struct leased_handler *handler, rdzv_error *error) {
  if (handler->started) return 0;
  int result = handler->etcd ? 0 : etcd3_open(etcd_share(handler->client), &handler->etcd, error);
  if (result == 0) result = etcd3_for_one_thread(handler->etcd, error);
  if (result < 0) return result;
  const int errnum = thread_start(&handler->thread, run, handler);
  handler->started = errnum == 0;
  return errnum == 0 ? 0 : error_errno(error, RDZV_E_IO, errnum, "cannot start the thread of the rendezvous");
}

void leased_stop(struct leased_handler *handler) {
  if (!handler->started) return;
  pthread_mutex_lock(&handler->lock);
  handler->stopping = true;
  flag_raise(&handler->wake);
  flag_raise(&handler->halt);
  pthread_mutex_unlock(&handler->lock);
  pthread_join(handler->thread, NULL);
  handler->started = false;
}
