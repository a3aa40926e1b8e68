/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors that other libraries take, which abort, or do not say why they fail, where there are none left. */
#ifndef RDZV_BASE_OS_DESCRIPTORS_H
#define RDZV_BASE_OS_DESCRIPTORS_H

#include <rdzv/error.h>

/* 0 if that many descriptors, at most 8, can be opened now; else the errno of the one that cannot. */
int descriptors_lack(int count);

/* Are there those of an event loop? To be asked before uv_loop_init: for the first loop of a process it makes a pipe,
 * and aborts the process if it cannot. RDZV_E_IO. */
int descriptors_for_loop(rdzv_error *error);

#endif
