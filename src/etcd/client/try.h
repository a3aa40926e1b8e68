/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One try: a request is sent to one member. A member that has never answered is asked first whether it is an etcd, and
 * one that other members named whether it is of our cluster: nothing is written before.
 */
#ifndef RDZV_ETCD_CLIENT_TRY_H
#define RDZV_ETCD_CLIENT_TRY_H

#include "etcd/client/client.h"
#include "etcd/client/members.h"
#include "etcd/client/token.h"
#include "etcd/http/lines.h"

/* The members of a cluster, and how they are reached. */
struct etcd_cluster {
  rdzv_log log;
  struct etcd_members members;
  struct etcd_lines lines;
  struct etcd_token token; /* for the v3 API, of the user that the lines have */
};

/* The request for the list of members, which changes nothing, in the v3 API. */
#define ETCD3_MEMBERS .method = "POST", .path = "/v3/cluster/member/list", .form = "{}", .v3 = true

struct etcd_try {
  struct etcd_member member;
  struct http_line *line; /* of the request */
  deadline until;
  bool answered;         /* by an etcd that could not do it now */
  enum http_reach reach; /* of the caller's request */
  rdzv_error error;
};

/* Any answer of a member that has a leader. Else, with the sentence in the try's error: what http_perform says, of
 * which RDZV_E_INVALID is RDZV_E_CONNECTION for a member that was only named; what etcd/client/explain.h says of an
 * answer; RDZV_E_CONNECTION for a member of another cluster, or without a leader. */
int etcd_try_send(struct etcd_cluster *cluster, struct etcd_try *one, const struct etcd_request *request,
                  const struct etcd_call *call, struct http_response *response);

/* After a try that failed with `code`: asks a server that never answered as etcd what it is. Returns a code that says
 * more, with its sentence, or `code`. */
int etcd_try_explain(struct etcd_cluster *cluster, struct etcd_try *one, const struct etcd_call *call, int code);

#endif
