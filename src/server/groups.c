/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The process groups of PyTorch workers, in a store that outlives them (option renew_groups).
 *
 * init_process_group keeps its keys below "default_pg/", and gives them the same names each time. A worker that forms
 * its group again, after destroy_process_group or as a restarted process, would read the addresses of the group before.
 * So each group after the first has keys of its own: in the requests of its members the server replaces "default_pg" by
 * "pg_0000001", "pg_0000002" and so on, which have the same length.
 *
 * A member has one connection, which ends with its group. All members are in the current group. A member that comes
 * from an address where a member has left the current group begins the next one. This is right because no member of a
 * complete group can come after another one has left. A connection that PyTorch clones is in the group of its process.
 * The keys of a group stay until the server ends.
 */
#define HASH_NONFATAL_OOM 1 /* hh.tbl is NULL where there was no memory */
#include "server/server.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <uthash.h>
#include <utlist.h>

#define GROUP_KEYS "default_pg/"
#define GROUP_NAME "pg_%07u"  /* as long as the name that it replaces, without the slash */
#define WORKERS_COUNT "init/" /* the key by which PyTorch's clients count themselves: a clone does not */

enum { NAME_LEN = sizeof GROUP_KEYS - 2, MOST_GROUPS = 10000000 };

/* An address where members have left their groups. */
struct leaver {
  uint64_t address;
  unsigned group; /* that the last of them left */
  UT_hash_handle hh;
};

static struct leaver *find_leaver(const struct rdzv_server *server, uint64_t address) {
  struct leaver *leaver;
  HASH_FIND(hh, server->leavers, &address, sizeof address, leaver);
  return leaver;
}

static struct leaver *note_leaver(struct rdzv_server *server, uint64_t address) {
  if (!budget_take(&server->budget, sizeof(struct leaver))) return NULL;
  struct leaver *leaver = calloc(1, sizeof *leaver);
  if (leaver) {
    leaver->address = address;
    HASH_ADD(hh, server->leavers, address, sizeof leaver->address, leaver);
    if (leaver->hh.tbl) return leaver;
  }
  free(leaver);
  budget_give(&server->budget, sizeof *leaver);
  return NULL;
}

/* ---- the members of groups ------------------------------------------------------------------------------------- */

static uint64_t hash_address(const struct conn *conn) {
  struct sockaddr_storage peer = {0};
  socklen_t len = sizeof peer;
  const struct siphash_seed *seed = &conn->server->groups_seed;
  if (getpeername(conn->fd, (struct sockaddr *)&peer, &len) < 0) return 0;
  if (peer.ss_family == AF_INET)
    return siphash_short(seed, &((const struct sockaddr_in *)&peer)->sin_addr, sizeof(struct in_addr));
  return siphash_short(seed, &((const struct sockaddr_in6 *)&peer)->sin6_addr, sizeof(struct in6_addr));
}

static unsigned group_of_member(struct rdzv_server *server, uint64_t address) {
  const struct leaver *leaver = find_leaver(server, address);
  if (leaver && leaver->group == server->last_group) server->last_group++;
  return server->last_group;
}

static unsigned group_of_clone(const struct conn *clone) {
  const struct conn *conn;
  if (clone->server->last_group == 0) return 0;
  DL_FOREACH(clone->server->conns, conn)
  if (conn->is_worker && conn->in_group && conn->peer_address == clone->peer_address &&
      conn->peer_process == clone->peer_process)
    return conn->group;
  return clone->server->last_group;
}

static void enter(struct conn *conn) {
  conn->peer_address = hash_address(conn);
  conn->group = conn->is_worker ? group_of_member(conn->server, conn->peer_address) : group_of_clone(conn);
  conn->in_group = true;
}

/* Without memory, a member that comes back is in the group that it left, as without the option. */
void groups_lost(struct conn *conn) {
  if (!conn->in_group || !conn->is_worker) return;
  struct leaver *leaver = find_leaver(conn->server, conn->peer_address);
  if (!leaver) leaver = note_leaver(conn->server, conn->peer_address);
  if (leaver && conn->group >= leaver->group) leaver->group = conn->group;
}

void groups_free(struct rdzv_server *server) {
  struct leaver *leaver, *next;
  HASH_ITER(hh, server->leavers, leaver, next) {
    HASH_DEL(server->leavers, leaver); /* NOLINT: the one before is out of the table */
    free(leaver);
  }
  server->last_group = 0;
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

/* Where the name of a group is in a key; NULL: it is another key. */
static const uint8_t *find_name(rdzv_bytes key) {
  const uint8_t *start = key.data;
  const uint8_t *at = memmem(start, key.len, GROUP_KEYS, sizeof GROUP_KEYS - 1);
  return at && (at == start || at[-1] == '/') ? at : NULL;
}

/* `data` begins at or before the key, and can be written. */
static void rename_key(struct conn *conn, rdzv_bytes key, uint8_t *data) {
  char text[NAME_LEN + 1];
  const uint8_t *name = find_name(key);
  if (!name) return;
  if (!conn->in_group) enter(conn);
  if (conn->group == 0) return;
  snprintf(text, sizeof text, GROUP_NAME, conn->group % MOST_GROUPS);
  memcpy(data + (name - data), text, NAME_LEN);
}

void groups_rename(struct conn *conn, const struct wire_request *request, uint8_t *data) {
  if (request->op == WIRE_OP_PING && conn->decoder.dialect == WIRE_DIALECT_V2) conn->peer_process = request->number;
  if (request->op == WIRE_OP_ADD && bytes_equal(request->key, rdzv_str(WORKERS_COUNT))) conn->is_worker = true;
  if (request->key.len > 0) rename_key(conn, request->key, data);
  rdzv_bytes list = request->list;
  for (size_t i = 0; i < request->count; i++) {
    rename_key(conn, wire_list_next(&list), data);
    if (request->op == WIRE_OP_MULTI_SET) wire_list_next(&list); /* its value */
  }
}
