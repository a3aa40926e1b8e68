/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The records of a file store, which are those of PyTorch's FileStore (torch/csrc/distributed/c10d/FileStore.cpp):
 * u32 key length, key, u32 value length, value, in the byte order of the machine. The file is nothing but records, only
 * ever appended to; what it holds is what reading them all in order gives. Pure: bytes to records and back.
 */
#ifndef RDZV_STORE_FILE_RECORD_H
#define RDZV_STORE_FILE_RECORD_H

#include "base/buf.h"

/* Longer keys of users and longer values are refused, and a longer length in a file means that it is corrupt. */
enum { FILE_MAX_KEY = 64 << 10, FILE_MAX_VALUE = 1 << 30 };

/* The keys of the file's own records: how many stores have closed, and how many are open (PyTorch 2 counts both, 1.13
 * only the first), in decimal text; and the mark of the run, which only we write and PyTorch keeps as just a key. */
#define FILE_CLEANUP "cleanup/"
#define FILE_REFCOUNT "refcount/"
#define FILE_RUN_ID "run_id/"

/* What the key of a record says. */
struct file_key {
  bool own;     /* a key of the store itself, by its full name; else a user's key: "/" + name in the file */
  bool deleted; /* "-" before it: the key was deleted, the value has no meaning */
  rdzv_bytes name;
};

struct file_record {
  struct file_key key; /* points into the decoded bytes, as does value */
  rdzv_bytes value;
  size_t size;     /* in the file; after FILE_RECORD_MORE: its least size */
  const char *why; /* after FILE_RECORD_BAD */
};

enum file_record_result { FILE_RECORD_MORE, FILE_RECORD_DONE, FILE_RECORD_BAD };

/* Reads the record at the start of the bytes. Each length is checked against its limit before it is used. MORE: call
 * again with at least `size` bytes, which is more than len. BAD: the bytes are not a record. */
enum file_record_result file_record_decode(const uint8_t *data, size_t len, struct file_record *record);

/* Appends a record, whose key and value are within the limits. False: no memory, and `out` is unchanged. */
bool file_record_encode(struct buf *out, struct file_key key, rdzv_bytes value);

#endif
