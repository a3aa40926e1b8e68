/* SPDX-License-Identifier: BSD-3-Clause */
/* libcurl, loaded when it is first needed: it and the thirty libraries behind it would cost every process, also one
 * that never hears of etcd, 6 MB and 5 ms. */
#ifndef RDZV_ETCD_HTTP_CURL_H
#define RDZV_ETCD_HTTP_CURL_H

#define CURL_DISABLE_TYPECHECK /* of macros that stand for functions that are not linked */
#include <curl/curl.h>
#include <rdzv/error.h>

#if LIBCURL_VERSION_NUM < 0x075700 /* what is loaded may be newer than the headers */
#define CURLOPT_QUICK_EXIT ((CURLoption)(CURLOPTTYPE_LONG + 322))
#endif

#define CURL_FUNCTIONS(X) \
  X(global_init)          \
  X(easy_init)            \
  X(easy_cleanup)         \
  X(easy_reset)           \
  X(easy_setopt)          \
  X(easy_getinfo)         \
  X(easy_strerror)        \
  X(slist_append)         \
  X(slist_free_all)       \
  X(multi_init)           \
  X(multi_setopt)         \
  X(multi_cleanup)        \
  X(multi_add_handle)     \
  X(multi_remove_handle)  \
  X(multi_perform)        \
  X(multi_poll)           \
  X(multi_info_read)

struct curl_functions {
#define CURL_FUNCTION(name) __typeof__(curl_##name) *name;
  CURL_FUNCTIONS(CURL_FUNCTION)
#undef CURL_FUNCTION
};

/* Valid after curl_load has returned 0. */
extern struct curl_functions curl;

/* From any thread, as often as you like. RDZV_E_UNSUPPORTED: it is not there, or too old. */
int curl_load(rdzv_error *error);

#endif
