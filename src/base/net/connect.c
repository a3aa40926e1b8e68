/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connecting to a name with several addresses:
 * - resolve the name, and order the addresses so that the two families alternate;
 * - connect to the first; while none has answered, connect to the next one 250 ms later, or as soon as one has failed;
 * - the first socket that is connected wins, and the others are closed.
 * Failure modes: all addresses have failed: the message lists them. The deadline has passed or the call was canceled:
 * all sockets are closed.
 */
#include "base/error.h"
#include "base/net/net.h"
#include "base/net/resolve.h"
#include "base/wait/waiting.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ADDRESSES = 16, STAGGER_MS = 250 };

struct race {
  const struct addrinfo *order[MAX_ADDRESSES];
  int count;                            /* of addresses */
  int begun;                            /* how many of them were tried */
  struct pollfd fds[MAX_ADDRESSES + 1]; /* one place for each; fd -1: not begun, or failed */
  int open;                             /* how many are under way */
  deadline next;                        /* when the next may be begun although others are under way */
  char causes[RDZV_MESSAGE_SIZE];
  int last_errnum; /* of a failure */
};

static void alternate_families(struct race *race, const struct addrinfo *list) {
  const struct addrinfo *same = list, *other = list;
  const int family = list->ai_family;
  while ((same || other) && race->count < MAX_ADDRESSES) {
    while (same && same->ai_family != family) same = same->ai_next;
    if (same) race->order[race->count++] = same, same = same->ai_next;
    while (other && other->ai_family == family) other = other->ai_next;
    if (other && race->count < MAX_ADDRESSES) race->order[race->count++] = other, other = other->ai_next;
  }
}

static void note_failure(struct race *race, int i, int errnum) {
  char address[ENDPOINT_TEXT_SIZE], text[128];
  net_format(race->order[i]->ai_addr, address);
  race->last_errnum = errnum;
  size_t len = strlen(race->causes);
  snprintf(race->causes + len, sizeof race->causes - len, "%s%s: %s", len ? "; " : "", address,
           strerror_r(errnum, text, sizeof text));
}

static void drop(struct race *race, int i, int errnum) {
  note_failure(race, i, errnum);
  close(race->fds[i].fd);
  race->fds[i].fd = -1;
  race->open--;
}

/* Begins the next address. True if it is connected at once. */
static bool begin(struct race *race) {
  const int i = race->begun++;
  const struct addrinfo *address = race->order[i];
  const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  race->fds[i] = (struct pollfd){.fd = fd, .events = POLLOUT};
  if (fd < 0) {
    note_failure(race, i, errno);
    return false;
  }
  race->open++;
  race->next = deadline_after(STAGGER_MS);
  if (connect(fd, address->ai_addr, address->ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) drop(race, i, errno);
  return false;
}

/* Looks at the sockets that poll has marked. Returns the index of a connected one, or -1. */
static int finish(struct race *race) {
  for (int i = 0; i < race->begun; i++) {
    if (race->fds[i].fd < 0 || !race->fds[i].revents) continue;
    int errnum = 0;
    socklen_t len = sizeof errnum;
    if (getsockopt(race->fds[i].fd, SOL_SOCKET, SO_ERROR, &errnum, &len) < 0) errnum = errno;
    if (errnum == 0) return i;
    drop(race, i, errnum);
  }
  return -1;
}

/* Returns the index of the winner, or a negative code without a message. */
static int run(struct race *race, deadline until, const struct flag *cancel) {
  for (;;) {
    while (race->begun < race->count && (race->open == 0 || deadline_left(race->next) == 0))
      if (begin(race)) return race->begun - 1;
    if (race->open == 0) return RDZV_E_CONNECTION;
    const bool more = race->begun < race->count;
    const deadline wake = more && race->next < until ? race->next : until;
    const int result = flag_poll(cancel, race->fds, (nfds_t)race->begun, wake);
    if (result == RDZV_E_TIMEOUT && deadline_left(until) > 0) continue;
    if (result < 0) return result;
    const int winner = finish(race);
    if (winner >= 0) return winner;
  }
}

/* What the user can check. */
static const char *cure(int errnum) {
  switch (errnum) {
    case ECONNREFUSED: return " (is the server up, and the port right?)";
    case EHOSTUNREACH:
    case ENETUNREACH: return " (check the address and the route)";
    case ETIMEDOUT: return " (is the machine up? does a firewall drop the packets?)";
    default: return "";
  }
}

static int fail_connect(const struct race *race, int code, rdzv_error *error) {
  if (code == RDZV_E_CANCELED) return error_set(error, code, "connecting was canceled");
  if (race->causes[0]) return error_set(error, code, "%s%s", race->causes, cure(race->last_errnum));
  return error_set(error, code, "no answer from %d address%s%s", race->begun, race->begun == 1 ? "" : "es",
                   cure(ETIMEDOUT));
}

int net_connect(const struct endpoint *endpoint, deadline until, const struct flag *cancel, int *fd,
                rdzv_error *error) {
  struct addrinfo *list;
  int result = resolve(endpoint, until, cancel, &list, error);
  if (result < 0) return result;
  struct race race = {0};
  alternate_families(&race, list);
  waiting_for(flag_waiting(cancel), "connecting to '%s', port %d%s", endpoint->host, endpoint->port, cure(ETIMEDOUT));
  result = run(&race, until, cancel);
  for (int i = 0; i < race.begun; i++)
    if (i != result && race.fds[i].fd >= 0) close(race.fds[i].fd);
  freeaddrinfo(list);
  if (result >= 0) {
    *fd = race.fds[result].fd;
    net_tune(*fd);
    return 0;
  }
  return fail_connect(&race, result, error);
}
