# SPDX-License-Identifier: BSD-3-Clause
"""A worker that fails on rank 2. Shows the report of a failed job; needs no PyTorch."""
import os
import time

rank, attempt = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
for step in range(1, 1000):
    time.sleep(0.1)
    if rank == 2:
        print(f"rank 2 of {os.environ['WORLD_SIZE']}, attempt {attempt}: step {step}", flush=True)
        if step == 2:
            raise RuntimeError("loss is NaN at step 2")
