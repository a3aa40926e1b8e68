/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/store/serve_etcd.h"

#include "cli/cli.h"

#include <stdlib.h>

/* A flag that only counts together with --state-etcd. */
static const char *needless(const struct serve_etcd *etcd) {
  if (etcd->prefix) return "--state-prefix";
  if (etcd->lease) return "--state-lease";
  if (etcd->advertise) return "--advertise";
  if (etcd->ca_cert) return "--etcd-cacert";
  if (etcd->cert) return "--etcd-cert";
  return etcd->key ? "--etcd-key" : NULL;
}

static bool check(const char *me, const struct serve_etcd *etcd, const char *state_dir) {
  const char *flag = etcd->url ? NULL : needless(etcd);
  if (flag) complain(me, "%s needs --state-etcd", flag);
  if (flag) return false;
  if (etcd->url && state_dir) complain(me, "--state-dir and --state-etcd cannot be used together (give one of them)");
  if (etcd->url && state_dir) return false;
  if (!etcd->lease || etcd->lease >= 2000) return true;
  complain(me, "invalid value for --state-lease: expected at least 2 s, the shortest lease of etcd");
  return false;
}

bool serve_etcd_fill(const char *me, struct serve_etcd *etcd, const char *state_dir, rdzv_server_options *options) {
  if (etcd->url && (!*etcd->url || (state_dir && flag_by_variable("state-etcd")))) etcd->url = NULL;
  if (!check(me, etcd, state_dir)) return false;
  if (!etcd->url) return true;
  const char *why = etcd_url_parse(etcd->url, &etcd->parsed);
  if (why) {
    complain(me, "invalid value for %s: %s", flag_by_variable("state-etcd") ? "RDZV_STATE_ETCD" : "--state-etcd", why);
    return false;
  }
  etcd->options = (rdzv_etcd_options){.size = sizeof etcd->options,
                                      .endpoints = etcd->parsed.hosts,
                                      .https = etcd->parsed.https,
                                      .user = etcd->parsed.user,
                                      .password = etcd->parsed.password,
                                      .ca_cert = etcd->ca_cert,
                                      .cert = etcd->cert,
                                      .key = etcd->key,
                                      .log = options->log};
  options->state_etcd = &etcd->options;
  options->state_prefix = etcd->prefix;
  options->state_lease_ms = etcd->lease;
  options->advertise = etcd->advertise;
  return true;
}

void serve_etcd_free(struct serve_etcd *etcd) { etcd_url_free(&etcd->parsed); }
