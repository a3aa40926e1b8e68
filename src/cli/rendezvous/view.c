/* SPDX-License-Identifier: BSD-3-Clause */
/* `rdzv status --watch`: on a terminal a view that stands still, and marks what changed last; elsewhere a line for each
 * change. */
#include "cli/rendezvous/view.h"

#include "cli/rendezvous/table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define HIDE_CURSOR "\033[?25l"
#define SHOW_CURSOR "\033[?25h"
#define CLEAR_LINE "\033[K"
#define CLEAR_BELOW "\033[J"

enum { INDENT = 4 }; /* of the rows in which a line goes on */

static int64_t wall_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void view_begin(struct view *view, const char *command, const char *run_id) {
  *view = (struct view){.command = command, .run_id = run_id, .is_terminal = isatty(STDOUT_FILENO)};
  if (view->is_terminal) fputs(HIDE_CURSOR, stdout);
}

void view_end(struct view *view) {
  if (view->is_terminal) fputs(SHOW_CURSOR, stdout);
  fflush(stdout);
  rdzv_status_free(view->now);
  rdzv_status_free(view->before);
}

/* ---- drawing -------------------------------------------------------------------------------------------------- */

static struct winsize terminal_size(void) {
  struct winsize size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col < 20 || size.ws_row < 4)
    size = (struct winsize){.ws_col = 80, .ws_row = 24};
  return size;
}

/* As many bytes of a line as fit into a row: up to a space in its second half, if there is one. A character of several
 * bytes is not cut. */
static size_t fitting(const char *line, size_t len, size_t columns) {
  if (len <= columns) return len;
  for (size_t at = columns; at > columns / 2; at--)
    if (line[at] == ' ') return at;
  while (columns > 1 && ((unsigned char)line[columns] & 0xc0) == 0x80) columns--;
  return columns;
}

struct rows {
  FILE *out;
  size_t columns, room; /* of the terminal */
  size_t written, left; /* left: those without room */
};

/* A line that is too long goes on in the next row, indented. */
static void write_line(struct rows *rows, const char *line, size_t len) {
  size_t indent = 0;
  do {
    const size_t fits = fitting(line, len, rows->columns - indent);
    if (rows->written < rows->room) {
      fprintf(rows->out, "%*s%.*s" CLEAR_LINE "\n", (int)indent, "", (int)fits, line);
      rows->written++;
    } else {
      rows->left++;
    }
    line += fits;
    len -= fits;
    while (len > 0 && *line == ' ') line++, len--;
    indent = INDENT;
  } while (len > 0);
}

/* Writes the lines over those of before; rows without room are counted. Gives the number of rows. */
static size_t write_lines(FILE *out, const char *text, struct winsize size) {
  struct rows rows = {.out = out, .columns = size.ws_col - 1, .room = size.ws_row - 1};
  for (const char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) write_line(&rows, at, (size_t)(end - at));
  if (rows.left > 0) fprintf(out, "(%zu more lines)" CLEAR_LINE, rows.left);
  return rows.written;
}

/* Everything goes out in one write, so that nothing flickers. */
static int draw(struct view *view) {
  char *text = NULL, *page = NULL;
  size_t size = 0, length = 0;
  FILE *lines = open_memstream(&text, &size);
  FILE *out = open_memstream(&page, &length);
  if (lines && out) {
    const int64_t now = wall_us();
    fprintf(lines, "%s, changed %lld s ago\n", time_text(now).text, (long long)(now - view->changed_us) / 1000000);
    if (view->lost_us)
      fprintf(lines, "no answer for %lld s: %s\n", (long long)(now - view->lost_us) / 1000000, shown(view->why).text);
    print_table(lines, view->now, view->before, view->run_id);
    fflush(lines);
    if (view->lines > 0) fprintf(out, "\033[%zuA\r", view->lines);
    view->lines = write_lines(out, text, terminal_size());
    fputs(CLEAR_BELOW, out);
  }
  if (lines) fclose(lines);
  if (out) fclose(out);
  const bool drawn = page && fwrite(page, 1, length, stdout) == length;
  free(text);
  free(page);
  return finish_output(view->command, drawn);
}

static int print_line(struct view *view) {
  printf("%s ", time_text(view->changed_us).text);
  print_changes(stdout, view->now, view->before);
  return finish_output(view->command, true);
}

int view_lost(struct view *view, const char *why) {
  const bool first = !view->lost_us;
  if (first) view->lost_us = wall_us();
  snprintf(view->why, sizeof view->why, "%s", why);
  if (view->is_terminal) return draw(view);
  if (!first) return EXIT_YES;
  printf("%s no answer: %s\n", time_text(view->lost_us).text, shown(why).text);
  return finish_output(view->command, true);
}

static int print_return(const struct view *view) {
  const int64_t now = wall_us();
  printf("%s an answer after %lld s\n", time_text(now).text, (long long)(now - view->lost_us) / 1000000);
  return finish_output(view->command, true);
}

int view_show(struct view *view, rdzv_status *status) {
  int code = EXIT_YES;
  if (view->lost_us && !view->is_terminal) code = print_return(view);
  view->lost_us = 0;
  const bool changed = !view->now || status_differs(view->now, status);
  if (changed) {
    rdzv_status_free(view->before);
    view->before = view->now;
    view->changed_us = wall_us();
  } else {
    rdzv_status_free(view->now);
  }
  view->now = status;
  if (view->is_terminal) return draw(view);
  return code == EXIT_YES && changed ? print_line(view) : code;
}
