/* SPDX-License-Identifier: BSD-3-Clause */
/* The token of a user of etcd's v3 API, which etcd gives for a password and forgets after a while. One for all calls of
 * a client. Any thread may call at any time. */
#ifndef RDZV_ETCD_CLIENT_TOKEN_H
#define RDZV_ETCD_CLIENT_TOKEN_H

#include "etcd/v3/read.h"

#include <pthread.h>
#include <stdbool.h>

struct etcd_token {
  pthread_mutex_t lock; /* guards the rest */
  char text[ETCD3_TOKEN_SIZE];
  bool needless; /* authentication was not enabled when a token was asked for */
};

void token_open(struct etcd_token *token);
void token_close(struct etcd_token *token);

/* Copies it. False: one has to be asked for. "": none is needed. */
bool token_get(struct etcd_token *token, char text[ETCD3_TOKEN_SIZE]);
void token_set(struct etcd_token *token, const char *text);

/* etcd did not take that one; another thread may have got a new one meanwhile, which stays. */
void token_drop(struct etcd_token *token, const char *text);

#endif
