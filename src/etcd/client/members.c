/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/client/members.h"

#include "base/error.h"
#include "base/net/host.h"

#include <rdzv/etcd.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ASKED = 3 /* without an answer */ };

void members_open(struct etcd_members *members) { pthread_mutex_init(&members->lock, NULL); }
void members_close(struct etcd_members *members) { pthread_mutex_destroy(&members->lock); }

/* ---- the list --------------------------------------------------------------------------------------------------- */

static size_t index_of(const struct etcd_members *members, const char *text) {
  size_t i = 0;
  while (i < members->count && strcmp(members->list[i].text, text) != 0) i++;
  return i;
}

static void add_member(struct etcd_members *members, const struct endpoint *endpoint, bool given) {
  struct etcd_member member = {.given = given};
  endpoint_format(endpoint->host, endpoint->port, member.text);
  pthread_mutex_lock(&members->lock);
  if (members->count < ETCD_MAX_MEMBERS && index_of(members, member.text) == members->count)
    members->list[members->count++] = member;
  pthread_mutex_unlock(&members->lock);
}

/* The first one is a given one always. */
static void forget(struct etcd_members *members, size_t at) {
  memmove(&members->list[at], &members->list[at + 1], (--members->count - at) * sizeof members->list[0]);
  if (members->current > at) members->current--;
  if (members->current == members->count) members->current = 0;
}

static void forget_named(struct etcd_members *members) {
  for (size_t i = members->count; i-- > 0;)
    if (!members->list[i].given) forget(members, i);
}

int members_give(struct etcd_members *members, const char *list, rdzv_error *error) {
  char *copy = strdup(list), *rest = copy;
  if (!copy) return error_no_memory(error);
  int result = 0;
  while (rest && result == 0) {
    struct endpoint endpoint;
    const char *one = strsep(&rest, ",");
    one += strspn(one, " ");
    if (!*one) continue;
    result = endpoint_parse(one, RDZV_ETCD_PORT, &endpoint, error);
    if (result == 0) add_member(members, &endpoint, true);
  }
  free(copy);
  if (result < 0) return result;
  return members->count > 0 ? 0 : error_set(error, RDZV_E_INVALID, "no etcd endpoint is given");
}

/* Is one of the endpoints given on this machine, so that "localhost" is where the members mean it to be? */
static bool are_local(struct etcd_members *members) {
  bool local = false;
  pthread_mutex_lock(&members->lock);
  for (size_t i = 0; i < members->count && !local; i++) {
    struct endpoint endpoint;
    local = members->list[i].given && endpoint_parse(members->list[i].text, RDZV_ETCD_PORT, &endpoint, NULL) == 0 &&
            host_is_loopback(endpoint.host);
  }
  pthread_mutex_unlock(&members->lock);
  return local;
}

void members_learn(struct etcd_members *members, char *list, const char *scheme) {
  const size_t len = strlen(scheme);
  const bool local = are_local(members);
  while (list) {
    struct endpoint endpoint;
    char *one = strsep(&list, ",");
    one += strspn(one, " ");
    if (strncmp(one, scheme, len) != 0 || strncmp(one + len, "://", 3) != 0) continue;
    one += len + 3;
    one[strcspn(one, "/ ")] = '\0';
    if (endpoint_parse(one, RDZV_ETCD_PORT, &endpoint, NULL) < 0) continue;
    if (local || !host_is_loopback(endpoint.host)) add_member(members, &endpoint, false);
  }
}

bool members_to_ask(struct etcd_members *members) {
  pthread_mutex_lock(&members->lock);
  const bool asked = members->asked;
  members->asked = true;
  pthread_mutex_unlock(&members->lock);
  return !asked;
}

void members_not_told(struct etcd_members *members) {
  pthread_mutex_lock(&members->lock);
  members->asked = ++members->unanswered >= MAX_ASKED;
  pthread_mutex_unlock(&members->lock);
}

size_t members_count(struct etcd_members *members) {
  pthread_mutex_lock(&members->lock);
  const size_t count = members->count;
  pthread_mutex_unlock(&members->lock);
  return count;
}

/* ---- the member to ask ------------------------------------------------------------------------------------------- */

struct etcd_member members_choose(struct etcd_members *members) {
  pthread_mutex_lock(&members->lock);
  const struct etcd_member member = members->list[members->current];
  pthread_mutex_unlock(&members->lock);
  return member;
}

void members_pass_over(struct etcd_members *members, const char *text) {
  pthread_mutex_lock(&members->lock);
  if (strcmp(members->list[members->current].text, text) == 0)
    members->current = (members->current + 1) % members->count;
  pthread_mutex_unlock(&members->lock);
}

void members_prefer(struct etcd_members *members, const char *text) {
  pthread_mutex_lock(&members->lock);
  const size_t at = index_of(members, text);
  if (at < members->count) {
    members->current = at;
    members->list[at].heard = true;
  }
  pthread_mutex_unlock(&members->lock);
}

/* ---- whose they are ---------------------------------------------------------------------------------------------- */

bool members_is_stranger(struct etcd_members *members, const struct etcd_member *member) {
  pthread_mutex_lock(&members->lock);
  const bool stranger = !member->given && !member->known && members->cluster != 0;
  pthread_mutex_unlock(&members->lock);
  return stranger;
}

static void believe(struct etcd_members *members, uint64_t cluster) {
  if (members->cluster != 0 && members->cluster != cluster) {
    forget_named(members);
    members->asked = false;
  }
  members->cluster = cluster;
}

bool members_is_ours(struct etcd_members *members, const struct etcd_member *member, uint64_t cluster) {
  bool ours = true;
  pthread_mutex_lock(&members->lock);
  if (member->given && cluster != 0) believe(members, cluster);
  if (!member->given && members->cluster != 0 && (cluster != 0 || !member->known)) {
    const size_t at = index_of(members, member->text);
    ours = cluster == members->cluster;
    if (at < members->count && ours) members->list[at].known = true;
    if (at < members->count && !ours) forget(members, at);
  }
  pthread_mutex_unlock(&members->lock);
  return ours;
}
