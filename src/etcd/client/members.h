/* SPDX-License-Identifier: BSD-3-Clause */
/* The members of an etcd cluster as a client knows them: the endpoints that it was given, and those that these name,
 * where they are of the same cluster. Any thread may call at any time. */
#ifndef RDZV_ETCD_CLIENT_MEMBERS_H
#define RDZV_ETCD_CLIENT_MEMBERS_H

#include "base/net/endpoint.h"

#include <pthread.h>
#include <rdzv/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ETCD_MAX_MEMBERS = 32 };

/* One of the endpoints given, or one that these named, which is believed less: it must say that it is of the same
 * cluster. */
struct etcd_member {
  char text[ENDPOINT_TEXT_SIZE]; /* "host:port" */
  bool given;
  bool known; /* to be of our cluster, by its own word */
  bool heard; /* it has answered as etcd does */
};

struct etcd_members {
  pthread_mutex_t lock; /* guards the rest */
  struct etcd_member list[ETCD_MAX_MEMBERS];
  size_t count;
  size_t current;   /* the one that answered last, unless it has been passed over since */
  uint64_t cluster; /* the id that a given one said last; 0: none yet */
  bool asked;       /* for the other members */
  int unanswered;   /* times that no member answered that */
};

/* ---- members ---- */
void members_open(struct etcd_members *members);
void members_close(struct etcd_members *members);

/* "host:port,host:port": the endpoints given. RDZV_E_INVALID: one is not valid, or there is none. */
int members_give(struct etcd_members *members, const char *list, rdzv_error *error);

/* "http://a:2379, http://b:2379", which is written into: those of that scheme. What cannot be read is left out, and so
 * is this machine where the endpoints given are of another: a member that calls itself "localhost" is not here. */
void members_learn(struct etcd_members *members, char *list, const char *scheme);

/* Is it to be asked for the other members? True the first time, and when the cluster is another than before. */
bool members_to_ask(struct etcd_members *members);

/* No member answered: it is worth asking again, but not forever, since each time takes long. */
void members_not_told(struct etcd_members *members);

size_t members_count(struct etcd_members *members);

/* ---- the member to ask ---- */
struct etcd_member members_choose(struct etcd_members *members);

/* It did not answer: all calls go to the next one. */
void members_pass_over(struct etcd_members *members, const char *text);

/* It answered: it is to be asked from here on. */
void members_prefer(struct etcd_members *members, const char *text);

/* ---- the cluster that they are of ---- */

/* Must the member identify its cluster before it gets a request? */
bool members_is_stranger(struct etcd_members *members, const struct etcd_member *member);

/* It says that it is of that cluster (0: it does not say). False: that is not ours, and it is forgotten. Where a given
 * one is of another cluster than before, those that were named are forgotten. */
bool members_is_ours(struct etcd_members *members, const struct etcd_member *member, uint64_t cluster);

#endif
