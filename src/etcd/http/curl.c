/* SPDX-License-Identifier: BSD-3-Clause */
#include "etcd/http/curl.h"

#include "base/error.h"
#include "base/os/descriptors.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libcurl.so.4"

struct curl_functions curl;
static char reason[200];

static bool find(void *library, const char *name, void *to) {
  void *function = dlsym(library, name);
  memcpy(to, &function, sizeof function); /* C has no cast from one to the other */
  if (!function) snprintf(reason, sizeof reason, "%s is too old: it has no %s", LIBRARY, name);
  return function;
}

static void load(void) {
  void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL); /* for good */
  if (!library) {
    snprintf(reason, sizeof reason, "cannot load libcurl: %s", dlerror());
    return;
  }
#define CURL_FUNCTION(name) \
  if (!find(library, "curl_" #name, &curl.name)) return;
  CURL_FUNCTIONS(CURL_FUNCTION)
#undef CURL_FUNCTION
  if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) snprintf(reason, sizeof reason, "libcurl does not start");
}

int curl_load(rdzv_error *error) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  const int lack = reason[0] ? descriptors_lack(1) : 0;
  if (lack) return error_errno(error, RDZV_E_IO, lack, "cannot load libcurl");
  return reason[0] ? error_set(error, RDZV_E_UNSUPPORTED, "%s", reason) : 0;
}
