/* SPDX-License-Identifier: BSD-3-Clause */
/* The command. It uses the library through its public headers only. */
#ifndef RDZV_CLI_CLI_H
#define RDZV_CLI_CLI_H

#include <limits.h>
#include <rdzv/error.h>
#include <rdzv/log.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What the command exits with; rdzv(1) tells them to users. */
enum exit_code {
  EXIT_YES = 0,
  EXIT_NO = 1,      /* the answer is no, or the key is not there */
  EXIT_USAGE = 2,   /* the command line is wrong */
  EXIT_CONNECT = 3, /* the server cannot be reached */
  EXIT_TIMEOUT = 4,
  EXIT_UNKNOWN = 5, /* the connection was lost before the answer */
  EXIT_REFUSED = 6, /* the store can or will not do it */
  EXIT_IO = 7,      /* a file, a descriptor or memory failed */
  EXIT_CLOSED = 8,  /* the rendezvous is closed */
};

int exit_code_of(int error_code);

/* ---- flags as data ---- */

enum flag_type {
  FLAG_GROUP, /* a heading of the help: its name */
  FLAG_SWITCH,
  FLAG_TEXT,
  FLAG_NUMBER,
  FLAG_BYTES,
  FLAG_SECONDS,
  FLAG_CHOICE,
};

/* What begins with -- on the command line. A name=value of --rdzv-conf is an option. The target is a bool for a switch,
 * a const char * for a text, an int64_t for numbers, bytes and seconds (in milliseconds), an int for a choice (its
 * index). */
struct cli_flag {
  const char *name; /* without the dashes */
  enum flag_type type;
  void *target;
  const char *placeholder; /* NULL for a switch; the list for a choice: "auto|v1|v2" */
  const char *help;
};

/* The row of --log-level. */
#define LOG_LEVEL_FLAG(target, usual)                                         \
  {                                                                           \
    "log-level", FLAG_CHOICE, target, "off|error|warning|info|debug",         \
        "least severity to log to stderr (default $RDZV_LOG, else " usual ")" \
  }

struct command {
  const char *name;     /* "rdzv serve" */
  const char *synopsis; /* what follows the flags */
  const char *summary;
  const struct cli_flag *flags; /* ends with a row of zeros */
  const char *more;             /* what --help prints after the flags; may be NULL */
};

enum { FLAGS_MOST = 64, CHOICES_MOST = 8 }; /* in one table; of one flag */

/* Reads the flags at the front of argv. Returns the index of the first word after them, -1 after it has printed an
 * error to stderr, and -2 after it has printed the help. `_` in a flag is the same as `-`, and a unique beginning of a
 * name is enough. */
int flags_parse(const struct command *command, int argc, char **argv);

/* Further ways to give a flag. */
struct flag_extras {
  const char *letters;     /* "r=redirects,t=tee": -r is --redirects */
  const char *environment; /* "PET_": PET_MAX_RESTARTS is the default of --max-restarts */
  char taken[512];         /* out: the variables that were used, "PET_NNODES='2', PET_ROLE='x'" */
  bool given[FLAGS_MOST];  /* out: the flags on the command line, in the order of the table */
};
int flags_parse_with(const struct command *command, struct flag_extras *extras, int argc, char **argv);

/* The letter of the flag, or 0. */
char flag_letter(const struct flag_extras *extras, const struct cli_flag *flag);

/* ---- help.c ---- */

/* Prints a text in lines of at most 80 columns. A line that begins with spaces is one of a list: what it is broken into
 * begins below its last column. */
void print_wrapped(FILE *to, const char *text);
void print_help(const struct command *command, const struct flag_extras *extras);

/* The end of an error about an unknown name: " (did you mean '--port'?)", or " (see 'rdzv serve --help')" if no name is
 * near. */
struct hint {
  char text[128];
};
struct hint did_you_mean(const char *command, const char *dashes, const char *given, const char *const *names,
                         size_t count);

/* ---- variables.c: what flags of one name share in all commands ---- */

/* The older spelling of a flag, which is still accepted: "endpoint" for "rdzv-endpoint". NULL: none. */
const char *flag_alias(const char *flag);

/* The variable that stands for a flag that is not given, and its value: RDZV_ENDPOINT. NULL: none, or the library reads
 * it. From here on flag_by_variable is true if it has a value. */
const char *flag_variable(const char *flag, const char **value);
bool flag_by_variable(const char *flag);

/* The flag is on the command line, with that value, which must stay. */
void flag_given(const char *flag, const char *value);

/* The end of an error in which such a value occurs: " (from RDZV_ENDPOINT)", " (from --rdzv-endpoint)", else "". */
struct hint source_of_value(const char *message);

/* Returns false, and prints an error, if there are words after the flags; `rest` is what flags_parse returned. */
bool no_arguments(const struct command *command, int rest, int argc, char **argv);

/* ---- messages ---- */

/* A text of others', as it may be shown. */
struct shown {
  char text[1024];
};
struct shown shown(const char *text);

/* "rdzv serve: cannot …" to stderr, red on a terminal. `remark` is for what is no error, and has no color. */
void complain(const char *command, const char *format, ...) __attribute__((__format__(__printf__, 2, 3)));
void remark(const char *command, const char *format, ...) __attribute__((__format__(__printf__, 2, 3)));

/* The same for an error of the library, and for memory that has run out. Give the exit code. */
int complain_error(const char *command, const rdzv_error *error);
int complain_no_memory(const char *command);

/* ---- stdout.c ---- */

/* Before descriptors are opened: remembers whether stdout is closed. */
void note_closed_stdout(void);

/* From here on, output to a stdout that was closed at the start fails. Without this call it goes nowhere. */
void need_stdout(void);

/* The exit code of a command that has printed its answer: a full disk or a closed pipe must not look like success. The
 * error is printed once. */
int finish_output(const char *command, bool printed);

/* From here on each line that goes to stderr is a JSON object: time, host, pid, level, message. */
void write_messages_as_json(void);

/* A line without an end is shown on the terminal, or is gone: log lines take its place. */
void show_open_line(bool shown);

/* A log that writes to stderr, each line with the time, the host and the command, which must stay: "rdzv serve". On a
 * terminal the lines are shorter, and errors and warnings have colors. Valid until the next call: to be copied by an
 * object that is opened with it. */
const rdzv_log *stderr_log(const char *command, int level);

/* From here on lines of less severity are left out: the command itself says what they say. */
void limit_log(rdzv_log_level level);

/* Is it from 0 to 65535? False: it has said so. */
bool check_port(const char *command, int64_t port);

/* Writes the port there, in one step. Gives -1 when it has said what was wrong. */
int write_port_file(const char *command, const char *path, int port);

/* ---- executable.c ---- */

enum { FIRST_LINE_SIZE = 257 }; /* as much as the kernel looks at */

/* The first line of a file, without its end, as far as it fits. False: it cannot be read. */
bool read_first_line(const char *path, char line[FIRST_LINE_SIZE]);

/* Finds a program as execvp does. False: there is none; *path is then a file that cannot be executed, or "". */
bool find_executable(const char *name, char path[PATH_MAX]);

/* Can that program be started as execvp does? 0; else it has said why, with `cure` behind, and gives 127 where it is
 * not found, 126 where it cannot be executed. */
int check_executable(const char *command, const char *name, const char *cure);

/* The text of errnum; where there are no descriptors left, with the limit. */
struct cause_text {
  char text[160];
};
struct cause_text cause_of(int errnum);

/* Lets this process open as many descriptors as its hard limit says, and returns how many it could open before; 0: not
 * known. */
uint64_t raise_descriptor_limit(void);

/* ---- the subcommands: argv[0] is their name ---- */
int cmd_close(int argc, char **argv);
int cmd_etcd(int argc, char **argv);
int cmd_join(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_reset(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_store(int argc, char **argv);

#endif
