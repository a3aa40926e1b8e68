/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/text/parse.h"
#include "cli/protection.h"
#include "cli/store/etcd_url.h"
#include "cli/store/output.h"

#include <errno.h>
#include <rdzv/etcd.h>
#include <rdzv/store.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const me = "rdzv store";

enum { DEFAULT_TIMEOUT_MS = 30000, AT_ONCE_MS = 2000 /* for the server, where keys are not waited for */ };

struct settings {
  const char *endpoint;
  const char *file;
  const char *etcd, *etcd3; /* at most one */
  struct etcd_url etcd_url; /* the same, taken apart */
  const char *ca_cert, *cert, *key;
  const char *prefix;
  int64_t timeout;
  int dialect;
  bool json;
  bool raw;
  int log_level;
  struct protection_flags protection;
};

/* One operation under way. */
struct job {
  rdzv_store *store;
  const struct settings *settings;
  int argc;
  char **argv;      /* the operation's own arguments */
  rdzv_value input; /* what was read from stdin */
  rdzv_error error;
};

/* ---- arguments ---------------------------------------------------------------------------------------------- */

static int read_all(FILE *from, rdzv_value *out) {
  size_t cap = 65536;
  *out = (rdzv_value){malloc(cap), 0};
  while (out->data) {
    out->len += fread(out->data + out->len, 1, cap - out->len, from);
    if (out->len < cap) return ferror(from) ? -1 : 0;
    cap *= 2;
    char *data = realloc(out->data, cap);
    if (!data) return -1;
    out->data = data;
  }
  return -1;
}

/* "-" is what stands on stdin, which is read once. */
static int value_of(struct job *job, const char *text, rdzv_bytes *out) {
  *out = rdzv_str(text);
  if (strcmp(text, "-") != 0) return 0;
  if (!job->input.data && read_all(stdin, &job->input) < 0) {
    complain(me, "cannot read the value from stdin: %s", strerror(errno));
    return -1;
  }
  *out = rdzv_value_bytes(&job->input);
  return 0;
}

static rdzv_bytes *keys_of(const struct job *job) {
  rdzv_bytes *keys = calloc((size_t)job->argc + 1, sizeof *keys);
  for (int i = 0; keys && i < job->argc; i++) keys[i] = rdzv_str(job->argv[i]);
  return keys;
}

static int failed(struct job *job, int result) {
  const bool absent = result == RDZV_E_TIMEOUT && job->settings->timeout == 0;
  if (absent)
    snprintf(job->error.message, sizeof job->error.message, "%s",
             job->argc == 1 ? "the key is absent" : "not all of the keys exist");
  output_error(job->settings->json, me, &job->error);
  return absent ? EXIT_NO : exit_code_of(result);
}

/* ---- operations ---------------------------------------------------------------------------------------------- */

static int write_value(struct job *job, int (*write)(rdzv_store *, rdzv_bytes, rdzv_bytes, rdzv_error *)) {
  rdzv_bytes value;
  if (value_of(job, job->argv[1], &value) < 0) return EXIT_IO;
  const int result = write(job->store, rdzv_str(job->argv[0]), value, &job->error);
  return result < 0 ? failed(job, result) : output_done(job->settings->json);
}

static int op_set(struct job *job) { return write_value(job, rdzv_store_set); }

static int op_append(struct job *job) { return write_value(job, rdzv_store_append); }

static int op_get(struct job *job) {
  const rdzv_bytes key = rdzv_str(job->argv[0]);
  rdzv_value value;
  const int result = rdzv_store_get(job->store, key, &value, &job->error);
  if (result < 0) return failed(job, result);
  const int code = output_value(job->settings->json, job->settings->raw, key, rdzv_value_bytes(&value));
  rdzv_value_free(&value);
  return code;
}

static int op_add(struct job *job) {
  int64_t sum;
  const int64_t delta = strtoll(job->argv[1], NULL, 10); /* looked at before */
  const int result = rdzv_store_add(job->store, rdzv_str(job->argv[0]), delta, &sum, &job->error);
  return result < 0 ? failed(job, result) : output_number(job->settings->json, "value", sum);
}

static int op_cas(struct job *job) {
  const rdzv_bytes key = rdzv_str(job->argv[0]), expected = rdzv_str(job->argv[1]);
  rdzv_bytes desired;
  rdzv_value now;
  if (value_of(job, job->argv[2], &desired) < 0) return EXIT_IO;
  const int result = rdzv_store_compare_set(job->store, key, expected, desired, &now, &job->error);
  if (result < 0) return failed(job, result);
  const bool swapped = now.len == desired.len && memcmp(now.data, desired.data, now.len) == 0;
  const int code = output_swap(job->settings->json, job->settings->raw, key, rdzv_value_bytes(&now), swapped);
  rdzv_value_free(&now);
  return code;
}

static int op_check(struct job *job) {
  rdzv_bytes *keys = keys_of(job);
  if (!keys) return complain_no_memory(me);
  bool all;
  const int result = rdzv_store_check(job->store, keys, (size_t)job->argc, &all, &job->error);
  free(keys);
  return result < 0 ? failed(job, result) : output_flag(job->settings->json, "all", all);
}

static int op_wait(struct job *job) {
  rdzv_bytes *keys = keys_of(job);
  if (!keys) return complain_no_memory(me);
  const int result = rdzv_store_wait(job->store, keys, (size_t)job->argc, RDZV_TIMEOUT_STORE, &job->error);
  free(keys);
  return result < 0 ? failed(job, result) : output_done(job->settings->json);
}

static int op_delete(struct job *job) {
  bool deleted;
  const int result = rdzv_store_delete_key(job->store, rdzv_str(job->argv[0]), &deleted, &job->error);
  return result < 0 ? failed(job, result) : output_flag(job->settings->json, "deleted", deleted);
}

static int op_keys(struct job *job) {
  rdzv_value *keys;
  size_t count;
  const int result = rdzv_store_list_keys(job->store, &keys, &count, &job->error);
  if (result < 0) return failed(job, result);
  const int code = output_keys(job->settings->json, keys, count);
  rdzv_values_free(keys, count);
  return code;
}

static int op_num_keys(struct job *job) {
  int64_t count;
  const int result = rdzv_store_num_keys(job->store, &count, &job->error);
  return result < 0 ? failed(job, result) : output_number(job->settings->json, "num_keys", count);
}

static int op_mget(struct job *job) {
  rdzv_bytes *keys = keys_of(job);
  if (!keys) return complain_no_memory(me);
  rdzv_value *values;
  const int result = rdzv_store_multi_get(job->store, keys, (size_t)job->argc, &values, &job->error);
  int code;
  if (result < 0) {
    code = failed(job, result);
  } else {
    code = output_values(job->settings->json, keys, values, (size_t)job->argc);
    rdzv_values_free(values, (size_t)job->argc);
  }
  free(keys);
  return code;
}

static int op_mset(struct job *job) {
  const size_t count = (size_t)job->argc / 2;
  rdzv_bytes *keys = calloc(2 * count, sizeof *keys);
  if (!keys) return complain_no_memory(me);
  int code = EXIT_YES;
  for (size_t i = 0; i < count && code == EXIT_YES; i++) {
    keys[i] = rdzv_str(job->argv[2 * i]);
    if (value_of(job, job->argv[2 * i + 1], &keys[count + i]) < 0) code = EXIT_IO;
  }
  if (code == EXIT_YES) {
    const int result = rdzv_store_multi_set(job->store, keys, keys + count, count, &job->error);
    code = result < 0 ? failed(job, result) : output_done(job->settings->json);
  }
  free(keys);
  return code;
}

/* Arguments: k key, v value, n number; with + behind, the whole again and again. */
static const struct operation {
  const char *name;
  const char *arguments;
  int (*run)(struct job *job);
  const char *usage;
} operations[] = {
    {"set", "kv", op_set, "set K V"},        {"get", "k", op_get, "get K"},
    {"add", "kn", op_add, "add K N"},        {"cas", "kvv", op_cas, "cas K EXPECTED DESIRED"},
    {"check", "k+", op_check, "check K..."}, {"wait", "k+", op_wait, "wait K..."},
    {"delete", "k", op_delete, "delete K"},  {"append", "kv", op_append, "append K V"},
    {"keys", "", op_keys, "keys"},           {"num-keys", "", op_num_keys, "num-keys"},
    {"mget", "k+", op_mget, "mget K..."},    {"mset", "kv+", op_mset, "mset K V [K V]..."},
};

enum { OPERATIONS = sizeof operations / sizeof operations[0] };

/* Before anything is opened, so that a slip does not wait for a server. */
static bool check_arguments(const struct operation *operation, int argc, char **argv) {
  const int once = (int)strcspn(operation->arguments, "+");
  const bool repeats = operation->arguments[once] == '+';
  if (argc < once || (repeats ? argc % once != 0 : argc != once)) {
    complain(me, "wrong number of arguments: usage: rdzv store [FLAG...] %s (flags go before the operation)",
             operation->usage);
    return false;
  }
  for (int i = 0; i < argc; i++) {
    int64_t unused;
    if (operation->arguments[i % once] != 'n' || parse_number(argv[i], INT64_MIN, INT64_MAX, &unused)) continue;
    complain(me, "cannot %s '%s': not a 64-bit whole number", operation->name, argv[i]);
    return false;
  }
  return true;
}

/* ---- the command --------------------------------------------------------------------------------------------- */

static int parse(int argc, char **argv, struct settings *to) {
  const struct cli_flag flags[] = {
      {"rdzv-endpoint", FLAG_TEXT, &to->endpoint, "HOST:PORT",
       "address of the server (default $RDZV_ENDPOINT, else 127.0.0.1:29400)"},
      {"file", FLAG_TEXT, &to->file, "PATH", "use the store in this file"},
      {"etcd", FLAG_TEXT, &to->etcd, "URL",
       "use the store in etcd, below --prefix: [http[s]://][USER:PASSWORD@]HOST[:PORT],... (v2 API)"},
      {"etcd3", FLAG_TEXT, &to->etcd3, "URL",
       "the same through the v3 API (etcd 3.4 and later); its keys are separate"},
      {"cacert", FLAG_TEXT, &to->ca_cert, "FILE", "certificate authority of etcd, PEM (default: the system's)"},
      {"cert", FLAG_TEXT, &to->cert, "FILE", "client certificate for etcd, PEM (default none)"},
      {"key", FLAG_TEXT, &to->key, "FILE", "private key of the client certificate, PEM"},
      PROTECTION_FLAGS(&to->protection),
      {"prefix", FLAG_TEXT, &to->prefix, "P", "put P/ before every key; in etcd, the path of the store"},
      {"timeout", FLAG_SECONDS, &to->timeout, "S",
       "seconds to connect and to wait for keys (default 30); 0: do not wait"},
      {"dialect", FLAG_CHOICE, &to->dialect, "auto|v1|v2|rdzv", "dialect of the server (default auto)"},
      {"json", FLAG_SWITCH, &to->json, NULL, "print JSON"},
      {"raw", FLAG_SWITCH, &to->raw, NULL, "print a value without a newline"},
      LOG_LEVEL_FLAG(&to->log_level, "info"),
      {0}};
  const struct command command = {
      me, "OPERATION [ARG...]", "Reads and writes a store from the shell.", flags,
      "operations:\n"
      "  set K V                 set the value of the key\n"
      "  get K                   wait for the key, print its value\n"
      "  add K N                 add N to a counter, print the sum\n"
      "  cas K EXPECTED DESIRED  set if the value is EXPECTED, or the key is absent and EXPECTED is \"\"; print the "
      "value\n"
      "  check K...              exit with 0 if all keys exist, else with 1\n"
      "  wait K...               wait until all keys exist\n"
      "  delete K                delete the key\n"
      "  append K V              append to the value\n"
      "  keys                    print all keys\n"
      "  num-keys                print the number of keys\n"
      "  mget K...               wait for the keys, print their values\n"
      "  mset K V [K V]...       set several keys in one step\n\n"
      "'-' as V or DESIRED reads the value from stdin.\n\n"
      "exit codes: 0 yes, 1 no or key absent, 2 usage, 3 connection, 4 timeout, 5 outcome unknown, 6 refused, 7 I/O\n"};
  const int rest = flags_parse(&command, argc, argv);
  if (flag_by_variable("rdzv-endpoint") && (to->file || to->etcd || to->etcd3)) to->endpoint = NULL;
  return rest;
}

static int fail_unknown(const char *name) {
  const char *names[OPERATIONS];
  for (int i = 0; i < OPERATIONS; i++) names[i] = operations[i].name;
  complain(me, "unknown operation '%s'%s", name, did_you_mean(me, "", name, names, OPERATIONS).text);
  return EXIT_USAGE;
}

static const struct operation *find_operation(const char *name) {
  for (int i = 0; i < OPERATIONS; i++)
    if (strcmp(operations[i].name, name) == 0) return &operations[i];
  return NULL;
}

static int open_etcd(const struct settings *settings, int64_t timeout, const rdzv_log *log, rdzv_store **out,
                     rdzv_error *error) {
  const struct etcd_url *url = &settings->etcd_url;
  const rdzv_etcd_options etcd = {.size = sizeof etcd,
                                  .endpoints = url->hosts,
                                  .https = url->https,
                                  .user = url->user,
                                  .password = url->password,
                                  .ca_cert = settings->ca_cert,
                                  .cert = settings->cert,
                                  .key = settings->key,
                                  .read_timeout_ms = timeout};
  const char *prefix = settings->prefix ? settings->prefix : "";
  if (settings->etcd3) {
    const rdzv_etcd3_store_options v3 = {.size = sizeof v3, .timeout_ms = timeout, .log = log, .etcd = &etcd};
    return rdzv_store_open_etcd3(prefix, &v3, out, error);
  }
  const rdzv_etcd_store_options options = {.size = sizeof options, .timeout_ms = timeout, .log = log, .etcd = &etcd};
  return rdzv_store_open_etcd(prefix, &options, out, error);
}

/* The first lines about a server that is not there yet are worth seeing: without them a wait looks like a hang. */
static int open_store(const struct settings *settings, rdzv_store **out, rdzv_error *error) {
  const rdzv_log *log = stderr_log(me, settings->log_level);
  const int64_t timeout = settings->timeout ? settings->timeout : AT_ONCE_MS;
  if (settings->file) {
    const rdzv_file_options options = {.size = sizeof options, .timeout_ms = timeout, .log = log};
    return rdzv_store_open_file(settings->file, &options, out, error);
  }
  if (settings->etcd || settings->etcd3) return open_etcd(settings, timeout, log, out, error);
  const struct protection_flags *protection = &settings->protection;
  const rdzv_tcp_options options = {.size = sizeof options,
                                    .timeout_ms = timeout,
                                    .log = log,
                                    .dialect = (rdzv_dialect)settings->dialect,
                                    .secret_file = protection->secret_file,
                                    .tls_ca = protection->tls_ca,
                                    .tls_cert = protection->tls_cert,
                                    .tls_key = protection->tls_key};
  protection_hide(protection, NULL);
  return rdzv_store_open_tcp(settings->endpoint ? settings->endpoint : "127.0.0.1", &options, out, error);
}

static int run(const struct operation *operation, struct job *job) {
  const struct settings *settings = job->settings;
  rdzv_store *base;
  int result = open_store(settings, &base, &job->error);
  if (result < 0) {
    output_error(settings->json, me, &job->error);
    return exit_code_of(result);
  }
  rdzv_store *view = NULL;
  if (settings->prefix && !settings->etcd && !settings->etcd3)
    result = rdzv_store_open_prefix(base, rdzv_str(settings->prefix), &view, &job->error);
  job->store = view ? view : base;
  if (result == 0) result = rdzv_store_set_timeout(job->store, settings->timeout, &job->error);
  const int code = result < 0 ? failed(job, result) : operation->run(job);
  rdzv_store_free(view);
  rdzv_store_free(base);
  return code;
}

/* Which store is meant? Complains where that is not clear. */
static bool check_settings(struct settings *settings) {
  const bool secured = settings->ca_cert || settings->cert || settings->key;
  const char *url = settings->etcd3 ? settings->etcd3 : settings->etcd, *flag = settings->etcd3 ? "etcd3" : "etcd";
  const char *why = url ? etcd_url_parse(url, &settings->etcd_url) : NULL;
  if (!!settings->file + !!settings->endpoint + !!settings->etcd + !!settings->etcd3 > 1)
    complain(me, "--file, --rdzv-endpoint, --etcd and --etcd3 cannot be used together (give one of them)");
  else if (why)
    complain(me, "invalid value for --%s: %s (expected [http[s]://][USER:PASSWORD@]HOST[:PORT],...)", flag, why);
  else if (secured && !settings->etcd_url.https)
    complain(me, "--cacert, --cert and --key need --etcd https://... or --etcd3 https://...");
  else
    return true;
  return false;
}

int cmd_store(int argc, char **argv) {
  struct settings settings = {.timeout = DEFAULT_TIMEOUT_MS, .log_level = RDZV_LOG_INFO};
  int code = EXIT_USAGE;
  const int rest = parse(argc, argv, &settings);
  if (rest < 0) return rest == -2 ? EXIT_YES : EXIT_USAGE;
  const struct operation *operation = rest < argc ? find_operation(argv[rest]) : NULL;
  const int first = rest + 1 < argc && strcmp(argv[rest + 1], "--") == 0 ? rest + 2 : rest + 1; /* "get -- -k" */
  struct job job = {.settings = &settings, .argc = argc - first, .argv = argv + first};
  if (rest >= argc)
    complain(me, "no operation given (see 'rdzv store --help')");
  else if (!operation)
    code = fail_unknown(argv[rest]);
  else if (check_settings(&settings) && check_arguments(operation, job.argc, job.argv))
    code = run(operation, &job);
  rdzv_value_free(&job.input);
  etcd_url_free(&settings.etcd_url);
  return code;
}
