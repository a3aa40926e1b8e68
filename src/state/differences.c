/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/differences.h"

#include "base/text/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- settings as text ----------------------------------------------------------------------------------------- */

struct differences_launcher differences_launcher(enum launcher launcher, int64_t max_restarts) {
  struct differences_launcher out = {""};
  if (launcher == LAUNCHER_AGENT)
    snprintf(out.text, sizeof out.text, " agent=yes max_restarts=%" PRId64, max_restarts);
  else if (launcher == LAUNCHER_NONE)
    snprintf(out.text, sizeof out.text, " agent=no");
  return out;
}

struct differences_settings differences_settings(const struct rendezvous_settings *settings) {
  static const char *const orders[] = {"torch", "stable", "natural"};
  struct differences_settings out;
  snprintf(out.text, sizeof out.text,
           "nnodes=%" PRId64 ":%" PRId64 " keep_alive_interval=%g keep_alive_max_attempt=%" PRId64 " rank_order=%s%s",
           settings->min_nodes, settings->max_nodes, (double)settings->keep_alive_interval / 1000,
           settings->keep_alive_max_attempt, orders[settings->rank_order],
           differences_launcher(settings->launcher, settings->max_restarts).text);
  return out;
}

bool differences_parse_nnodes(const char *settings, int64_t *min_nodes, int64_t *max_nodes) {
  int64_t min, max;
  if (sscanf(settings, "nnodes=%" SCNd64 ":%" SCNd64 " ", &min, &max) != 2 || min < 1 || max < min) return false;
  *min_nodes = min;
  *max_nodes = max;
  return true;
}

/* The value of that name, "name=" included, in a text of settings; *len is 0 if there is none. */
static const char *find_value(const char *settings, const char *name, size_t name_len, size_t *len) {
  for (const char *at = settings; at; at = strchr(at, ' '), at = at ? at + 1 : NULL) {
    if (strncmp(at, name, name_len) != 0) continue;
    *len = strcspn(at + name_len, " ");
    return at + name_len;
  }
  *len = 0;
  return "";
}

/* ---- entries -------------------------------------------------------------------------------------------------- */

struct entry {
  const char *settings, *node; /* the state's */
};

/* Gives the number of entries. */
static size_t read_entries(const struct rendezvous_state *state, struct entry entries[DIFFERENCES_MOST]) {
  const struct pyvalue *value = pynames_find(&state->extra, DIFFERENCES_ATTRIBUTE);
  size_t count = 0;
  for (size_t i = 0; value && value->kind == PYVALUE_DICT && i + 1 < value->count && count < DIFFERENCES_MOST; i += 2) {
    const struct pyvalue *settings = &value->items[i], *node = &value->items[i + 1];
    if (settings->kind != PYVALUE_STR || node->kind != PYVALUE_STR) continue;
    if (settings->count >= DIFFERENCES_SETTINGS_SIZE || node->count >= sizeof(struct node_text)) continue;
    entries[count++] = (struct entry){(const char *)settings->bytes, (const char *)node->bytes};
  }
  return count;
}

/* Takes the number behind the last '_' off the text. */
static bool take_number(char *text, int64_t *out) {
  char *at = strrchr(text, '_'), *end;
  if (!at || !at[1]) return false;
  *at = '\0';
  *out = strtoll(at + 1, &end, 10);
  return *end == '\0';
}

/* The node of an entry; its address is in `room`. */
static bool parse_node(const char *text, struct node_text *room, struct node_desc *out) {
  snprintf(room->text, sizeof room->text, "%s", text);
  out->addr = room->text;
  return take_number(room->text, &out->local_id) && take_number(room->text, &out->pid);
}

static bool is_there(const struct rendezvous_state *state, const char *node) {
  struct node_text room;
  struct node_desc desc;
  if (!parse_node(node, &room, &desc)) return false;
  const struct state_node *found = state_find(state, &desc);
  return found && found->kinds;
}

static bool make_entry(struct pyvalue pair[2], const struct entry *entry) {
  return pyvalue_make_bytes(&pair[0], PYVALUE_STR, rdzv_str(entry->settings)) &&
         pyvalue_make_bytes(&pair[1], PYVALUE_STR, rdzv_str(entry->node));
}

static bool write_entries(struct rendezvous_state *state, const struct entry *entries, size_t count) {
  struct pyvalue value;
  if (!pyvalue_make_items(&value, PYVALUE_DICT, 2 * count)) return false;
  bool made = true;
  for (size_t i = 0; i < count && made; i++) made = make_entry(&value.items[2 * i], &entries[i]);
  if (made && pynames_set(&state->extra, DIFFERENCES_ATTRIBUTE, &value)) return true;
  pyvalue_free(&value);
  return false;
}

/* Keeps the entries whose node is there, and gives their number. An entry with the settings of `own` gets its node. */
static size_t keep_entries(const struct rendezvous_state *state, struct entry *entries, size_t count,
                           const struct entry *own, bool *entered) {
  size_t kept = 0;
  for (size_t i = 0; i < count; i++) {
    const bool same = own && strcmp(entries[i].settings, own->settings) == 0;
    const bool there = is_there(state, entries[i].node);
    if (same) *entered = true;
    if (same && !there) entries[i].node = own->node;
    if (there || same) entries[kept++] = entries[i];
  }
  return kept;
}

void differences_enter(struct rendezvous_state *state, const struct node_desc *node,
                       const struct rendezvous_settings *settings) {
  struct entry entries[DIFFERENCES_MOST];
  const struct differences_settings own = differences_settings(settings);
  const size_t count = read_entries(state, entries);
  if (count == 1 && strcmp(entries[0].settings, own.text) == 0 && is_there(state, entries[0].node)) return;
  const struct node_text name = node_text(node);
  const struct entry entry = {own.text, name.text};
  bool entered = false;
  size_t kept = keep_entries(state, entries, count, &entry, &entered);
  if (!entered && kept < DIFFERENCES_MOST) entries[kept++] = entry;
  write_entries(state, entries, kept);
}

void differences_clean(struct rendezvous_state *state) {
  struct entry entries[DIFFERENCES_MOST];
  const size_t count = read_entries(state, entries), kept = keep_entries(state, entries, count, NULL, NULL);
  if (kept == 0)
    pynames_remove(&state->extra, DIFFERENCES_ATTRIBUTE);
  else if (kept < count)
    write_entries(state, entries, kept);
}

bool differences_is_entered(const struct rendezvous_state *state, const struct rendezvous_settings *settings) {
  struct entry entries[DIFFERENCES_MOST];
  const struct differences_settings own = differences_settings(settings);
  size_t count = read_entries(state, entries);
  while (count > 0 && strcmp(entries[count - 1].settings, own.text) != 0) count--;
  return count > 0;
}

size_t differences_count(const struct rendezvous_state *state) {
  struct entry entries[DIFFERENCES_MOST];
  return read_entries(state, entries);
}

bool differences_is_last(const struct rendezvous_state *state, const struct node_desc *node) {
  struct entry entries[DIFFERENCES_MOST];
  const size_t count = read_entries(state, entries);
  return count > 0 && strcmp(entries[count - 1].node, node_text(node).text) == 0;
}

bool differences_nnodes(const struct rendezvous_state *state, int64_t *min_nodes, int64_t *max_nodes) {
  struct entry entries[DIFFERENCES_MOST];
  return read_entries(state, entries) > 0 && differences_parse_nnodes(entries[0].settings, min_nodes, max_nodes);
}

struct number {
  char text[32];
};

static struct number find_number(const char *settings, const char *name) {
  struct number out;
  size_t len;
  const char *value = find_value(settings, name, strlen(name), &len);
  snprintf(out.text, sizeof out.text, "%.*s", (int)(len < sizeof out.text ? len : 0), value);
  return out;
}

/* 0: the settings do not say it. */
static int64_t dead_time_of(const char *settings) {
  enum { MOST_MS = INT32_MAX };
  int64_t interval, attempts;
  if (!parse_seconds(find_number(settings, "keep_alive_interval=").text, 1, &interval) ||
      !parse_number(find_number(settings, "keep_alive_max_attempt=").text, 1, MOST_MS, &attempts))
    return 0;
  return interval < MOST_MS / attempts ? interval * attempts : 0;
}

int64_t differences_dead_time(const struct rendezvous_state *state) {
  struct entry entries[DIFFERENCES_MOST];
  const size_t count = read_entries(state, entries);
  int64_t longest = 0;
  for (size_t i = 0; i < count; i++) {
    const int64_t ms = dead_time_of(entries[i].settings);
    if (ms > longest) longest = ms;
  }
  bool ours = longest > 0;
  for (size_t i = 0; i < state->count; i++) ours &= state->nodes[i].ours;
  return ours || longest > TORCH_DEAD_MS ? longest : TORCH_DEAD_MS;
}

/* ---- warning -------------------------------------------------------------------------------------------------- */

const struct state_node *differences_find_torch(const struct rendezvous_state *state) {
  for (size_t i = 0; i < state->count; i++) {
    const struct state_node *node = &state->nodes[i];
    if (node->kinds && !node->ours && node->last_heartbeat != DATETIME_NONE) return node;
  }
  return NULL;
}

static bool tell_torch(struct differences *told, const struct rendezvous_settings *settings,
                       const struct state_node *torch, struct summary *out) {
  const int64_t dead_time = rendezvous_dead_time(settings);
  if (!torch || told->torch || dead_time >= TORCH_DEAD_MS) return false;
  told->torch = true;
  snprintf(out->text, sizeof out->text,
           "PyTorch nodes ignore keep_alive_interval=%g and keep_alive_max_attempt=%" PRId64
           ": they count as dead after %d s of silence, not after %g s; '%.120s' is one",
           (double)settings->keep_alive_interval / 1000, settings->keep_alive_max_attempt, TORCH_DEAD_MS / 1000,
           (double)dead_time / 1000, node_text(&torch->desc).text);
  return true;
}

/* Adds the values that both have and that differ. False: there is none. */
static bool add_values(struct summary *out, size_t len, const char *own, const char *others) {
  const char *sep = "";
  for (const char *at = own; *at; at += strcspn(at, " "), at += *at == ' ') {
    const size_t name = strcspn(at, "="), own_len = strcspn(at + name, " ");
    size_t other_len;
    const char *value = find_value(others, at, name + 1, &other_len);
    if (other_len == 0 || (other_len == own_len - 1 && memcmp(value, at + name + 1, other_len) == 0)) continue;
    const int more = snprintf(out->text + len, sizeof out->text - len, "%s%.*s=%.*s, this node %.*s", sep, (int)name,
                              at, (int)other_len, value, (int)own_len - 1, at + name + 1);
    if (more < 0 || (size_t)more >= sizeof out->text - len) break;
    len += (size_t)more;
    sep = "; ";
  }
  return *sep;
}

static void append(struct summary *out, const char *text) {
  const size_t len = strlen(out->text);
  snprintf(out->text + len, sizeof out->text - len, "%s", text);
}

static bool describe(const char *own, const char *others, const char *other, struct summary *out) {
  const size_t len = (size_t)snprintf(out->text, sizeof out->text, "'%.120s' has ", other);
  const bool differ = add_values(out, len, own, others);
  append(out, " (use the same values on all nodes)");
  return differ;
}

struct summary differences_describe(const char *own, const char *others, const char *other) {
  struct summary out;
  describe(own, others, other, &out);
  return out;
}

/* 1: its node is an agent; 0: it is none; -1: not known. */
static int find_agent(const char *settings) {
  size_t len;
  const char *value = find_value(settings, "agent=", 6, &len);
  if (len == 3 && memcmp(value, "yes", 3) == 0) return 1;
  return len == 2 && memcmp(value, "no", 2) == 0 ? 0 : -1;
}

struct summary differences_describe_clash(const char *own, const char *others, const char *other) {
  struct summary out;
  const int ours = find_agent(own), theirs = find_agent(others);
  if (ours < 0 || theirs < 0 || ours == theirs) {
    const size_t len = (size_t)snprintf(out.text, sizeof out.text,
                                        "the --nnodes ranges of these nodes do not overlap: '%.120s' has ", other);
    add_values(&out, len, own, others);
    append(&out, " (use the same values on all nodes)");
    return out;
  }
  snprintf(out.text, sizeof out.text,
           "'%.120s' %s, and this node %s: they cannot be in one round (start all nodes with 'rdzv run', or choose "
           "another --rdzv-id)",
           other, theirs ? "is an agent, as of 'rdzv run'" : "is no agent, as of 'rdzv join'",
           ours ? "is one" : "is none");
  return out;
}

static uint64_t hash(const char *text) { /* FNV-1a */
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (; *text; text++) hash = (hash ^ (uint8_t)*text) * UINT64_C(0x100000001b3);
  return hash;
}

/* Notes a warning about these settings. False: it was noted before. */
static bool note_told(struct differences *told, const char *settings) {
  const uint64_t wanted = hash(settings);
  for (size_t i = 0; i < told->count; i++)
    if (told->told[i] == wanted) return false;
  if (told->count == DIFFERENCES_MOST) return false;
  told->told[told->count++] = wanted;
  return true;
}

bool differences_tell(struct differences *told, const char *own, const char *others, const char *other,
                      struct summary *out) {
  struct summary found;
  if (!*others || strcmp(own, others) == 0 || !describe(own, others, other, &found)) return false;
  if (!note_told(told, others)) return false;
  *out = found;
  return true;
}

bool differences_next(struct differences *told, const struct rendezvous_state *state,
                      const struct rendezvous_settings *settings, const struct state_node *torch, struct summary *out) {
  struct entry entries[DIFFERENCES_MOST];
  if (tell_torch(told, settings, torch, out)) return true;
  const size_t count = read_entries(state, entries);
  if (count == 0) return false;
  const struct differences_settings own = differences_settings(settings);
  for (size_t i = 0; i < count; i++)
    if (differences_tell(told, own.text, entries[i].settings, entries[i].node, out)) return true;
  return false;
}

/* ---- failing -------------------------------------------------------------------------------------------------- */

bool differences_clashes(const struct rendezvous_settings *settings, const char *others) {
  int64_t min_nodes, max_nodes;
  const int agent = find_agent(others);
  if (agent >= 0 && settings->launcher == (agent ? LAUNCHER_NONE : LAUNCHER_AGENT)) return true;
  return differences_parse_nnodes(others, &min_nodes, &max_nodes) &&
         (min_nodes > settings->max_nodes || max_nodes < settings->min_nodes);
}

bool differences_is_asked(const struct rendezvous_state *state, const struct node_desc *node,
                          const struct rendezvous_settings *settings) {
  struct entry entries[DIFFERENCES_MOST];
  const struct node_text name = node_text(node);
  const size_t count = read_entries(state, entries);
  bool named = false, clashes = false;
  for (size_t i = 0; i < count; i++) {
    named = named || strcmp(entries[i].node, name.text) == 0;
    clashes = clashes || differences_clashes(settings, entries[i].settings);
  }
  return named && clashes;
}

enum rendezvous_clash differences_clash(const struct rendezvous_state *state,
                                        const struct rendezvous_settings *settings, differences_lives *lives,
                                        const void *argument, struct summary *out) {
  struct entry entries[DIFFERENCES_MOST];
  const size_t count = read_entries(state, entries);
  enum rendezvous_clash clash = CLASH_NONE;
  if (count == 0) return CLASH_NONE;
  const struct differences_settings own = differences_settings(settings);
  for (size_t i = 0; i < count && clash != CLASH_SURE && strcmp(entries[i].settings, own.text) != 0; i++) {
    struct node_text room;
    struct node_desc desc;
    if (!differences_clashes(settings, entries[i].settings) || !is_there(state, entries[i].node)) continue;
    if (!parse_node(entries[i].node, &room, &desc)) continue;
    clash = lives(argument, &desc) ? CLASH_SURE : CLASH_DOUBTFUL;
    *out = differences_describe_clash(own.text, entries[i].settings, entries[i].node);
  }
  return clash;
}
