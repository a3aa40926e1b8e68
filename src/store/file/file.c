/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store in a file, in the format of PyTorch's FileStore (torch/csrc/distributed/c10d/FileStore.cpp).
 *
 * A call locks the handle for one look at the file or one edit of it. A call that must wait unlocks both the handle and
 * the file, waits for a change, and looks again.
 *
 * Beyond PyTorch: each write adds the mark of the run where the file lacks it, so that a file that was removed and
 * created again has it, too. The last of the counted stores holds the lock while it removes the file.
 */
#include "base/error.h"
#include "base/text/options.h"
#include "store/file/access.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SIGN_OFF_MS = 5000 };

static struct file_store *self(rdzv_store *store) { return (struct file_store *)store; }

/* ---- edits ---------------------------------------------------------------------------------------------------- */

/* Reads a value as a number. An absent or empty value counts as 0. */
static int read_number(struct keyspace *ks, rdzv_bytes key, int64_t *number, rdzv_error *error) {
  rdzv_bytes text;
  *number = 0;
  ks_get(ks, key, &text);
  if (text.len == 0 || ks_parse_number(text, number) == 0) return 0;
  return error_set(error, RDZV_E_NOT_A_NUMBER, "add to '%s': %s", bytes_quote(key).text,
                   rdzv_error_text(RDZV_E_NOT_A_NUMBER));
}

static int file_multi_set(rdzv_store *store, const rdzv_bytes *keys, const rdzv_bytes *values, size_t count,
                          struct store_call *call) {
  struct file_edit edit = {.file = self(store), .call = call};
  int result = 0;
  for (size_t i = 0; i < count && result == 0; i++) result = file_add_record(&edit, file_user_key(keys[i]), values[i]);
  if (result == 0) result = file_begin_edit(&edit);
  return file_end_edit(&edit, result);
}

static int file_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  return file_multi_set(store, &key, &value, 1, call);
}

static int file_add(rdzv_store *store, rdzv_bytes key, int64_t delta, int64_t *sum, struct store_call *call) {
  struct file_edit edit = {.file = self(store), .call = call};
  int64_t number = 0;
  int result = file_begin_edit(&edit);
  if (result == 0) result = read_number(edit.file->journal.keys, key, &number, call->error);
  number = (int64_t)((uint64_t)number + (uint64_t)delta); /* wraps */
  if (result == 0) result = file_add_number(&edit, file_user_key(key), number);
  result = file_end_edit(&edit, result);
  if (result == 0) *sum = number;
  return result;
}

/* *now is the value afterwards. */
static int swap(struct file_edit *edit, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_value *now) {
  rdzv_bytes value;
  const bool there = ks_get(edit->file->journal.keys, key, &value) != 0;
  const bool swapped = there ? bytes_equal(value, expected) : expected.len == 0;
  const rdzv_bytes holds = swapped ? desired : there ? value : expected;
  if (!value_copy(now, holds.data, holds.len)) return error_no_memory(edit->call->error);
  return swapped ? file_add_record(edit, file_user_key(key), desired) : 0;
}

static int file_compare_set(rdzv_store *store, rdzv_bytes key, rdzv_bytes expected, rdzv_bytes desired, rdzv_value *out,
                            struct store_call *call) {
  struct file_edit edit = {.file = self(store), .call = call};
  rdzv_value now = {0};
  int result = file_begin_edit(&edit);
  if (result == 0) result = swap(&edit, key, expected, desired, &now);
  return store_give(file_end_edit(&edit, result), &now, out);
}

static int file_delete_key(rdzv_store *store, rdzv_bytes key, bool *deleted, struct store_call *call) {
  struct file_edit edit = {.file = self(store), .call = call};
  int result = file_add_record(&edit, (struct file_key){.deleted = true, .name = key}, (rdzv_bytes){0});
  if (result == 0) result = file_begin_edit(&edit);
  result = file_end_edit(&edit, result);
  if (result == 0) *deleted = true;
  return result;
}

static int file_append(rdzv_store *store, rdzv_bytes key, rdzv_bytes value, struct store_call *call) {
  struct file_edit edit = {.file = self(store), .call = call};
  struct buf joined = {0};
  rdzv_bytes old;
  int result = file_begin_edit(&edit);
  if (result == 0) {
    ks_get(edit.file->journal.keys, key, &old);
    const bool done = buf_append(&joined, old.data, old.len) && buf_append(&joined, value.data, value.len);
    const rdzv_bytes all = {joined.data, joined.len};
    result = done ? file_add_record(&edit, file_user_key(key), all) : error_no_memory(call->error);
  }
  buf_free(&joined);
  return file_end_edit(&edit, result);
}

/* ---- looks ---------------------------------------------------------------------------------------------------- */

static bool all_there(const struct file_store *file, const rdzv_bytes *keys, size_t count) {
  size_t i = 0;
  while (i < count && ks_present(file->journal.keys, keys[i])) i++;
  return i == count;
}

enum { NOT_YET = 1 };

/* Copies the values if all keys are there, else returns NOT_YET. `out` may be NULL. */
static int look_for(struct file_store *file, const rdzv_bytes *keys, size_t count, rdzv_value *out,
                    const struct store_call *call) {
  int result = file_begin_look(file, call);
  if (result < 0) return result;
  if (!all_there(file, keys, count)) result = NOT_YET;
  for (size_t i = 0; out && i < count && result == 0; i++) {
    rdzv_bytes value;
    ks_get(file->journal.keys, keys[i], &value);
    if (!value_copy(&out[i], value.data, value.len)) result = error_no_memory(call->error);
  }
  file_end_look(file);
  return result;
}

static void take_watch(struct file_store *file, struct file_watch *watch) {
  pthread_mutex_lock(&file->lock);
  *watch = file->watch;
  file->watch = FILE_WATCH_CLOSED;
  pthread_mutex_unlock(&file->lock);
  file_watch_start(watch, file->journal.path);
}

/* Of the watches of several threads one is kept. */
static void give_watch_back(struct file_store *file, struct file_watch *watch) {
  file_watch_stop(watch);
  pthread_mutex_lock(&file->lock);
  struct file_watch surplus = file->watch;
  file->watch = *watch;
  pthread_mutex_unlock(&file->lock);
  file_watch_close(&surplus);
}

static int wait_for(struct file_store *file, const char *what, const rdzv_bytes *keys, size_t count, rdzv_value *out,
                    struct store_call *call) {
  struct file_watch watch;
  bool watching = false;
  int result;
  while ((result = look_for(file, keys, count, out, call)) == NOT_YET) {
    if (deadline_left(call->until) == 0)
      result = RDZV_E_TIMEOUT;
    else if (watching)
      result = file_watch_wait(&watch, call->cancel, call->until);
    else
      take_watch(file, &watch), watching = true; /* and look again: the file may have changed before */
    if (result >= 0) continue;
    result = store_fail_wait(call, result, what, keys, count);
    break;
  }
  if (watching) give_watch_back(file, &watch);
  return result;
}

static int file_get(rdzv_store *store, rdzv_bytes key, rdzv_value *out, struct store_call *call) {
  return wait_for(self(store), "get", &key, 1, out, call);
}

static int file_multi_get(rdzv_store *store, const rdzv_bytes *keys, size_t count, rdzv_value *out,
                          struct store_call *call) {
  return wait_for(self(store), "get", keys, count, out, call);
}

static int file_wait(rdzv_store *store, const rdzv_bytes *keys, size_t count, struct store_call *call) {
  return wait_for(self(store), "wait for", keys, count, NULL, call);
}

static int file_check(rdzv_store *store, const rdzv_bytes *keys, size_t count, bool *all, struct store_call *call) {
  const int result = look_for(self(store), keys, count, NULL, call);
  if (result < 0) return result;
  *all = result != NOT_YET;
  return 0;
}

static int file_num_keys(rdzv_store *store, int64_t *count, struct store_call *call) {
  const int result = file_begin_look(self(store), call);
  if (result < 0) return result;
  *count = (int64_t)(ks_count(self(store)->journal.keys) + ks_count(self(store)->journal.own)); /* as PyTorch does */
  file_end_look(self(store));
  return 0;
}

static int file_list_keys(rdzv_store *store, rdzv_value **out, size_t *count, struct store_call *call) {
  int result = file_begin_look(self(store), call);
  if (result < 0) return result;
  result = ks_copy_keys(self(store)->journal.keys, out, count);
  file_end_look(self(store));
  return result < 0 ? error_no_memory(call->error) : 0;
}

/* ---- life ----------------------------------------------------------------------------------------------------- */

/* Marks the file with the run and counts this store among the open ones, as PyTorch 2 does. */
static int sign_on(struct file_store *file, const struct store_call *call) {
  struct file_edit edit = {.file = file, .call = call};
  int64_t open = 0;
  if (!file->run_id && file->num_workers == 0) return 0;
  int result = file_begin_edit(&edit);
  if (result == 0) result = file_add_mark(&edit);
  if (result == 0 && file->num_workers > 0) {
    result = read_number(file->journal.own, rdzv_str(FILE_REFCOUNT), &open, call->error);
    if (result == 0) result = file_add_number(&edit, file_own_key(FILE_REFCOUNT), open + 1);
  }
  const uint64_t birth = file->journal.births;
  result = file_end_edit(&edit, result);
  if (result == 0 && file->num_workers > 0) file->counted = birth;
  return result;
}

/* Counts this store among the closed ones. The last one removes the file instead. */
static int count_out(struct file_edit *edit) {
  const struct journal *journal = &edit->file->journal;
  int64_t closed = 0, open = 0;
  int result = read_number(journal->own, rdzv_str(FILE_CLEANUP), &closed, edit->call->error);
  if (result == 0) result = read_number(journal->own, rdzv_str(FILE_REFCOUNT), &open, edit->call->error);
  if (result < 0) return result;
  closed++, open--;
  if (open == 0 && closed >= edit->file->num_workers && unlink(journal->path) == 0) return 0;
  result = file_add_number(edit, file_own_key(FILE_CLEANUP), closed);
  return result == 0 ? file_add_number(edit, file_own_key(FILE_REFCOUNT), open) : result;
}

/* Leaves a file alone that is not the one in which this store was counted. Cannot be canceled. */
static void sign_off(struct file_store *file) {
  rdzv_error error;
  const struct store_call call = {SIGN_OFF_MS, deadline_after(SIGN_OFF_MS), NULL, &error};
  struct file_edit edit = {.file = file, .call = &call, .only_existing = true};
  int result = file_begin_edit(&edit);
  if (result == 0 && file->journal.births == file->counted) result = count_out(&edit);
  result = file_end_edit(&edit, result);
  if (result < 0) log_line(&file->base.log, RDZV_LOG_WARNING, "the store was not closed cleanly: %s", error.message);
}

static void file_free(struct file_store *file) {
  file_watch_close(&file->watch);
  journal_close(&file->journal);
  pthread_mutex_destroy(&file->lock);
  store_deinit(&file->base);
  free(file->run_id);
  free(file->text);
  free(file);
}

static void file_close(rdzv_store *store) {
  if (self(store)->counted) sign_off(self(store));
  file_free(self(store));
}

/* The parent signs off. If another thread was in the middle of a call, everything is left as it is. */
static void file_abandon(rdzv_store *store) {
  struct file_store *file = self(store);
  if (pthread_mutex_trylock(&file->lock) != 0) return;
  pthread_mutex_unlock(&file->lock);
  file_free(file);
}

static unsigned file_features(rdzv_store *store) {
  (void)store;
  return RDZV_FEATURE_APPEND | RDZV_FEATURE_LIST_KEYS;
}

static const char *file_describe(rdzv_store *store) { return self(store)->text; }

static int file_clone(rdzv_store *store, int cancel_fd, rdzv_store **out, rdzv_error *error) {
  const struct file_store *file = self(store);
  const rdzv_file_options options = {.size = sizeof options,
                                     .timeout_ms = rdzv_store_get_timeout(store),
                                     .log = &store->log,
                                     .cancel_fd = cancel_fd,
                                     .num_workers = file->num_workers,
                                     .run_id = file->run_id};
  const int result = rdzv_store_open_file(file->journal.path, &options, out, error);
  if (result == 0) atomic_store(&(*out)->request_ms, atomic_load(&store->request_ms));
  return result;
}

static const struct store_ops file_ops = {.name = "file",
                                          .close = file_close,
                                          .abandon = file_abandon,
                                          .clone = file_clone,
                                          .features = file_features,
                                          .describe = file_describe,
                                          STORE_BASIC_OPS(STORE_OP_ROW, file)};

static int check_options(const char *path, const rdzv_file_options *options, rdzv_error *error) {
  if (!path || !*path) return error_set(error, RDZV_E_INVALID, "invalid path of a file store: it is empty");
  if (options->num_workers < 0)
    return error_set(error, RDZV_E_INVALID, "invalid number of workers %lld: it is negative",
                     (long long)options->num_workers);
  return 0;
}

/* Copies the options that are needed later. The journal is open. */
static int keep_options(struct file_store *file, const rdzv_file_options *options, rdzv_error *error) {
  file->num_workers = options->num_workers;
  file->run_id = options->run_id ? strdup(options->run_id) : NULL;
  if ((options->run_id && !file->run_id) || asprintf(&file->text, "file %s", file->journal.path) < 0) {
    file->text = NULL;
    return error_no_memory(error);
  }
  return 0;
}

static int file_new(const char *path, const rdzv_file_options *options, struct file_store **out, rdzv_error *error) {
  rdzv_store *store;
  int result = store_new(sizeof(struct file_store), &file_ops, options->timeout_ms, options->cancel_fd, options->log,
                         &store, error);
  if (result < 0) return result;
  struct file_store *file = self(store);
  pthread_mutex_init(&file->lock, NULL);
  file->watch = FILE_WATCH_CLOSED;
  result = journal_open(&file->journal, path, &file->base.log, error);
  if (result == 0) result = keep_options(file, options, error);
  if (result < 0)
    file_free(file);
  else
    *out = file;
  return result;
}

int rdzv_store_open_file(const char *path, const rdzv_file_options *options, rdzv_store **out, rdzv_error *error) {
  if (!out) return error_null(error, "open a store", "out");
  rdzv_file_options own;
  struct file_store *file = NULL;
  int result = options_take(&own, sizeof own, options, "rdzv_file_options", error);
  if (result == 0) result = check_options(path, &own, error);
  if (result == 0) result = file_new(path, &own, &file, error);
  if (!file) return result;
  const int64_t timeout_ms = rdzv_store_get_timeout(&file->base);
  const struct store_call call = {timeout_ms, deadline_after(timeout_ms), &file->base.cancel, error};
  result = sign_on(file, &call);
  if (result < 0)
    file_free(file);
  else
    *out = &file->base;
  return result;
}
