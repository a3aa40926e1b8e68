# SPDX-License-Identifier: BSD-3-Clause
"""A Python program without PyTorch that is elastic in its own process: nodes come, go and die, and the others go on.

  rdzv serve &
  for i in 1 2 3; do python3 elastic.py localhost:29400 job 1:3 40 & done

All nodes sum a number in each step, through the store of the round. A node that hears of a change joins the next round
and begins where the slowest of the nodes is.
"""
import sys
import time

import rdzv
from rdzv import errors

PAUSE = 0.05  # seconds of work in a step


def step_to_begin_with(result, done):
    """The nodes may have come to different steps before."""
    store = result.store
    store.set(f"done/{result.rank}", str(done))
    return min(int(each) for each in store.multi_get([f"done/{rank}" for rank in range(result.world_size)]))


def do_step(result, step):
    """Rank + 1, summed over all nodes. A node that is gone keeps it waiting, until the change is heard of."""
    store = result.store
    store.set(f"{step}/{result.rank}", str(result.rank + 1))
    parts = store.multi_get([f"{step}/{rank}" for rank in range(result.world_size)])
    return sum(map(int, parts))


def work(handler, result, done, steps):
    """Steps until all are done, or the round is over. Returns how many are done."""
    result.store.timeout = 0.5
    done = step_to_begin_with(result, done)
    while done < steps and handler.poll_change() is None:
        try:
            total = do_step(result, done)
        except errors.Timeout:
            continue  # the same step again: somebody is slow, or gone
        done += 1
        if result.rank == 0:
            print(f"step {done}: {result.world_size} nodes, total {total}", flush=True)
        time.sleep(PAUSE)
    return done


def main(endpoint, run_id, nnodes, steps):
    done = 0
    with rdzv.Handler(endpoint=endpoint, run_id=run_id, nnodes=nnodes,
                      conf={"is_host": False, "last_call_timeout": 1}) as handler:
        while done < steps:
            try:
                result = handler.next()
                print(f"{handler.node}: rank {result.rank} of {result.world_size} in round {result.round}", flush=True)
                done = work(handler, result, done, steps)
            except errors.Timeout:
                pass  # of the agreement on a step: the next round has another
            except errors.Closed:
                break
        handler.set_closed("all steps are done")
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
