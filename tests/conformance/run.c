/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plays cases.txt on a store of rdzv, through the public API only. run.py does the same on PyTorch's stores.
 *
 *   conformance [OPTION]... CASES hash | file:PATH | tcp:HOST:PORT | etcd:HOST:PORT | etcd3:HOST:PORT
 *     --tags T,...     what this run is, for the results that differ; the kind of store is a tag by itself
 *     --can F,...      features to test although the store does not promise them
 *     --dialect D      of a tcp store: v1, v2 or rdzv; without it the client finds out
 *     --prefix P       play in a view; again: in a view of that view
 *     --case NAME      only that case
 *
 * The grammar is at the top of cases.txt. The file is played as it is read, a line at a time.
 */
#include "asleep.h"
#include "perform.h"

#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <rdzv/etcd.h>
#include <stdatomic.h>

enum {
  TIMEOUT_MS = 10000, /* of a case that says no other */
  GRACE_MS = 5000,    /* in which something that should happen at once has happened */
  MAX_LATER = 8,
};

enum state { NO_CASE, PLAYING, FAILED, SKIPPED, STATES };

struct player {
  const char *tags, *can, *only;
  rdzv_store *first, *second;
  unsigned features;
  enum state state;
  struct scene scene;
  char *rule;
  int64_t timeout_ms;
  size_t later_count;
  struct step later[MAX_LATER];
  int counts[STATES];
};

/* ---- judging what it gave ----------------------------------------------------------------------------------- */

/* A letter stands for a new version at first, and then for the same. */
static bool version_matches(struct player *player, const struct word *expected, const struct word *found) {
  const uint64_t version = strtoull(found->data, NULL, 10);
  if (!is_letter(bytes_of(expected))) return word_is(expected, found->data);
  uint64_t *known = &player->scene.versions[expected->data[0] - 'A'];
  if (*known) return *known == version;
  for (size_t i = 0; i < 26; i++)
    if (player->scene.versions[i] == version) return false; /* one that was there before, or 0 */
  *known = version;
  return true;
}

static bool words_match(struct player *player, const struct step *step, const struct outcome *out) {
  const struct word *expected = &step->words.word[step->expected];
  const size_t count = step->expected_end - step->expected;
  if (!step->judged) return out->code == 0;
  if (count == 1 && word_is(expected, "*")) return true;
  if (count != out->words.count) return false;
  for (size_t i = 0; i < count; i++) {
    const struct word *found = &out->words.word[i];
    const bool is_version = out->has_version && i == count - 1;
    if (is_version ? !version_matches(player, &expected[i], found)
                   : !bytes_equal(bytes_of(&expected[i]), bytes_of(found)))
      return false;
  }
  return true;
}

static int64_t timeout_of(const struct player *player, const struct step *step) {
  const struct word *op = &step->words.word[step->op];
  return word_is(op, "waitfor") ? number_of(bytes_of(op + 1)) : player->timeout_ms;
}

/* A timeout comes when the time is up, everything else at once. */
static bool in_time(const struct player *player, const struct step *step, const struct outcome *out) {
  const int64_t timeout = timeout_of(player, step);
  if (!step->late && out->code != RDZV_E_TIMEOUT) return out->ms <= GRACE_MS;
  return out->ms >= timeout - 2 && out->ms <= timeout + GRACE_MS;
}

static void fail(struct player *player, const struct step *step) {
  player->state = FAILED;
  printf("FAIL %s: %s\n     line %d: %s: ", player->scene.name, player->rule, step->line, step->text);
}

static void judge(struct player *player, const struct step *step, const struct outcome *out) {
  const bool matches = words_match(player, step, out);
  if (player->state != PLAYING || (matches && in_time(player, step, out))) return;
  fail(player, step);
  if (!matches && step->judged) {
    printf("expected");
    show_all(&step->words.word[step->expected], step->expected_end - step->expected);
    printf(", ");
  }
  printf("got");
  show_all(out->words.word, out->words.count);
  printf(" after %" PRId64 " ms%s%s\n", out->ms, out->code < 0 ? ": " : "", out->code < 0 ? out->error.message : "");
}

/* ---- a step that others end --------------------------------------------------------------------------------- */

struct second {
  struct player *player;
  pid_t watched;
  atomic_bool ended; /* the step of the watched thread */
  bool blocked;      /* it had blocked when the first of `later` was performed */
  struct outcome outcomes[MAX_LATER];
};

static bool has_blocked(struct second *second) {
  while (!atomic_load(&second->ended) && !is_asleep(second->watched)) poll(NULL, 0, 1);
  return !atomic_load(&second->ended);
}

/* Asleep, and still asleep when the server has done something for another: so it has the request, and has not ended
 * it. */
static void *play_later(void *arg) {
  struct second *second = arg;
  struct player *player = second->player;
  int64_t unused;
  second->blocked =
      has_blocked(second) && rdzv_store_num_keys(player->second, &unused, NULL) == 0 && has_blocked(second);
  for (size_t i = 0; i < player->later_count; i++)
    perform(&player->scene, &player->later[i], player->second, &second->outcomes[i]);
  return NULL;
}

/* A step that timed out has blocked, even if nobody looked in time. */
static void judge_later(struct player *player, const struct step *step, struct second *second, bool timed_out) {
  if (!second->blocked && !timed_out && player->state == PLAYING) {
    fail(player, step);
    puts("it did not block");
  }
  for (size_t i = 0; i < player->later_count; i++) {
    judge(player, &player->later[i], &second->outcomes[i]);
    words_free(&second->outcomes[i].words);
    step_free(&player->later[i]);
  }
  player->later_count = 0;
}

static void play_blocking(struct player *player, const struct step *step) {
  struct outcome out;
  struct second *second = calloc(1, sizeof *second);
  pthread_t thread;
  if (!second) give_up(step->line, "out of memory");
  second->player = player;
  second->watched = gettid();
  if (pthread_create(&thread, NULL, play_later, second) != 0) give_up(step->line, "cannot start a thread");
  perform(&player->scene, step, player->first, &out);
  atomic_store(&second->ended, true);
  pthread_join(thread, NULL);
  judge(player, step, &out);
  words_free(&out.words);
  judge_later(player, step, second, out.code == RDZV_E_TIMEOUT);
  free(second);
}

static void set_timeout(struct player *player, int64_t timeout_ms) {
  player->timeout_ms = timeout_ms;
  if (rdzv_store_set_timeout(player->first, timeout_ms, NULL) < 0) give_up(0, "cannot set the timeout");
}

static void play_step(struct player *player, const struct step *step) {
  if (step->hangs) give_up(step->line, "a step of ours that hangs");
  if (player->later_count > 0) {
    play_blocking(player, step);
  } else if (word_is(&step->words.word[step->op], "timeout")) {
    set_timeout(player, number_of(bytes_of(&step->words.word[step->expected])));
  } else {
    struct outcome out;
    perform(&player->scene, step, player->first, &out);
    judge(player, step, &out);
    words_free(&out.words);
  }
}

/* ---- the cases ----------------------------------------------------------------------------------------------- */

static bool has_feature(const struct player *player, const struct word *word) {
  if (word_is(word, "multi") || listed(player->can, word->data, word->len)) return true;
  for (size_t i = 0; i < FEATURES; i++)
    if (word_is(word, features[i].name)) return player->features & features[i].flag;
  return false;
}

static void end_case(struct player *player, int line) {
  if (player->later_count > 0) give_up(line, "nothing follows `later`");
  if (player->state == PLAYING) printf("ok   %s\n", player->scene.name);
  if (player->state != NO_CASE) player->counts[player->state]++;
  player->state = NO_CASE;
  fflush(stdout);
}

static void skip_case(struct player *player, const char *verb, const char *feature) {
  printf("skip %s: the store %s %s\n", player->scene.name, verb, feature);
  player->state = SKIPPED;
}

/* case NAME [raw] [needs F...] [lacks F...] */
static void read_header(struct player *player, const struct words *words) {
  bool wanted = true;
  for (size_t i = 2; i < words->count && player->state == PLAYING; i++) {
    const struct word *word = &words->word[i];
    if (word_is(word, "raw"))
      player->scene.raw = true;
    else if (word_is(word, "needs") || word_is(word, "lacks"))
      wanted = word_is(word, "needs");
    else if (has_feature(player, word) != wanted)
      skip_case(player, wanted ? "has no" : "has", word->data);
  }
}

static void begin_case(struct player *player, const char *text, int line) {
  struct words words = {0};
  end_case(player, line);
  read_words(text, &words, line);
  if (words.count < 2) give_up(line, "a case without a name");
  if (!player->only || word_is(&words.word[1], player->only)) {
    free(player->scene.name);
    player->scene.name = strdup(words.word[1].data);
    player->state = PLAYING;
    player->scene.raw = false;
    memset(player->scene.versions, 0, sizeof player->scene.versions);
    set_timeout(player, TIMEOUT_MS);
    if (rdzv_store_num_keys(player->first, &player->scene.keys_before, NULL) < 0)
      give_up(line, "cannot count the keys");
    read_header(player, &words);
  }
  words_free(&words);
}

static void play_line(struct player *player, const char *text, int line) {
  if (player->state != PLAYING) return;
  struct step step;
  step_read(&step, text, line, player->tags);
  if (step.later) {
    if (player->later_count == MAX_LATER) give_up(line, "too many `later`");
    player->later[player->later_count++] = step;
    return;
  }
  play_step(player, &step);
  step_free(&step);
}

static void play_file(struct player *player, const char *path) {
  FILE *file = fopen(path, "re");
  char *text = NULL;
  size_t size = 0;
  if (!file) give_up(0, "cannot open the cases");
  for (int line = 1; getline(&text, &size, file) >= 0; line++) {
    text[strcspn(text, "\n")] = '\0';
    if (strncmp(text, "case ", 5) == 0) {
      begin_case(player, text, line);
    } else if (text[0] == '#') {
      free(player->rule);
      player->rule = strdup(text + strspn(text, "# "));
    } else if (text[strspn(text, " ")]) {
      play_line(player, text, line);
    }
  }
  end_case(player, 0);
  free(text);
  fclose(file);
}

/* ---- the store ----------------------------------------------------------------------------------------------- */

struct options {
  const char *tags, *can, *only, *dialect, *store;
  const char *prefixes[MAX_VIEWS];
  size_t prefixes_count;
};

static rdzv_dialect dialect_of(const char *name) {
  static const char *const names[] = {"auto", "v1", "v2", "rdzv"};
  for (int i = 0; i < 4; i++)
    if (strcmp(name, names[i]) == 0) return (rdzv_dialect)i;
  give_up(0, "unknown dialect");
}

static int open_base(const struct options *options, rdzv_store **out, rdzv_error *error) {
  const char *where = options->store;
  const rdzv_hash_options hash = {.size = sizeof hash, .timeout_ms = TIMEOUT_MS};
  const rdzv_file_options file = {.size = sizeof file, .timeout_ms = TIMEOUT_MS};
  const rdzv_tcp_options tcp = {.size = sizeof tcp, .timeout_ms = TIMEOUT_MS, .dialect = dialect_of(options->dialect)};
  const rdzv_etcd_store_options etcd = {
      .size = sizeof etcd,
      .timeout_ms = TIMEOUT_MS,
      .etcd = &(rdzv_etcd_options){.size = sizeof(rdzv_etcd_options),
                                   .endpoints = strncmp(where, "etcd:", 5) == 0 ? where + 5 : NULL}};
  const rdzv_etcd3_store_options etcd3 = {
      .size = sizeof etcd3,
      .timeout_ms = TIMEOUT_MS,
      .etcd = &(rdzv_etcd_options){.size = sizeof(rdzv_etcd_options),
                                   .endpoints = strncmp(where, "etcd3:", 6) == 0 ? where + 6 : NULL}};
  if (strncmp(where, "etcd3:", 6) == 0) return rdzv_store_open_etcd3("/conformance", &etcd3, out, error);
  if (strcmp(where, "hash") == 0) return rdzv_store_open_hash(&hash, out, error);
  if (strncmp(where, "file:", 5) == 0) return rdzv_store_open_file(where + 5, &file, out, error);
  if (strncmp(where, "tcp:", 4) == 0) return rdzv_store_open_tcp(where + 4, &tcp, out, error);
  if (strncmp(where, "etcd:", 5) == 0) return rdzv_store_open_etcd("/conformance", &etcd, out, error);
  give_up(0, "unknown kind of store");
}

/* stores[0] is the store, the others are views, each of the one before. */
static int open_stores(const struct options *options, rdzv_store **stores, struct player *player, rdzv_error *error) {
  int code = open_base(options, &stores[0], error);
  for (size_t i = 0; i < options->prefixes_count && code == 0; i++)
    code = rdzv_store_open_prefix(stores[i], rdzv_str(options->prefixes[i]), &stores[i + 1], error);
  player->first = stores[options->prefixes_count];
  if (code == 0) code = rdzv_store_clone(player->first, &player->second, error);
  if (code == 0) player->features = rdzv_store_features(player->first);
  return code;
}

static int play(const struct options *options, const char *cases, struct player *player) {
  rdzv_store *stores[MAX_VIEWS + 1] = {0};
  rdzv_error error = {0};
  const int code = open_stores(options, stores, player, &error);
  if (code < 0) {
    fprintf(stderr, "conformance: cannot open '%s': %s\n", options->store, error.message);
  } else {
    printf("on   %s\n", rdzv_store_describe(player->first));
    play_file(player, cases);
  }
  rdzv_store_free(player->second);
  for (size_t i = options->prefixes_count + 1; i > 0; i--) rdzv_store_free(stores[i - 1]);
  free(player->scene.name);
  free(player->rule);
  return code;
}

static void read_options(int argc, char **argv, struct options *options) {
  static const struct option names[] = {
      {"tags", required_argument, NULL, 't'},   {"can", required_argument, NULL, 'c'},
      {"case", required_argument, NULL, 'o'},   {"dialect", required_argument, NULL, 'd'},
      {"prefix", required_argument, NULL, 'p'}, {0}};
  for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) switch (c) {
      case 't': options->tags = optarg; break;
      case 'c': options->can = optarg; break;
      case 'o': options->only = optarg; break;
      case 'd': options->dialect = optarg; break;
      case 'p':
        if (options->prefixes_count == MAX_VIEWS) give_up(0, "too many prefixes");
        options->prefixes[options->prefixes_count++] = optarg;
        break;
      default: exit(2);
    }
  if (argc - optind != 2) give_up(0, "usage: conformance [OPTION]... CASES STORE");
  options->store = argv[optind + 1];
}

int main(int argc, char **argv) {
  struct options options = {.tags = "", .can = "", .dialect = "auto"};
  read_options(argc, argv, &options);
  char tags[256];
  const int kind_len = (int)strcspn(options.store, ":");
  snprintf(tags, sizeof tags, "%s,%.*s%s", options.tags, kind_len, options.store,
           options.prefixes_count ? ",prefix" : "");
  struct player *player = calloc(1, sizeof *player);
  if (!player) give_up(0, "out of memory");
  player->tags = tags;
  player->can = options.can;
  player->only = options.only;
  const int code = play(&options, argv[optind], player);
  const int passed = player->counts[PLAYING], failed = player->counts[FAILED];
  if (code == 0) printf("%d passed, %d failed, %d skipped\n", passed, failed, player->counts[SKIPPED]);
  free(player);
  return code < 0 || failed > 0 || passed == 0;
}
