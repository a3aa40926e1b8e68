/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/protection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* False: it has said why. */
static bool add(const char *command, char **conf, const char *name, const char *flag, const char *path) {
  char *longer;
  if (!path) return true;
  if (strchr(path, ',')) {
    complain(command, "invalid value '%s' for --%s: a path with a comma cannot be used", shown(path).text, flag);
    return false;
  }
  if (asprintf(&longer, "%s%s%s=%s", *conf, **conf ? "," : "", name, path) < 0) {
    complain_no_memory(command);
    return false;
  }
  free(*conf);
  *conf = longer;
  return true;
}

char *protection_conf(const char *command, const struct protection_flags *flags, const char *conf) {
  char *all = strdup(conf);
  if (!all) {
    complain_no_memory(command);
    return NULL;
  }
  if (add(command, &all, "secret_file", "secret-file", flags->secret_file) &&
      add(command, &all, "tls_ca", "tls-ca", flags->tls_ca) &&
      add(command, &all, "tls_cert", "tls-cert", flags->tls_cert) &&
      add(command, &all, "tls_key", "tls-key", flags->tls_key))
    return all;
  free(all);
  return NULL;
}

void protection_hide(const struct protection_flags *flags, const char *conf) {
  const char *variable = getenv("RDZV_SECRET_FILE");
  const bool named = conf && (strstr(conf, "secret_file") || strstr(conf, "tls_key"));
  if (named || flags->secret_file || flags->tls_key || (variable && *variable)) prctl(PR_SET_DUMPABLE, 0);
}
