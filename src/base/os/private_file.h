/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that only their owner may have access to: secrets and private keys. */
#ifndef RDZV_BASE_OS_PRIVATE_FILE_H
#define RDZV_BASE_OS_PRIVATE_FILE_H

#include <rdzv/error.h>
#include <sys/stat.h>

/* RDZV_E_INVALID: it is not a regular file, other users have access to it, or it belongs to one that is neither this
 * user nor root. `what`: "key", for the message. */
int private_file_check(const struct stat *file, const char *what, const char *path, rdzv_error *error);

/* RDZV_E_INVALID: it is not a regular file. To read a FIFO could take for ever. A missing file is accepted, and NULL.
 */
int regular_file_look(const char *what, const char *path, rdzv_error *error);

/* regular_file_look; and where the file, in PEM, has a private key as well, private_file_check. */
int certificate_file_look(const char *what, const char *path, rdzv_error *error);

/* private_file_check for a path. A missing file is accepted: reading it reports the error. NULL is accepted. */
int private_file_look(const char *what, const char *path, rdzv_error *error);

#endif
