/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of a rendezvous, "name=value,name=value": rdzv/params.h tells what each is. */
#ifndef RDZV_HANDLER_CONF_H
#define RDZV_HANDLER_CONF_H

#include "backend/c10d/store.h"
#include "base/wait/clock.h"
#include "state/pickle/layout.h"
#include "state/rendezvous.h"
#include "tls/names.h"

#include <rdzv/etcd.h>
#include <rdzv/params.h>

/* Which handlers an option is for: flags. */
enum {
  CONF_DYNAMIC = 1 << 0,
  CONF_C10D = 1 << 1,
  CONF_STATIC = 1 << 2,
  CONF_ETCD = 1 << 3, /* how to reach etcd */
  CONF_GEN1 = 1 << 4,
  CONF_LEASED = 1 << 5,
  CONF_ANY = (1 << 6) - 1,
};

/* Option mode: does the server form the rounds? */
enum conf_mode { CONF_MODE_AUTO, CONF_MODE_NATIVE, CONF_MODE_SWAP };

/* Times in milliseconds. */
struct conf {
  int64_t join_timeout, last_call_timeout, close_timeout, heartbeat_timeout, keep_alive_interval;
  int64_t keep_alive_max_attempt;
  int rank_order; /* enum rank_order */
  const char *torch_version;
  int store_type; /* enum c10d_store_type */
  int is_host;    /* enum c10d_is_host */
  int64_t read_timeout;
  int dialect; /* rdzv_dialect */
  int mode;    /* enum conf_mode */
  int64_t session_keep_alive, session_grace;
  int use_libuv;
  int64_t rank; /* -1: not given */
  int64_t timeout;
  int protocol; /* 1: https */
  const char *ca_cert, *cert, *key, *user, *password;
  int64_t min_workers, max_workers; /* 0: not given */
  const char *etcd_prefix;
  int64_t lease_time;
  const char *secret_file, *tls_ca, *tls_cert, *tls_key, *tls_client_ca, *bind;

  /* The time for the store to be reached, and for one request to etcd: read_timeout, or what a join may take where that
   * is less; and the option that says so. */
  int64_t reach_timeout;
  const char *reach_option;

  char *text; /* private: what the texts point into */
};

/* Takes `text`, which may be NULL, over the defaults. RDZV_E_INVALID: the sentence names the option and its value.
 * Where `lenient` is not NULL, an option that none of these handlers has is ignored and named in that log, unless it is
 * nearly one that they have. */
int conf_parse(const char *text, unsigned handlers, const rdzv_log *lenient, struct conf *out, rdzv_error *error);
void conf_free(struct conf *conf);

/* Names the option in the error of a store that was not reached, if its time is over: `until` is when that is. Gives
 * `code`. */
int conf_fail_reach(const struct conf *conf, deadline until, int code, rdzv_error *error);

/* What protects a store of the rendezvous: settled names (tls/names.h), which point into conf. */
struct tls_names conf_tls_names(const struct conf *conf);

/* How to reach the etcd of a rendezvous. Points into params and conf. */
rdzv_etcd_options conf_etcd_options(const rdzv_params *params, const struct conf *conf);

#endif
