/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CONFORMANCE_SCRIPT_H
#define CONFORMANCE_SCRIPT_H

/* The lines of cases.txt as words and steps. For run.c alone, hence functions in a header. */
#include <ctype.h>
#include <rdzv/bytes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_WORDS = 40 }; /* of a line, and of a result */

static _Noreturn void give_up(int line, const char *what) {
  if (line) fprintf(stderr, "line %d of the cases: ", line);
  fprintf(stderr, "%s\n", what);
  exit(2);
}

/* ---- words ------------------------------------------------------------------------------------------------- */

struct word {
  char *data; /* with a zero byte behind it */
  size_t len;
};

struct words {
  size_t count;
  struct word word[MAX_WORDS];
};

static void words_free(struct words *words) {
  for (size_t i = 0; i < words->count; i++) free(words->word[i].data);
  words->count = 0;
}

static struct word *words_add(struct words *words) {
  if (words->count == MAX_WORDS) give_up(0, "too many words");
  struct word *word = &words->word[words->count++];
  *word = (struct word){0};
  return word;
}

static void put(struct words *words, rdzv_bytes bytes) {
  struct word *word = words_add(words);
  word->data = malloc(bytes.len + 1);
  if (!word->data) give_up(0, "out of memory");
  if (bytes.len) memcpy(word->data, bytes.data, bytes.len);
  word->data[bytes.len] = '\0';
  word->len = bytes.len;
}

static void put_text(struct words *words, const char *text) { put(words, rdzv_str(text)); }

static bool word_is(const struct word *word, const char *text) { return strcmp(word->data, text) == 0; }

static bool bytes_equal(rdzv_bytes a, rdzv_bytes b) {
  return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static rdzv_bytes bytes_of(const struct word *word) { return (rdzv_bytes){word->data, word->len}; }

static void show(const struct word *word) {
  putchar('\'');
  for (size_t i = 0; i < word->len && i < 60; i++) {
    const unsigned char c = (unsigned char)word->data[i];
    if (isprint(c))
      putchar(c);
    else
      printf("\\x%02x", c);
  }
  printf(word->len > 60 ? "'... (%zu bytes)" : "'", word->len);
}

static void show_all(const struct word *words, size_t count) {
  if (count == 0) printf(" nothing");
  for (size_t i = 0; i < count; i++) {
    putchar(' ');
    show(&words[i]);
  }
}

/* Is it one of the words of "a,b,c"? */
static bool listed(const char *list, const char *word, size_t len) {
  for (size_t part; *list; list += part + (list[part] == ',')) {
    part = strcspn(list, ",");
    if (part == len && memcmp(list, word, len) == 0) return true;
  }
  return false;
}

/* ---- lines ------------------------------------------------------------------------------------------------- */

static int read_escape(const char **at, int line) {
  static const char names[] = "nt\\\"", bytes[] = "\n\t\\\"";
  const char name = *(*at)++;
  if (name == 'x' && isxdigit((unsigned char)(*at)[0]) && isxdigit((unsigned char)(*at)[1])) {
    const char digits[] = {(*at)[0], (*at)[1], '\0'};
    *at += 2;
    return (int)strtol(digits, NULL, 16);
  }
  const char *found = name ? strchr(names, name) : NULL;
  if (!found) give_up(line, "unknown escape");
  return (unsigned char)bytes[found - names];
}

/* "..." and *N behind it. */
static void read_piece(const char **at, FILE *out, int line) {
  char *piece;
  size_t len;
  FILE *in = open_memstream(&piece, &len);
  for (++*at; **at != '"';) {
    const char c = *(*at)++;
    if (c == '\0') give_up(line, "a quote has no end");
    fputc(c == '\\' ? read_escape(at, line) : c, in);
  }
  fclose(in);
  long times = 1;
  if (*++*at == '*') {
    char *end;
    times = strtol(*at + 1, &end, 10);
    *at = end;
  }
  while (times-- > 0) fwrite(piece, 1, len, out);
  free(piece);
}

static void read_word(const char **at, struct word *word, int line) {
  FILE *out = open_memstream(&word->data, &word->len);
  if (!out) give_up(line, "out of memory");
  while (**at == '"') read_piece(at, out, line);
  while (**at && !isspace((unsigned char)**at)) fputc(*(*at)++, out);
  fclose(out);
}

static void read_words(const char *at, struct words *words, int line) {
  for (;;) {
    while (isspace((unsigned char)*at)) at++;
    if (!*at) return;
    read_word(&at, words_add(words), line);
  }
}

struct step {
  int line;
  char *text;
  struct words words;
  bool later, hangs, late, judged;
  size_t path;                   /* where in words the path of views stands; 0: none */
  size_t op, end;                /* the operation; its arguments stand from there to the end */
  size_t expected, expected_end; /* the same of the result */
};

static void step_free(struct step *step) {
  words_free(&step->words);
  free(step->text);
}

static size_t find_word(const struct step *step, const char *text, size_t from, size_t end) {
  while (from < end && !word_is(&step->words.word[from], text)) from++;
  return from;
}

/* "a+b:": are a and b both tags of the run? */
static bool tags_match(const char *tags, const struct word *word) {
  size_t part;
  for (const char *at = word->data;; at += part + 1) {
    part = strcspn(at, "+:");
    if (!listed(tags, at, part)) return false;
    if (at[part] != '+') return true;
  }
}

static void choose_expected(struct step *step, const char *tags) {
  size_t from = step->end + 1;
  step->expected = from;
  step->expected_end = find_word(step, ";", from, step->words.count);
  for (size_t end = step->expected_end; end < step->words.count;) {
    from = end + 1;
    end = find_word(step, ";", from, step->words.count);
    if (from == end) give_up(step->line, "a result without tags");
    if (!tags_match(tags, &step->words.word[from])) continue;
    step->expected = from + 1;
    step->expected_end = end;
    return;
  }
}

static bool takes(struct step *step, const char *text) {
  if (step->expected == step->expected_end || !word_is(&step->words.word[step->expected], text)) return false;
  step->expected++;
  return true;
}

static void step_read(struct step *step, const char *text, int line, const char *tags) {
  *step = (struct step){.line = line, .text = strdup(text)};
  read_words(text, &step->words, line);
  step->end = find_word(step, "->", 0, step->words.count);
  step->judged = step->end < step->words.count;
  if (step->judged) choose_expected(step, tags);
  step->hangs = takes(step, "!hangs");
  step->late = takes(step, "!late");
  step->later = word_is(&step->words.word[0], "later");
  step->op = step->later;
  if (step->op + 2 < step->end && word_is(&step->words.word[step->op], "at")) {
    step->path = step->op + 1;
    step->op += 2;
  }
  if (step->op >= step->end) give_up(line, "no step");
}

#endif
