/* SPDX-License-Identifier: BSD-3-Clause */
/* The processors near a worker's GPU, by the rules of PyTorch (torch/numa/binding.py). */
#ifndef RDZV_AGENT_WORKER_NUMA_H
#define RDZV_AGENT_WORKER_NUMA_H

#include <rdzv/error.h>
#include <sched.h>
#include <stdint.h>

#define NUMA_MODES "node|socket|exclusive|core-complex"

/* Behind NUMA_NONE in the order of NUMA_MODES. */
enum numa_mode {
  NUMA_NONE,         /* the worker is not bound */
  NUMA_NODE,         /* the NUMA node of the GPU */
  NUMA_SOCKET,       /* all NUMA nodes of its socket */
  NUMA_EXCLUSIVE,    /* an equal part of the cores of the node, for each GPU on it */
  NUMA_CORE_COMPLEX, /* cores of the node that share their last cache */
};

/* The processors for a worker, of those in `allowed`. Its GPU is the one that CUDA_VISIBLE_DEVICES names at the place
 * of the local rank, or that of this number by its PCI address. Without NVIDIA GPUs the workers are spread over the
 * NUMA nodes in the order of their ranks, and stand for GPUs. `root` is "" for this machine. RDZV_E_INVALID: the worker
 * has no such processors, or the machine does not show them. */
int numa_cpus(const char *root, enum numa_mode mode, int64_t local_rank, int64_t local_world_size,
              const cpu_set_t *allowed, cpu_set_t *out, rdzv_error *error);

#endif
