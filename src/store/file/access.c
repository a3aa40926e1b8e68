/* SPDX-License-Identifier: BSD-3-Clause */
#include "store/file/access.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

/* ---- the run -------------------------------------------------------------------------------------------------- */

/* "5 s", "12 min", "7 h", "3 days" */
static void format_age(time_t since, char *out, size_t size) {
  const time_t now = time(NULL);
  const long long age = now > since ? (long long)(now - since) : 0;
  if (age < 120)
    snprintf(out, size, "%lld s", age);
  else if (age < 2LL * 3600)
    snprintf(out, size, "%lld min", age / 60);
  else if (age < 2LL * 86400)
    snprintf(out, size, "%lld h", age / 3600);
  else
    snprintf(out, size, "%lld days", age / 86400);
}

/* Does the file belong to another run? *marked: it belongs to some run. */
static int check_run(const struct file_store *file, bool *marked, rdzv_error *error) {
  rdzv_bytes mark;
  *marked = ks_get(file->journal.own, rdzv_str(FILE_RUN_ID), &mark) != 0;
  if (!file->run_id || !*marked || bytes_equal(mark, rdzv_str(file->run_id))) return 0;
  char age[32];
  format_age(file->journal.written, age, sizeof age);
  return error_set(error, RDZV_E_STALE, "cannot use '%s' for run '%s': it is left from run '%s', last written %s ago",
                   file->journal.shown, bytes_quote(rdzv_str(file->run_id)).text, bytes_quote(mark).text, age);
}

/* ---- looks ---------------------------------------------------------------------------------------------------- */

/* The lock of the file is waited for no longer than a request may take. */
static struct store_call limit_request(struct file_store *file, const struct store_call *call) {
  struct store_call own = *call;
  own.until = deadline_sooner(own.until, deadline_after(store_request_time(&file->base, INT64_MAX)));
  return own;
}

static int lock_handle(struct file_store *file, const struct store_call *call) {
  pthread_mutex_lock(&file->lock);
  if (!call->cancel || !flag_raised(call->cancel)) return 0;
  pthread_mutex_unlock(&file->lock);
  return error_set(call->error, RDZV_E_CANCELED, "cannot use '%s': canceled", file->journal.shown);
}

int file_begin_look(struct file_store *file, const struct store_call *call) {
  bool marked;
  int result = lock_handle(file, call);
  if (result < 0) return result;
  const struct store_call own = limit_request(file, call);
  result = journal_refresh(&file->journal, &own);
  if (result == 0) result = check_run(file, &marked, call->error);
  if (result < 0) pthread_mutex_unlock(&file->lock);
  return result;
}

void file_end_look(struct file_store *file) { pthread_mutex_unlock(&file->lock); }

/* ---- edits ---------------------------------------------------------------------------------------------------- */

int file_add_record(struct file_edit *edit, struct file_key key, rdzv_bytes value) {
  rdzv_error *error = edit->call->error;
  if (key.name.len > FILE_MAX_KEY)
    return error_set(error, RDZV_E_LIMIT, "cannot write '%s': a key of %zu bytes is over the limit of %d",
                     bytes_quote(key.name).text, key.name.len, FILE_MAX_KEY);
  if (value.len > FILE_MAX_VALUE)
    return error_set(error, RDZV_E_LIMIT, "cannot write '%s': a value of %zu bytes is over the limit of %d",
                     bytes_quote(key.name).text, value.len, FILE_MAX_VALUE);
  return file_record_encode(&edit->records, key, value) ? 0 : error_no_memory(error);
}

int file_add_number(struct file_edit *edit, struct file_key key, int64_t number) {
  char text[24];
  snprintf(text, sizeof text, "%" PRId64, number);
  return file_add_record(edit, key, rdzv_str(text));
}

int file_add_mark(struct file_edit *edit) {
  if (!edit->file->run_id || edit->marked) return 0;
  edit->marked = true;
  return file_add_record(edit, file_own_key(FILE_RUN_ID), rdzv_str(edit->file->run_id));
}

int file_begin_edit(struct file_edit *edit) {
  struct file_store *file = edit->file;
  int result = lock_handle(file, edit->call);
  if (result < 0) return result;
  const struct store_call own = limit_request(file, edit->call);
  result = journal_begin(&file->journal, !edit->only_existing, &own);
  edit->begun = result == 0;
  if (!edit->begun) pthread_mutex_unlock(&file->lock);
  return edit->begun ? check_run(file, &edit->marked, edit->call->error) : result;
}

int file_end_edit(struct file_edit *edit, int result) {
  struct journal *journal = &edit->file->journal;
  if (edit->begun) {
    if (result == 0 && edit->records.len > 0) result = file_add_mark(edit);
    if (result == 0 && edit->records.len > 0) result = journal_write(journal, &edit->records, edit->call->error);
    const int ended = journal_end(journal, result == 0 ? edit->call->error : NULL);
    if (result == 0) result = ended;
    pthread_mutex_unlock(&edit->file->lock);
  }
  buf_free(&edit->records);
  return result;
}
