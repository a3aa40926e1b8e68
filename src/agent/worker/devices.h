/* SPDX-License-Identifier: BSD-3-Clause */
/* How many processors and GPUs this machine has, without asking a driver's library. */
#ifndef RDZV_AGENT_WORKER_DEVICES_H
#define RDZV_AGENT_WORKER_DEVICES_H

#include <rdzv/error.h>
#include <stdint.h>

/* GPUs that the system below `root` ("" for this one) shows: NVIDIA's, or AMD's. The variables that hide some from
 * programs (CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES) are heeded. */
int64_t devices_gpus(const char *root);

/* Intel GPUs that the system below `root` shows by their render nodes; ZE_AFFINITY_MASK is heeded. */
int64_t devices_xpus(const char *root);

/* "4", "auto", "cpu", "gpu", "xpu". RDZV_E_INVALID. */
int devices_nproc(const char *text, int64_t *out, rdzv_error *error);

#endif
