/* SPDX-License-Identifier: BSD-3-Clause */
/* OpenSSL, loaded when it is first needed: linked, it would cost every process, also one without TLS, 0.6 ms at its
 * start and 0.5 MB. */
#ifndef RDZV_TLS_OPENSSL_H
#define RDZV_TLS_OPENSSL_H

#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <rdzv/error.h>

/* Of libcrypto. */
#define CRYPTO_FUNCTIONS(X)            \
  X(BIO_clear_flags)                   \
  X(BIO_get_data)                      \
  X(BIO_meth_new)                      \
  X(BIO_meth_set_ctrl)                 \
  X(BIO_meth_set_read)                 \
  X(BIO_meth_set_write)                \
  X(BIO_new)                           \
  X(BIO_set_data)                      \
  X(BIO_set_flags)                     \
  X(BIO_set_init)                      \
  X(ERR_clear_error)                   \
  X(ERR_peek_last_error)               \
  X(ERR_reason_error_string)           \
  X(EVP_KDF_CTX_free)                  \
  X(EVP_KDF_CTX_new)                   \
  X(EVP_KDF_derive)                    \
  X(EVP_KDF_fetch)                     \
  X(EVP_KDF_free)                      \
  X(OSSL_PARAM_construct_end)          \
  X(OSSL_PARAM_construct_octet_string) \
  X(OSSL_PARAM_construct_utf8_string)  \
  X(X509_VERIFY_PARAM_set1_ip_asc)     \
  X(X509_verify_cert_error_string)

/* Of libssl. */
#define SSL_FUNCTIONS(X)                   \
  X(OPENSSL_init_ssl)                      \
  X(SSL_CIPHER_find)                       \
  X(SSL_CTX_check_private_key)             \
  X(SSL_CTX_ctrl)                          \
  X(SSL_CTX_free)                          \
  X(SSL_CTX_load_verify_file)              \
  X(SSL_CTX_new)                           \
  X(SSL_CTX_set_ciphersuites)              \
  X(SSL_CTX_set_client_CA_list)            \
  X(SSL_CTX_set_num_tickets)               \
  X(SSL_CTX_set_options)                   \
  X(SSL_CTX_set_psk_find_session_callback) \
  X(SSL_CTX_set_psk_use_session_callback)  \
  X(SSL_CTX_set_session_id_context)        \
  X(SSL_CTX_set_verify)                    \
  X(SSL_CTX_use_PrivateKey_file)           \
  X(SSL_CTX_use_certificate_chain_file)    \
  X(SSL_SESSION_free)                      \
  X(SSL_SESSION_new)                       \
  X(SSL_SESSION_set1_master_key)           \
  X(SSL_SESSION_set_cipher)                \
  X(SSL_SESSION_set_protocol_version)      \
  X(SSL_ctrl)                              \
  X(SSL_do_handshake)                      \
  X(SSL_free)                              \
  X(SSL_get0_param)                        \
  X(SSL_get_error)                         \
  X(SSL_get_ex_data)                       \
  X(SSL_get_verify_result)                 \
  X(SSL_has_pending)                       \
  X(SSL_load_client_CA_file)               \
  X(SSL_new)                               \
  X(SSL_read)                              \
  X(SSL_session_reused)                    \
  X(SSL_set1_host)                         \
  X(SSL_set_accept_state)                  \
  X(SSL_set_bio)                           \
  X(SSL_set_connect_state)                 \
  X(SSL_set_ex_data)                       \
  X(SSL_write)                             \
  X(TLS_method)

struct openssl_functions {
#define OPENSSL_FUNCTION(name) __typeof__(name) *name;
  CRYPTO_FUNCTIONS(OPENSSL_FUNCTION)
  SSL_FUNCTIONS(OPENSSL_FUNCTION)
#undef OPENSSL_FUNCTION
};

/* Valid after openssl_load has returned 0. */
extern struct openssl_functions openssl;

/* From any thread, as often as you like. RDZV_E_UNSUPPORTED: it is not there, or too old. */
int openssl_load(rdzv_error *error);

/* The reason of OpenSSL's last error in this thread; NULL: none. Forgets the errors. */
const char *openssl_reason(void);

#endif
