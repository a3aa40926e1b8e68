/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * etcd as a sidecar, with a guard between us and it (guard.h).
 *
 * The ports are bound here, without listening, until etcd has bound them too: both use SO_REUSEADDR, so it can, while
 * no other process is given them by chance.
 *
 * Failure modes: the binary is missing or cannot be run: fails at once. It ends or does not answer: its last lines are
 * in the error; another try with other ports, if the library chose them.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/net/host.h"
#include "base/os/folder.h"
#include "base/text/options.h"
#include "base/wait/fork.h"
#include "etcd/process/guard.h"
#include "etcd/v2/v2.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  READY_MS = 60000,
  TRIES = 3,
  LOOK_MS = 50, /* between two looks whether it answers */
  FIRST_ANSWER_MS = 200,
  LAST_ANSWER_MS = 3200, /* for one answer: a machine may be busy */
  REMOVE_TRIES = 20,
  ARGUMENTS = 20,
  UNKNOWN_FLAG = 2, /* etcd's exit code for one, or another mistake in its flags */
};

struct rdzv_etcd_process {
  rdzv_log log;
  fork_mark born; /* a child of the process that started it must not end etcd */
  char *binary, *given_dir, *given_log;
  int log_fd;                          /* the caller's; -1: none */
  char *own_dir, *data_dir, *log_path; /* of this try; own_dir is made and removed by us. NULL: none */
  char **env;
  bool v2;          /* etcd is asked to serve its v2 API, too */
  bool knows_flags; /* etcd did not end as it does at a flag that it does not know */
  struct etcd_guard guard;
  int port;
  char endpoint[ENDPOINT_TEXT_SIZE];
};

/* ---- the binary ----------------------------------------------------------------------------------------------- */

static bool is_program(const char *path) {
  struct stat status;
  return access(path, X_OK) == 0 && stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static char *search_path(const char *name) {
  const char *list = getenv("PATH");
  char *copy = strdup(list ? list : "/usr/local/bin:/usr/bin:/bin"), *rest = copy, *found = NULL;
  while (copy && rest && !found) {
    char *path = NULL;
    const char *folder = strsep(&rest, ":");
    if (asprintf(&path, "%s/%s", *folder ? folder : ".", name) < 0) break;
    if (is_program(path))
      found = path;
    else
      free(path);
  }
  free(copy);
  return found;
}

static int find_binary(const char *given, char **out, rdzv_error *error) {
  const char *named[] = {given, getenv("RDZV_ETCD_BINARY"), getenv("TORCHELASTIC_ETCD_BINARY_PATH")};
  for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
    if (!named[i] || !*named[i]) continue;
    if (!is_program(named[i]))
      return error_set(error, RDZV_E_IO, "cannot start etcd: '%s' is not an executable program", named[i]);
    *out = strdup(named[i]);
    return *out ? 0 : error_no_memory(error);
  }
  *out = is_program(RDZV_LIBEXEC "/etcd") ? strdup(RDZV_LIBEXEC "/etcd") : search_path("etcd");
  if (*out) return 0;
  return error_set(error, RDZV_E_IO,
                   "cannot start etcd: not found in RDZV_ETCD_BINARY, TORCHELASTIC_ETCD_BINARY_PATH, %s and PATH",
                   RDZV_LIBEXEC "/etcd");
}

/* ---- folders and logs ----------------------------------------------------------------------------------------- */

static int make_own_dir(rdzv_etcd_process *process, rdzv_error *error) {
  const char *base = getenv("TMPDIR");
  char *name = NULL;
  if (!base || !*base) base = "/tmp";
  if (asprintf(&name, "%s/rdzv-etcd-XXXXXX", base) < 0) return error_no_memory(error);
  const char *made = mkdtemp(name);
  const int errnum = errno;
  if (made) process->own_dir = realpath(made, NULL); /* it stays where it is when we go to another folder */
  free(name);
  if (!made) return error_errno(error, RDZV_E_IO, errnum, "cannot create a directory for etcd in '%.300s'", base);
  return process->own_dir ? 0 : error_no_memory(error);
}

/* The guard has done so, unless it was killed. Once more where it is not gone: etcd is killed then, but not in the
 * same moment. */
static void remove_own_dir(const char *path) {
  for (int tries = 0; path && tries < REMOVE_TRIES && access(path, F_OK) == 0; tries++) {
    if (tries > 0) poll(NULL, 0, LOOK_MS);
    folder_remove(AT_FDCWD, path);
  }
}

static char *copy_or_below(const char *given, const char *folder, const char *name) {
  char *path;
  if (given) return strdup(given);
  return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

static int prepare_folders(rdzv_etcd_process *process, rdzv_error *error) {
  const bool keeps_log = !process->given_log && process->log_fd < 0; /* to have its last lines */
  const int result = !process->given_dir || keeps_log ? make_own_dir(process, error) : 0;
  if (result < 0) return result;
  process->data_dir = copy_or_below(process->given_dir, process->own_dir, "data");
  if (process->given_log || keeps_log) process->log_path = copy_or_below(process->given_log, process->own_dir, "log");
  return process->data_dir && (process->log_path || process->log_fd >= 0) ? 0 : error_no_memory(error);
}

/* Puts the last whole lines that etcd wrote behind the sentence, as many as there is room for. */
static void add_last_lines(const rdzv_etcd_process *process, rdzv_error *error) {
  static const char words[] = "; its last lines: ";
  FILE *file = process->log_path && error ? fopen(process->log_path, "r") : NULL;
  if (!file) return;
  const size_t len = strlen(error->message), room = sizeof error->message - len;
  if (room > sizeof words) {
    char *lines = error->message + len + sizeof words - 1;
    const long most = (long)(room - sizeof words);
    const bool cut = fseek(file, -most, SEEK_END) == 0;
    if (!cut) rewind(file);
    size_t got = fread(lines, 1, (size_t)most, file);
    while (got > 0 && lines[got - 1] == '\n') got--;
    lines[got] = '\0';
    const char *first = cut ? strchr(lines, '\n') : NULL;
    if (first) memmove(lines, first + 1, strlen(first));
    for (char *at = lines; (at = strchr(at, '\n'));) *at = '|';
    if (*lines) memcpy(error->message + len, words, sizeof words - 1);
  }
  fclose(file);
}

/* ---- the child's environment ---------------------------------------------------------------------------------- */

/* etcd takes every flag from ETCD_<FLAG>, too, so what is meant for another etcd would change this one. One of them is
 * no flag, but lets it run at all on some machines. */
static bool is_for_etcd(const char *variable) {
  return strncmp(variable, "ETCD_", 5) == 0 && strncmp(variable, "ETCD_UNSUPPORTED_ARCH=", 22) != 0;
}

static int copy_environment(rdzv_etcd_process *process, rdzv_error *error) {
  size_t count = 0, kept = 0;
  while (environ && environ[count]) count++;
  process->env = calloc(count + 1, sizeof *process->env);
  if (!process->env) return error_no_memory(error);
  for (size_t i = 0; i < count; i++)
    if (!is_for_etcd(environ[i])) process->env[kept++] = environ[i];
  return 0;
}

/* ---- starting ------------------------------------------------------------------------------------------------- */

static int fail_ended(rdzv_etcd_process *process, rdzv_error *error) {
  const struct etcd_guard_note note = process->guard.note;
  process->knows_flags = !WIFEXITED(note.status) || WEXITSTATUS(note.status) != UNKNOWN_FLAG;
  if (note.errnum) return error_errno(error, RDZV_E_IO, note.errnum, "cannot run etcd ('%.200s')", process->binary);
  if (WIFSIGNALED(note.status))
    error_set(error, RDZV_E_CONNECTION, "etcd ('%.200s') was killed by signal %d before it answered", process->binary,
              WTERMSIG(note.status));
  else
    error_set(error, RDZV_E_CONNECTION, "etcd ('%.200s') ended with status %d before it answered", process->binary,
              WEXITSTATUS(note.status));
  add_last_lines(process, error);
  return RDZV_E_CONNECTION;
}

static int fail_late(rdzv_etcd_process *process, int64_t timeout_ms, rdzv_error *error) {
  error_set(error, RDZV_E_TIMEOUT, "etcd ('%.200s') did not answer within %lld ms", process->binary,
            (long long)timeout_ms);
  add_last_lines(process, error);
  return RDZV_E_TIMEOUT;
}

/* Is it an etcd that has a leader? */
static bool answers(struct etcd_client *client, bool v2, const struct etcd_call *call) {
  const struct etcd_request range = {.method = "POST",
                                     .path = "/v3/kv/range",
                                     .form = "{\"key\":\"Lw==\",\"count_only\":true}",
                                     .v3 = true,
                                     .of_keys = true};
  struct http_response response;
  struct etcd_result result;
  if (!v2 && etcd_perform(client, &range, call, &response) == 0) {
    buf_free(&response.body);
    return response.status == 200;
  }
  if (!v2 || etcd_v2_get(client, "/", 0, call, &result) != 0) return false;
  etcd_result_free(&result);
  return true;
}

/* Asks until it answers, it has ended, or time is over. */
static bool await_answer(rdzv_etcd_process *process, struct etcd_client *client, deadline until) {
  const struct flag ended = {.borrowed_fd = process->guard.line};
  for (int64_t patience = FIRST_ANSWER_MS; deadline_left(until) > 0 && !etcd_guard_has_ended(&process->guard);) {
    const struct etcd_call call = {deadline_sooner(deadline_after(patience), until), &ended, NULL};
    if (answers(client, process->v2, &call)) return true;
    flag_pause(&ended, deadline_after(LOOK_MS));
    patience = patience < LAST_ANSWER_MS ? patience * 2 : LAST_ANSWER_MS;
  }
  return false;
}

static int await_ready(rdzv_etcd_process *process, int64_t timeout_ms, rdzv_error *error) {
  const rdzv_etcd_options options = {.size = sizeof options, .endpoints = process->endpoint};
  struct etcd_client *client;
  const int result = etcd_open(&options, &client, error);
  if (result < 0) return result;
  const bool answered = await_answer(process, client, deadline_after(timeout_ms));
  etcd_close(client);
  if (etcd_guard_has_ended(&process->guard)) return fail_ended(process, error); /* then another process answered */
  return answered ? 0 : fail_late(process, timeout_ms, error);
}

/* As host_reserve_port, for one that was chosen. A server that listens there would be taken for our etcd. */
static int reserve_chosen(int port, int *out, rdzv_error *error) {
  const struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
      bind(fd, (const struct sockaddr *)&address, sizeof address) == 0) {
    *out = fd;
    return 0;
  }
  const int errnum = errno;
  if (fd >= 0) close(fd);
  return error_errno(error, RDZV_E_IO, errnum, "cannot start etcd: cannot bind 127.0.0.1:%d", port);
}

static int spawn(rdzv_etcd_process *process, int peer_port, rdzv_error *error) {
  char client_url[48], peer_url[48], cluster[64];
  snprintf(client_url, sizeof client_url, "http://127.0.0.1:%d", process->port);
  snprintf(peer_url, sizeof peer_url, "http://127.0.0.1:%d", peer_port);
  snprintf(cluster, sizeof cluster, "default=%s", peer_url);
  snprintf(process->endpoint, sizeof process->endpoint, "127.0.0.1:%d", process->port);
  char *argv[ARGUMENTS] = {process->binary,
                           "--name",
                           "default",
                           "--data-dir",
                           process->data_dir,
                           "--listen-client-urls",
                           client_url,
                           "--advertise-client-urls",
                           client_url,
                           "--listen-peer-urls",
                           peer_url,
                           "--initial-advertise-peer-urls",
                           peer_url,
                           "--initial-cluster",
                           cluster,
                           process->v2 ? "--enable-v2" : NULL,
                           NULL};
  const struct etcd_guard_job job = {argv, process->env, process->log_path, process->log_fd, process->own_dir};
  return etcd_guard_start(&job, &process->guard, error);
}

/* Ends what a try has begun. */
static void end_try(rdzv_etcd_process *process) {
  etcd_guard_stop(&process->guard);
  remove_own_dir(process->own_dir);
  free(process->own_dir);
  free(process->data_dir);
  free(process->log_path);
  process->own_dir = process->data_dir = process->log_path = NULL;
}

static int try_start(rdzv_etcd_process *process, int port, int64_t timeout_ms, rdzv_error *error) {
  int client_fd = -1, peer_fd = -1, peer_port = 0;
  process->port = port;
  int result = prepare_folders(process, error);
  if (result == 0) result = host_reserve_port(&peer_fd, &peer_port, error);
  if (result == 0)
    result = port == 0 ? host_reserve_port(&client_fd, &process->port, error) : reserve_chosen(port, &client_fd, error);
  if (result == 0) result = spawn(process, peer_port, error);
  if (result == 0) result = await_ready(process, timeout_ms, error);
  if (client_fd >= 0) close(client_fd);
  if (peer_fd >= 0) close(peer_fd);
  if (result < 0) end_try(process);
  return result;
}

/* etcd 3.6 has no v2 API and rejects the flag for it. */
static int start_with_v2_or_not(rdzv_etcd_process *process, int port, int64_t timeout_ms, rdzv_error *error) {
  const int result = try_start(process, port, timeout_ms, error);
  if (result != RDZV_E_CONNECTION || !process->v2 || process->knows_flags) return result;
  process->v2 = false;
  return try_start(process, port, timeout_ms, error);
}

static int init(rdzv_etcd_process *process, const rdzv_etcd_process_options *options, rdzv_error *error) {
  if (options->port < 0 || options->port > 65535)
    return error_set(error, RDZV_E_INVALID, "cannot start etcd: %d is not a port", options->port);
  process->log_fd = options->log_fd > 0 ? options->log_fd : -1;
  process->v2 = true;
  if (options->data_dir && !(process->given_dir = strdup(options->data_dir))) return error_no_memory(error);
  if (options->log_path && !(process->given_log = strdup(options->log_path))) return error_no_memory(error);
  const int result = find_binary(options->binary, &process->binary, error);
  return result == 0 ? copy_environment(process, error) : result;
}

int rdzv_etcd_process_start(const rdzv_etcd_process_options *given, rdzv_etcd_process **out, rdzv_error *error) {
  if (!out) return error_null(error, "rdzv_etcd_process_start", "out");
  rdzv_etcd_process_options options;
  int result = options_take(&options, sizeof options, given, "rdzv_etcd_process_options", error);
  if (result < 0) return result;
  rdzv_etcd_process *process = calloc(1, sizeof *process);
  if (!process) return error_no_memory(error);
  process->born = fork_mark_here();
  process->guard.line = -1;
  result = log_take(&options.log, &process->log, error);
  if (result == 0) result = init(process, &options, error);
  const int tries = options.port > 0 ? 1 : options.tries > 0 ? options.tries : TRIES;
  const int64_t timeout_ms = options.timeout_ms > 0 ? options.timeout_ms : READY_MS;
  for (int i = 0; i < tries && (i == 0 ? result == 0 : result == RDZV_E_CONNECTION); i++)
    result = start_with_v2_or_not(process, options.port, timeout_ms, error);
  if (result < 0) {
    rdzv_etcd_process_free(process);
    return result;
  }
  log_line(&process->log, RDZV_LOG_INFO, "etcd ('%s') answers at %s", process->binary, process->endpoint);
  *out = process;
  return 0;
}

/* ---- the rest ------------------------------------------------------------------------------------------------- */

const char *rdzv_etcd_process_endpoint(const rdzv_etcd_process *process) { return process->endpoint; }
int rdzv_etcd_process_port(const rdzv_etcd_process *process) { return process->port; }
int64_t rdzv_etcd_process_pid(const rdzv_etcd_process *process) { return process->guard.pid; }

int rdzv_etcd_process_wait(rdzv_etcd_process *process, int cancel_fd, int *status, rdzv_error *error) {
  if (!status) return error_null(error, "rdzv_etcd_process_wait", "status");
  if (fork_crossed(process->born)) return fork_fail("the etcd process", error);
  struct pollfd fds[] = {{.fd = process->guard.line, .events = POLLIN},
                         {.fd = cancel_fd > 0 ? cancel_fd : -1, .events = POLLIN}};
  while (!etcd_guard_has_ended(&process->guard))
    if (poll(fds, 2, -1) > 0 && fds[1].revents)
      return error_set(error, RDZV_E_CANCELED, "waiting for etcd to end: canceled");
  *status = process->guard.note.status;
  return 0;
}

void rdzv_etcd_process_free(rdzv_etcd_process *process) {
  if (!process) return;
  if (!fork_crossed(process->born))
    end_try(process);
  else if (process->guard.line >= 0)
    close(process->guard.line);
  free(process->own_dir);
  free(process->data_dir);
  free(process->log_path);
  free(process->binary);
  free(process->given_dir);
  free(process->given_log);
  free(process->env);
  free(process);
}
