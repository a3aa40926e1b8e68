# SPDX-License-Identifier: BSD-3-Clause
"""A PyTorch DDP job under stock torchrun with the plug-in: it goes on when agents die, leave or come.

  rdzv serve --bind '*'                                       # on a machine that stays
  torchrun --nnodes=1:4 --nproc-per-node=2 --max-restarts=3 \\
           --rdzv-backend=rdzv --rdzv-endpoint=HOST:29400 --rdzv-id=job-17 ddp_torchrun.py --checkpoint model.pt

torchrun starts all workers again whenever the world changes. What they are to remember is in the checkpoint.
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--checkpoint", default="model.pt", help="a file that all nodes can read")
    return parser.parse_args()


def load(path, model, optimizer):
    """The number of steps that are done."""
    if not os.path.exists(path):
        return 0
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return saved["step"]


def save(path, model, optimizer, step):
    """Whole or not at all: a worker can be stopped at any time."""
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path + ".new")
    os.replace(path + ".new", path)


def main():
    arguments = parse()
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step = load(arguments.checkpoint, model, optimizer)
    dist.barrier()  # all have read the same checkpoint
    parallel = DistributedDataParallel(model)
    print(f"rank {rank} of {size} begins with step {step}", flush=True)
    while step < arguments.steps:
        inputs = torch.randn(16, 8, generator=torch.Generator().manual_seed(step * 1000 + rank))
        loss = ((parallel(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0 and (step % 10 == 0 or step == arguments.steps):
            save(arguments.checkpoint, model, optimizer, step)
    dist.barrier()
    print(f"rank {rank} of {size}: done after step {step}, loss {loss.item():.4f}", flush=True)
    os._exit(0)  # destroy_process_group of some PyTorch versions can wait for ever


if __name__ == "__main__":
    main()
