/* SPDX-License-Identifier: BSD-3-Clause */
/* Why a handshake failed, as a sentence. */
#include "base/error.h"
#include "tls/parts.h"

static const char *const NOT_TLS = "it does not speak TLS";
static const char *const REFUSED = "the server does not accept the secret";

/* What an alert of the peer, or a finding of OpenSSL, means to a server. NULL: nothing that we know better. */
static const char *why_client(const struct tls_stream *stream, int reason) {
  if (stream->is_stranger) return "its secret is not in the secret file";
  switch (reason) {
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW: return "it does not speak TLS 1.3";
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_UNEXPECTED_MESSAGE: return NOT_TLS;
    case SSL_R_BINDER_DOES_NOT_VERIFY: return "its secret is not in the secret file";
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_CIPHER: return stream->context->secret ? "it offers no secret" : "it has no cipher in common";
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE: return "it shows no certificate";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN: return "it does not accept the certificate of this server";
    default: return NULL;
  }
}

static const char *why_server(const struct tls_stream *stream, int reason) {
  const bool secret = stream->context->secret;
  switch (reason) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST: return NOT_TLS;
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION: return "it does not speak TLS 1.3";
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
      return secret ? REFUSED : "the server requires a secret (--secret-file), not a certificate";
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR: return secret ? REFUSED : NULL;
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
      return "the server requires a client certificate (--tls-cert, --tls-key)";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA: return "the server does not trust this client's certificate";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED: return "this client's certificate has expired";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN: return "the server does not accept this client's certificate";
    default: return NULL;
  }
}

/* What is wrong with the certificate of the peer. */
static const char *why_certificate(long code) {
  switch (code) {
    case X509_V_ERR_CERT_HAS_EXPIRED: return "its certificate has expired";
    case X509_V_ERR_CERT_NOT_YET_VALID: return "its certificate is not valid yet";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH: return "its certificate is for another host";
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE: return "its certificate is not signed by a trusted CA";
    default: return openssl.X509_verify_cert_error_string(code);
  }
}

static const char *why(const struct tls_stream *stream) {
  const unsigned long last = openssl.ERR_peek_last_error();
  const int reason = ERR_GET_REASON(last);
  const bool is_server = stream->context->is_server;
  const long verified = openssl.SSL_get_verify_result(stream->ssl);
  const char *text = NULL;
  if (!is_server && stream->context->secret && (reason == SSL_R_CERTIFICATE_VERIFY_FAILED || last == 0)) return REFUSED;
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) return why_certificate(verified);
  if (ERR_GET_LIB(last) == ERR_LIB_SSL) text = is_server ? why_client(stream, reason) : why_server(stream, reason);
  if (!text) text = openssl.ERR_reason_error_string(last);
  return text ? text : "it broke the protocol of TLS";
}

/* The file of this client that the failure concerns. */
static void add_file(const struct tls_stream *stream, rdzv_error *error) {
  const struct tls_context *context = stream->context;
  if (context->secret_file)
    error_append(error, " (secret file: '%s')", context->secret_file);
  else if (context->ca)
    error_append(error, " (host: '%s', CA file: '%s')", stream->host ? stream->host : "", context->ca);
}

int tls_fail(struct tls_stream *stream, rdzv_error *error) {
  if (stream->no_memory) {
    stream->why = "no memory is left for it";
    openssl.ERR_clear_error();
    return error_no_memory(error);
  }
  stream->why = why(stream);
  openssl.ERR_clear_error();
  const int code = error_set(error, RDZV_E_PROTOCOL, "%s", stream->why);
  if (error && !stream->context->is_server && stream->why != NOT_TLS) add_file(stream, error);
  return code;
}
