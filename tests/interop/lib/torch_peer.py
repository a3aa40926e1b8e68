# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch processes for the tests: imports PyTorch once, then forks itself for each connection to a Unix socket.

torch_peer.py SOCKET    prints "ready", runs until stdin closes

A connection's process obeys: it receives (name, arguments, keywords), says "began" and then what came of it, either
("result", value) or ("error", type, text). The names are the methods of Peer, and those of its store. This file runs
under 1.13's Python and under 2.6's; nothing of the tests but fork_server is imported here.
"""
import functools
import os
import sys
from datetime import timedelta

import fork_server
import torch
import torch.distributed as dist

IS_2 = not torch.__version__.startswith("1.")


def seconds(number):
    return timedelta(seconds=number)


class Peer:
    """What one process can be asked for, besides what its store can."""

    store = None

    def pid(self):
        return os.getpid()

    def version(self):
        return torch.__version__

    def tcp(self, port, timeout=30, world_size=None, master=False, wait_for_workers=False):
        """Opens a TCPStore; as the master it is the server. Gives the port."""
        backend = {"use_libuv": False} if IS_2 else {}  # Debian's 2.6 is built without libuv
        self.store = None  # a server of before ends first
        self.store = dist.TCPStore("127.0.0.1", port, world_size, is_master=master, timeout=seconds(timeout),
                                   wait_for_workers=wait_for_workers, **backend)
        return self.store.port

    def file(self, path, workers=-1, timeout=30):
        self.store = dist.FileStore(path, workers)
        self.set_timeout(timeout)

    def prefix(self, name):
        """From here on the store is this view of it."""
        self.store = dist.PrefixStore(name, self.store)

    def close_store(self):
        self.store = None

    def set_timeout(self, timeout):
        self.store.set_timeout(seconds(timeout))

    def wait(self, keys, timeout=None):
        return self.store.wait(keys) if timeout is None else self.store.wait(keys, seconds(timeout))

    def add_many(self, key, times):
        """Adds 1 so many times; gives every sum it was told."""
        return [self.store.add(key, 1) for _ in range(times)]

    def flicker(self, key, value, times):
        """Sets and deletes the key so many times; it is there at the end."""
        for _ in range(times):
            self.store.set(key, value)
            self.store.delete_key(key)
        self.store.set(key, value)
        self.store.num_keys()  # an answer behind it: it has arrived

    def append_many(self, key, value, times):
        for _ in range(times):
            self.store.append(key, value)
        self.store.num_keys()  # an answer behind them: they have arrived

    def join_gloo(self, rank, size):
        """Makes a gloo process group over the store."""
        dist.init_process_group("gloo", store=self.store, rank=rank, world_size=size, timeout=seconds(30))

    def join_gloo_as_torchrun_does(self, port, rank, size):
        """The same by env://, where the workers of torchrun are clients of a store that the agent serves."""
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size),
                          TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")
        if IS_2:  # in the agent's case it heeds neither USE_LIBUV=0 nor ?use_libuv=0
            sys.modules["torch.distributed.rendezvous"].TCPStore = functools.partial(dist.TCPStore, use_libuv=False)
        dist.init_process_group("gloo", init_method="env://", timeout=seconds(30))

    def collectives(self):
        """Uses the process group; gives the sum of all ranks + 1, everybody's rank, and what rank 0 sent."""
        rank, size = dist.get_rank(), dist.get_world_size()
        total = torch.tensor([rank + 1.0])
        dist.all_reduce(total)
        ranks = [torch.zeros(1) for _ in range(size)]
        dist.all_gather(ranks, torch.tensor([float(rank)]))
        word = torch.tensor([42.0 if rank == 0 else 0.0])
        dist.broadcast(word, 0)
        dist.barrier()
        return total.item(), [each.item() for each in ranks], word.item()

    def pair_sum(self):
        """All ranks make a second group of ranks 0 and 1; gives the sum in it, or None outside."""
        group = dist.new_group([0, 1])
        if dist.get_rank() > 1:
            return None
        one = torch.tensor([1.0])
        dist.all_reduce(one, group=group)
        return one.item()


def answer(peer, name, arguments, keywords):
    try:
        target = peer if hasattr(peer, name) else peer.store
        return ("result", getattr(target, name)(*arguments, **keywords))
    except Exception as error:  # whatever it is, the test wants to see it
        return ("error", type(error).__name__, str(error))


fork_server.serve(Peer, answer)
