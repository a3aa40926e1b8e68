/* SPDX-License-Identifier: BSD-3-Clause */
/* Decodes the requests of a client: finds the dialect from the first bytes, then returns one request after another. */
#ifndef RDZV_WIRE_REQUEST_H
#define RDZV_WIRE_REQUEST_H

#include "wire/op.h"
#include "wire/scan.h"

/* Its bytes point into the stream. */
struct wire_request {
  enum wire_op op;
  size_t size; /* of the whole request in the stream */
  rdzv_bytes key;
  rdzv_bytes value; /* of COMPARE_SET: the expected one */
  rdzv_bytes desired;
  uint64_t number; /* of n and w fields */
  uint64_t epoch;  /* of SESSION */
  rdzv_bytes list; /* for wire_list_next */
  size_t count;    /* of keys or pairs in it */
};

struct wire_decoder {
  enum wire_dialect dialect;
  bool started; /* scan is in the middle of a request */
  int op;
  uint64_t requests; /* decoded so far */
  struct wire_scan scan;
};

/* Decodes the next request. `data` begins where the last one ended. After WIRE_RESULT_BAD scan.why has the reason. */
enum wire_result wire_decode(struct wire_decoder *decoder, const struct wire_limits *limits, const uint8_t *data,
                             size_t len, struct wire_request *out);

#endif
