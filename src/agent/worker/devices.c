/* SPDX-License-Identifier: BSD-3-Clause */
#include "agent/worker/devices.h"

#include "base/error.h"
#include "base/text/parse.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_WORKERS = 4096, INTEL = 0x8086 };

/* ---- what there is -------------------------------------------------------------------------------------------- */

typedef bool is_one(const char *folder, const char *name);

static int64_t count_in(const char *root, const char *path, is_one *matches) {
  char folder[512];
  snprintf(folder, sizeof folder, "%s%s", root, path);
  DIR *dir = opendir(folder);
  int64_t count = 0;
  for (const struct dirent *entry; dir && (entry = readdir(dir));) count += matches(folder, entry->d_name);
  if (dir) closedir(dir);
  return count;
}

static bool is_entry(const char *folder, const char *name) {
  (void)folder;
  return name[0] != '.';
}

static bool is_nvidia(const char *folder, const char *name) {
  (void)folder;
  const size_t digits = strncmp(name, "nvidia", 6) == 0 ? strspn(name + 6, "0123456789") : 0;
  return digits > 0 && name[6 + digits] == '\0';
}

/* A node of the topology that is a GPU has an id other than 0. */
static bool is_kfd_gpu(const char *folder, const char *name) {
  char path[1024];
  unsigned long id = 0;
  snprintf(path, sizeof path, "%s/%.200s/gpu_id", folder, name);
  FILE *file = name[0] == '.' ? NULL : fopen(path, "re");
  if (!file) return false;
  const bool read = fscanf(file, "%lu", &id) == 1;
  fclose(file);
  return read && id != 0;
}

/* A render node of an Intel GPU. `folder` is /dev/dri: a container has only the nodes that it was given there. */
static bool is_intel(const char *folder, const char *name) {
  char path[1024];
  unsigned vendor = 0;
  if (strncmp(name, "renderD", 7) != 0) return false;
  snprintf(path, sizeof path, "%s/../../sys/class/drm/%.200s/device/vendor", folder, name);
  FILE *file = fopen(path, "re");
  if (!file) return false;
  const bool read = fscanf(file, "%x", &vendor) == 1;
  fclose(file);
  return read && vendor == INTEL;
}

/* ---- what is shown of it -------------------------------------------------------------------------------------- */

/* As the drivers do: a list that ends at the first invalid entry. */
static int64_t shown(const char *variable, int64_t present) {
  const char *at = getenv(variable);
  int64_t count = 0;
  if (!at) return present;
  while (*at && *at != '-' && count < present) {
    const bool is_id = strncmp(at, "GPU-", 4) == 0 || strncmp(at, "MIG-", 4) == 0;
    if (!is_id && (!isdigit((unsigned char)*at) || strtoll(at, NULL, 10) >= present)) break;
    count++;
    at += strcspn(at, ",");
    at += *at == ',';
  }
  return count;
}

int64_t devices_gpus(const char *root) {
  int64_t nvidia = count_in(root, "/proc/driver/nvidia/gpus", is_entry);
  if (nvidia == 0) nvidia = count_in(root, "/dev", is_nvidia);
  if (nvidia > 0) return shown("CUDA_VISIBLE_DEVICES", nvidia);
  const int64_t amd = count_in(root, "/sys/class/kfd/kfd/topology/nodes", is_kfd_gpu);
  return shown("CUDA_VISIBLE_DEVICES", shown("HIP_VISIBLE_DEVICES", shown("ROCR_VISIBLE_DEVICES", amd)));
}

int64_t devices_xpus(const char *root) { return shown("ZE_AFFINITY_MASK", count_in(root, "/dev/dri", is_intel)); }

/* ---- the option ----------------------------------------------------------------------------------------------- */

static int64_t parse(const char *text) {
  int64_t count;
  return isdigit((unsigned char)*text) && parse_number(text, 1, MOST_WORKERS, &count) ? count : -1;
}

int devices_nproc(const char *text, int64_t *out, rdzv_error *error) {
  const bool any = strcmp(text, "auto") == 0, gpu = strcmp(text, "gpu") == 0, xpu = strcmp(text, "xpu") == 0;
  *out = any || gpu ? devices_gpus("") : xpu ? devices_xpus("") : 0;
  if (*out > 0) return 0;
  if (gpu || xpu)
    return error_set(error, RDZV_E_INVALID, "invalid value '%s' for nproc_per_node: this machine has no visible %sGPU",
                     text, xpu ? "Intel " : "");
  *out = any || strcmp(text, "cpu") == 0 ? sysconf(_SC_NPROCESSORS_ONLN) : parse(text);
  if (*out > 0) return 0;
  return error_set(error, RDZV_E_INVALID,
                   "invalid value '%s' for nproc_per_node: expected a number from 1 to %d, auto, cpu, gpu or xpu", text,
                   MOST_WORKERS);
}
