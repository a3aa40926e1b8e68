/* SPDX-License-Identifier: BSD-3-Clause */
/* A rendezvous as lines of text. */
#include "cli/rendezvous/table.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

const char *way_name(rdzv_node_way way) {
  static const char *const names[] = {NULL, "PyTorch", "swap", "native"};
  return names[way];
}

const char *kind_name(rdzv_node_kind kind) {
  static const char *const names[] = {"participant", "waiting", "spare"};
  return names[kind];
}

struct time_text time_text(int64_t us) {
  struct time_text text = {""};
  const time_t seconds = (time_t)(us / 1000000);
  struct tm parts;
  if (gmtime_r(&seconds, &parts)) strftime(text.text, sizeof text.text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

/* ---- what changed --------------------------------------------------------------------------------------------- */

static const rdzv_node_status *find_node(const rdzv_status *status, const char *name) {
  for (size_t i = 0; i < rdzv_status_node_count(status); i++)
    if (strcmp(rdzv_status_node(status, i)->node, name) == 0) return rdzv_status_node(status, i);
  return NULL;
}

static bool has_node(const rdzv_status *status, const rdzv_node_status *node) {
  const rdzv_node_status *found = find_node(status, node->node);
  return found && found->kind == node->kind && found->rank == node->rank;
}

static bool has_nodes(const rdzv_status *status, const rdzv_status *other) {
  for (size_t i = 0; i < rdzv_status_node_count(other); i++)
    if (!has_node(status, rdzv_status_node(other, i))) return false;
  return true;
}

static bool is_same_run(const rdzv_status *a, const rdzv_status *b) {
  return a->exists == b->exists && a->round == b->round && strcmp(a->phase, b->phase) == 0 && a->closed == b->closed &&
         a->min_nodes == b->min_nodes && a->max_nodes == b->max_nodes && strcmp(a->reason, b->reason) == 0;
}

bool status_differs(const rdzv_status *a, const rdzv_status *b) {
  return !is_same_run(a, b) || rdzv_status_node_count(a) != rdzv_status_node_count(b) || !has_nodes(a, b);
}

bool status_is_doubtful(const rdzv_status *status) { return status->died && strcmp(status->phase, "ended") != 0; }

/* ---- the run -------------------------------------------------------------------------------------------------- */

static void print_end(FILE *out, const rdzv_status *status) {
  const bool ended = strcmp(status->phase, "ended") == 0;
  const struct shown by = shown(status->ended_by);
  if (status->ended_us > 0) fprintf(out, " at %s", time_text(status->ended_us).text);
  if (ended && *by.text)
    fprintf(out, ": the last node, '%s', %s", by.text, status->died ? "died" : "left");
  else if (*by.text)
    fprintf(out, " by '%s'", by.text);
  else if (ended)
    fprintf(out, ": all nodes have left or died");
}

void print_phase(FILE *out, const rdzv_status *status) {
  if (!status->exists) {
    fprintf(out, "no node has joined yet");
    return;
  }
  fprintf(out, "round %lld, %s", (long long)status->round, status->phase);
  print_end(out, status);
  if (status->closed && status->complete) fprintf(out, " (the round is complete)");
  if (*status->reason) fprintf(out, ": %s", shown(status->reason).text);
}

void print_counts(FILE *out, const rdzv_status *status) {
  fprintf(out, "%zu participant%s", status->participants, status->participants == 1 ? "" : "s");
  if (status->min_nodes > 0)
    fprintf(out, " (min %lld, max %lld)", (long long)status->min_nodes, (long long)status->max_nodes);
  fprintf(out, ", %zu waiting, %zu spare%s", status->waiting, status->spares, status->spares == 1 ? "" : "s");
  if (status->deadline_left_ms >= 0)
    fprintf(out, "; the last call ends in %.1f s", (double)status->deadline_left_ms / 1000);
}

/* ---- the table ------------------------------------------------------------------------------------------------ */

static void print_node(FILE *out, const rdzv_node_status *node, char mark) {
  char rank[24] = "-", age[32] = "-", trip[32] = "-";
  const char *way = way_name(node->way);
  if (node->rank >= 0) snprintf(rank, sizeof rank, "%lld", (long long)node->rank);
  if (node->heartbeat_age_ms >= 0) snprintf(age, sizeof age, "%.1f s ago", (double)node->heartbeat_age_ms / 1000);
  if (node->trip_us >= 0) snprintf(trip, sizeof trip, "%.2f ms", (double)node->trip_us / 1000);
  fprintf(out, "%c %-5s %-11s %-14s %-7s %-8s %s\n", mark, rank, kind_name(node->kind), age, way ? way : "-", trip,
          shown(node->node).text);
}

static void print_gone(FILE *out, const rdzv_status *status, const rdzv_status *before) {
  for (size_t i = 0; i < rdzv_status_node_count(before); i++) {
    const rdzv_node_status *node = rdzv_status_node(before, i);
    if (!find_node(status, node->node)) fprintf(out, "- %s is gone\n", shown(node->node).text);
  }
}

void print_table(FILE *out, const rdzv_status *status, const rdzv_status *before, const char *run_id) {
  const size_t count = rdzv_status_node_count(status);
  fprintf(out, "rendezvous '%s': ", shown(run_id).text);
  print_phase(out, status);
  fprintf(out, before && !is_same_run(status, before) ? " *\n" : "\n");
  if (!status->exists) return;
  print_counts(out, status);
  fputc('\n', out);
  if (count > 0) fprintf(out, "  %-5s %-11s %-14s %-7s %-8s %s\n", "RANK", "KIND", "HEARTBEAT", "WAY", "TRIP", "NODE");
  for (size_t i = 0; i < count; i++) {
    const rdzv_node_status *node = rdzv_status_node(status, i);
    print_node(out, node, before && !has_node(before, node) ? '*' : ' ');
  }
  if (before) print_gone(out, status, before);
}

void print_changes(FILE *out, const rdzv_status *status, const rdzv_status *before) {
  print_phase(out, status);
  if (status->exists) fputs("; ", out);
  if (status->exists) print_counts(out, status);
  for (size_t i = 0; i < rdzv_status_node_count(status); i++) {
    const rdzv_node_status *node = rdzv_status_node(status, i);
    if (before && has_node(before, node)) continue;
    fprintf(out, "; + %s %s", shown(node->node).text, kind_name(node->kind));
    if (node->rank >= 0) fprintf(out, " %lld", (long long)node->rank);
  }
  for (size_t i = 0; before && i < rdzv_status_node_count(before); i++) {
    const rdzv_node_status *node = rdzv_status_node(before, i);
    if (!find_node(status, node->node)) fprintf(out, "; - %s", shown(node->node).text);
  }
  fputc('\n', out);
}
