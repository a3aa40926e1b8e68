/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/client/token.h"

#include <stdio.h>
#include <string.h>

void token_open(struct etcd_token *token) { pthread_mutex_init(&token->lock, NULL); }
void token_close(struct etcd_token *token) { pthread_mutex_destroy(&token->lock); }

bool token_get(struct etcd_token *token, char text[ETCD3_TOKEN_SIZE]) {
  pthread_mutex_lock(&token->lock);
  const bool there = token->text[0] || token->needless;
  memcpy(text, token->text, ETCD3_TOKEN_SIZE);
  pthread_mutex_unlock(&token->lock);
  return there;
}

void token_set(struct etcd_token *token, const char *text) {
  pthread_mutex_lock(&token->lock);
  snprintf(token->text, sizeof token->text, "%s", text);
  token->needless = text[0] == '\0';
  pthread_mutex_unlock(&token->lock);
}

void token_drop(struct etcd_token *token, const char *text) {
  pthread_mutex_lock(&token->lock);
  if (strcmp(token->text, text) == 0) {
    token->text[0] = '\0';
    token->needless = false;
  }
  pthread_mutex_unlock(&token->lock);
}
