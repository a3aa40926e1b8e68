# SPDX-License-Identifier: BSD-3-Clause
"""A worker with PyTorch that forms its process group, sums over it and destroys it, so many times.

regroup_worker.py TIMES
"""
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

for time in range(int(sys.argv[1])):
    dist.init_process_group("gloo", init_method="env://", timeout=timedelta(seconds=60))
    number = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(number)
    dist.destroy_process_group()
    print(f"group {time}: the sum is {number.item()}.", flush=True)
