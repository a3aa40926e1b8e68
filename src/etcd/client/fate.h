/* SPDX-License-Identifier: BSD-3-Clause */
/* What became of a request: what an answer means, and what a lost one does. Decides, and does nothing. */
#ifndef RDZV_ETCD_CLIENT_FATE_H
#define RDZV_ETCD_CLIENT_FATE_H

#include "etcd/client/client.h"

enum etcd_answer {
  ETCD_ANSWER_VALID,     /* also an error of etcd's */
  ETCD_ANSWER_NO_LEADER, /* the member can do nothing now. It may have passed the request on */
  ETCD_ANSWER_CUT_FORM,  /* the member did not get the whole form, and did nothing */
};

enum etcd_answer etcd_answer_of(const struct http_response *response);

/* Is it a failure that waiting does not mend, at that member? */
bool etcd_is_final(int code);

enum etcd_fate {
  ETCD_FATE_AGAIN,   /* the request may be sent again, also to another member */
  ETCD_FATE_OVER,    /* the time of a request that blocks is over */
  ETCD_FATE_CUT_OFF, /* a request that blocks was cut off. Another member, or the same, may count from elsewhere: read
                      */
  ETCD_FATE_UNKNOWN, /* it may or may not have taken effect */
};

/* After a try that failed with `code`; `sent`: the member may have got the request; `late`: the deadline has passed. */
enum etcd_fate etcd_fate_of(const struct etcd_request *request, int code, bool sent, bool late);

#endif
