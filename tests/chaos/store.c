/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several clients of one store while connections are cut, processes killed and servers stopped; then whether what they
 * were told can be true.
 *
 *   chaos_store [OPTION]... STORE
 *     STORE              hash | file | serve (our own server) | tcp:PORT | etcd:PORT | etcd3:PORT, on loopback;
 *                        etcd3:HOST:PORT,HOST:PORT,… is a cluster, without a proxy, to which others do harm
 *                        servers:HOST:PORT,… of one state, which others harm: no proxy, and patient clients
 *     --seed S           one seed, to replay one that failed
 *     --seeds A:B        many
 *     --seconds N        no further seed after so many seconds
 *     --until-closed     no further seed after a byte on stdin, and all keys are read when stdin is closed
 *     --workers N        so many clients at once (6)
 *     --rest MS          between two operations of a client, at most (0)
 *     --dialect D        v1, v2 or rdzv
 *     --rdzv PATH        the command, for serve; default $RDZV_BUILD/rdzv
 *     --proxy-port P     where the proxy listens; default any
 *     --mean BYTES       between two faults of a connection (400)
 *     --calm             no faults
 *     --restarts         our server is killed and started again, and forgets its keys
 *     --durable          with --restarts: it forgets nothing, since it keeps its state in a folder
 *     --kinds K,...      register, number, versions, queue: what the keys are used for; default all that the store can
 *     --can queues       the server has them, although its dialect does not promise it
 *     --without F,...    append, queues: what the server does not have; set, nan: sets, adds to texts
 *     --resets           connections are reset, never closed in order
 *     --trace            say what the proxy does, on stderr
 *
 * Exit code 0: all histories are linearizable; 1: some are not, or a call returned what it must not.
 */
#include "base/os/folder.h"
#include "load.h"
#include "proxy.h"
#include "server.h"

#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum {
  WORKERS = 6,
  MOST_KEPT = 256,             /* seeds whose keys are read at the end */
  BUDGET = 3 * WINDOW_OPS - 1, /* operations a seed */
  LATE_MS = 150,
  LONGEST_CALL_MS = 10000,
  LONGEST_RUN_MS = 30000,
  PATIENCE_MS = 25000, /* with servers that take over from each other */
  MOST_SHOWN = 3,      /* histories that are printed */
};

struct settings {
  struct place place;
  bool serves, calm, restarts, durable, trace, processes, no_set, no_nan, resets, until_closed;
  int target_port, proxy_port, mean_bytes, workers, rest_ms;
  unsigned kinds, with, without;
  uint64_t first, end;
  int64_t seconds;
  const char *rdzv, *dialect, *store;
};

struct totals {
  int64_t seeds, operations, unknown, failed, histories, wrong, undecided, unexpected, slow;
  int64_t connections, faults, late, kills, shown, unread;
};

struct run {
  const struct settings *settings;
  uint64_t seed;
  struct book *book;
  struct place place; /* as the workers see it */
  struct server server;
  struct proxy *proxy;
  struct random random; /* of what is done to them */
  pthread_t threads[MOST_WORKERS];
  pid_t pids[MOST_WORKERS];
  int workers;
  struct totals *totals;
};

/* ---- workers
 * --------------------------------------------------------------------------------------------------------- */

struct worker_args {
  struct run *run;
  int worker;
};

static void *work(void *arg) {
  struct worker_args args = *(struct worker_args *)arg;
  free(arg);
  worker_run(args.run->book, &args.run->place, args.worker);
  return NULL;
}

static void start_thread(struct run *run, int worker) {
  struct worker_args *args = malloc(sizeof *args);
  if (!args) abort();
  *args = (struct worker_args){run, worker};
  if (pthread_create(&run->threads[worker], NULL, work, args) != 0) abort();
}

static void start_process(struct run *run, int worker) {
  fflush(NULL);
  run->pids[worker] = fork();
  if (run->pids[worker] < 0) abort();
  if (run->pids[worker] > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  worker_run(run->book, &run->place, worker);
  _exit(0);
}

static void start_worker(struct run *run) {
  const int worker = run->workers++;
  (run->settings->processes ? start_process : start_thread)(run, worker);
}

static void join_worker(struct run *run, int worker) {
  if (!run->settings->processes)
    pthread_join(run->threads[worker], NULL);
  else if (run->pids[worker] > 0)
    waitpid(run->pids[worker], NULL, 0);
}

static bool all_ended(const struct run *run) {
  for (int i = 0; i < run->workers; i++)
    if (!atomic_load(&run->book->logs[i].ended)) return false;
  return true;
}

/* ---- what is done to them
 * ---------------------------------------------------------------------------------------------- */

static void kill_worker(struct run *run) {
  const int worker = (int)random_below(&run->random, run->workers);
  if (run->workers == MOST_WORKERS || run->pids[worker] <= 0 || atomic_load(&run->book->logs[worker].ended)) return;
  kill(run->pids[worker], SIGKILL);
  waitpid(run->pids[worker], NULL, 0);
  run->pids[worker] = 0;
  atomic_store(&run->book->logs[worker].ended, true);
  run->totals->kills++;
  start_worker(run);
}

static void pause_server(struct run *run) {
  if (kill(run->server.pid, SIGSTOP) < 0) return;
  pause_ms(1 + random_below(&run->random, 2 * LATE_MS));
  kill(run->server.pid, SIGCONT);
}

static void restart_server(struct run *run) {
  const int64_t from = now_us();
  server_kill(&run->server);
  if (!server_start(&run->server)) abort();
  if (!run->settings->durable) note_wipe(run->book, from, now_us());
  run->totals->kills++;
}

/* The longest pause between two harms. A server that forgets nothing is killed more often. */
static int64_t longest_peace(const struct run *run) {
  if (!run->proxy) return 10;
  return run->settings->durable ? LATE_MS / 2 : 2 * LATE_MS; /* others are slow to begin with */
}

/* Until all are done, or it takes too long. */
static void do_harm(struct run *run) {
  const int64_t until = now_us() + LONGEST_RUN_MS * 1000;
  int64_t next = now_us();
  while (!all_ended(run) && now_us() < until) {
    pause_ms(2);
    if (run->settings->calm || now_us() < next) continue;
    const int what = (int)random_below(&run->random, 3);
    if (what == 0 && run->settings->processes) kill_worker(run);
    if (what == 1 && run->server.pid > 0) pause_server(run);
    if (what == 2 && run->server.pid > 0 && run->settings->restarts) restart_server(run);
    next = now_us() + random_below(&run->random, longest_peace(run)) * 1000;
  }
  atomic_store(&run->book->stop, true);
}

/* ---- one seed
 * ---------------------------------------------------------------------------------------------------------- */

static void open_place(struct run *run) {
  const struct settings *settings = run->settings;
  run->place = settings->place;
  if (run->place.type == STORE_HASH) {
    const rdzv_hash_options options = {.size = sizeof options};
    if (rdzv_store_open_hash(&options, &run->place.hash, NULL) < 0) abort();
  } else if (run->place.type == STORE_FILE) {
    snprintf(run->place.endpoint, sizeof run->place.endpoint, "/tmp/rdzv-chaos-%d-%" PRIu64, (int)getpid(), run->seed);
  }
  int port = settings->target_port;
  if (settings->serves) {
    run->server.rdzv = settings->rdzv;
    snprintf(run->server.port_file, sizeof run->server.port_file, "/tmp/rdzv-chaos-%d.port", (int)getpid());
    if (settings->durable) {
      snprintf(run->server.state_dir, sizeof run->server.state_dir, "/tmp/rdzv-chaos-%d-XXXXXX", (int)getpid());
      if (!mkdtemp(run->server.state_dir)) exit(2);
    }
    if (!server_start(&run->server)) exit(2);
    port = run->server.port;
  }
  if (!port) return;
  const struct proxy_options options = {.seed = run->seed,
                                        .port = settings->proxy_port,
                                        .target_port = port,
                                        .mean_bytes = settings->calm ? 0 : settings->mean_bytes,
                                        .late_ms = LATE_MS,
                                        .resets = settings->resets,
                                        .trace = settings->trace ? stderr : NULL};
  run->proxy = proxy_open(&options);
  if (!run->proxy) {
    perror("chaos: the proxy cannot listen");
    exit(2);
  }
  snprintf(run->place.endpoint, sizeof run->place.endpoint, "127.0.0.1:%d", proxy_port(run->proxy));
}

/* What was held comes in before the last reads, which do not go through faults. */
static void let_it_settle(struct run *run) {
  if (!run->proxy) return;
  proxy_set_faults(run->proxy, false);
  for (int tries = 0; tries < 10 * LATE_MS && !proxy_is_idle(run->proxy); tries++) pause_ms(1);
  proxy_cut_all(run->proxy);
  const struct proxy_counts counts = proxy_counts(run->proxy);
  run->totals->connections += counts.connections;
  run->totals->faults += counts.faults;
  run->totals->late += counts.late;
}

static void close_place(struct run *run) {
  proxy_end(run->proxy);
  server_kill(&run->server);
  if (*run->server.state_dir) folder_remove(AT_FDCWD, run->server.state_dir);
  rdzv_store_free(run->place.hash);
  if (run->place.type == STORE_FILE) unlink(run->place.endpoint);
}

static unsigned kinds_of(const struct settings *settings, unsigned features) {
  unsigned kinds = 1u << KEY_REGISTER | 1u << KEY_NUMBER;
  if (features & RDZV_FEATURE_VERSIONS) kinds |= 1u << KEY_VERSIONS;
  if (features & RDZV_FEATURE_QUEUES) kinds |= 1u << KEY_QUEUE;
  return kinds & settings->kinds ? kinds & settings->kinds : kinds;
}

/* Asks the store itself, before anything is done to it. */
static void ask_features(struct run *run) {
  int code;
  if (run->proxy) proxy_set_faults(run->proxy, false);
  rdzv_store *store = place_open_unharmed(&run->place, &code);
  if (!store) {
    fprintf(stderr, "chaos: cannot open the store: %s\n", rdzv_error_name(code));
    exit(2);
  }
  run->place.features = (rdzv_store_features(store) | run->settings->with) & ~run->settings->without;
  rdzv_store_free(store);
}

/* ---- judging
 * ----------------------------------------------------------------------------------------------------------- */

static int by_call(const void *a, const void *b) {
  const struct op *x = *(const struct op *const *)a, *y = *(const struct op *const *)b;
  return x->call_us < y->call_us ? -1 : x->call_us > y->call_us;
}

/* The operations on that key, by the time of their call. */
static size_t ops_of_key(const struct book *book, int key, const struct op **list) {
  size_t count = 0;
  for (size_t i = 0; i < MOST_WORKERS + 2; i++)
    for (int k = 0; k < atomic_load(&book->logs[i].count); k++)
      if (book->logs[i].ops[k].key == key && count < HISTORY_OPS) list[count++] = &book->logs[i].ops[k];
  qsort(list, count, sizeof *list, by_call);
  return count;
}

static void say_where(const struct run *run, int key) {
  static const char *const kinds[] = {"register", "number", "versions", "queue"};
  printf("seed %" PRIu64 " on %s%s%s: key %d (%s) ", run->seed, run->settings->store,
         run->settings->dialect ? " in dialect " : "", run->settings->dialect ? run->settings->dialect : "", key,
         kinds[key_kind_of(run->book, key)]);
}

static void judge_calls(struct run *run, const struct op *const *ops, size_t count, int key) {
  for (size_t i = 0; i < count; i++) {
    const bool bad = is_unexpected(ops[i]->code, run->settings->restarts && !run->settings->durable);
    const bool slow = ops[i]->return_us - ops[i]->call_us > (LONGEST_CALL_MS + run->place.patience) * 1000;
    run->totals->unexpected += bad;
    run->totals->slow += slow;
    if (!bad && !slow) continue;
    say_where(run, key);
    printf("has a call that returned %s after %" PRId64 " ms: ", rdzv_error_name(ops[i]->code),
           (ops[i]->return_us - ops[i]->call_us) / 1000);
    op_print(stdout, ops[i]);
    printf("  %s\n", ops[i]->message);
  }
}

static void judge_key(struct run *run, int key) {
  const struct op *ops[HISTORY_OPS];
  const bool file = run->place.type == STORE_FILE;
  const struct dialect_rules rules = {key_kind_of(run->book, key) == KEY_QUEUE, file, file};
  const size_t count = ops_of_key(run->book, key, ops);
  for (size_t i = 0; i < count; i++) {
    run->totals->operations++;
    run->totals->unknown += ops[i]->outcome == UNKNOWN;
    run->totals->failed += ops[i]->outcome == FAILED;
  }
  judge_calls(run, ops, count, key);
  const struct check_result result = history_check(ops, count, rules);
  run->totals->histories++;
  run->totals->undecided += result.verdict == UNDECIDED;
  run->totals->wrong += result.verdict == NOT_LINEARIZABLE;
  if (result.verdict == LINEARIZABLE) return;
  say_where(run, key);
  puts(result.verdict == UNDECIDED ? "is undecided" : "is not linearizable");
  if (run->totals->shown++ < MOST_SHOWN) history_print(stdout, ops, count, &result);
}

static struct run work_seed(const struct settings *settings, uint64_t seed, struct totals *totals) {
  struct book *book =
      mmap(NULL, sizeof *book, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (book == MAP_FAILED) abort();
  struct run run = {.settings = settings, .seed = seed, .book = book, .totals = totals, .random = random_of(seed, 1)};
  book->seed = seed;
  book->rest_ms = settings->rest_ms;
  book->budget = BUDGET;
  book->no_set = settings->no_set;
  book->no_nan = settings->no_nan;
  snprintf(book->prefix, sizeof book->prefix, "%d/%" PRIu64 "/", (int)getpid(), seed);
  open_place(&run);
  if (run.proxy && !proxy_start(run.proxy)) abort();
  ask_features(&run);
  book->kinds = kinds_of(settings, run.place.features);
  if (run.proxy) proxy_set_faults(run.proxy, !settings->calm);
  while (run.workers < settings->workers) start_worker(&run);
  do_harm(&run);
  for (int i = 0; i < run.workers; i++) join_worker(&run, i);
  return run;
}

static void judge_seed(struct run *run) {
  let_it_settle(run);
  run->totals->unread += !read_all(run->book, &run->place);
  run->totals->seeds++;
  for (int key = 0; key < key_count(run->book); key++) judge_key(run, key);
  close_place(run);
  munmap(run->book, sizeof *run->book);
}

static void run_seeds(const struct settings *settings, struct totals *totals) {
  const int64_t until = settings->seconds ? now_us() + settings->seconds * 1000000 : INT64_MAX;
  for (uint64_t seed = settings->first; seed < settings->end && now_us() < until; seed++) {
    struct run run = work_seed(settings, seed, totals);
    judge_seed(&run);
  }
}

/* A byte came, or the end. */
static bool is_told_to_stop(int fd) { return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) != 0; }

/* What was acknowledged while harm was done must be there when it is over. */
static void run_until_closed(const struct settings *settings, struct totals *totals) {
  static struct run kept[MOST_KEPT];
  size_t count = 0;
  while (count < MOST_KEPT && (count == 0 || !is_told_to_stop(STDIN_FILENO))) {
    kept[count] = work_seed(settings, settings->first + count, totals);
    count++;
  }
  for (char byte; read(STDIN_FILENO, &byte, 1) == 1;) continue;
  for (size_t i = 0; i < count; i++) judge_seed(&kept[i]);
}

/* ---- the command line
 * -------------------------------------------------------------------------------------------------- */

static bool has_word(const char *list, const char *word) {
  const size_t len = strlen(word);
  for (const char *at = list; (at = strstr(at, word)); at += len)
    if ((at == list || at[-1] == ',') && (at[len] == ',' || at[len] == '\0')) return true;
  return false;
}

static bool set_store(struct settings *settings, const char *text) {
  settings->store = text;
  if (strcmp(text, "hash") == 0) return settings->place.type = STORE_HASH, true;
  if (strcmp(text, "file") == 0) return settings->processes = true, settings->place.type = STORE_FILE, true;
  if (strncmp(text, "servers:", 8) == 0) {
    settings->place.patience = PATIENCE_MS;
    snprintf(settings->place.endpoint, sizeof settings->place.endpoint, "%s", text + 8);
    settings->durable = settings->restarts = true;
    return settings->place.type = STORE_TCP, true;
  }
  settings->place.type = strncmp(text, "etcd:", 5) == 0    ? STORE_ETCD
                         : strncmp(text, "etcd3:", 6) == 0 ? STORE_ETCD3
                                                           : STORE_TCP;
  if (strcmp(text, "serve") == 0) return settings->serves = true;
  const char *colon = strchr(text, ':');
  if (colon && strchr(colon + 1, ':') && settings->place.type == STORE_ETCD3)
    return settings->calm = snprintf(settings->place.endpoint, sizeof settings->place.endpoint, "%s", colon + 1) <
                            (int)sizeof settings->place.endpoint;
  settings->target_port = colon ? atoi(colon + 1) : 0;
  return settings->target_port > 0;
}

static bool set_dialect(struct settings *settings, const char *text) {
  static const char *const names[] = {"auto", "v1", "v2", "rdzv"};
  settings->dialect = text;
  for (int i = 0; i < 4; i++)
    if (strcmp(text, names[i]) == 0) return settings->place.dialect = (rdzv_dialect)i, true;
  return false;
}

static void set_kinds(struct settings *settings, const char *text) {
  static const char *const names[] = {"register", "number", "versions", "queue"};
  for (int i = 0; i < KEY_KINDS; i++) settings->kinds |= (unsigned)has_word(text, names[i]) << i;
}

static bool set_seeds(struct settings *settings, const char *text, bool many) {
  settings->first = strtoull(text, NULL, 10);
  settings->end = settings->first + 1;
  const char *colon = strchr(text, ':');
  if (many && colon) settings->end = strtoull(colon + 1, NULL, 10);
  return !many || colon;
}

static bool set_option(struct settings *settings, int option) {
  switch (option) {
    case 's': return set_seeds(settings, optarg, false);
    case 'm': return set_seeds(settings, optarg, true);
    case 'S': settings->seconds = atoll(optarg); return true;
    case 'd': return set_dialect(settings, optarg);
    case 'r': settings->rdzv = optarg; return true;
    case 'p': settings->proxy_port = atoi(optarg); return true;
    case 'b': settings->mean_bytes = atoi(optarg); return settings->mean_bytes > 0;
    case 'c': return settings->calm = true;
    case 'R': return settings->restarts = true;
    case 'D': return settings->durable = true;
    case 'P': return settings->processes = true;
    case 't': return settings->trace = true;
    case 'e': return settings->resets = true;
    case 'u': return settings->until_closed = true;
    case 'W': settings->workers = atoi(optarg); return settings->workers > 0 && settings->workers <= MOST_WORKERS;
    case 'i': settings->rest_ms = atoi(optarg); return true;
    case 'k': set_kinds(settings, optarg); return true;
    case 'C': settings->with = has_word(optarg, "queues") ? RDZV_FEATURE_QUEUES : 0; return true;
    case 'w':
      if (has_word(optarg, "append")) settings->without |= RDZV_FEATURE_APPEND;
      if (has_word(optarg, "queues")) settings->without |= RDZV_FEATURE_QUEUES;
      settings->no_set |= has_word(optarg, "set");
      settings->no_nan |= has_word(optarg, "nan");
      return true;
    default: return false;
  }
}

static bool read_command_line(struct settings *settings, int argc, char **argv) {
  static const struct option options[] = {
      {"seed", required_argument, NULL, 's'},    {"seeds", required_argument, NULL, 'm'},
      {"seconds", required_argument, NULL, 'S'}, {"dialect", required_argument, NULL, 'd'},
      {"rdzv", required_argument, NULL, 'r'},    {"proxy-port", required_argument, NULL, 'p'},
      {"mean", required_argument, NULL, 'b'},    {"calm", no_argument, NULL, 'c'},
      {"restarts", no_argument, NULL, 'R'},      {"processes", no_argument, NULL, 'P'},
      {"kinds", required_argument, NULL, 'k'},   {"without", required_argument, NULL, 'w'},
      {"can", required_argument, NULL, 'C'},     {"trace", no_argument, NULL, 't'},
      {"resets", no_argument, NULL, 'e'},        {"until-closed", no_argument, NULL, 'u'},
      {"workers", required_argument, NULL, 'W'}, {"rest", required_argument, NULL, 'i'},
      {"durable", no_argument, NULL, 'D'},       {NULL, 0, NULL, 0}};
  int option;
  while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
    if (!set_option(settings, option)) return false;
  return optind == argc - 1 && set_store(settings, argv[optind]);
}

static void print_totals(const struct settings *settings, const struct totals *totals) {
  printf("%s%s%s: %" PRId64 " seeds from %" PRIu64 ": %" PRId64 " operations, %" PRId64 " of unknown outcome, %" PRId64
         " failed; %" PRId64 " faults on %" PRId64 " connections, %" PRId64 " bytes late, %" PRId64 " kills; %" PRId64
         " histories: %" PRId64 " not linearizable, %" PRId64 " undecided; %" PRId64 " unexpected codes, %" PRId64
         " calls too long\n",
         settings->store, settings->dialect ? " " : "", settings->dialect ? settings->dialect : "", totals->seeds,
         settings->first, totals->operations, totals->unknown, totals->failed, totals->faults, totals->connections,
         totals->late, totals->kills, totals->histories, totals->wrong, totals->undecided, totals->unexpected,
         totals->slow);
}

int main(int argc, char **argv) {
  static char rdzv[4096];
  struct settings settings = {.end = 1, .mean_bytes = 400, .workers = WORKERS};
  struct totals totals = {0};
  snprintf(rdzv, sizeof rdzv, "%s/rdzv", getenv("RDZV_BUILD") ? getenv("RDZV_BUILD") : "build");
  settings.rdzv = rdzv;
  if (!read_command_line(&settings, argc, argv)) return fputs("usage: see tests/chaos/store.c\n", stderr), 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  (settings.until_closed ? run_until_closed : run_seeds)(&settings, &totals);
  print_totals(&settings, &totals);
  if (settings.until_closed && totals.unread > 0) return puts("some keys could not be read at the end"), 1;
  return totals.wrong > 0 || totals.unexpected > 0 || totals.slow > 0 || totals.undecided * 4 > totals.histories;
}
