# SPDX-License-Identifier: BSD-3-Clause
"""A PyTorch job that survives the loss and the arrival of nodes: every step sums a number over all workers, with gloo.

  rdzv run --nnodes=1:3 --nproc-per-node=2 --max-restarts=3 --rdzv-endpoint=HOST:29400 gloo_allreduce.py --steps 100

A worker that loses the others ends with an error. So does every worker then, and the launcher starts all of them again,
with new ranks, perhaps fewer or more. Whatever they are to remember is in the checkpoint.
"""
import argparse
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between steps")
    parser.add_argument("--checkpoint", help="file that rank 0 keeps the number of steps done in")
    parser.add_argument("--stop-file", help="when this file is there, all stop after the same step")
    parser.add_argument("--fail-rank", type=int, help="this rank fails, before anything was restarted")
    parser.add_argument("--fail-step", type=int, default=2)
    return parser.parse_args()


def load(path):
    """The number of steps that are done."""
    if not path or not os.path.exists(path):
        return 0
    with open(path, encoding="ascii") as file:
        return int(file.read())


def save(path, done):
    """Whole or not at all: a worker can be stopped at any time."""
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(str(done))
    os.replace(path + ".new", path)


def agree_on_start(path):
    """Rank 0 reads the checkpoint; the others may be where it cannot be read."""
    start = torch.tensor([load(path) if dist.get_rank() == 0 else 0])
    dist.broadcast(start, 0)
    return int(start.item())


def do_step(stop_file):
    """Sums rank + 1 over all, and checks it; True if a rank wants to stop."""
    rank, size = dist.get_rank(), dist.get_world_size()
    wants = bool(stop_file) and os.path.exists(stop_file)
    numbers = torch.tensor([rank + 1, int(wants)])
    dist.all_reduce(numbers)
    expected = size * (size + 1) // 2
    if numbers[0].item() != expected:
        sys.exit(f"rank {rank}: the sum over {size} ranks is {numbers[0].item()}, not {expected}")
    return numbers[1].item() > 0


def is_to_fail(arguments, step):
    first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    return first and step == arguments.fail_step and dist.get_rank() == arguments.fail_rank


def main():
    arguments = parse()
    dist.init_process_group("gloo", init_method="env://", timeout=timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    step = agree_on_start(arguments.checkpoint)
    print(f"rank {rank} of {size}: attempt {attempt}, begins with step {step}", flush=True)
    stop = False
    while step < arguments.steps and not stop:
        if is_to_fail(arguments, step):
            sys.exit(f"rank {rank}: fails, as it was told to")
        stop = do_step(arguments.stop_file)
        step += 1
        if rank == 0 and arguments.checkpoint:
            save(arguments.checkpoint, step)
        time.sleep(arguments.pause)
    dist.barrier()  # no rank ends while another one still needs it
    print(f"rank {rank} of {size}: attempt {attempt}, done after step {step}", flush=True)
    os._exit(0)  # destroy_process_group of some PyTorch versions can wait for ever


if __name__ == "__main__":
    main()
