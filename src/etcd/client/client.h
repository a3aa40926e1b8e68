/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client of an etcd cluster, below the call sets (etcd/v2/v2.h, etcd/v3/v3.h): which member to ask, what to do when
 * it does not answer, and when to give up. Members are the endpoints given and those that they name, where these are of
 * the same cluster. The next one is asked when a member is gone, or says that there is no leader, until the deadline of
 * the call. Where waiting cannot help, since no member is an etcd that we can use, the call fails at once. A call that
 * waits says so, to the wait of its cancel flag or to the log. Any thread may call at any time.
 */
#ifndef RDZV_ETCD_CLIENT_CLIENT_H
#define RDZV_ETCD_CLIENT_CLIENT_H

#include "base/net/endpoint.h"
#include "etcd/http/http.h"

#include <rdzv/etcd.h>

struct etcd_client;

/* A call, with what comes with it. */
struct etcd_call {
  deadline until;
  const struct flag *cancel; /* may be NULL */
  rdzv_error *error;         /* may be NULL */
};

struct etcd_request {
  const char *method;
  const char *path;       /* "/v2/keys/a?recursive=true" */
  const char *form;       /* the body; NULL: none */
  bool v3;                /* of the v3 API: the body is JSON, and a token goes with it where there is a user */
  bool of_keys;           /* a server whose answer is not as etcd's for keys is not etcd */
  bool once;              /* must not be done twice: RDZV_E_OUTCOME_UNKNOWN where it may have been done */
  bool resolvable;        /* `once`, but the caller finds out then, so no member need be waited for for long */
  unsigned tried;         /* how often the caller has tried before: each time members are given longer */
  rdzv_error *cause;      /* what the last member said, from one try of the caller's to the next; may be NULL */
  bool quiet;             /* nothing is said of it while it waits */
  bool blocks;            /* the answer may take until the deadline; RDZV_E_TIMEOUT also where it was cut off before */
  struct http_line *line; /* of etcd_line_take, which saves descriptors; NULL: any that is idle */
  struct http_stream **stream; /* of an answer that goes on (etcd/http/http.h); NULL: none. Needs a line */
};

int etcd_open(const rdzv_etcd_options *options, struct etcd_client **out, rdzv_error *error);
/* One more hold on it; etcd_close lets one go. */
struct etcd_client *etcd_share(struct etcd_client *client);
void etcd_close(struct etcd_client *client);

/* Its voice (etcd/client/voice.h), for a user whose trouble is not that a call is not answered. NULL: another call
 * speaks at the moment. */
struct waiting *etcd_voice_take(struct etcd_client *client, deadline until);
void etcd_voice_give(struct etcd_client *client, bool over, const char *sentence);

/* The endpoints that it was given. Owned by the client. */
const char *etcd_describe(const struct etcd_client *client);

/* The time for a request that does not block. */
int64_t etcd_read_timeout(const struct etcd_client *client);

/* A line of one's own, for calls of one thread. To be given back, without a stream, before the client is closed. */
int etcd_line_take(struct etcd_client *client, struct http_line **out, rdzv_error *error);
void etcd_line_give(struct etcd_client *client, struct http_line *line);

/* The member that calls go to at the moment; it is the one that answered last. */
struct etcd_member_text {
  char text[ENDPOINT_TEXT_SIZE];
};
struct etcd_member_text etcd_current_member(struct etcd_client *client);

/* Any answer of a member that has a leader, errors included. RDZV_E_CONNECTION, RDZV_E_TIMEOUT,
 * RDZV_E_OUTCOME_UNKNOWN, RDZV_E_CANCELED, what http_perform says of certificates of the endpoints given, and what
 * etcd/client/explain.h says of servers that are not a usable etcd. */
int etcd_perform(struct etcd_client *client, const struct etcd_request *request, const struct etcd_call *call,
                 struct http_response *response);

#endif
