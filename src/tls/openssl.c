/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls/openssl.h"

#include "base/error.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LIBCRYPTO "libcrypto.so.3"
#define LIBSSL "libssl.so.3"

struct openssl_functions openssl;
static char reason[200];

static bool find(void *library, const char *file, const char *name, void *to) {
  void *function = dlsym(library, name);
  memcpy(to, &function, sizeof function); /* C has no cast from one to the other */
  if (!function) snprintf(reason, sizeof reason, "%s is too old: it has no %s", file, name);
  return function;
}

static void *open_library(const char *file) {
  void *library = dlopen(file, RTLD_LAZY | RTLD_LOCAL); /* for good */
  if (!library) snprintf(reason, sizeof reason, "cannot load OpenSSL: %s", dlerror());
  return library;
}

/* Without OpenSSL's cleaning at the end of the process: a thread of the library may still be in a call then. */
static void load(void) {
  void *crypto = open_library(LIBCRYPTO), *ssl = crypto ? open_library(LIBSSL) : NULL;
  if (!ssl) return;
#define OPENSSL_FUNCTION(name) \
  if (!find(crypto, LIBCRYPTO, #name, &openssl.name)) return;
  CRYPTO_FUNCTIONS(OPENSSL_FUNCTION)
#undef OPENSSL_FUNCTION
#define OPENSSL_FUNCTION(name) \
  if (!find(ssl, LIBSSL, #name, &openssl.name)) return;
  SSL_FUNCTIONS(OPENSSL_FUNCTION)
#undef OPENSSL_FUNCTION
  if (!openssl.OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL))
    snprintf(reason, sizeof reason, "OpenSSL does not start");
}

int openssl_load(rdzv_error *error) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  return reason[0] ? error_set(error, RDZV_E_UNSUPPORTED, "%s", reason) : 0;
}

const char *openssl_reason(void) {
  const char *text = openssl.ERR_reason_error_string(openssl.ERR_peek_last_error());
  openssl.ERR_clear_error();
  return text;
}
