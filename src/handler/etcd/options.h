/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDZV_HANDLER_ETCD_OPTIONS_H
#define RDZV_HANDLER_ETCD_OPTIONS_H

#include "handler/conf.h"

#include <rdzv/etcd.h>
#include <rdzv/params.h>

/* How to reach the etcd of a rendezvous. Points into params and conf. */
rdzv_etcd_options etcd_options_of(const rdzv_params *params, const struct conf *conf);

#endif
