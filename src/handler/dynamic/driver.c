/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/dynamic/driver.h"

#include "base/error.h"
#include "base/log.h"
#include "base/wait/thread.h"
#include "base/wait/waiting.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { ANSWER_MS = 2000 }; /* for an answer of a store that is there */

/* ---- what is asked -------------------------------------------------------------------------------------------- */

bool driver_is_asked(const struct driver *driver) {
  uint64_t any = driver->stopping;
  for (size_t i = 0; i < DRIVER_ASKS; i++) any |= driver->pending[i];
  return any != 0;
}

uint64_t driver_ask(struct driver *driver, enum driver_ask what, const struct driver_words *words) {
  pthread_mutex_lock(&driver->lock);
  const uint64_t ticket = ++driver->tickets;
  if (what == DRIVER_JOIN || what == DRIVER_LEAVE) driver->pending[DRIVER_JOIN] = driver->pending[DRIVER_LEAVE] = 0;
  driver->pending[what] = ticket;
  if (words) driver->words = *words;
  driver->ops->wake(driver);
  pthread_mutex_unlock(&driver->lock);
  return ticket;
}

uint64_t driver_taken(const struct driver *driver, enum driver_ask what) { return driver->taken[what]; }

bool driver_take(struct driver *driver, enum driver_ask *what, struct driver_words *words) {
  size_t first = 0;
  pthread_mutex_lock(&driver->lock);
  while (first < DRIVER_ASKS && driver->pending[first] == 0) first++;
  const bool found = first < DRIVER_ASKS;
  if (found) {
    driver->taken[first] = driver->pending[first];
    driver->pending[first] = 0;
    *what = (enum driver_ask)first;
    if (words) *words = driver->words;
  }
  pthread_mutex_unlock(&driver->lock);
  return found;
}

/* ---- the store's silence -------------------------------------------------------------------------------------- */

void driver_note_answer(struct driver *driver) {
  if (driver->store_failed) {
    const double lost_s = (double)(clock_now_ms() - driver->failed_ms) / 1000;
    log_line(driver->log, RDZV_LOG_WARNING, "the store of the rendezvous is back after %.1f s", lost_s);
    events_note(driver->events, RDZV_NODE_STATE_RUNNING, -1, -1, "the store is back after %.1f s", lost_s);
  }
  driver->store_failed = false;
  driver->trouble.code = 0;
  driver->answered_ms = clock_now_ms();
  silence_end(&driver->silence, driver->answered_ms);
}

/* A canceled call says nothing about the store. */
void driver_note_failure(struct driver *driver, const rdzv_error *error) {
  if (error->code == RDZV_E_CANCELED) return;
  if (!driver->store_failed) {
    driver->failed_ms = clock_now_ms();
    log_line(driver->log, RDZV_LOG_WARNING, "lost the store of the rendezvous: %s", error->message);
    events_note(driver->events, RDZV_NODE_STATE_RUNNING, -1, -1, "lost the store: %s", error->message);
  }
  driver->store_failed = true;
  driver->trouble = *error;
}

int64_t driver_silence(struct driver *driver, int64_t *wake) {
  pthread_mutex_lock(&driver->lock);
  const int64_t lasted = silence_look(&driver->silence, driver_settings(driver), clock_now_ms());
  *wake = silence_wake(&driver->silence, driver_settings(driver));
  pthread_mutex_unlock(&driver->lock);
  return lasted;
}

void driver_forgive_silence(struct driver *driver) {
  pthread_mutex_lock(&driver->lock);
  silence_end(&driver->silence, clock_now_ms());
  pthread_mutex_unlock(&driver->lock);
}

bool driver_hears(struct driver *driver) {
  pthread_mutex_lock(&driver->lock);
  const int64_t lasted = silence_look(&driver->silence, driver_settings(driver), clock_now_ms());
  const int64_t usual = driver->ops->usual_silence(driver);
  pthread_mutex_unlock(&driver->lock);
  return lasted < usual + ANSWER_MS;
}

int driver_fail_silent(struct driver *driver, const char *what, rdzv_error *error) {
  pthread_mutex_lock(&driver->lock);
  const double silence = (double)(clock_now_ms() - driver->answered_ms) / 1000;
  const rdzv_error trouble = driver->trouble;
  pthread_mutex_unlock(&driver->lock);
  const char *where = driver_describe(driver);
  if (trouble.code != 0)
    return error_set(error, trouble.code, "cannot %s: no answer for %.1f s from %s: %s", what, silence, where,
                     trouble.message);
  return error_set(error, RDZV_E_TIMEOUT, "cannot %s: no answer for %.1f s from %s", what, silence, where);
}

void driver_begin_waiting(struct driver *driver, struct waiting *waiting, const char *what, deadline until) {
  waiting_begin(waiting, driver->log, until);
  waiting_about(waiting, "waiting to %s: no answer yet from %s", what, driver_describe(driver));
}

/* ---- beginning and end ---------------------------------------------------------------------------------------- */

void driver_trace(void *driver, const char *line) {
  log_line(((struct driver *)driver)->log, RDZV_LOG_DEBUG, "%s", line);
}

static int64_t next_local_id(void) {
  static atomic_int_fast64_t last = -1;
  return atomic_fetch_add(&last, 1) + 1;
}

void driver_init(struct driver *driver, const struct driver_ops *ops, const struct driver_options *options) {
  *driver = (struct driver){.ops = ops,
                            .log = options->log,
                            .events = options->events,
                            .tell = options->tell,
                            .user = options->user,
                            .settings = options->engine.settings};
  if (options->local_addr)
    snprintf(driver->addr, sizeof driver->addr, "%s", options->local_addr);
  else
    host_name(driver->addr);
  driver->node = (struct node_desc){driver->addr, getpid(), next_local_id()};
  driver->settings.has_redundancy_list = torch_traits(options->layout)->redundancy_list;
  pthread_mutex_init(&driver->lock, NULL);
  driver->answered_ms = clock_now_ms();
  silence_end(&driver->silence, driver->answered_ms);
}

static void *run(void *arg) {
  struct driver *driver = arg;
  driver->ops->run(driver);
  return NULL;
}

int driver_start(struct driver *driver, rdzv_error *error) {
  const int errnum = thread_start(&driver->thread, run, driver);
  if (errnum) return error_errno(error, RDZV_E_IO, errnum, "cannot start the thread of the rendezvous");
  driver->started = true;
  return 0;
}

void driver_stop(struct driver *driver) {
  if (!driver || !driver->started) return;
  pthread_mutex_lock(&driver->lock);
  driver->stopping = true;
  driver->ops->wake(driver);
  pthread_mutex_unlock(&driver->lock);
  driver->ops->cancel(driver);
  pthread_join(driver->thread, NULL);
  driver->started = false;
}

void driver_free(struct driver *driver) {
  if (!driver) return;
  driver_stop(driver);
  pthread_mutex_destroy(&driver->lock);
  driver->ops->free(driver, false, true);
}

/* The lock tells whether the parent's thread was changing the state when the parent forked. */
void driver_abandon(struct driver *driver) {
  if (driver) driver->ops->free(driver, true, pthread_mutex_trylock(&driver->lock) == 0);
}
