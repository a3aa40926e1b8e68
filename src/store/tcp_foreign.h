/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_STORE_TCP_FOREIGN_H
#define RDZV_STORE_TCP_FOREIGN_H

#include "base/cancel.h"
#include "base/endpoint.h"
#include "wire/foreign.h"

/* Asks a server that does not greet as a TCPStore does what else it is, on connections of its own, for 2 s at most. */
enum wire_foreign tcp_foreign_ask(const struct endpoint *endpoint, deadline until, const struct cancel *cancel);

#endif
