/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/worker/numa.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GPUS = 64, ADDRESS_SIZE = 32, PATH_SIZE = 512 };

/* ---- the machine's files -------------------------------------------------------------------------------------- */

static bool read_line(const char *root, const char *path, char *out, size_t size) {
  char full[PATH_SIZE];
  snprintf(full, sizeof full, "%s%s", root, path);
  FILE *file = fopen(full, "re");
  const bool done = file && fgets(out, (int)size, file);
  if (file) fclose(file);
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

/* ---- the node ------------------------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b) { return strcmp(a, b); }

/* PCI addresses, in order. */
static size_t list_gpus(const char *root, char out[MOST_GPUS][ADDRESS_SIZE]) {
  char folder[PATH_SIZE];
  size_t count = 0;
  snprintf(folder, sizeof folder, "%s/proc/driver/nvidia/gpus", root);
  DIR *dir = opendir(folder);
  for (const struct dirent *entry; dir && count < MOST_GPUS && (entry = readdir(dir));) {
    const size_t len = strlen(entry->d_name);
    if (entry->d_name[0] != '.' && len < ADDRESS_SIZE) memcpy(out[count++], entry->d_name, len + 1);
  }
  if (dir) closedir(dir);
  qsort(out, count, ADDRESS_SIZE, by_address);
  return count;
}

/* The number of the worker's GPU; -1: not known by a number. */
static long gpu_of(int64_t local_rank) {
  const char *at = getenv("CUDA_VISIBLE_DEVICES");
  if (!at) return (long)local_rank;
  for (int64_t i = 0; i < local_rank && *at; i++) {
    at += strcspn(at, ",");
    at += *at == ',';
  }
  return isdigit((unsigned char)*at) ? strtol(at, NULL, 10) : -1;
}

static long node_of_gpu(const char *root, const char *address) {
  char path[PATH_SIZE], line[32], lower[ADDRESS_SIZE] = "";
  for (size_t i = 0; address[i]; i++) lower[i] = (char)tolower((unsigned char)address[i]);
  snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", lower);
  return read_line(root, path, line, sizeof line) ? strtol(line, NULL, 10) : -1;
}

/* The node at the worker's place in the list of all. */
static long node_by_place(const char *root, int64_t local_rank, int64_t local_world_size) {
  cpu_set_t nodes;
  if (!read_list(root, "/sys/devices/system/node/online", &nodes)) return -1;
  int64_t skip = local_rank * CPU_COUNT(&nodes) / local_world_size;
  for (long i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET((size_t)i, &nodes) && skip-- == 0) return i;
  return -1;
}

bool numa_cpus(const char *root, int64_t local_rank, int64_t local_world_size, const cpu_set_t *allowed,
               cpu_set_t *out) {
  char gpus[MOST_GPUS][ADDRESS_SIZE], path[PATH_SIZE];
  const size_t count = list_gpus(root, gpus);
  const long gpu = gpu_of(local_rank);
  const long node = count == 0                               ? node_by_place(root, local_rank, local_world_size)
                    : gpu >= 0 && (unsigned long)gpu < count ? node_of_gpu(root, gpus[gpu])
                                                             : -1;
  if (node < 0) return false;
  cpu_set_t cpus;
  snprintf(path, sizeof path, "/sys/devices/system/node/node%ld/cpulist", node);
  if (!read_list(root, path, &cpus)) return false;
  CPU_AND(out, &cpus, allowed);
  return CPU_COUNT(out) > 0;
}
