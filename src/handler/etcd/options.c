/* SPDX-License-Identifier: BSD-3-Clause */
#include "handler/etcd/options.h"

rdzv_etcd_options etcd_options_of(const rdzv_params *params, const struct conf *conf) {
  return (rdzv_etcd_options){.size = sizeof(rdzv_etcd_options),
                             .endpoints = params->endpoint,
                             .https = conf->protocol == 1,
                             .ca_cert = conf->ca_cert,
                             .cert = conf->cert,
                             .key = conf->key,
                             .user = conf->user,
                             .password = conf->password,
                             .read_timeout_ms = conf->read_timeout,
                             .log = params->log};
}
