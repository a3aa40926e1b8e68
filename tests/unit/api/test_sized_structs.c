/* SPDX-License-Identifier: BSD-3-Clause */
/* Every struct of the public headers that begins with its size: the size is read, and a caller that was compiled with
 * another version of the header is served, or told so. */
#include "unit.h"

#include <dirent.h>
#include <rdzv/backend.h>
#include <rdzv/rdzv.h>

enum { TAIL = 16 }; /* bytes of a field that this version does not have */

/* ---- one call for each struct --------------------------------------------------------------------------------- */

static int with_hash(const void *given, rdzv_error *error) {
  rdzv_store *store = NULL;
  const int result = rdzv_store_open_hash(given, &store, error);
  rdzv_store_free(store);
  return result;
}

static int with_log(const void *given, rdzv_error *error) {
  return with_hash(&(rdzv_hash_options){.size = sizeof(rdzv_hash_options), .log = given}, error);
}

static int with_file(const void *given, rdzv_error *error) {
  rdzv_store *store = NULL;
  const int result = rdzv_store_open_file("/nonexistent/file", given, &store, error);
  rdzv_store_free(store);
  return result;
}

static int with_tcp(const void *given, rdzv_error *error) {
  rdzv_store *store = NULL;
  return rdzv_store_open_tcp("not an endpoint", given, &store, error);
}

static int with_etcd_store(const void *given, rdzv_error *error) {
  rdzv_store *store = NULL;
  const int result = rdzv_store_open_etcd("", given, &store, error);
  rdzv_store_free(store);
  return result;
}

static int with_etcd3_store(const void *given, rdzv_error *error) {
  rdzv_store *store = NULL;
  const int result = rdzv_store_open_etcd3("", given, &store, error);
  rdzv_store_free(store);
  return result;
}

static int with_etcd(const void *given, rdzv_error *error) {
  return with_etcd_store(&(rdzv_etcd_store_options){.size = sizeof(rdzv_etcd_store_options), .etcd = given}, error);
}

static int with_etcd_process(const void *given, rdzv_error *error) {
  rdzv_etcd_process *process = NULL;
  const int result = rdzv_etcd_process_start(given, &process, error);
  rdzv_etcd_process_free(process);
  return result;
}

static int with_server(const void *given, rdzv_error *error) {
  rdzv_server *server = NULL;
  const int result = rdzv_server_open(given, &server, error);
  rdzv_server_free(server);
  return result;
}

static int with_params(const void *given, rdzv_error *error) {
  rdzv_handler *handler = NULL;
  const int result = rdzv_handler_open(given, &handler, error);
  rdzv_handler_free(handler);
  return result;
}

static int with_params_of_a_url(const void *given, rdzv_error *error) {
  rdzv_handler *handler = NULL;
  return rdzv_handler_open_url("unknown://", given, &handler, error);
}

static int with_params_of_runs(const void *given, rdzv_error *error) {
  rdzv_value *ids;
  size_t count;
  return rdzv_runs_list(given, &ids, &count, error);
}

static int with_params_of_a_run(const void *given, rdzv_error *error) {
  size_t count;
  return rdzv_runs_remove(given, &count, error);
}

static int with_agent(const void *given, rdzv_error *error) {
  rdzv_agent *agent = NULL;
  const int result = rdzv_agent_open(given, &agent, error);
  rdzv_agent_free(agent);
  return result;
}

static int with_params_of_an_agent(const void *given, rdzv_error *error) {
  return with_agent(&(rdzv_agent_options){.size = sizeof(rdzv_agent_options), .rendezvous = given}, error);
}

static int with_log_of_params(const void *given, rdzv_error *error) {
  const rdzv_params params = {.size = sizeof params, .run_id = "job", .backend = "static", .log = given};
  return with_params(&params, error);
}

static int with_ops(const void *given, rdzv_error *error) {
  rdzv_backend backend = {given};
  rdzv_handler *handler = NULL;
  return rdzv_handler_open_dynamic(&(rdzv_params){.size = sizeof(rdzv_params)}, &backend, NULL, &handler, error);
}

/* ---- the table ------------------------------------------------------------------------------------------------ */

static const char *const nothing_to_run[] = {NULL};

/* The bytes of a struct, with a field of a later version behind. */
union sized {
  size_t size;
  rdzv_log log;
  rdzv_hash_options hash;
  rdzv_file_options file;
  rdzv_tcp_options tcp;
  rdzv_etcd_options etcd;
  rdzv_etcd_store_options etcd_store;
  rdzv_etcd3_store_options etcd3_store;
  rdzv_etcd_process_options etcd_process;
  rdzv_server_options server;
  rdzv_params params;
  rdzv_agent_options agent;
  rdzv_backend_ops ops;
  unsigned char bytes[1024];
};

struct row {
  const char *name;
  size_t size;
  int (*call)(const void *given, rdzv_error *error);
  union sized valid; /* all but for its size; the call may fail for another reason */
};

#define ROW(type, call, ...) #type, sizeof(type), call, __VA_ARGS__

static const struct row rows[] = {
    {ROW(rdzv_log, with_log, {0})},
    {ROW(rdzv_log, with_log_of_params, {0})},
    {ROW(rdzv_hash_options, with_hash, {0})},
    {ROW(rdzv_file_options, with_file, {0})},
    {ROW(rdzv_tcp_options, with_tcp, {0})},
    {ROW(rdzv_etcd_options, with_etcd, {.etcd = {.endpoints = "not an endpoint"}})},
    {ROW(rdzv_etcd_store_options, with_etcd_store, {0})},
    {ROW(rdzv_etcd3_store_options, with_etcd3_store, {0})},
    {ROW(rdzv_etcd_process_options, with_etcd_process, {.etcd_process = {.binary = "/nonexistent/etcd"}})},
    {ROW(rdzv_server_options, with_server, {.server = {.port = RDZV_ANY_PORT}})},
    {ROW(rdzv_params, with_params, {.params = {.backend = "unknown", .run_id = "job"}})},
    {ROW(rdzv_params, with_params_of_a_url, {0})},
    {ROW(rdzv_params, with_params_of_runs, {.params = {.backend = "unknown"}})},
    {ROW(rdzv_params, with_params_of_a_run, {.params = {.backend = "unknown", .run_id = "job"}})},
    {ROW(rdzv_params, with_params_of_an_agent, {0})},
    {ROW(rdzv_agent_options, with_agent, {.agent = {.argv = nothing_to_run}})},
    {ROW(rdzv_backend_ops, with_ops, {0})},
};

static int call(const struct row *row, size_t size, unsigned char tail, rdzv_error *error) {
  union sized given = row->valid;
  memset(given.bytes + row->size, tail, sizeof given.bytes - row->size);
  given.size = size;
  *error = (rdzv_error){0};
  return row->call(&given, error);
}

/* Is the error, if there is one, about the size? */
static bool blames_size(const rdzv_error *error) { return strstr(error->message, ".size is") != NULL; }

/* A size that was not set is the most likely mistake, and the sentence names the struct. */
static void test_a_size_that_is_not_set_is_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(rows); i++)
    for (size_t size = 0; size < sizeof size; size += sizeof size - 1) {
      char says[128];
      rdzv_error error;
      snprintf(says, sizeof says, "%s.size is %zu: set it to sizeof(%s)", rows[i].name, size, rows[i].name);
      assert_error(call(&rows[i], size, 0, &error), RDZV_E_INVALID, &error, says);
    }
}

/* A program that was compiled for a newer version runs as long as it does not use what this version does not have. */
static void test_a_newer_struct_whose_new_fields_are_zero_is_taken(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(rows); i++) {
    rdzv_error error, plain;
    const int code = call(&rows[i], rows[i].size + TAIL, 0, &error);
    assert_code(code, call(&rows[i], rows[i].size, 0, &plain));
    if (blames_size(&error)) fail_msg("%s: %s", rows[i].name, error.message);
  }
}

/* It is told when it does. */
static void test_a_newer_struct_with_a_new_field_set_is_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(rows); i++) {
    rdzv_error error;
    assert_error(call(&rows[i], rows[i].size + TAIL, 0x10, &error), RDZV_E_INVALID, &error, rows[i].name);
    assert_non_null(strstr(error.message, rdzv_version()));
    assert_non_null(strstr(error.message, "compiled for a newer version"));
  }
}

/* What is behind a struct's size is not read. */
static void test_what_is_behind_the_size_is_not_read(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT_OF(rows); i++) {
    rdzv_error error;
    call(&rows[i], rows[i].size, 0x10, &error);
    if (blames_size(&error)) fail_msg("%s: %s", rows[i].name, error.message);
  }
}

/* ---- the headers ---------------------------------------------------------------------------------------------- */

static bool is_in_table(const char *name, size_t len) {
  for (size_t i = 0; i < COUNT_OF(rows); i++)
    if (strlen(rows[i].name) == len && memcmp(rows[i].name, name, len) == 0) return true;
  return false;
}

/* Gives how many structs with a size there are. */
static size_t look_through(const char *path) {
  static const char begins[] = "typedef struct ", sized[] = " {\n  size_t size;";
  char text[65536];
  size_t count = 0;
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  text[fread(text, 1, sizeof text - 1, file)] = '\0';
  fclose(file);
  for (const char *at = text; (at = strstr(at, begins)); at++) {
    const char *name = at + strlen(begins);
    const size_t len = strcspn(name, " {;\n");
    if (strncmp(name + len, sized, strlen(sized)) != 0) continue;
    if (!is_in_table(name, len)) fail_msg("%s has %.*s, which is not in the table of this test", path, (int)len, name);
    count++;
  }
  return count;
}

/* A struct with a size that is added to a header must be added here. */
static void test_every_sized_struct_of_the_headers_is_in_the_table(void **state) {
  (void)state;
  size_t count = 0;
  DIR *folder = opendir("include/rdzv"); /* tests run in the source folder */
  assert_non_null(folder);
  for (const struct dirent *entry; (entry = readdir(folder));) {
    char path[300];
    snprintf(path, sizeof path, "include/rdzv/%s", entry->d_name);
    if (strstr(entry->d_name, ".h")) count += look_through(path);
  }
  closedir(folder);
  assert_true(count >= 11);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_size_that_is_not_set_is_refused),
      cmocka_unit_test(test_a_newer_struct_whose_new_fields_are_zero_is_taken),
      cmocka_unit_test(test_a_newer_struct_with_a_new_field_set_is_refused),
      cmocka_unit_test(test_what_is_behind_the_size_is_not_read),
      cmocka_unit_test(test_every_sized_struct_of_the_headers_is_in_the_table),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
