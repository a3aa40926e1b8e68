/* SPDX-License-Identifier: BSD-3-Clause */
/* RDZV_LOG: objects that have no log of their own write to stderr. On public headers alone. */
#include "unit.h"

#include <fcntl.h>
#include <rdzv/rdzv.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534, NOT_SECURE = 77, SOON_MS = 60000 };

/* ---- what goes to stderr -------------------------------------------------------------------------------------- */

static char text[65536];

/* Runs it with the variable, and keeps in `text` what it writes to stderr. */
static void run_with(const char *value, void (*run)(void)) {
  FILE *file = tmpfile();
  const int before = dup(STDERR_FILENO);
  assert_non_null(file);
  if (value)
    setenv("RDZV_LOG", value, 1);
  else
    unsetenv("RDZV_LOG");
  dup2(fileno(file), STDERR_FILENO);
  run();
  dup2(before, STDERR_FILENO);
  close(before);
  const ssize_t got = pread(fileno(file), text, sizeof text - 1, 0);
  assert_true(got >= 0);
  text[got] = '\0';
  fclose(file);
}

static int count_lines(void) {
  int lines = 0;
  for (const char *at = text; (at = strchr(at, '\n')); at++) lines++;
  return lines;
}

/* ---- one of each object --------------------------------------------------------------------------------------- */

static void quiet(void *user, rdzv_log_level level, const char *line) {
  (void)level, (void)line;
  ++*(int *)user;
}

static void use_server_with(const rdzv_log *log) {
  const rdzv_server_options options = {.size = sizeof options, .port = RDZV_ANY_PORT, .log = log};
  rdzv_server *server;
  rdzv_error error;
  assert_code(rdzv_server_open(&options, &server, &error), RDZV_OK);
  assert_code(rdzv_server_start(server, &error), RDZV_OK);
  rdzv_server_free(server);
}

static void use_server(void) { use_server_with(NULL); }

static void use_handler(void) {
  const rdzv_params params = {
      .size = sizeof params, .run_id = "logged", .endpoint = "127.0.0.1:0", .min_nodes = 1, .max_nodes = 1};
  rdzv_handler *handler;
  rdzv_error error;
  assert_code(rdzv_handler_open(&params, &handler, &error), RDZV_OK);
  rdzv_handler_free(handler);
}

static void use_agent(void) {
  const rdzv_params params = {.size = sizeof params};
  const char *const words[] = {"true", NULL};
  const rdzv_agent_options options = {.size = sizeof options, .rendezvous = &params, .standalone = true, .argv = words};
  rdzv_agent *agent;
  rdzv_error error;
  assert_code(rdzv_agent_open(&options, &agent, &error), RDZV_OK);
  rdzv_agent_free(agent);
}

/* A connection that is refused is a line within a second. */
static void use_store(void) {
  const rdzv_tcp_options options = {.size = sizeof options, .timeout_ms = 2500};
  rdzv_store *store = NULL;
  rdzv_error error;
  assert_true(rdzv_store_open_tcp("127.0.0.1:1", &options, &store, &error) < 0);
}

/* Every kind of object writes to stderr, with the level and the process in each line. */
static void test_each_object_writes_to_stderr(void **state) {
  (void)state;
  const struct {
    void (*run)(void);
    const char *part;
  } objects[] = {{use_server, "info: listening on 127.0.0.1:"},
                 {use_handler, "opened rendezvous 'logged'"},
                 {use_agent, "info: rendezvous '"},
                 {use_store, "127.0.0.1:1"}};
  for (size_t i = 0; i < COUNT_OF(objects); i++) {
    char process[32];
    snprintf(process, sizeof process, "[%d]: ", (int)getpid());
    run_with("info", objects[i].run);
    if (!strstr(text, objects[i].part) || !strstr(text, process))
      fail_msg("'%s' is not in '%s'", objects[i].part, text);
  }
}

/* ---- the values ----------------------------------------------------------------------------------------------- */

static void test_without_the_variable_nothing_is_written(void **state) {
  (void)state;
  static const char *const values[] = {NULL, "", "off", "error", "warning"};
  for (size_t i = 0; i < COUNT_OF(values); i++) {
    run_with(values[i], use_server);
    assert_string_equal(text, "");
  }
}

static void use_three_servers(void) {
  for (int i = 0; i < 3; i++) use_server();
}

/* One line, however many objects there are; its escape sequence does not reach the terminal. */
static void test_a_bad_value_is_one_line(void **state) {
  (void)state;
  run_with("lo\033ud", use_three_servers);
  assert_int_equal(count_lines(), 1);
  assert_non_null(strstr(text, "for RDZV_LOG: expected off, error, warning, info or debug\n"));
  assert_null(strchr(text, '\033'));
}

static int own_lines;

static void use_own_logs(void) {
  const rdzv_log own = {sizeof own, quiet, &own_lines, RDZV_LOG_INFO}, none = {.size = sizeof none};
  use_server_with(&own);
  use_server_with(&none);
}

/* A log of the caller's is used instead, also one that writes nothing. */
static void test_a_log_in_the_options_goes_first(void **state) {
  (void)state;
  run_with("debug", use_own_logs);
  assert_string_equal(text, "");
  assert_true(own_lines > 0);
}

/* ---- with the rights of another user -------------------------------------------------------------------------- */

/* What this program does when it is started as a set-user-ID program. */
static int be_secure(void) {
  if (!getauxval(AT_SECURE)) return NOT_SECURE;
  run_with("debug", use_server);
  return *text != '\0';
}

static void copy_self(const char *path) {
  char buffer[65536];
  const int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  const int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
  assert_true(from >= 0 && to >= 0);
  for (ssize_t got; (got = read(from, buffer, sizeof buffer)) > 0;)
    assert_int_equal(write(to, buffer, (size_t)got), got);
  assert_int_equal(fchmod(to, 04755), 0);
  close(from);
  close(to);
}

static int run_as_nobody(const char *path) {
  int status;
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0) _exit(NOT_SECURE);
    execl(path, path, "--secure", (char *)NULL);
    _exit(NOT_SECURE);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void test_a_set_user_id_program_ignores_it(void **state) {
  (void)state;
  char folder[] = "/tmp/rdzv_log_XXXXXX", path[64];
  if (geteuid() != 0) skip();
  assert_non_null(mkdtemp(folder));
  assert_int_equal(chmod(folder, 0755), 0);
  snprintf(path, sizeof path, "%s/program", folder);
  copy_self(path);
  const int code = run_as_nobody(path);
  unlink(path);
  rmdir(folder);
  if (code == NOT_SECURE) skip(); /* a folder that is mounted nosuid */
  assert_int_equal(code, 0);
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "--secure") == 0) return be_secure();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each_object_writes_to_stderr),
      cmocka_unit_test(test_without_the_variable_nothing_is_written),
      cmocka_unit_test(test_a_bad_value_is_one_line),
      cmocka_unit_test(test_a_log_in_the_options_goes_first),
      cmocka_unit_test(test_a_set_user_id_program_ignores_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
