/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The records of a file store, which are those of PyTorch's FileStore (torch/csrc/distributed/c10d/FileStore.cpp):
 * u32 key length, key, u32 value length, value, in the byte order of the machine. The file is nothing but records, only
 * ever appended to; what it holds is what reading them all in order gives. Pure: bytes to records and back.
 */
#ifndef RDZV_STORE_FILE_RECORD_H
#define RDZV_STORE_FILE_RECORD_H

#include "base/buf.h"

/* No key that a user gives and no value is longer, whoever wrote it: a length over these is not one. */
enum { FILE_MAX_KEY = 64 << 10, FILE_MAX_VALUE = 1 << 30 };

/* The keys of the file's own records: how many stores have closed, and how many are open (PyTorch 2 counts both, 1.13
 * only the first), in decimal text; and the mark of the run, which only we write and PyTorch keeps as just a key. */
#define FILE_CLEANUP "cleanup/"
#define FILE_REFCOUNT "refcount/"
#define FILE_RUN_ID "run_id/"

/* What the key of a record says. */
struct file_key {
  bool own;     /* one of the file's own, by its full name; else a user's, "/" + name in the file */
  bool deleted; /* "-" stands before it: the key is gone, the value means nothing */
  rdzv_bytes name;
};

struct file_record {
  struct file_key key; /* points into the decoded bytes, as does value */
  rdzv_bytes value;
  size_t size;     /* bytes it takes in the file; of a record that is not all there: takes at least */
  const char *why; /* of a bad one */
};

enum file_record_result { FILE_RECORD_MORE, FILE_RECORD_DONE, FILE_RECORD_BAD };

/* Reads the record at the start of the bytes. Every length is compared with its limit before it is used; MORE says in
 * size how many bytes to come back with, which is always more than len. BAD: these bytes begin no record. */
enum file_record_result file_record_decode(const uint8_t *data, size_t len, struct file_record *record);

/* Adds a record behind what is in `out`; key and value are within the limits. False: no memory, nothing added. */
bool file_record_encode(struct buf *out, struct file_key key, rdzv_bytes value);

#endif
