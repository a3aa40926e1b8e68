/* SPDX-License-Identifier: BSD-3-Clause */
#include "tls/secret.h"

#include "base/error.h"
#include "base/os/private_file.h"
#include "tls/openssl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEAST = 16, MOST = 1024, FILE_MOST = SECRETS_MOST * (MOST + 2) };

#define MAKE_ONE "make one with: (umask 077; openssl rand -hex 32 > FILE)"

/* ---- memory that core files do not have ----------------------------------------------------------------------- */

static void *private_new(size_t size) {
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  madvise(memory, size, MADV_DONTDUMP);
  mlock(memory, size); /* if the limit allows it: then it is not swapped out, either */
  return memory;
}

static void private_free(void *memory, size_t size) {
  if (!memory) return;
  explicit_bzero(memory, size);
  munmap(memory, size);
}

void secret_free(struct secret *secret) { private_free(secret, sizeof *secret); }

/* ---- reading -------------------------------------------------------------------------------------------------- */

static int check_file(const char *path, const struct stat *file, rdzv_error *error) {
  const int result = private_file_check(file, "secret file", path, error);
  if (result < 0) return result;
  if (file->st_size > FILE_MOST)
    return error_set(error, RDZV_E_INVALID,
                     "cannot use secret file '%s': it is longer than %d secrets of %d characters (" MAKE_ONE ")", path,
                     SECRETS_MOST, MOST);
  return 0;
}

static int fail_read(const char *path, int errnum, rdzv_error *error) {
  return error_errno(error, RDZV_E_IO, errnum, "cannot read secret file '%s'", path);
}

static int read_all(int fd, const char *path, char *text, size_t *len, rdzv_error *error) {
  struct stat file;
  if (fstat(fd, &file) < 0) return fail_read(path, errno, error);
  const int result = check_file(path, &file, error);
  if (result < 0) return result;
  for (ssize_t got = 1; got > 0 && *len < FILE_MOST;) {
    got = read(fd, text + *len, FILE_MOST - *len);
    if (got < 0 && errno == EINTR)
      got = 1;
    else if (got < 0)
      return fail_read(path, errno, error);
    else
      *len += (size_t)got;
  }
  return 0;
}

/* ---- deriving ------------------------------------------------------------------------------------------------- */

static bool derive(rdzv_bytes secret, const char *label, uint8_t *out, size_t len) {
  EVP_KDF *kdf = openssl.EVP_KDF_fetch(NULL, "HKDF", NULL);
  EVP_KDF_CTX *context = kdf ? openssl.EVP_KDF_CTX_new(kdf) : NULL;
  const OSSL_PARAM params[] = {
      openssl.OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA256", 0),
      openssl.OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)"rdzv", 4),
      openssl.OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)secret.data, secret.len),
      openssl.OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)label, strlen(label)),
      openssl.OSSL_PARAM_construct_end(),
  };
  const bool done = context && openssl.EVP_KDF_derive(context, out, len, params) == 1;
  openssl.EVP_KDF_CTX_free(context);
  openssl.EVP_KDF_free(kdf);
  return done;
}

static bool derive_identity(rdzv_bytes secret, struct secret_key *key) {
  static const char digits[] = "0123456789abcdef";
  uint8_t bytes[SECRET_IDENTITY_BYTES / 2];
  if (!derive(secret, "rdzv identity 1", bytes, sizeof bytes)) return false;
  for (size_t i = 0; i < sizeof bytes; i++) {
    key->identity[2 * i] = (uint8_t)digits[bytes[i] >> 4];
    key->identity[2 * i + 1] = (uint8_t)digits[bytes[i] & 15];
  }
  return true;
}

static bool is_text(const char *line, size_t len) {
  for (size_t i = 0; i < len; i++)
    if (line[i] < ' ' || line[i] > '~') return false;
  return true;
}

static int take_line(struct secret *secret, const char *path, const char *line, size_t len, rdzv_error *error) {
  if (!is_text(line, len))
    return error_set(error, RDZV_E_INVALID,
                     "cannot use secret file '%s': it has bytes that are not printable ASCII (" MAKE_ONE ")", path);
  if (len < LEAST || len > MOST)
    return error_set(error, RDZV_E_INVALID,
                     "cannot use secret file '%s': a secret has %d to %d characters, on one line (" MAKE_ONE ")", path,
                     LEAST, MOST);
  if (secret->count == SECRETS_MOST)
    return error_set(error, RDZV_E_INVALID, "cannot use secret file '%s': it has more than %d secrets", path,
                     SECRETS_MOST);
  struct secret_key *key = &secret->keys[secret->count];
  const rdzv_bytes text = {line, len};
  if (!derive(text, "rdzv psk 1", key->key, sizeof key->key) || !derive_identity(text, key)) {
    const char *reason = openssl_reason();
    return error_set(error, RDZV_E_UNSUPPORTED, "OpenSSL cannot derive a key: %s", reason ? reason : "no reason");
  }
  secret->count++;
  return 0;
}

/* Empty lines, and the end of a line of DOS, do not count. */
static int take_lines(struct secret *secret, const char *path, const char *text, size_t len, rdzv_error *error) {
  for (size_t at = 0; at < len;) {
    const char *end = memchr(text + at, '\n', len - at);
    const size_t line = end ? (size_t)(end - text) - at : len - at;
    const size_t used = line > 0 && text[at + line - 1] == '\r' ? line - 1 : line;
    const int result = used > 0 ? take_line(secret, path, text + at, used, error) : 0;
    if (result < 0) return result;
    at += line + 1;
  }
  if (secret->count == 0)
    return error_set(error, RDZV_E_INVALID, "cannot use secret file '%s': it is empty (" MAKE_ONE ")", path);
  return 0;
}

static int read_file(const char *path, char *text, struct secret *secret, rdzv_error *error) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return fail_read(path, errno, error);
  size_t len = 0;
  const int result = read_all(fd, path, text, &len, error);
  close(fd);
  return result < 0 ? result : take_lines(secret, path, text, len, error);
}

int secret_read(const char *path, struct secret **out, rdzv_error *error) {
  int result = openssl_load(error);
  if (result < 0) return result;
  char *text = private_new(FILE_MOST);
  struct secret *secret = private_new(sizeof *secret);
  result = text && secret ? read_file(path, text, secret, error) : error_no_memory(error);
  private_free(text, FILE_MOST);
  if (result < 0)
    secret_free(secret);
  else
    *out = secret;
  return result;
}

const struct secret_key *secret_find(const struct secret *secret, rdzv_bytes identity) {
  for (size_t i = 0; identity.len == SECRET_IDENTITY_BYTES && i < secret->count; i++)
    if (memcmp(secret->keys[i].identity, identity.data, identity.len) == 0) return &secret->keys[i];
  return NULL;
}
