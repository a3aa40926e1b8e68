/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What each operation says to a TCPStore server, in each dialect: an attempt for tcp_run each.
 *
 * Our own server has one request for each operation. PyTorch's want some help:
 * - SET, APPEND, MULTI_SET and QUEUE_PUSH have no answer; a NUM_KEYS behind them in the same segment has one, which
 *   shows that they have arrived;
 * - a WAIT may end although a key is not there (2.x with libuv, after a failed COMPARE_SET) or go on although it is
 *   (1.x, and 2.x without libuv, after a COMPARE_SET): so it is asked anew each second, and the keys are checked;
 * - 1.x cannot take a WAIT back, so there the keys are checked again and again instead;
 * - a GET of a key that was deleted since the WAIT is answered with an empty value or a closed connection: a
 *   COMPARE_SET that expects a value nobody has written reads in one look, and tells an absent key from an empty value;
 * - they close the connection where they cannot do what they are asked.
 */
#ifndef RDZV_STORE_TCP_TRY_H
#define RDZV_STORE_TCP_TRY_H

#include "store/tcp/call.h"

/* What the attempts get: the arguments of the operation and places for its results. */
struct tcp_args {
  enum wire_op op;
  const rdzv_bytes *keys;
  const rdzv_bytes *values;
  size_t count;
  rdzv_bytes other; /* compare_set's desired value */
  uint64_t number;
  bool block;
  rdzv_value *out; /* count of them */
  uint64_t *number_out;
  bool *flag_out;
};

/* Of all these the argument is a struct tcp_args. */
tcp_attempt tcp_try_check;
tcp_attempt tcp_try_wait;
tcp_attempt tcp_try_get;
tcp_attempt tcp_try_write;
tcp_attempt tcp_try_multi_set;
tcp_attempt tcp_try_compare_set;
tcp_attempt tcp_try_number;
tcp_attempt tcp_try_is_no_number;
tcp_attempt tcp_try_queue_pop;
tcp_attempt tcp_try_get_version;
tcp_attempt tcp_try_compare_set_version;
tcp_attempt tcp_try_wait_changed;
tcp_attempt tcp_try_append;

/* Does a queue operation, one of those above, at a server that may not know queues. */
struct tcp_queue_op {
  tcp_attempt *attempt;
  struct tcp_args *args;
};
tcp_attempt tcp_try_queue_op;

struct tcp_key_list {
  rdzv_value *keys;
  size_t count;
};

/* The argument is a struct tcp_key_list, to be filled. */
tcp_attempt tcp_try_list_keys;

#endif
