/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls/context.h"

#include "base/error.h"
#include "base/os/private_file.h"
#include "tls/parts.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

/* ---- the secret ----------------------------------------------------------------------------------------------- */

/* The hash of a key that is not tied to a cipher is SHA-256, so each cipher of a context has to be of that hash. */
#define CIPHERS "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
#define GROUPS "X25519:P-256"
static const unsigned char first_cipher[] = {0x13, 0x01};

static SSL_SESSION *session_of(SSL *ssl, const struct secret_key *key) {
  const SSL_CIPHER *cipher = openssl.SSL_CIPHER_find(ssl, first_cipher);
  SSL_SESSION *session = cipher ? openssl.SSL_SESSION_new() : NULL;
  if (!session) return NULL;
  if (openssl.SSL_SESSION_set1_master_key(session, key->key, sizeof key->key) &&
      openssl.SSL_SESSION_set_cipher(session, cipher) &&
      openssl.SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION))
    return session;
  openssl.SSL_SESSION_free(session);
  return NULL;
}

/* An identity that the server does not know is as good as none: the handshake goes on without, and fails where there is
 * no certificate. */
static int find_session(SSL *ssl, const unsigned char *identity, size_t len, SSL_SESSION **out) {
  struct tls_stream *stream = openssl.SSL_get_ex_data(ssl, 0);
  const struct secret_key *key = secret_find(stream->context->secret, (rdzv_bytes){identity, len});
  stream->is_stranger = !key;
  stream->has_identity = key;
  if (key) memcpy(stream->identity, key->identity, sizeof key->identity);
  *out = key ? session_of(ssl, key) : NULL;
  return *out || !key;
}

static int use_session(SSL *ssl, const EVP_MD *hash, const unsigned char **identity, size_t *len, SSL_SESSION **out) {
  const struct tls_stream *stream = openssl.SSL_get_ex_data(ssl, 0);
  const struct secret_key *key = &stream->context->secret->keys[0];
  (void)hash; /* SHA-256, as that of all ciphers */
  *identity = key->identity;
  *len = sizeof key->identity;
  *out = session_of(ssl, key);
  return *out != NULL;
}

static int use_secret(struct tls_context *context, const char *path, rdzv_error *error) {
  const int result = secret_read(path, &context->secret, error);
  if (result < 0) return result;
  context->secret_file = strdup(path);
  if (!context->secret_file) return error_no_memory(error);
  if (context->is_server)
    openssl.SSL_CTX_set_psk_find_session_callback(context->ssl, find_session);
  else
    openssl.SSL_CTX_set_psk_use_session_callback(context->ssl, use_session);
  return 0;
}

/* ---- certificates --------------------------------------------------------------------------------------------- */

static int fail_file(const char *what, const char *path, rdzv_error *error) {
  const char *reason = openssl_reason();
  if (access(path, R_OK) < 0) return error_errno(error, RDZV_E_IO, errno, "cannot read %s '%s'", what, path);
  return error_set(error, RDZV_E_INVALID, "cannot use %s '%s': %s", what, path, reason ? reason : "not in PEM format");
}

static int use_certificate(struct tls_context *context, const struct tls_names *names, rdzv_error *error) {
  int result = certificate_file_look("certificate", names->cert, error);
  if (result == 0) result = private_file_look("key", names->key, error);
  if (result < 0) return result;
  if (openssl.SSL_CTX_use_certificate_chain_file(context->ssl, names->cert) != 1)
    return fail_file("certificate", names->cert, error);
  if (openssl.SSL_CTX_use_PrivateKey_file(context->ssl, names->key, SSL_FILETYPE_PEM) != 1 ||
      openssl.SSL_CTX_check_private_key(context->ssl) != 1)
    return fail_file("key", names->key, error);
  return 0;
}

static int trust(struct tls_context *context, const char *ca, rdzv_error *error) {
  const int result = regular_file_look("CA", ca, error);
  if (result < 0) return result;
  if (openssl.SSL_CTX_load_verify_file(context->ssl, ca) != 1) return fail_file("CA", ca, error);
  context->ca = strdup(ca);
  if (!context->ca) return error_no_memory(error);
  if (context->is_server) openssl.SSL_CTX_set_client_CA_list(context->ssl, openssl.SSL_load_client_CA_file(ca));
  return 0;
}

/* ---- contexts ------------------------------------------------------------------------------------------------- */

struct tls_context *tls_context_hold(struct tls_context *context) {
  atomic_fetch_add(&context->holders, 1);
  return context;
}

void tls_context_drop(struct tls_context *context) {
  if (!context || atomic_fetch_sub(&context->holders, 1) > 1) return;
  if (context->ssl) openssl.SSL_CTX_free(context->ssl);
  secret_free(context->secret);
  free(context->secret_file);
  free(context->ca);
  free(context);
}

static bool set_up(const struct tls_context *context) {
  SSL_CTX *ssl = context->ssl;
  openssl.SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  openssl.SSL_CTX_ctrl(ssl, SSL_CTRL_MODE,
                       SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER,
                       NULL);
  openssl.SSL_CTX_ctrl(ssl, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
  return openssl.SSL_CTX_ctrl(ssl, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL) == 1 &&
         openssl.SSL_CTX_ctrl(ssl, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, NULL) == 1 &&
         openssl.SSL_CTX_ctrl(ssl, SSL_CTRL_SET_GROUPS_LIST, 0, (void *)GROUPS) == 1 &&
         openssl.SSL_CTX_set_ciphersuites(ssl, CIPHERS) == 1 && openssl.SSL_CTX_set_num_tickets(ssl, 0) == 1 &&
         (!context->is_server || openssl.SSL_CTX_set_session_id_context(ssl, (const unsigned char *)"rdzv", 4) == 1);
}

static int context_new(bool is_server, struct tls_context **out, rdzv_error *error) {
  const int result = openssl_load(error);
  if (result < 0) return result;
  struct tls_context *context = calloc(1, sizeof *context);
  if (!context) return error_no_memory(error);
  atomic_init(&context->holders, 1);
  context->is_server = is_server;
  context->ssl = openssl.SSL_CTX_new(openssl.TLS_method());
  if (context->ssl && set_up(context)) {
    *out = context;
    return 0;
  }
  tls_context_drop(context);
  const char *reason = openssl_reason();
  return error_set(error, RDZV_E_UNSUPPORTED, "OpenSSL cannot speak TLS 1.3: %s", reason ? reason : "no memory");
}

static int finish(int result, struct tls_context *context, struct tls_context **out) {
  if (result < 0)
    tls_context_drop(context);
  else
    *out = context;
  return result;
}

int tls_context_server(const struct tls_names *names, struct tls_context **out, rdzv_error *error) {
  struct tls_context *context = NULL;
  int result = tls_names_check_server(names, error);
  if (result == 0) result = context_new(true, &context, error);
  if (result < 0 || !context) return result;
  if (names->secret) result = use_secret(context, names->secret, error);
  if (result == 0 && names->cert) result = use_certificate(context, names, error);
  if (result == 0 && names->client_ca) result = trust(context, names->client_ca, error);
  if (names->client_ca)
    openssl.SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
  return finish(result, context, out);
}

/* Verifies also with a secret: no CA is trusted then, so that no certificate is good enough. */
static int context_client(const struct tls_names *names, struct tls_context **out, rdzv_error *error) {
  struct tls_context *context = NULL;
  int result = context_new(false, &context, error);
  if (result < 0 || !context) return result;
  openssl.SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER, NULL);
  if (names->secret) result = use_secret(context, names->secret, error);
  if (result == 0 && names->ca) result = trust(context, names->ca, error);
  if (result == 0 && names->cert) result = use_certificate(context, names, error);
  return finish(result, context, out);
}

/* ---- clients -------------------------------------------------------------------------------------------------- */

enum { FILES = 4, TEXTS = FILES + 1 };

/* What changes when a file is replaced. */
struct stamp {
  dev_t device;
  ino_t inode;
  off_t size;
  struct timespec changed;
};

struct tls_client {
  struct tls_client *prev, *next;
  int holders;
  struct tls_names names;
  char *texts[TEXTS]; /* secret, ca, cert, key; host */
  struct tls_context *context;
  struct stamp stamps[FILES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all clients */
static struct tls_client *clients;

static void take_lock(void) { pthread_mutex_lock(&lock); }
static void give_lock(void) { pthread_mutex_unlock(&lock); }

/* A child that is forked while another thread has the lock must not find it taken for good. */
static void watch_forks(void) { pthread_atfork(take_lock, give_lock, give_lock); }

static void read_stamps(const struct tls_client *client, struct stamp stamps[FILES]) {
  memset(stamps, 0, FILES * sizeof stamps[0]);
  for (int i = 0; i < FILES; i++) {
    struct stat file;
    if (!client->texts[i] || stat(client->texts[i], &file) < 0) continue;
    stamps[i].device = file.st_dev;
    stamps[i].inode = file.st_ino;
    stamps[i].size = file.st_size;
    stamps[i].changed.tv_sec = file.st_ctim.tv_sec;
    stamps[i].changed.tv_nsec = file.st_ctim.tv_nsec;
  }
}

/* The stamps are taken before: a file that is replaced meanwhile is read once more. */
static int renew(struct tls_client *client, rdzv_error *error) {
  struct stamp stamps[FILES];
  struct tls_context *context = NULL;
  read_stamps(client, stamps);
  if (client->context && memcmp(stamps, client->stamps, sizeof stamps) == 0) return 0;
  const int result = context_client(&client->names, &context, error);
  if (result < 0) return result;
  tls_context_drop(client->context);
  client->context = context;
  memcpy(client->stamps, stamps, sizeof stamps);
  return 0;
}

static bool same_text(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

static struct tls_client *find_client(const struct tls_names *names) {
  struct tls_client *client;
  DL_FOREACH(clients, client)
  if (same_text(client->names.secret, names->secret) && same_text(client->names.ca, names->ca) &&
      same_text(client->names.cert, names->cert) && same_text(client->names.key, names->key) &&
      same_text(client->names.host, names->host))
    return client;
  return NULL;
}

static void client_free(struct tls_client *client) {
  tls_context_drop(client->context);
  for (int i = 0; i < TEXTS; i++) free(client->texts[i]);
  free(client);
}

static struct tls_client *client_new(const struct tls_names *names) {
  const char *const texts[TEXTS] = {names->secret, names->ca, names->cert, names->key, names->host};
  struct tls_client *client = calloc(1, sizeof *client);
  for (int i = 0; client && i < TEXTS; i++) {
    if (!texts[i]) continue;
    client->texts[i] = strdup(texts[i]);
    if (client->texts[i]) continue;
    client_free(client);
    return NULL;
  }
  if (client)
    client->names = (struct tls_names){.secret = client->texts[0],
                                       .ca = client->texts[1],
                                       .cert = client->texts[2],
                                       .key = client->texts[3],
                                       .host = client->texts[4]};
  return client;
}

static int find_or_make(const struct tls_names *names, struct tls_client **out, rdzv_error *error) {
  struct tls_client *client = find_client(names);
  if (client) {
    const int result = renew(client, error);
    if (result < 0) return result;
  } else {
    client = client_new(names);
    if (!client) return error_no_memory(error);
    const int result = renew(client, error);
    if (result < 0) {
      client_free(client);
      return result;
    }
    DL_APPEND(clients, client);
  }
  client->holders++;
  *out = client;
  return 0;
}

int tls_client_open(const struct tls_names *names, struct tls_client **out, rdzv_error *error) {
  int result = tls_names_check_client(names, error);
  if (result < 0) return result;
  *out = NULL;
  if (!tls_names_any(names)) return 0;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch_forks);
  pthread_mutex_lock(&lock);
  result = find_or_make(names, out, error);
  pthread_mutex_unlock(&lock);
  return result;
}

struct tls_client *tls_client_hold(struct tls_client *client) {
  if (!client) return NULL;
  pthread_mutex_lock(&lock);
  client->holders++;
  pthread_mutex_unlock(&lock);
  return client;
}

void tls_client_drop(struct tls_client *client) {
  if (!client) return;
  pthread_mutex_lock(&lock);
  const bool last = --client->holders == 0;
  if (last) DL_DELETE(clients, client); /* NOLINT: it is in the list, so the list has a head */
  pthread_mutex_unlock(&lock);
  if (last) client_free(client);
}

const struct tls_names *tls_client_names(const struct tls_client *client) {
  static const struct tls_names none;
  return client ? &client->names : &none;
}

int tls_client_context(struct tls_client *client, struct tls_context **out, rdzv_error *error) {
  pthread_mutex_lock(&lock);
  const int result = renew(client, error);
  if (result == 0) *out = tls_context_hold(client->context);
  pthread_mutex_unlock(&lock);
  return result;
}
