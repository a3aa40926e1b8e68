/* SPDX-License-Identifier: BSD-3-Clause */
/* The processors near a worker's GPU. */
#ifndef RDZV_AGENT_WORKER_NUMA_H
#define RDZV_AGENT_WORKER_NUMA_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* The processors of the NUMA node that the worker's GPU is on, of those in `allowed`: the GPU that
 * CUDA_VISIBLE_DEVICES names at the place of the local rank, or that of this number by its PCI address. Where no GPU of
 * NVIDIA's is to be seen, the workers are spread over the nodes in the order of their ranks. `root` is "" for this
 * machine. False: the machine does not say, or none of them is allowed. */
bool numa_cpus(const char *root, int64_t local_rank, int64_t local_world_size, const cpu_set_t *allowed,
               cpu_set_t *out);

#endif
