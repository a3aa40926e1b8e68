/* SPDX-License-Identifier: BSD-3-Clause */
/* Files with a JSON object a line. */
#ifndef RDZV_CLI_RENDEZVOUS_EVENT_LOG_H
#define RDZV_CLI_RENDEZVOUS_EVENT_LOG_H

#include "cli/cli.h"

#include <jansson.h>
#include <rdzv/event.h>

/* Since 1970, in microseconds. */
int64_t now_us(void);

/* "2026-11-16T03:00:00.123456Z". */
void format_time(int64_t time_us, char out[40]);

/* One write a line, at the end: several processes can share a file. Takes over the object. False: errno says why. */
bool write_object(int fd, json_t *object);

/* Gives an exit code, and has said what is wrong. */
int event_log_open(const char *command, const char *path, int *fd);

/* Takes over the object. */
void event_log_write(const char *command, int fd, json_t *object);

/* A rendezvous' event. */
json_t *event_object(const rdzv_event *event);

#endif
