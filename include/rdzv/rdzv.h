/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_RDZV_H
#define RDZV_RDZV_H

#include <rdzv/agent.h>
#include <rdzv/backend.h>
#include <rdzv/bytes.h>
#include <rdzv/error.h>
#include <rdzv/etcd.h>
#include <rdzv/event.h>
#include <rdzv/handler.h>
#include <rdzv/log.h>
#include <rdzv/params.h>
#include <rdzv/runs.h>
#include <rdzv/server.h>
#include <rdzv/store.h>
#include <rdzv/version.h>

#endif
