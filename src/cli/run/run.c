/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli/run/run.h"
#include "base/text/parse.h"
#include "cli/protection.h"
#include "cli/signals.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const char *const me = "rdzv run";

#define NOT_GIVEN INT64_MIN
#define LINE_PREFIX_VARIABLE "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"

struct settings {
  const char *nnodes, *nproc, *role;
  const char *backend, *endpoint, *run_id, *conf, *local_addr;
  const char *master_addr;
  int64_t master_port, node_rank, max_restarts, shutdown_ms, barrier_ms;
  const char *log_dir, *redirects, *tee, *filter, *signals, *event_log;
  const char *event_log_handler, *filter_stdout, *filter_stderr;
  int64_t monitor_interval;
  int start_method; /* -1: not given */
  const char *line_prefix;
  bool virtual_local_rank;
  int numa;       /* -1: none */
  int logs_specs; /* -1: not given */
  bool standalone, json_log;
  int log_level;
  struct program_flags program;
  struct protection_flags protection;
  bool direct_master;
  char variables[sizeof((struct flag_extras *)NULL)->taken + 32]; /* behind an error: where values may come from */
};

/* ---- the command line ----------------------------------------------------------------------------------------- */

static bool is_given(const char *text) { return text && *text; }

/* Does the job meet at a store that other commands can use, too? Then RDZV_ENDPOINT names it. */
static bool meets_at_a_store(const struct settings *settings) {
  int64_t min, max;
  if (settings->standalone) return false;
  if (is_given(settings->backend)) return strcmp(settings->backend, "static") != 0;
  return settings->nnodes && parse_nnodes(settings->nnodes, &min, &max) && max > min;
}

static int parse(int argc, char **argv, struct settings *to) {
  const struct cli_flag flags[] = {
      {"nodes and workers", FLAG_GROUP, NULL, NULL, NULL},
      {"nnodes", FLAG_TEXT, &to->nnodes, "MIN[:MAX]", "number of nodes in a round (default 1)"},
      {"nproc-per-node", FLAG_TEXT, &to->nproc, "N|auto|cpu|gpu|xpu", "number of workers on this node (default 1)"},
      {"role", FLAG_TEXT, &to->role, "NAME", "role of the workers of this node (default \"default\")"},
      {"max-restarts", FLAG_NUMBER, &to->max_restarts, "N", "restarts after failures of workers (default 0)"},

      {"the rendezvous", FLAG_GROUP, NULL, NULL, NULL},
      {"standalone", FLAG_SWITCH, &to->standalone, NULL, "a job on this node only, with its own store"},
      {"rdzv-backend", FLAG_TEXT, &to->backend, "NAME", "c10d, etcd-v2, etcd-v3, etcd or static; see below"},
      {"rdzv-endpoint", FLAG_TEXT, &to->endpoint, "HOST:PORT",
       "address of the store (default $RDZV_ENDPOINT); port 0 picks a free port"},
      {"rdzv-id", FLAG_TEXT, &to->run_id, "ID", "id of the job, the same on all nodes (default none)"},
      {"rdzv-conf", FLAG_TEXT, &to->conf, "K=V,...", "options of the rendezvous, see rdzv-join(1)"},
      {"local-addr", FLAG_TEXT, &to->local_addr, "ADDR", "name or address of this node for the other nodes"},
      {"node-rank", FLAG_NUMBER, &to->node_rank, "N", "rank of this node, for backend static (default 0)"},
      {"master-addr", FLAG_TEXT, &to->master_addr, "ADDR",
       "address of node rank 0, for backend static (default 127.0.0.1)"},
      {"master-port", FLAG_NUMBER, &to->master_port, "PORT",
       "port of node rank 0, for backend static (default 29500; with one node: $MASTER_PORT or a free port)"},

      {"protection", FLAG_GROUP, NULL, NULL, NULL},
      PROTECTION_FLAGS(&to->protection),
      {"direct-master", FLAG_SWITCH, &to->direct_master, NULL,
       "set MASTER_ADDR to the machine of rank 0 even with a secret; the workers' store is then not protected"},

      {"the program", FLAG_GROUP, NULL, NULL, NULL},
      {"module", FLAG_SWITCH, &to->program.module, NULL, "PROGRAM is a Python module"},
      {"virtual-local-rank", FLAG_SWITCH, &to->virtual_local_rank, NULL,
       "set LOCAL_RANK to 0, and let each worker see one GPU"},
      {"numa-binding", FLAG_CHOICE, &to->numa, "node|socket|exclusive|core-complex",
       "bind each worker to CPUs near its GPU (default: no binding)"},
      {"no-python", FLAG_SWITCH, &to->program.no_python, NULL, "execute PROGRAM, never through Python"},
      {"run-path", FLAG_SWITCH, &to->program.run_path, NULL, "run PROGRAM with Python, even if it is executable"},

      {"stopping", FLAG_GROUP, NULL, NULL, NULL},
      {"signals-to-handle", FLAG_TEXT, &to->signals, "NAME,...",
       "signals that stop this node (default SIGTERM,SIGINT,SIGHUP,SIGQUIT)"},
      {"shutdown-timeout", FLAG_SECONDS, &to->shutdown_ms, "SECONDS",
       "time between SIGTERM and SIGKILL for workers (default 30)"},
      {"exit-barrier-timeout", FLAG_SECONDS, &to->barrier_ms, "SECONDS",
       "time to wait for the workers of other nodes (default 300)"},

      {"output", FLAG_GROUP, NULL, NULL, NULL},
      {"log-dir", FLAG_TEXT, &to->log_dir, "DIR", "folder for the output of workers; each run creates a subfolder"},
      {"redirects", FLAG_TEXT, &to->redirects, "WHAT",
       "output of workers to files: 1 stdout, 2 stderr, 3 both, or RANK:WHAT,..."},
      {"tee", FLAG_TEXT, &to->tee, "WHAT", "output to files, and to the terminal with a prefix"},
      {"local-ranks-filter", FLAG_TEXT, &to->filter, "RANK,...", "local ranks whose output is shown (default all)"},
      {"log-line-prefix-template", FLAG_TEXT, &to->line_prefix, "TEXT",
       "prefix of the lines of --tee (default [${role_name}${rank}]:)"},
      {"duplicate-stdout-filters", FLAG_TEXT, &to->filter_stdout, "TEXT,...",
       "also write --tee lines that contain TEXT to filtered_stdout.log"},
      {"duplicate-stderr-filters", FLAG_TEXT, &to->filter_stderr, "TEXT,...", "the same for stderr"},
      {"event-log", FLAG_TEXT, &to->event_log, "PATH", "append each event to PATH as a line of JSON"},
      {"json-log", FLAG_SWITCH, &to->json_log, NULL, "write log lines as JSON objects"},
      LOG_LEVEL_FLAG(&to->log_level, "info"),

      {"accepted for torchrun, without effect", FLAG_GROUP, NULL, NULL, NULL},
      {"monitor-interval", FLAG_SECONDS, &to->monitor_interval, "SECONDS", "rdzv run does not poll"},
      {"start-method", FLAG_CHOICE, &to->start_method, "spawn|fork|forkserver",
       "workers are always new programs, not forks"},
      {"logs-specs", FLAG_CHOICE, &to->logs_specs, "default", "rdzv run has no plug-ins for logs"},
      {"event-log-handler", FLAG_TEXT, &to->event_log_handler, "NAME", "use --event-log"},
      {0}};
  const struct command command = {
      .name = me,
      .synopsis = "PROGRAM [ARG...]",
      .summary =
          "Starts PROGRAM as the workers of this node in a distributed job, and supervises them. Takes the flags of "
          "torchrun; nodes of both can be in one job.",
      .flags = flags,
      .more =
          "Every flag can also be set in the environment, as PET_NNODES, PET_MAX_RESTARTS and so on.\n"
          "\n"
          "Python (PYTHON_EXEC, or python3) runs PROGRAM if its name ends in .py, or if it is a text file that is "
          "neither "
          "executable nor a shell script. \"${local_rank}\" in the arguments is replaced.\n"
          "\n"
          "The default backend is static, as with torchrun, and c10d for a range of nodes.\n"
          "\n"
          "The exit code is 0 after success, the code of the worker that failed first (128+n for signal n), or one of "
          "rdzv(1).\n",
  };
  _Static_assert(sizeof flags / sizeof flags[0] <= FLAGS_MOST, "the table of flags is too long");
  struct flag_extras extras = {.letters = "m=module,r=redirects,t=tee", .environment = "PET_"};
  const int rest = flags_parse_with(&command, &extras, argc, argv);
  if (flag_by_variable("rdzv-endpoint") && !meets_at_a_store(to)) to->endpoint = NULL;
  if (*extras.taken) snprintf(to->variables, sizeof to->variables, " (from the environment: %s)", extras.taken);
  return rest;
}

/* ---- the rendezvous ------------------------------------------------------------------------------------------- */

/* As torchrun reads it: static, unless another one is named. But a range of nodes can only be dynamic. */
static const char *backend_of(const struct settings *settings, const rdzv_params *params) {
  if (is_given(settings->backend)) return settings->backend;
  return params->max_nodes > params->min_nodes ? "c10d" : "static";
}

/* The port of rank 0 where no flag names it. A job of one node takes MASTER_PORT, else a free port. The MASTER_PORT of
 * a worker belongs to the job of that worker. */
static const char *default_port(const rdzv_params *params) {
  const char *port = getenv("TORCHELASTIC_RUN_ID") ? NULL : getenv("MASTER_PORT");
  if (params->max_nodes > 1) return "29500";
  return is_given(port) ? port : "0";
}

/* The port goes into the endpoint: an error there would not name its source. */
static bool check_master_port(const struct settings *settings, const char *port) {
  int64_t number;
  const bool by_flag = settings->master_port != NOT_GIVEN;
  if (parse_number(port, 0, 65535, &number)) return true;
  complain(me, "invalid value '%s' for %s: expected 0 to 65535%s", port, by_flag ? "--master-port" : "MASTER_PORT",
           by_flag ? settings->variables : "");
  return false;
}

/* What the static rendezvous has in flags of its own: an exit code. To be freed are *conf and *endpoint. */
static int fill_static(const struct settings *settings, rdzv_params *params, char **conf, char **endpoint) {
  char *longer, number[24];
  const long long rank = settings->node_rank;
  snprintf(number, sizeof number, "%lld", (long long)settings->master_port);
  const char *port = settings->master_port == NOT_GIVEN ? default_port(params) : number;
  const char *comma = *params->conf ? "," : "";
  const char *addr = settings->master_addr ? settings->master_addr : "127.0.0.1";
  if (strcmp(params->backend, "static") != 0) return EXIT_YES;
  const bool told = settings->node_rank != NOT_GIVEN;
  if ((told ? asprintf(&longer, "%s%srank=%lld", params->conf, comma, rank)
            : asprintf(&longer, "rank=0%s%s", comma, params->conf)) < 0)
    return complain_no_memory(me);
  free(*conf);
  params->conf = *conf = longer;
  if (params->endpoint) return EXIT_YES;
  if (!check_master_port(settings, port)) return EXIT_USAGE;
  const bool v6 = strchr(addr, ':') && addr[0] != '[';
  if (asprintf(endpoint, v6 ? "[%s]:%s" : "%s:%s", addr, port) < 0) return complain_no_memory(me);
  params->endpoint = *endpoint;
  return EXIT_YES;
}

static int fill_params(const struct settings *settings, rdzv_params *params, char **conf, char **endpoint) {
  const char *nnodes = settings->nnodes ? settings->nnodes : "1";
  if (!parse_nnodes(nnodes, &params->min_nodes, &params->max_nodes)) {
    complain(me, "invalid value '%s' for --nnodes: %s%s", nnodes, NNODES_EXPECTED, settings->variables);
    return EXIT_USAGE;
  }
  params->backend = settings->standalone ? "c10d" : backend_of(settings, params);
  params->endpoint = is_given(settings->endpoint) ? settings->endpoint : NULL;
  params->run_id = settings->run_id ? settings->run_id : "none";
  params->conf = *conf = protection_conf(me, &settings->protection, settings->conf ? settings->conf : "");
  if (!params->conf) return EXIT_USAGE;
  protection_hide(&settings->protection, params->conf);
  params->local_addr = settings->local_addr;
  params->ignore_unknown = true;
  return fill_static(settings, params, conf, endpoint);
}

/* ---- what was said in vain ------------------------------------------------------------------------------------ */

struct vain {
  bool given;
  const char *flag, *why;
};

static void say(const rdzv_log *log, rdzv_log_level level, const struct vain *list, size_t count) {
  char text[256];
  for (size_t i = 0; i < count; i++) {
    snprintf(text, sizeof text, "%s has no effect: %s", list[i].flag, list[i].why);
    if (list[i].given && log->level >= level) log->write(log->user, level, text);
  }
}

#define SAY(log, level, list) say(log, level, list, sizeof(list) / sizeof(list)[0])

/* Do the options, which have the flags in them, or the environment protect the rendezvous? */
static bool is_secret(const char *conf) {
  return strstr(conf, "secret_file=") || strstr(conf, "tls_ca=") || strstr(conf, "tls_cert=") ||
         is_given(getenv("RDZV_SECRET_FILE"));
}

static void say_without_rendezvous(const struct settings *settings, const rdzv_params *params, const rdzv_log *log) {
  const bool alone = settings->standalone, fixed = !alone && strcmp(params->backend, "static") == 0;
  const char *own = "--standalone uses its own store and id", *dynamic = "this backend assigns the ranks";
  const char *master = alone                         ? own
                       : fixed && settings->endpoint ? "--rdzv-endpoint names the address of rank 0"
                                                     : "only backend static uses it";
  const bool uses_master = fixed && !is_given(settings->endpoint), ranged = params->max_nodes > params->min_nodes;
  const struct vain list[] = {
      {alone && params->max_nodes > 1, "--nnodes", "--standalone is one node"},
      {fixed && ranged, "MIN of --nnodes", "backend static waits for all MAX nodes"},
      {(alone || fixed) && is_given(settings->local_addr), "--local-addr",
       alone ? own : "backend static uses the address of rank 0"},
      {settings->direct_master && !is_secret(params->conf), "--direct-master",
       "without a secret workers reach their store directly"},
      {alone && is_given(settings->backend) && strcmp(settings->backend, "c10d") != 0, "--rdzv-backend", own},
      {alone && is_given(settings->endpoint), "--rdzv-endpoint", own},
      {alone && settings->run_id, "--rdzv-id", own},
      {!fixed && settings->node_rank != NOT_GIVEN && settings->node_rank != 0, "--node-rank", alone ? own : dynamic},
      {!uses_master && settings->master_addr, "--master-addr", master},
      {!uses_master && settings->master_port != NOT_GIVEN, "--master-port", master}};
  SAY(log, RDZV_LOG_WARNING, list);
  if (fixed && params->max_nodes > 1 && !is_given(settings->backend) && is_given(settings->endpoint) &&
      settings->node_rank == NOT_GIVEN && log->level >= RDZV_LOG_WARNING)
    log->write(log->user, RDZV_LOG_WARNING,
               "this node is rank 0 of a static rendezvous, as with torchrun, since neither --rdzv-backend nor "
               "--node-rank is given; --rdzv-backend=c10d assigns the ranks");
}

/* A local rank of the flag that no worker has. */
static void say_rank(const rdzv_log *log, const char *flag, int64_t rank, int64_t workers) {
  char why[96];
  snprintf(why, sizeof why, "there %s %lld worker%s", workers == 1 ? "is" : "are", (long long)workers,
           workers == 1 ? "" : "s");
  char name[64];
  snprintf(name, sizeof name, "local rank %lld of %s", (long long)rank, flag);
  const struct vain list[] = {{rank >= 0, name, why}};
  SAY(log, RDZV_LOG_WARNING, list);
}

static void say_without_output(const struct settings *settings, const rdzv_log *log) {
  const bool out = what_names_stream(settings->tee, 1), err = what_names_stream(settings->tee, 2);
  const bool no_files = settings->log_dir && strcmp(settings->log_dir, "/dev/null") == 0;
  const bool by_flag = settings->line_prefix != getenv(LINE_PREFIX_VARIABLE);
  const char *tee = no_files ? "--log-dir /dev/null keeps no files" : "only output of --tee is filtered";
  const struct vain list[] = {
      {is_given(settings->filter_stdout) && (!out || no_files), "--duplicate-stdout-filters", tee},
      {is_given(settings->filter_stderr) && (!err || no_files), "--duplicate-stderr-filters", tee},
      {by_flag && !out && !err, "--log-line-prefix-template", "only lines of --tee have a prefix"}};
  int64_t workers = 1;
  if (settings->nproc && !parse_number(settings->nproc, 1, INT32_MAX, &workers)) workers = 0;
  SAY(log, RDZV_LOG_WARNING, list);
  say_rank(log, "--local-ranks-filter", what_rank_beyond(settings->filter, false, workers), workers);
  say_rank(log, "--tee", what_rank_beyond(settings->tee, true, workers), workers);
  say_rank(log, "--redirects", what_rank_beyond(settings->redirects, true, workers), workers);
}

static void say_without_effect(const struct settings *settings, const rdzv_params *params, const rdzv_log *log) {
  const bool unused = flag_by_variable("rdzv-endpoint") && !settings->endpoint && !settings->standalone;
  const struct vain list[] = {
      {unused, "RDZV_ENDPOINT", "backend static has no store (--rdzv-backend=c10d uses it)"},
      {settings->monitor_interval != NOT_GIVEN, "--monitor-interval", "rdzv run does not poll"},
      {settings->start_method >= 0, "--start-method", "workers are always new programs, not forks"},
      {settings->logs_specs >= 0, "--logs-specs", "rdzv run has no plug-ins for logs"},
      {settings->event_log_handler, "--event-log-handler", "--event-log PATH writes events"}};
  SAY(log, RDZV_LOG_INFO, list);
  say_without_output(settings, log);
  say_without_rendezvous(settings, params, log);
}

/* ---- signals -------------------------------------------------------------------------------------------------- */

static int signal_number(const char *name, size_t len) {
  for (int number = 1; number < NSIG; number++) {
    const char *abbreviation = sigabbrev_np(number);
    if (!abbreviation) continue;
    const size_t skip = len > 3 && strncmp(name, "SIG", 3) == 0 ? 3 : 0;
    if (strlen(abbreviation) == len - skip && strncmp(name + skip, abbreviation, len - skip) == 0) return number;
  }
  return -1;
}

static int parse_signals(const struct settings *settings, sigset_t *out) {
  sigemptyset(out);
  for (const char *at = settings->signals; *at;) {
    const size_t len = strcspn(at, ",");
    const int number = signal_number(at, len);
    if (number < 0 || number == SIGKILL || number == SIGSTOP) {
      complain(me, "invalid value '%.*s' for --signals-to-handle: not a signal that can be handled%s", (int)len, at,
               settings->variables);
      return EXIT_USAGE;
    }
    sigaddset(out, number);
    at += len + (at[len] == ',');
  }
  return EXIT_YES;
}

/* Signals go to the agent, and to `canceled` while it is not open yet. */
static struct {
  pthread_mutex_t lock;
  rdzv_agent *agent;
  int caught;        /* before there was one */
  int canceled;      /* an event descriptor */
  bool over;         /* the job is over, only leaving is left */
  bool ends_by_tstp; /* the user wants that */
} told = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Ctrl-Z. The workers are in sessions of their own, where SIGTSTP has no effect. */
static void suspend(void) {
  pthread_mutex_lock(&told.lock);
  if (told.agent) rdzv_agent_suspend(told.agent, true);
  signals_stop_here();
  if (told.agent) rdzv_agent_suspend(told.agent, false);
  pthread_mutex_unlock(&told.lock);
}

static void on_signal(void *unused, int number, bool by_terminal) {
  const uint64_t one = 1;
  if (number == SIGTSTP && !told.ends_by_tstp) {
    suspend();
    return;
  }
  (void)unused, (void)by_terminal; /* a terminal's does not reach the workers, which are in sessions of their own */
  pthread_mutex_lock(&told.lock);
  const bool over = told.over;
  if (told.agent)
    rdzv_agent_stop(told.agent, number);
  else if (!told.caught && !over)
    told.caught = number;
  if (!told.agent && write(told.canceled, &one, sizeof one) < 0) { /* it is up already */
  }
  pthread_mutex_unlock(&told.lock);
  if (over) signals_default(number);
}

/* From here on they go there; what came before, too. */
static void tell(rdzv_agent *agent) {
  pthread_mutex_lock(&told.lock);
  told.agent = agent;
  told.over = !agent;
  if (agent && told.caught) rdzv_agent_stop(agent, told.caught);
  pthread_mutex_unlock(&told.lock);
}

static int caught(void) {
  pthread_mutex_lock(&told.lock);
  const int number = told.caught;
  pthread_mutex_unlock(&told.lock);
  return number;
}

/* ---- running -------------------------------------------------------------------------------------------------- */

static const char *hint_of(const struct settings *settings, int result) {
  if (result == RDZV_E_INVALID) return settings->variables;
  if (result == RDZV_E_CLOSED) return CLOSED_HINT;
  if (result == RDZV_E_TIMEOUT) return TIMEOUT_HINT;
  if (result != RDZV_E_IN_USE) return "";
  if (!is_given(settings->endpoint)) return " (is another job running? choose --standalone or another --master-port)";
  return is_given(settings->backend) ? " (is another job running? choose another --rdzv-endpoint)"
                                     : " (is another job running? choose another --rdzv-endpoint, or "
                                       "--rdzv-backend=c10d to use the store there)";
}

static int failed(const struct settings *settings, const struct run_log *log, int result, const rdzv_error *error) {
  const bool spare = result == RDZV_E_GRACEFUL_EXIT && !log->ran;
  (result == RDZV_E_GRACEFUL_EXIT ? remark : complain)(
      me, "%s%s%s", spare ? "this node was a spare and ran no workers: " : "",
      with_flags(error->message, settings->node_rank != NOT_GIVEN).text, hint_of(settings, result));
  if (result == RDZV_E_GRACEFUL_EXIT) return EXIT_YES;
  error_file_error(me, error);
  return exit_code_of(result);
}

static int run(const struct settings *settings, const struct run_log *log) {
  rdzv_agent_result *result;
  rdzv_error error;
  const int code = rdzv_agent_run(log->agent, &result, &error);
  if (code < 0) {
    log_attempts(log->agent, &log->lines, RDZV_LOG_ERROR);
    return failed(settings, log, code, &error);
  }
  const int exit_code = result->exit_code;
  if (result->state != RDZV_AGENT_FAILED) log_attempts(log->agent, &log->lines, RDZV_LOG_INFO);
  settings->json_log ? print_report_json(log->agent, result) : print_report(log->agent, result);
  const rdzv_worker_failure *first = rdzv_agent_result_failure(result, 0);
  if (result->state == RDZV_AGENT_FAILED && first) error_file_failure(me, first);
  rdzv_agent_result_free(result);
  return exit_code;
}

static int open_and_run(const struct settings *settings, rdzv_agent_options *options, rdzv_params *params,
                        struct run_log *log) {
  sigset_t signals;
  rdzv_agent *agent;
  rdzv_error error;
  int code = parse_signals(settings, &signals);
  if (code != EXIT_YES) return code;
  told.ends_by_tstp = sigismember(&signals, SIGTSTP) == 1;
  sigaddset(&signals, SIGTSTP);
  told.canceled = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (told.canceled < 0) complain(me, "cannot create an event descriptor: %s", cause_of(errno).text);
  if (told.canceled < 0 || !signals_begin_set(me, &signals, on_signal, NULL)) return EXIT_IO;
  params->cancel_fd = told.canceled;
  const int result = rdzv_agent_open(options, &agent, &error);
  if (result == RDZV_E_CANCELED && caught()) return 128 + caught();
  if (result < 0) {
    code = failed(settings, log, result, &error);
    return result == RDZV_E_TIMEOUT ? EXIT_CONNECT : code;
  }
  log->agent = agent;
  tell(agent);
  code = run(settings, log);
  tell(NULL);
  rdzv_agent_free(agent);
  signals_end();
  return code;
}

static int launch(const struct settings *settings, char **words) {
  static const char *const modes[] = {"node", "socket", "exclusive", "core-complex"};
  struct run_log log = {.command = me, .event_fd = -1, .json = settings->json_log};
  const rdzv_log lines = run_log_lines(&log, settings->log_level);
  rdzv_log quiet = log.lines = lines;
  if (quiet.level == RDZV_LOG_INFO) quiet.level = RDZV_LOG_WARNING;
  rdzv_params params = {.size = sizeof params, .log = &quiet};
  rdzv_agent_options options = {.size = sizeof options,
                                .rendezvous = &params,
                                .standalone = settings->standalone,
                                .nproc_per_node = settings->nproc,
                                .role = settings->role,
                                .max_restarts = settings->max_restarts,
                                .log_dir = settings->log_dir,
                                .redirects = settings->redirects,
                                .tee = settings->tee,
                                .local_ranks_filter = settings->filter,
                                .line_prefix = settings->line_prefix,
                                .duplicate_stdout_filters = settings->filter_stdout,
                                .duplicate_stderr_filters = settings->filter_stderr,
                                .virtual_local_rank = settings->virtual_local_rank,
                                .numa_binding = settings->numa >= 0 ? modes[settings->numa] : NULL,
                                .shutdown_timeout_ms = settings->shutdown_ms > 0 ? settings->shutdown_ms : 1,
                                .exit_barrier_timeout_ms = settings->barrier_ms > 0 ? settings->barrier_ms : 1,
                                .adopt_orphans = true,
                                .direct_master = settings->direct_master,
                                .on_agent = run_log_agent_event,
                                .on_worker = run_log_worker_event,
                                .event_user = &log,
                                .worker_descriptors = raise_descriptor_limit(),
                                .log = &lines};
  char *conf = NULL, *endpoint = NULL;
  int code = fill_params(settings, &params, &conf, &endpoint);
  params.program = words[0] ? basename(words[0]) : NULL;
  const char **argv = NULL;
  if (code == EXIT_YES) code = program_words(me, &settings->program, words, &argv);
  if (code == EXIT_YES) code = run_log_open_events(&log, settings->event_log);
  if (code == EXIT_YES) {
    say_without_effect(settings, &params, &lines);
    options.argv = argv;
    if (settings->event_log) {
      params.on_event = run_log_event;
      params.event_user = &log;
    }
    code = open_and_run(settings, &options, &params, &log);
  }
  run_log_close(&log);
  free(argv);
  free(conf);
  free(endpoint);
  return code;
}

int cmd_run(int argc, char **argv) {
  struct settings settings = {.node_rank = NOT_GIVEN,
                              .numa = -1,
                              .logs_specs = -1,
                              .start_method = -1,
                              .monitor_interval = NOT_GIVEN,
                              .line_prefix = getenv(LINE_PREFIX_VARIABLE),
                              .master_port = NOT_GIVEN,
                              .shutdown_ms = 30000,
                              .barrier_ms = 300000,
                              .signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
                              .log_level = RDZV_LOG_INFO};
  signal(SIGCHLD, SIG_DFL); /* if it were ignored, we would not learn how workers end */
  signal(SIGPIPE, SIG_IGN); /* a reader of our output that goes does not end the job */
  const int rest = parse(argc, argv, &settings);
  if (rest < 0) return rest == -2 ? EXIT_YES : EXIT_USAGE;
  return launch(&settings, argv + rest);
}
