/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/v2/lease.h"

#include "base/error.h"
#include "base/wait/thread.h"
#include "etcd/client/renewal.h"
#include "etcd/v2/v2.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AGAIN_MS = 1000, TRY_MS = 4000 };

struct slot {
  struct etcd_lease lease; /* key NULL: none; the texts are its own */
  int64_t due_ms;
  bool failing; /* the last renewal did */
  enum etcd_lease_state state;
  rdzv_error cause;
  uint64_t generation; /* of what is in it */
};

struct etcd_leases {
  struct etcd_client *client;
  struct etcd_lease_owner owner;
  struct flag stop;
  pthread_t thread;
  bool started;
  pthread_mutex_t lock; /* guards what follows */
  pthread_cond_t changed;
  bool over;
  struct slot slots[ETCD_LEASE_SLOTS];
};

/* ---- one lease ------------------------------------------------------------------------------------------------ */

static void free_lease(struct etcd_lease *lease) {
  free((char *)lease->key);
  free((char *)lease->value);
  *lease = (struct etcd_lease){0};
}

static bool copy_lease(struct etcd_lease *to, const struct etcd_lease *from) {
  *to = *from;
  to->key = strdup(from->key);
  to->value = from->value ? strdup(from->value) : NULL;
  if (to->key && (to->value || !from->value)) return true;
  free_lease(to);
  return false;
}

/* It does not matter which node creates the directory. */
static int make_dir(struct etcd_client *client, const struct etcd_lease *lease, const struct etcd_call *call) {
  struct etcd_result result;
  const struct etcd_put put = {.exist = ETCD_EXIST_ABSENT, .ttl = lease->ttl_s, .dir = true};
  const int outcome = etcd_v2_put(client, lease->key, &put, call, &result);
  if (outcome == 0) etcd_result_free(&result);
  return outcome == ETCD_V2_EXISTS ? 0 : outcome;
}

int etcd_lease_renew(struct etcd_client *client, const struct etcd_lease *lease, const struct etcd_call *call) {
  struct etcd_result result;
  const struct etcd_put put = {.refresh = true,
                               .exist = ETCD_EXIST_PRESENT,
                               .ttl = lease->ttl_s,
                               .dir = lease->dir,
                               .prev_value = lease->value,
                               .unique = lease->value != NULL};
  const int outcome = etcd_v2_put(client, lease->key, &put, call, &result);
  if (outcome == 0) etcd_result_free(&result);
  return outcome == ETCD_V2_NOT_FOUND && lease->dir ? make_dir(client, lease, call) : outcome;
}

/* ---- the thread ----------------------------------------------------------------------------------------------- */

static struct renewal renewal_of(const struct etcd_lease *lease) {
  return (struct renewal){.every_ms = lease->ttl_s * 1000 / 2, .again_ms = AGAIN_MS};
}

static int64_t ends(const struct slot *slot) { return slot->lease.asked_ms + slot->lease.ttl_s * 1000; }

static void enter_state(struct etcd_leases *leases, struct slot *slot, enum etcd_lease_state state) {
  if (slot->state == state) return;
  slot->state = state;
  leases->owner.told(leases->owner.user, (int)(slot - leases->slots), state, slot->lease.asked_ms, &slot->cause);
}

/* Only an etcd that does not answer is silent: a clock that jumped, because this process was stopped, proves nothing.
 */
static void look_for_silence(struct etcd_leases *leases, struct slot *slot) {
  if (slot->failing && deadline_left(ends(slot)) == 0) enter_state(leases, slot, ETCD_LEASE_STATE_SILENT);
}

/* A line for people; "": none. */
struct line {
  char text[RDZV_MESSAGE_SIZE + 256];
};

static void note_failure(struct etcd_leases *leases, struct slot *slot, const rdzv_error *error, struct line *line) {
  const struct renewal renewal = renewal_of(&slot->lease);
  const int64_t again = renewal_next(&renewal, 0, clock_now_ms(), false), end = ends(slot);
  if (!slot->failing)
    snprintf(line->text, sizeof line->text, "cannot renew the lease '%s': %s", slot->lease.key, error->message);
  slot->failing = true;
  slot->cause = *error;
  slot->due_ms = deadline_left(end) > 0 && end < again ? end : again;
  look_for_silence(leases, slot);
}

/* Takes the outcome of a renewal that was asked for then. With the lock held. */
static void note(struct etcd_leases *leases, struct slot *slot, int64_t asked_ms, int outcome, const rdzv_error *error,
                 struct line *line) {
  const struct renewal renewal = renewal_of(&slot->lease);
  if (outcome == 0) {
    slot->failing = false;
    slot->lease.asked_ms = asked_ms;
    slot->due_ms = renewal_next(&renewal, asked_ms, clock_now_ms(), true);
    enter_state(leases, slot, ETCD_LEASE_STATE_HELD);
  } else if (outcome == ETCD_V2_NOT_FOUND || outcome == ETCD_V2_COMPARE_FAILED) {
    snprintf(line->text, sizeof line->text, "the lease '%s' expired", slot->lease.key);
    enter_state(leases, slot, ETCD_LEASE_STATE_LOST);
  } else {
    note_failure(leases, slot, error, line);
  }
}

/* Lets the lock go meanwhile, so the slot may have another lease afterwards. */
static void renew(struct etcd_leases *leases, struct slot *slot) {
  struct etcd_lease lease;
  struct line line = {""};
  rdzv_error error = {.code = RDZV_E_NO_MEMORY, .message = "out of memory"};
  const uint64_t generation = slot->generation;
  const int64_t now = clock_now_ms(), try_until = deadline_after(TRY_MS), end = ends(slot);
  look_for_silence(leases, slot);
  const struct etcd_call call = {end > now && end < try_until ? end : try_until, &leases->stop, &error};
  const bool copied = copy_lease(&lease, &slot->lease);
  pthread_mutex_unlock(&leases->lock);
  const int outcome = copied ? etcd_lease_renew(leases->client, &lease, &call) : RDZV_E_NO_MEMORY;
  if (copied) free_lease(&lease);
  pthread_mutex_lock(&leases->lock);
  if (slot->generation == generation && !leases->over) note(leases, slot, now, outcome, &error, &line);
  const bool lost = slot->state == ETCD_LEASE_STATE_LOST;
  pthread_mutex_unlock(&leases->lock);
  if (line.text[0]) leases->owner.said(leases->owner.user, lost, line.text);
  pthread_mutex_lock(&leases->lock);
}

static struct slot *first_due(struct etcd_leases *leases) {
  struct slot *first = NULL;
  for (int i = 0; i < ETCD_LEASE_SLOTS; i++) {
    struct slot *slot = &leases->slots[i];
    const bool renewed = slot->lease.key && slot->state != ETCD_LEASE_STATE_LOST;
    if (renewed && (!first || slot->due_ms < first->due_ms)) first = slot;
  }
  return first;
}

/* Waits until the lease is due or something changed, with the lock held. */
static void await_due(struct etcd_leases *leases, const struct slot *slot) {
  thread_cond_wait(&leases->changed, &leases->lock, slot ? slot->due_ms : INT64_MAX);
}

static void *run(void *argument) {
  struct etcd_leases *leases = argument;
  pthread_mutex_lock(&leases->lock);
  while (!leases->over) {
    struct slot *slot = first_due(leases);
    if (slot && deadline_left(slot->due_ms) == 0)
      renew(leases, slot);
    else
      await_due(leases, slot);
  }
  pthread_mutex_unlock(&leases->lock);
  return NULL;
}

/* ---- for the owner -------------------------------------------------------------------------------------------- */

bool etcd_leases_set(struct etcd_leases *leases, int at, const struct etcd_lease *lease) {
  struct etcd_lease copy = {0};
  if (lease && !copy_lease(&copy, lease)) return false;
  pthread_mutex_lock(&leases->lock);
  struct slot *slot = &leases->slots[at];
  free_lease(&slot->lease);
  *slot = (struct slot){.lease = copy, .generation = slot->generation + 1};
  const struct renewal renewal = renewal_of(&copy);
  if (copy.asked_ms > 0) slot->due_ms = renewal_next(&renewal, copy.asked_ms, clock_now_ms(), true);
  if (copy.asked_ms == 0) slot->lease.asked_ms = clock_now_ms();
  pthread_cond_signal(&leases->changed);
  pthread_mutex_unlock(&leases->lock);
  return true;
}

static int start(struct etcd_leases *leases, rdzv_error *error) {
  const int result = flag_open(&leases->stop, error);
  if (result < 0) return result;
  const int errnum = thread_start(&leases->thread, run, leases);
  leases->started = errnum == 0;
  return errnum == 0 ? 0 : error_errno(error, RDZV_E_IO, errnum, "cannot start the thread that renews leases");
}

int etcd_leases_open(struct etcd_client *client, const struct etcd_lease_owner *owner, struct etcd_leases **out,
                     rdzv_error *error) {
  struct etcd_leases *leases = calloc(1, sizeof *leases);
  if (!leases) return error_no_memory(error);
  *leases = (struct etcd_leases){.client = client, .owner = *owner, .stop = FLAG_NONE};
  thread_cond_init(&leases->changed);
  pthread_mutex_init(&leases->lock, NULL);
  const int result = start(leases, error);
  if (result < 0)
    etcd_leases_close(leases);
  else
    *out = leases;
  return result;
}

void etcd_leases_close(struct etcd_leases *leases) {
  if (!leases) return;
  pthread_mutex_lock(&leases->lock);
  leases->over = true;
  pthread_cond_signal(&leases->changed);
  pthread_mutex_unlock(&leases->lock);
  if (leases->started) {
    flag_raise(&leases->stop);
    pthread_join(leases->thread, NULL);
  }
  flag_close(&leases->stop);
  for (int i = 0; i < ETCD_LEASE_SLOTS; i++) free_lease(&leases->slots[i].lease);
  pthread_mutex_destroy(&leases->lock);
  pthread_cond_destroy(&leases->changed);
  free(leases);
}
