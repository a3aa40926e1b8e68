/* SPDX-License-Identifier: BSD-3-Clause */
#include "wire/probe.h"

#include "wire/op.h"
#include "wire/scan.h"

#include <stdint.h>
#include <string.h>

/* VALIDATE, and a PING whose number PyTorch's servers from 2.5 on, and ours, send back; NUM_KEYS of PyTorch 1.x. */
static const char ping_question[] = "\x00\xce\xf7\x85\x3c\x0d?rdz";
static const char count_question[] = "\x06";

rdzv_bytes probe_question(int which) {
  return which == 0 ? (rdzv_bytes){ping_question, sizeof ping_question - 1}
                    : (rdzv_bytes){count_question, sizeof count_question - 1};
}

/* VALIDATE, and a PING with WIRE_HELLO_NONCE. */
static const char greeting[] = "\x00\xce\xf7\x85\x3c\x0d\xff\xff\xff\xff";

rdzv_bytes probe_greeting(void) { return (rdzv_bytes){greeting, sizeof greeting - 1}; }

bool probe_is_greeting(rdzv_bytes bytes) {
  return bytes.len == sizeof greeting - 1 && memcmp(bytes.data, greeting, bytes.len) == 0;
}

bool probe_is_plain_store(rdzv_bytes answer) {
  const uint32_t first = answer.len >= sizeof first ? wire_load32(answer.data) : 0;
  return first == WIRE_HELLO_NONCE || first == WIRE_HELLO_ANSWER || first == WIRE_STANDBY_ANSWER;
}

bool probe_is_store(int which, rdzv_bytes answer) {
  int64_t count;
  if (which == 0) return answer.len == 4 && memcmp(answer.data, "?rdz", 4) == 0;
  if (answer.len != sizeof count) return false;
  memcpy(&count, answer.data, sizeof count);
  return count >= 0 && count <= UINT32_MAX;
}
