/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/worker/numa.h"

#include "base/error.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GPUS = 64, ADDRESS_SIZE = 32, PATH_SIZE = 512, MOST_CACHES = 16 };

/* The machine and the worker. */
struct machine {
  const char *root;
  const cpu_set_t *allowed;
  char gpus[MOST_GPUS][ADDRESS_SIZE]; /* PCI addresses, in order */
  size_t gpu_count;
  int64_t local_world_size;
};

/* ---- the machine's files -------------------------------------------------------------------------------------- */

static bool read_line(const char *root, const char *path, char *out, size_t size) {
  char full[PATH_SIZE];
  snprintf(full, sizeof full, "%s%s", root, path);
  FILE *file = fopen(full, "re");
  const bool done = file && fgets(out, (int)size, file);
  if (file) fclose(file);
  if (done) out[strcspn(out, "\n")] = '\0';
  return done;
}

/* "0-3,8-11". */
static bool parse_list(const char *text, cpu_set_t *out) {
  CPU_ZERO(out);
  while (isdigit((unsigned char)*text)) {
    char *end;
    const long first = strtol(text, &end, 10);
    const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
    if (first < 0 || last < first || last >= CPU_SETSIZE) return false;
    for (long i = first; i <= last; i++) CPU_SET((size_t)i, out);
    text = end + (*end == ',');
  }
  return CPU_COUNT(out) > 0;
}

static bool read_list(const char *root, const char *path, cpu_set_t *out) {
  char line[4096];
  return read_line(root, path, line, sizeof line) && parse_list(line, out);
}

static long first_of(const cpu_set_t *cpus) {
  for (long i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET((size_t)i, cpus)) return i;
  return -1;
}

/* ---- the node of a worker ------------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b) { return strcmp(a, b); }

static void list_gpus(struct machine *machine) {
  char folder[PATH_SIZE];
  snprintf(folder, sizeof folder, "%s/proc/driver/nvidia/gpus", machine->root);
  DIR *dir = opendir(folder);
  for (const struct dirent *entry; dir && machine->gpu_count < MOST_GPUS && (entry = readdir(dir));) {
    const size_t len = strlen(entry->d_name);
    if (entry->d_name[0] != '.' && len < ADDRESS_SIZE)
      memcpy(machine->gpus[machine->gpu_count++], entry->d_name, len + 1);
  }
  if (dir) closedir(dir);
  qsort(machine->gpus, machine->gpu_count, ADDRESS_SIZE, by_address);
}

/* The number of GPUs that workers see. */
static int64_t visible_gpus(const struct machine *machine) {
  const char *at = getenv("CUDA_VISIBLE_DEVICES");
  if (!at) return (int64_t)machine->gpu_count;
  int64_t count = *at != '\0';
  for (; *at; at++) count += *at == ',';
  return count;
}

/* The number of the GPU at this place of those that workers see; -1: it has none, or no number. */
static long gpu_at(const struct machine *machine, int64_t place) {
  const char *at = getenv("CUDA_VISIBLE_DEVICES");
  for (int64_t i = 0; at && i < place && *at; i++) {
    at += strcspn(at, ",");
    at += *at == ',';
  }
  const long gpu = !at ? (long)place : isdigit((unsigned char)*at) ? strtol(at, NULL, 10) : -1;
  return gpu >= 0 && (unsigned long)gpu < machine->gpu_count ? gpu : -1;
}

/* A machine with one node may say -1. */
static long node_of_gpu(const struct machine *machine, int64_t place) {
  char path[PATH_SIZE], line[32], lower[ADDRESS_SIZE] = "";
  const long gpu = gpu_at(machine, place);
  if (gpu < 0) return -1;
  for (size_t i = 0; machine->gpus[gpu][i]; i++) lower[i] = (char)tolower((unsigned char)machine->gpus[gpu][i]);
  snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", lower);
  if (!read_line(machine->root, path, line, sizeof line)) return -1;
  const long node = strtol(line, NULL, 10);
  return node > 0 ? node : 0;
}

/* Without GPUs: the node at the worker's place in the list of all. */
static long node_by_place(const struct machine *machine, int64_t place) {
  cpu_set_t nodes;
  if (!read_list(machine->root, "/sys/devices/system/node/online", &nodes)) return -1;
  int64_t skip = place * CPU_COUNT(&nodes) / machine->local_world_size;
  for (long i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET((size_t)i, &nodes) && skip-- == 0) return i;
  return -1;
}

static long node_of(const struct machine *machine, int64_t place) {
  return machine->gpu_count > 0 ? node_of_gpu(machine, place) : node_by_place(machine, place);
}

static bool cpus_of_node(const struct machine *machine, long node, cpu_set_t *out) {
  char path[PATH_SIZE];
  snprintf(path, sizeof path, "/sys/devices/system/node/node%ld/cpulist", node);
  if (!read_list(machine->root, path, out)) return false;
  CPU_AND(out, out, machine->allowed);
  return CPU_COUNT(out) > 0;
}

/* ---- sockets -------------------------------------------------------------------------------------------------- */

/* -1: not known. */
static long socket_of_cpu(const struct machine *machine, long cpu) {
  char path[PATH_SIZE], line[32];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%ld/topology/physical_package_id", cpu);
  return read_line(machine->root, path, line, sizeof line) ? strtol(line, NULL, 10) : -1;
}

/* Adds the nodes of the socket that the processors in `cpus` are on. */
static bool add_socket(const struct machine *machine, cpu_set_t *cpus) {
  cpu_set_t nodes, of_node;
  const long socket = socket_of_cpu(machine, first_of(cpus));
  if (socket < 0 || !read_list(machine->root, "/sys/devices/system/node/possible", &nodes)) return false;
  for (long node = 0; node < CPU_SETSIZE; node++) {
    if (!CPU_ISSET((size_t)node, &nodes) || !cpus_of_node(machine, node, &of_node)) continue;
    if (socket_of_cpu(machine, first_of(&of_node)) == socket) CPU_OR(cpus, cpus, &of_node);
  }
  return true;
}

/* ---- parts of a node ------------------------------------------------------------------------------------------ */

/* The processors of a node in groups. The name of a group is the first processor in it, allowed or not. */
struct groups {
  long of[CPU_SETSIZE]; /* the group of each processor; -1: it is not in the node */
  cpu_set_t names;
};

static bool core_of(const struct machine *machine, long cpu, cpu_set_t *out) {
  char path[PATH_SIZE];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%ld/topology/thread_siblings_list", cpu);
  return read_list(machine->root, path, out);
}

/* The processors that share the cache of the highest level, which is not one for instructions. */
static bool complex_of(const struct machine *machine, long cpu, cpu_set_t *out) {
  long highest = -1;
  for (int i = 0; i < MOST_CACHES; i++) {
    char path[PATH_SIZE], type[32], level[32];
    const int len = snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%ld/cache/index%d/", cpu, i);
    char *const name = path + len;
    const size_t size = sizeof path - (size_t)len;
    snprintf(name, size, "type");
    if (!read_line(machine->root, path, type, sizeof type) || strcmp(type, "Instruction") == 0) continue;
    snprintf(name, size, "level");
    if (!read_line(machine->root, path, level, sizeof level) || strtol(level, NULL, 10) <= highest) continue;
    snprintf(name, size, "shared_cpu_list");
    if (read_list(machine->root, path, out)) highest = strtol(level, NULL, 10);
  }
  return highest >= 0;
}

static bool group(const struct machine *machine, const cpu_set_t *cpus, enum numa_mode mode, struct groups *out) {
  CPU_ZERO(&out->names);
  for (long cpu = 0; cpu < CPU_SETSIZE; cpu++) {
    cpu_set_t shared;
    out->of[cpu] = -1;
    if (!CPU_ISSET((size_t)cpu, cpus)) continue;
    if (!(mode == NUMA_EXCLUSIVE ? core_of : complex_of)(machine, cpu, &shared)) return false;
    out->of[cpu] = first_of(&shared);
    CPU_SET((size_t)out->of[cpu], &out->names);
  }
  return true;
}

static int size_of(const struct groups *groups, long name) {
  int count = 0;
  for (long cpu = 0; cpu < CPU_SETSIZE; cpu++) count += groups->of[cpu] == name;
  return count;
}

/* The largest group, and of equal ones the first. */
static long largest(const struct groups *groups) {
  long best = -1;
  for (long name = 0; name < CPU_SETSIZE; name++)
    if (CPU_ISSET((size_t)name, &groups->names) && (best < 0 || size_of(groups, name) > size_of(groups, best)))
      best = name;
  return best;
}

/* Each complex has its turn, the largest first. */
static void choose_complex(struct groups *groups, int64_t index) {
  for (int64_t i = index % CPU_COUNT(&groups->names); i > 0; i--) CPU_CLR((size_t)largest(groups), &groups->names);
  const long chosen = largest(groups);
  CPU_ZERO(&groups->names);
  CPU_SET((size_t)chosen, &groups->names);
}

/* An equal part for each; the first ones get what is left over. */
static bool choose_cores(struct groups *groups, int64_t index, int64_t count) {
  const int64_t cores = CPU_COUNT(&groups->names), each = cores / count, more = cores % count;
  const int64_t start = index * each + (index < more ? index : more), end = start + each + (index < more);
  int64_t place = 0;
  for (size_t name = 0; name < CPU_SETSIZE; name++)
    if (CPU_ISSET(name, &groups->names) && (place++ < start || place > end)) CPU_CLR(name, &groups->names);
  return each > 0;
}

/* Cuts `cpus`, those of the node, down to the part for the worker: all GPUs on the node have one. */
static int take_part(const struct machine *machine, enum numa_mode mode, int64_t local_rank, long node, cpu_set_t *cpus,
                     rdzv_error *error) {
  struct groups groups;
  int64_t index = 0, count = 1;
  const int64_t all = machine->gpu_count > 0 ? visible_gpus(machine) : machine->local_world_size;
  for (int64_t i = 0; i < all; i++) {
    const bool here = i != local_rank && node_of(machine, i) == node;
    index += here && i < local_rank;
    count += here;
  }
  if (!group(machine, cpus, mode, &groups))
    return error_set(error, RDZV_E_INVALID, "the machine does not show the %s of its processors",
                     mode == NUMA_EXCLUSIVE ? "cores" : "caches");
  const int cores = CPU_COUNT(&groups.names);
  if (mode == NUMA_CORE_COMPLEX)
    choose_complex(&groups, index);
  else if (!choose_cores(&groups, index, count))
    return error_set(error, RDZV_E_INVALID, "NUMA node %ld has %d cores for %" PRId64 " %s", node, cores, count,
                     machine->gpu_count > 0 ? "GPUs" : "workers");
  for (long cpu = 0; cpu < CPU_SETSIZE; cpu++)
    if (groups.of[cpu] >= 0 && !CPU_ISSET((size_t)groups.of[cpu], &groups.names)) CPU_CLR((size_t)cpu, cpus);
  return 0;
}

/* ---- all of it ------------------------------------------------------------------------------------------------ */

static int fail_node(const struct machine *machine, int64_t local_rank, rdzv_error *error) {
  if (machine->gpu_count == 0) return error_set(error, RDZV_E_INVALID, "the machine does not show its NUMA nodes");
  if (local_rank >= visible_gpus(machine))
    return error_set(error, RDZV_E_INVALID, "there are only %" PRId64 " GPUs", visible_gpus(machine));
  if (gpu_at(machine, local_rank) < 0)
    return error_set(error, RDZV_E_INVALID, "CUDA_VISIBLE_DEVICES does not name its GPU by a number");
  return error_set(error, RDZV_E_INVALID, "the machine does not show the NUMA node of its GPU");
}

static int find_cpus(const struct machine *machine, enum numa_mode mode, int64_t local_rank, cpu_set_t *out,
                     rdzv_error *error) {
  const long node = node_of(machine, local_rank);
  if (node < 0) return fail_node(machine, local_rank, error);
  if (!cpus_of_node(machine, node, out))
    return error_set(error, RDZV_E_INVALID, "NUMA node %ld has no processor that may be used", node);
  if (mode == NUMA_SOCKET && !add_socket(machine, out))
    return error_set(error, RDZV_E_INVALID, "the machine does not show its sockets");
  return mode == NUMA_NODE || mode == NUMA_SOCKET ? 0 : take_part(machine, mode, local_rank, node, out, error);
}

int numa_cpus(const char *root, enum numa_mode mode, int64_t local_rank, int64_t local_world_size,
              const cpu_set_t *allowed, cpu_set_t *out, rdzv_error *error) {
  struct machine machine = {.root = root, .allowed = allowed, .local_world_size = local_world_size};
  list_gpus(&machine);
  const int result = find_cpus(&machine, mode, local_rank, out, error);
  return result < 0 ? error_prefix(error, result, "cannot bind local rank %" PRId64 " to processors", local_rank) : 0;
}
