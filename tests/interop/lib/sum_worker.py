# SPDX-License-Identifier: BSD-3-Clause
"""A worker with PyTorch that sums its argument over all workers, prints the sum, and stays until a file is there.

sum_worker.py NUMBER STOP_FILE
"""
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method="env://", timeout=timedelta(seconds=60))
number = torch.tensor([int(sys.argv[1])])
dist.all_reduce(number)
print(f"the sum is {number.item()}.", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
os._exit(0)
