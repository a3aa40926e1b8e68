/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines, files and the last lines. */
#include "pump_pipes.h"

/* ---- lines ---------------------------------------------------------------------------------------------------- */

static void test_each_line_has_the_prefix(void **unused) {
  (void)unused;
  char *shown = through("[x0]:", "one\n\ntwo\nthree", 14, NULL);
  assert_string_equal(shown, "[x0]:one\n[x0]:\n[x0]:two\n[x0]:three\n");
  free(shown);
}

static void test_without_a_prefix_the_text_is_as_it_was(void **unused) {
  (void)unused;
  char *shown = through("", "one\ntwo\n", 8, NULL);
  assert_string_equal(shown, "one\ntwo\n");
  free(shown);
}

static void test_nothing_makes_no_line(void **unused) {
  (void)unused;
  char *last = (char *)"";
  char *shown = through("[x0]:", "", 0, &last);
  assert_string_equal(shown, "");
  assert_null(last);
  free(shown);
}

/* So many bytes of one line, shown; to be freed. */
static char *show_long(const char *prefix, const char *unit, size_t count, char **text) {
  const size_t size = strlen(unit), len = size * count;
  *text = malloc(len + 2);
  for (size_t i = 0; i < count; i++) memcpy(*text + i * size, unit, size);
  strcpy(*text + len, "\n");
  return through(prefix, *text, len + 1, NULL);
}

static void test_a_long_line_is_not_broken(void **unused) {
  (void)unused;
  static const char *const prefixes[] = {"", "[x0]:"};
  for (size_t i = 0; i < COUNT_OF(prefixes); i++) {
    char *text, *shown = show_long(prefixes[i], "a", 1000000, &text);
    assert_memory_equal(shown, prefixes[i], strlen(prefixes[i]));
    assert_string_equal(shown + strlen(prefixes[i]), text);
    free(shown);
    free(text);
  }
}

/* Each part but the last ends with the mark, each but the first begins with it; without that the line is whole. */
static void test_a_line_that_is_too_long_is_broken_and_the_break_marked(void **unused) {
  (void)unused;
  static const char *const units[] = {"a", "é", "a€"};
  for (size_t i = 0; i < COUNT_OF(units); i++) {
    char *text, *shown = show_long("[x0]:", units[i], (3 << 20) / strlen(units[i]), &text), *at = shown, *to = shown;
    size_t parts = 0;
    while (*at) {
      assert_memory_equal(at, "[x0]:", 5);
      at += 5;
      if (parts++ > 0) assert_memory_equal(at, "…", 3), at += 3;
      char *end = strchr(at, '\n');
      const bool broken = end[1] != '\0';
      if (broken) assert_memory_equal(end - 3, "…", 3);
      const size_t len = (size_t)(end - at) - (broken ? 3 : 0);
      assert_true(len % strlen(units[i]) == 0 || strlen(units[i]) > 2);
      memmove(to, at, len);
      to += len;
      at = end + 1;
    }
    strcpy(to, "\n");
    assert_in_range(parts, 2, 4);
    assert_string_equal(shown, text);
    free(shown);
    free(text);
  }
}

/* Reads so many bytes, or fails; what follows is not waited for. */
static void expect(int fd, const char *wanted) {
  char found[256] = "";
  size_t len = 0;
  while (len < strlen(wanted)) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    if (poll(&ready, 1, SOON_MS) <= 0) fail_msg("only '%s' of '%s'", found, wanted);
    const ssize_t got = read(fd, found + len, strlen(wanted) - len);
    assert_true(got > 0);
    len += (size_t)got;
  }
  assert_string_equal(found, wanted);
}

/* "Continue? [y/n] " is to be seen; with a prefix it would spoil somebody else's line. */
static void test_a_part_of_a_line_is_shown_after_a_while_only_without_a_prefix(void **unused) {
  (void)unused;
  struct reader reader;
  struct pump *pump = open_pump();
  int plain, prefixed;
  reader_open(&reader);
  struct pump_stream *one = add(pump, -1, reader.ends[1], "", &plain);
  struct pump_stream *two = add(pump, -1, reader.ends[1], "[x0]:", &prefixed);
  say(prefixed, "part");
  say(plain, "really? ");
  expect(reader.ends[0], "really? ");
  say(prefixed, " and the rest\n");
  expect(reader.ends[0], "[x0]:part and the rest\n");
  say(prefixed, "never ended");
  say(plain, "yes\n");
  expect(reader.ends[0], "yes\n");
  close(prefixed);
  close(plain);
  pump_end(pump, two, deadline_after(SOON_MS), NULL);
  expect(reader.ends[0], "[x0]:never ended\n");
  pump_end(pump, one, deadline_after(SOON_MS), NULL);
  pump_close(pump);
  close(reader.ends[0]);
  close(reader.ends[1]);
}

/* ---- many at once --------------------------------------------------------------------------------------------- */

enum { WRITERS = 8, LINES = 4000 };

struct writer {
  int number, fd;
  pthread_t thread;
};

static size_t make_line(char *out, int writer, int line) {
  size_t len = (size_t)sprintf(out, "%d %d ", writer, line);
  const size_t fill = (size_t)(line * 37 % 301);
  memset(out + len, 'a' + writer, fill);
  len += fill;
  out[len++] = '.';
  out[len++] = '\n';
  return len;
}

/* In pieces that have nothing to do with lines. */
static void *write_lines(void *argument) {
  struct writer *writer = argument;
  char pending[1024];
  size_t len = 0;
  for (int line = 0; line < LINES; line++) {
    len += make_line(pending + len, writer->number, line);
    const size_t piece = len * (size_t)(line % 3 + 1) / 3;
    put(writer->fd, pending, piece);
    memmove(pending, pending + piece, len - piece);
    len -= piece;
  }
  put(writer->fd, pending, len);
  close(writer->fd);
  return NULL;
}

static void check_lines(char *text) {
  int seen[WRITERS] = {0};
  char *rest, *line = strtok_r(text, "\n", &rest);
  for (; line; line = strtok_r(NULL, "\n", &rest)) {
    char wanted[1024];
    const int writer = line[2] - '0';
    if (strncmp(line, "[w", 2) != 0 || writer < 0 || writer >= WRITERS) fail_msg("torn: '%.80s'", line);
    const size_t len = make_line(wanted, writer, seen[writer]++);
    wanted[len - 1] = '\0';
    if (strncmp(line + 3, "]:", 2) != 0 || strcmp(line + 5, wanted) != 0) fail_msg("'%.80s' is not '%s'", line, wanted);
  }
  for (int i = 0; i < WRITERS; i++) assert_int_equal(seen[i], LINES);
}

/* `pumps` of them, as agents of several processes that share a descriptor would have. */
static void write_by_many(size_t pumps, int flags) {
  struct pump *list[WRITERS];
  struct pump_stream *streams[WRITERS];
  struct writer writers[WRITERS];
  struct reader reader;
  reader_open(&reader);
  fcntl(reader.ends[1], F_SETFL, flags);
  for (size_t i = 0; i < pumps; i++) list[i] = open_pump();
  for (int i = 0; i < WRITERS; i++) {
    char prefix[8];
    snprintf(prefix, sizeof prefix, "[w%d]:", i);
    writers[i].number = i;
    streams[i] = add(list[(size_t)i % pumps], -1, reader.ends[1], prefix, &writers[i].fd);
    assert_int_equal(pthread_create(&writers[i].thread, NULL, write_lines, &writers[i]), 0);
  }
  reader_start(&reader);
  for (int i = 0; i < WRITERS; i++) {
    pthread_join(writers[i].thread, NULL);
    pump_end(list[(size_t)i % pumps], streams[i], deadline_after(SOON_MS), NULL);
  }
  for (size_t i = 0; i < pumps; i++) pump_close(list[i]);
  reader_finish(&reader);
  check_lines(reader.text);
  free(reader.text);
}

static void test_lines_of_many_are_never_torn(void **unused) {
  (void)unused;
  write_by_many(1, 0);
}

static void test_nor_where_several_agents_share_the_descriptor(void **unused) {
  (void)unused;
  write_by_many(3, 0);
}

/* Somebody else who has the descriptor may have made it so. */
static void test_a_descriptor_that_does_not_block_loses_nothing(void **unused) {
  (void)unused;
  write_by_many(2, O_NONBLOCK);
}

/* ---- files ---------------------------------------------------------------------------------------------------- */

static void test_a_file_gets_every_byte_as_it_was(void **unused) {
  (void)unused;
  static const char text[] = "one\n\0two\xff without an end";
  char found[64], *last;
  struct pump *pump = open_pump();
  FILE *file = tmpfile();
  int fd;
  struct pump_stream *stream = add(pump, dup(fileno(file)), -1, "[x0]:", &fd);
  put(fd, text, sizeof text - 1);
  close(fd);
  pump_end(pump, stream, deadline_after(SOON_MS), &last);
  assert_int_equal(pread(fileno(file), found, sizeof found, 0), sizeof text - 1);
  assert_memory_equal(found, text, sizeof text - 1);
  free(last);
  pump_close(pump);
  fclose(file);
}

/* A file can be what is shown on, as with "rdzv run … >log". */
static void test_a_file_may_be_shown_on(void **unused) {
  (void)unused;
  char found[64] = "";
  struct pump *pump = open_pump();
  FILE *file = tmpfile();
  int fd;
  struct pump_stream *stream = add(pump, -1, fileno(file), "> ", &fd);
  say(fd, "one\ntwo");
  close(fd);
  pump_end(pump, stream, deadline_after(SOON_MS), NULL);
  assert_true(pread(fileno(file), found, sizeof found - 1, 0) > 0);
  assert_string_equal(found, "> one\n> two\n");
  pump_close(pump);
  fclose(file);
}

/* What does not fit is counted, and told when it begins and when the stream ends. */
static void test_a_full_disk_is_told_of(void **unused) {
  (void)unused;
  for (int shows = 0; shows < 2; shows++) {
    struct pump *pump = open_pump();
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    int fd;
    struct pump_stream *stream = add(pump, shows ? -1 : dup(full), shows ? full : -1, "", &fd);
    say(fd, "twelve bytes");
    while (!has_noted("\n")) usleep(1000);
    say(fd, "\nand so many more");
    close(fd);
    pump_end(pump, stream, deadline_after(SOON_MS), NULL);
    char wanted[512];
    const char *name = shows ? "standard output" : "the file";
    snprintf(wanted, sizeof wanted,
             "cannot write to '%s': No space left on device: output of a worker is lost\n"
             "%d bytes of a worker's output are lost: '%s': No space left on device\n",
             name, shows ? 30 : 29, name);
    assert_string_equal(noted, wanted);
    char to[256];
    snprintf(wanted, sizeof wanted, "'%s': No space left on device", name);
    assert_int_equal(pump_lost(pump, to, sizeof to), shows ? 30 : 29);
    assert_string_equal(to, wanted);
    pump_close(pump);
    close(full);
  }
}

/* ---- the last lines ------------------------------------------------------------------------------------------- */

static void test_the_last_lines_are_kept_from_the_beginning_of_one(void **unused) {
  (void)unused;
  enum { COUNT = 5000, SIZE = 16 };
  char *text = malloc(COUNT * SIZE + 1), *last;
  size_t len = 0;
  for (int i = 0; i < COUNT; i++) len += (size_t)sprintf(text + len, "line %05d\n", i);
  free(through("[x0]:", text, len, &last));
  const size_t kept = strlen(last);
  assert_in_range(kept, 4096, 16384);
  assert_memory_equal(last, "line ", 5);
  assert_string_equal(last, text + len - kept);
  free(last);
  free(text);
}

static void test_few_lines_are_kept_whole(void **unused) {
  (void)unused;
  char *last;
  free(through("[x0]:", "one\ntwo", 7, &last));
  assert_string_equal(last, "one\ntwo");
  free(last);
}

/* A zero byte among them hides nothing of what follows. */
static void test_a_zero_byte_does_not_end_the_last_lines(void **unused) {
  (void)unused;
  char *last;
  free(through("[x0]:", "one\0two\nthree\n", 14, &last));
  assert_non_null(last);
  assert_non_null(strstr(last, "three\n"));
  free(last);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each_line_has_the_prefix),
      cmocka_unit_test(test_without_a_prefix_the_text_is_as_it_was),
      cmocka_unit_test(test_nothing_makes_no_line),
      cmocka_unit_test(test_a_long_line_is_not_broken),
      cmocka_unit_test(test_a_line_that_is_too_long_is_broken_and_the_break_marked),
      cmocka_unit_test(test_a_part_of_a_line_is_shown_after_a_while_only_without_a_prefix),
      cmocka_unit_test(test_lines_of_many_are_never_torn),
      cmocka_unit_test(test_nor_where_several_agents_share_the_descriptor),
      cmocka_unit_test(test_a_descriptor_that_does_not_block_loses_nothing),
      cmocka_unit_test(test_a_file_gets_every_byte_as_it_was),
      cmocka_unit_test(test_a_file_may_be_shown_on),
      cmocka_unit_test(test_a_full_disk_is_told_of),
      cmocka_unit_test(test_the_last_lines_are_kept_from_the_beginning_of_one),
      cmocka_unit_test(test_few_lines_are_kept_whole),
      cmocka_unit_test(test_a_zero_byte_does_not_end_the_last_lines),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
