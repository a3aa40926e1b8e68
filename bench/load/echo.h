/* SPDX-License-Identifier: BSD-3-Clause */
/* What the load generator may begin a connection to the echo server with. Both run on one machine. */
#ifndef RDZV_BENCH_ECHO_H
#define RDZV_BENCH_ECHO_H

#include <stdint.h>

#define ECHO_HELLO 0x6f686365u

struct echo_hello {
  uint32_t magic;           /* ECHO_HELLO */
  uint16_t request, answer; /* each `request` bytes are answered with `answer` zeros */
};

#endif
