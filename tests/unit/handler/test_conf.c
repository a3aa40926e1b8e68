/* SPDX-License-Identifier: BSD-3-Clause */
/* The options of a rendezvous: defaults, what each takes, and the exact sentence for what it does not. */
#include "handler/conf.h"
#include "unit.h"

enum { ALL = CONF_DYNAMIC | CONF_C10D | CONF_STATIC };

static struct conf parse(const char *text, unsigned handlers) {
  struct conf conf;
  rdzv_error error;
  if (conf_parse(text, handlers, NULL, &conf, &error) < 0) fail_msg("'%s': %s", text ? text : "(none)", error.message);
  return conf;
}

static void assert_refused(const char *text, unsigned handlers, const char *sentence) {
  struct conf conf;
  rdzv_error error = {0};
  const int result = conf_parse(text, handlers, NULL, &conf, &error);
  if (result == 0) fail_msg("'%s' is taken", text);
  assert_code(result, RDZV_E_INVALID);
  assert_code(error.code, RDZV_E_INVALID);
  assert_string_equal(error.message, sentence);
  assert_null(conf.text);
  assert_code(conf_parse(text, handlers, NULL, &conf, NULL), RDZV_E_INVALID);
}

static void assert_defaults(const struct conf *conf) {
  assert_int_equal(conf->join_timeout, 600000);
  assert_int_equal(conf->last_call_timeout, 30000);
  assert_int_equal(conf->close_timeout, 30000);
  assert_int_equal(conf->heartbeat_timeout, 5000);
  assert_int_equal(conf->keep_alive_interval, 5000);
  assert_int_equal(conf->keep_alive_max_attempt, 3);
  assert_int_equal(conf->rank_order, RANK_ORDER_TORCH);
  assert_null(conf->torch_version);
  assert_int_equal(conf->store_type, C10D_STORE_TCP);
  assert_int_equal(conf->is_host, C10D_HOST_AUTO);
  assert_int_equal(conf->read_timeout, 60000);
  assert_int_equal(conf->dialect, RDZV_DIALECT_AUTO);
  assert_int_equal(conf->rank, -1);
  assert_int_equal(conf->timeout, 600000);
  assert_int_equal(conf->protocol, 0);
  assert_null(conf->ca_cert);
  assert_null(conf->cert);
  assert_null(conf->key);
  assert_null(conf->user);
  assert_null(conf->password);
  assert_int_equal(conf->min_workers, 0);
  assert_int_equal(conf->max_workers, 0);
  assert_null(conf->etcd_prefix);
}

/* Nothing, and nothing but blanks, is all defaults: those of PyTorch. */
static void test_the_defaults_are_pytorchs(void **state) {
  (void)state;
  static const char *const nothing[] = {NULL, "", " ", "\t \n"};
  for (size_t i = 0; i < COUNT_OF(nothing); i++) {
    struct conf conf = parse(nothing[i], ALL);
    assert_defaults(&conf);
    conf_free(&conf);
    conf_free(&conf); /* twice is fine */
  }
}

/* ---- each kind of value --------------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  size_t offset;
} times[] = {{"join_timeout", offsetof(struct conf, join_timeout)},
             {"last_call_timeout", offsetof(struct conf, last_call_timeout)},
             {"close_timeout", offsetof(struct conf, close_timeout)},
             {"heartbeat_timeout", offsetof(struct conf, heartbeat_timeout)},
             {"keep_alive_interval", offsetof(struct conf, keep_alive_interval)},
             {"read_timeout", offsetof(struct conf, read_timeout)},
             {"timeout", offsetof(struct conf, timeout)}};

/* Each time takes whole seconds and fractions, and changes nothing but its own field. */
static void test_times_are_seconds(void **state) {
  (void)state;
  static const struct {
    const char *value;
    int64_t ms;
  } values[] = {{"1", 1000},    {"600", 600000}, {"0.5", 500},  {".25", 250},     {"1.", 1000},
                {"2e1", 20000}, {"0.001", 1},    {"0.0014", 1}, {"1.0006", 1001}, {"1000000000", 1000000000000}};
  for (size_t t = 0; t < COUNT_OF(times); t++)
    for (size_t v = 0; v < COUNT_OF(values); v++) {
      char text[80];
      snprintf(text, sizeof text, "%s=%s", times[t].name, values[v].value);
      struct conf conf = parse(text, ALL), fresh = parse(NULL, ALL);
      int64_t *field = (int64_t *)(void *)((char *)&conf + times[t].offset);
      assert_int_equal(*field, values[v].ms);
      *field = *(int64_t *)(void *)((char *)&fresh + times[t].offset);
      assert_defaults(&conf);
      conf_free(&conf);
      conf_free(&fresh);
    }
}

static void test_what_is_no_positive_time_is_refused(void **state) {
  (void)state;
  static const char *const values[] = {"0",   "-1",   "-0.5", "0.0001", "abc",  "1s",  "1 2", "0x",   "nan",
                                       "inf", "-inf", "1e10", "1e999",  "1..2", "+-1", "--1", "true", "10:00"};
  for (size_t t = 0; t < COUNT_OF(times); t++)
    for (size_t v = 0; v < COUNT_OF(values); v++) {
      char text[80], sentence[160];
      snprintf(text, sizeof text, "%s=%s", times[t].name, values[v]);
      snprintf(sentence, sizeof sentence, "invalid value '%s' for option '%s': expected a positive number of seconds",
               values[v], times[t].name);
      assert_refused(text, ALL, sentence);
    }
}

static void test_counts_and_ranks_are_whole_numbers(void **state) {
  (void)state;
  struct conf conf = parse("keep_alive_max_attempt=1,rank=0", ALL);
  assert_int_equal(conf.keep_alive_max_attempt, 1);
  assert_int_equal(conf.rank, 0);
  conf_free(&conf);
  conf = parse("keep_alive_max_attempt=100,rank=4711", ALL);
  assert_int_equal(conf.keep_alive_max_attempt, 100);
  assert_int_equal(conf.rank, 4711);
  conf_free(&conf);
  static const char *const values[] = {"-1", "1.5", "x", "1x", "1 2", "9223372036854775808", "1e3", "0x10"};
  for (size_t v = 0; v < COUNT_OF(values); v++) {
    char text[80], sentence[160];
    snprintf(text, sizeof text, "keep_alive_max_attempt=%s", values[v]);
    snprintf(
        sentence, sizeof sentence,
        "invalid value '%s' for option 'keep_alive_max_attempt': expected a positive whole number, at most 1000000",
        values[v]);
    assert_refused(text, ALL, sentence);
    snprintf(text, sizeof text, "rank=%s", values[v]);
    snprintf(sentence, sizeof sentence, "invalid value '%s' for option 'rank': expected a whole number, 0 or more",
             values[v]);
    assert_refused(text, ALL, sentence);
  }
  assert_refused(
      "keep_alive_max_attempt=1000001", ALL,
      "invalid value '1000001' for option 'keep_alive_max_attempt': expected a positive whole number, at most 1000000");
  assert_refused(
      "keep_alive_max_attempt=0", ALL,
      "invalid value '0' for option 'keep_alive_max_attempt': expected a positive whole number, at most 1000000");
}

/* So many intervals are multiplied with their length: the product must be a time, too. */
static void test_the_time_until_a_node_is_dead_does_not_overflow(void **state) {
  (void)state;
  struct conf conf;
  rdzv_error error;
  const int result =
      conf_parse("keep_alive_interval=1000000000,keep_alive_max_attempt=9223372036854775807", ALL, NULL, &conf, &error);
  if (result < 0) {
    assert_error(result, RDZV_E_INVALID, &error, "keep_alive_max_attempt");
    return;
  }
  int64_t dead_us;
  const bool overflows = __builtin_mul_overflow(conf.keep_alive_interval, conf.keep_alive_max_attempt, &dead_us) ||
                         __builtin_mul_overflow(dead_us, INT64_C(1000), &dead_us);
  conf_free(&conf);
  assert_false(overflows);
}

static void test_choices_are_taken_in_any_case(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int rank_order, store_type;
  } choices[] = {{"rank_order=torch,store_type=tcp", RANK_ORDER_TORCH, C10D_STORE_TCP},
                 {"rank_order=stable,store_type=file", RANK_ORDER_STABLE, C10D_STORE_FILE},
                 {"rank_order=natural,store_type=FILE", RANK_ORDER_NATURAL, C10D_STORE_FILE},
                 {"rank_order=Natural,store_type=Tcp", RANK_ORDER_NATURAL, C10D_STORE_TCP}};
  for (size_t i = 0; i < COUNT_OF(choices); i++) {
    struct conf conf = parse(choices[i].text, ALL);
    assert_int_equal(conf.rank_order, choices[i].rank_order);
    assert_int_equal(conf.store_type, choices[i].store_type);
    conf_free(&conf);
  }
  assert_refused("rank_order=random", ALL,
                 "invalid value 'random' for option 'rank_order': expected torch|stable|natural");
  assert_refused("rank_order=torch|stable", ALL,
                 "invalid value 'torch|stable' for option 'rank_order': expected torch|stable|natural");
  assert_refused("rank_order=tor", ALL, "invalid value 'tor' for option 'rank_order': expected torch|stable|natural");
  static const char *const dialects[] = {"dialect=auto", "dialect=v1", "dialect=V2", "dialect=rdzv"};
  for (int i = 0; i < 4; i++) {
    struct conf conf = parse(dialects[i], ALL);
    assert_int_equal(conf.dialect, i); /* enum rdzv_dialect */
    conf_free(&conf);
  }
  assert_refused("dialect=v3", ALL, "invalid value 'v3' for option 'dialect': expected auto|v1|v2|rdzv");
  assert_refused("dialect=v1", CONF_DYNAMIC, "option 'dialect' does not apply to this backend");
  assert_refused("store_type=hash", ALL, "invalid value 'hash' for option 'store_type': expected tcp|file");
}

static void test_flags_are_what_pytorch_takes_for_a_bool(void **state) {
  (void)state;
  static const char *const yes[] = {"1", "true", "True", "TRUE", "t", "T", "yes", "Yes", "y", "Y"};
  static const char *const no[] = {"0", "false", "False", "FALSE", "f", "F", "no", "No", "n", "N"};
  for (size_t i = 0; i < COUNT_OF(yes); i++) {
    char text[80];
    snprintf(text, sizeof text, "is_host=%s,use_libuv=%s", yes[i], yes[i]);
    struct conf conf = parse(text, ALL);
    assert_int_equal(conf.is_host, C10D_HOST_YES);
    conf_free(&conf);
    snprintf(text, sizeof text, "is_host=%s,use_libuv=%s", no[i], no[i]);
    conf = parse(text, ALL);
    assert_int_equal(conf.is_host, C10D_HOST_NO);
    conf_free(&conf);
  }
  assert_refused("is_host=maybe", ALL, "invalid value 'maybe' for option 'is_host': expected true or false");
  assert_refused("is_host=2", ALL, "invalid value '2' for option 'is_host': expected true or false");
  assert_refused("use_libuv=on", ALL, "invalid value 'on' for option 'use_libuv': expected true or false");
}

static void test_versions_are_those_of_pytorch(void **state) {
  (void)state;
  static const char *const versions[] = {"1.9", "1.13", "1.13.1", "2.0", "2.2", "2.3", "2.6", "2.10", "3.0"};
  for (size_t i = 0; i < COUNT_OF(versions); i++) {
    char text[80];
    snprintf(text, sizeof text, "torch_version = %s , rank_order=stable", versions[i]);
    struct conf conf = parse(text, ALL);
    assert_string_equal(conf.torch_version, versions[i]);
    conf_free(&conf);
  }
  static const char *const invalid[] = {"2", "x", "2.", ".6", "2.6.", "2.6rc1", "v2.6", "-2.6", "newest"};
  for (size_t i = 0; i < COUNT_OF(invalid); i++) {
    char text[80], sentence[160];
    snprintf(text, sizeof text, "torch_version=%s", invalid[i]);
    snprintf(sentence, sizeof sentence,
             "invalid value '%s' for option 'torch_version': expected a version of PyTorch, such as 1.13 or 2.6",
             invalid[i]);
    assert_refused(text, ALL, sentence);
  }
}

/* ---- etcd ----------------------------------------------------------------------------------------------------- */

static const struct {
  const char *name;
  size_t offset;
} texts[] = {{"ca_cert", offsetof(struct conf, ca_cert)},
             {"cacert", offsetof(struct conf, ca_cert)},
             {"ssl_cert", offsetof(struct conf, cert)},
             {"cert", offsetof(struct conf, cert)},
             {"ssl_cert_key", offsetof(struct conf, key)},
             {"key", offsetof(struct conf, key)},
             {"user", offsetof(struct conf, user)},
             {"password", offsetof(struct conf, password)},
             {"etcd_prefix", offsetof(struct conf, etcd_prefix)}};

/* Whatever is no comma is taken as it stands; only nothing is refused, in words. Both spellings are one option. */
static void test_texts_are_taken_as_they_are(void **state) {
  (void)state;
  static const char *const values[] = {"/etc/ssl/ca.pem", "a=b", "two words", "100%", "(null)"};
  for (size_t t = 0; t < COUNT_OF(texts); t++) {
    char text[80], sentence[160];
    for (size_t v = 0; v < COUNT_OF(values); v++) {
      snprintf(text, sizeof text, "protocol=https, %s = %s ", texts[t].name, values[v]);
      struct conf conf = parse(text, CONF_ETCD | CONF_GEN1);
      assert_string_equal(*(const char **)(void *)((char *)&conf + texts[t].offset), values[v]);
      conf_free(&conf);
    }
    snprintf(text, sizeof text, "%s=", texts[t].name);
    snprintf(sentence, sizeof sentence, "option '%s' has no value", texts[t].name);
    assert_refused(text, CONF_ETCD | CONF_GEN1, sentence);
    snprintf(sentence, sizeof sentence, "option '%s' does not apply to this backend", texts[t].name);
    assert_refused(text, ALL, sentence);
  }
}

static void test_the_protocol_and_the_workers_of_etcd(void **state) {
  (void)state;
  struct conf conf = parse("protocol=HTTPS,min_workers=2,max_workers=1000000", CONF_ETCD | CONF_GEN1);
  assert_int_equal(conf.protocol, 1);
  assert_int_equal(conf.min_workers, 2);
  assert_int_equal(conf.max_workers, 1000000);
  conf_free(&conf);
  assert_refused("protocol=ftp", CONF_ETCD, "invalid value 'ftp' for option 'protocol': expected http|https");
  assert_refused("min_workers=0", CONF_GEN1,
                 "invalid value '0' for option 'min_workers': expected a positive whole number, at most 1000000");
}

/* ---- the text ------------------------------------------------------------------------------------------------- */

/* Blanks around names and values do not matter, the order neither; the last of two counts. */
static void test_many_options_in_one_text(void **state) {
  (void)state;
  struct conf conf = parse(" join_timeout = 1 ,last_call_timeout=2,\tclose_timeout=3\n, join_timeout=4", ALL);
  assert_int_equal(conf.join_timeout, 4000);
  assert_int_equal(conf.last_call_timeout, 2000);
  assert_int_equal(conf.close_timeout, 3000);
  assert_int_equal(conf.heartbeat_timeout, 5000);
  conf_free(&conf);
}

static void test_an_unknown_option_is_refused_with_the_nearest(void **state) {
  (void)state;
  assert_refused("join_timeot=1", ALL, "unknown option 'join_timeot' (did you mean 'join_timeout'?)");
  assert_refused("Join_Timeout=1", ALL, "unknown option 'Join_Timeout' (did you mean 'join_timeout'?)");
  assert_refused("ishost=1", ALL, "unknown option 'ishost' (did you mean 'is_host'?)");
  assert_refused("join_timeout=1,frobnicate=2", ALL, "unknown option 'frobnicate'");
  assert_refused("ranc=1", CONF_STATIC, "unknown option 'ranc' (did you mean 'rank'?)");
  assert_refused("ranc=1", CONF_DYNAMIC, "unknown option 'ranc'"); /* not what this backend has not */
}

static void test_an_option_of_another_backend_is_told_apart(void **state) {
  (void)state;
  assert_refused("rank=1", CONF_DYNAMIC | CONF_C10D, "option 'rank' does not apply to this backend");
  assert_refused("timeout=1", CONF_DYNAMIC | CONF_C10D,
                 "option 'timeout' does not apply to this backend (did you mean 'join_timeout'?)");
  assert_refused("join_timeout=1", CONF_STATIC,
                 "option 'join_timeout' does not apply to this backend (did you mean 'timeout'?)");
  assert_refused("is_host=1", CONF_STATIC, "option 'is_host' does not apply to this backend");
  assert_refused("is_host=1", CONF_DYNAMIC, "option 'is_host' does not apply to this backend");
  assert_refused("protocol=https", ALL, "option 'protocol' does not apply to this backend");
  assert_refused("is_host=1", CONF_ETCD | CONF_GEN1, "option 'is_host' does not apply to this backend");
  assert_refused("join_timeout=1", CONF_ETCD | CONF_GEN1,
                 "option 'join_timeout' does not apply to this backend (did you mean 'timeout'?)");
  assert_refused("min_workers=1", CONF_DYNAMIC | CONF_ETCD, "option 'min_workers' does not apply to this backend");
}

static void keep_line(void *user, rdzv_log_level level, const char *line) {
  assert_int_equal(level, RDZV_LOG_WARNING);
  snprintf(user, 256, "%s", line);
}

/* As torchrun, which ignores what a backend does not have; but a slip of the pen is still refused. */
static void test_leniently_what_does_not_apply_is_ignored_and_named(void **state) {
  (void)state;
  char line[256];
  const rdzv_log log = {.size = sizeof log, .write = keep_line, .user = line, .level = RDZV_LOG_WARNING};
  static const struct {
    const char *text, *line;
  } cases[] = {{"timeout=900",
                "option 'timeout' does not apply to this backend and has no effect (did you mean 'join_timeout'?)"},
               {"protocol=ftp", "option 'protocol' does not apply to this backend and has no effect"},
               {"frobnicate=3", "option 'frobnicate' is unknown and has no effect"},
               {"frobnicate", "option 'frobnicate' is unknown and has no effect"}};
  struct conf conf;
  rdzv_error error;
  for (size_t i = 0; i < COUNT_OF(cases); i++) {
    line[0] = '\0';
    assert_code(conf_parse(cases[i].text, CONF_DYNAMIC | CONF_C10D, &log, &conf, &error), 0);
    assert_string_equal(line, cases[i].line);
    assert_defaults(&conf);
    conf_free(&conf);
  }
  assert_error(conf_parse("join_timeot=1", CONF_DYNAMIC, &log, &conf, &error), RDZV_E_INVALID, &error,
               "unknown option 'join_timeot' (did you mean 'join_timeout'?)");
  assert_error(conf_parse("join_timeout=x", CONF_DYNAMIC, &log, &conf, &error), RDZV_E_INVALID, &error, "'x'");
}

static void test_a_missing_value_or_name_is_told(void **state) {
  (void)state;
  assert_refused("join_timeout", ALL, "option 'join_timeout' has no value");
  assert_refused("join_timeout=", ALL, "option 'join_timeout' has no value");
  assert_refused("join_timeout= ", ALL, "option 'join_timeout' has no value");
  assert_refused("is_host,rank=1", ALL, "option 'is_host' has no value");
  assert_refused("frob", ALL, "unknown option 'frob'");
  static const char *const nameless[] = {"=1", ",", "rank=1,", ",rank=1", "rank=1,,timeout=2", " = "};
  for (size_t i = 0; i < COUNT_OF(nameless); i++)
    assert_refused(nameless[i], ALL, "invalid options: a name is missing (expected name=value,name=value)");
  assert_refused("rank==1", ALL, "invalid value '=1' for option 'rank': expected a whole number, 0 or more");
}

/* Whatever is in it and however long it is, the sentence holds. */
static void test_a_long_text_is_refused_whole(void **state) {
  (void)state;
  char text[5000];
  struct conf conf;
  rdzv_error error;
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  assert_error(conf_parse(text, ALL, NULL, &conf, &error), RDZV_E_INVALID, &error, "unknown option 'xxx");
  memcpy(text, "rank=", 5);
  assert_error(conf_parse(text, ALL, NULL, &conf, &error), RDZV_E_INVALID, &error,
               "x' for option 'rank': expected a whole number");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_defaults_are_pytorchs),
      cmocka_unit_test(test_times_are_seconds),
      cmocka_unit_test(test_what_is_no_positive_time_is_refused),
      cmocka_unit_test(test_counts_and_ranks_are_whole_numbers),
      cmocka_unit_test(test_the_time_until_a_node_is_dead_does_not_overflow),
      cmocka_unit_test(test_choices_are_taken_in_any_case),
      cmocka_unit_test(test_flags_are_what_pytorch_takes_for_a_bool),
      cmocka_unit_test(test_versions_are_those_of_pytorch),
      cmocka_unit_test(test_texts_are_taken_as_they_are),
      cmocka_unit_test(test_the_protocol_and_the_workers_of_etcd),
      cmocka_unit_test(test_many_options_in_one_text),
      cmocka_unit_test(test_an_unknown_option_is_refused_with_the_nearest),
      cmocka_unit_test(test_an_option_of_another_backend_is_told_apart),
      cmocka_unit_test(test_leniently_what_does_not_apply_is_ignored_and_named),
      cmocka_unit_test(test_a_missing_value_or_name_is_told),
      cmocka_unit_test(test_a_long_text_is_refused_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
