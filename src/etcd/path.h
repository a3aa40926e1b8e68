/* SPDX-License-Identifier: BSD-3-Clause */
/* Paths of keys in etcd: how a given one is written, and what a listed key has behind a folder. Pure. */
#ifndef RDZV_ETCD_PATH_H
#define RDZV_ETCD_PATH_H

#include <rdzv/bytes.h>
#include <stdbool.h>

/* "/a/b" of "a//./b/", as etcd's v2 API itself reads a path: one slash in front of each name, "." left out, ".." with
 * the name before it. "" is the root. To be freed; NULL: no memory. */
char *etcd_path_clean(const char *given);

/* What a key has behind `folder` and a slash, which `folder` may end with itself. False: the key is not below the
 * folder, as an answer of a wrong or hostile server can have it. *rest is part of `key`, and may be empty. */
bool etcd_path_below(rdzv_bytes key, const char *folder, rdzv_bytes *rest);

#endif
