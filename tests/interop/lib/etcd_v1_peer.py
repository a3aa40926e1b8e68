# SPDX-License-Identifier: BSD-3-Clause
"""Nodes of PyTorch's first-generation rendezvous for the tests: imports PyTorch once, then forks itself for each
connection to a Unix socket, and obeys as torch_peer.py does.

etcd_v1_peer.py SOCKET    prints "ready", runs until stdin closes

The names that a node obeys are the methods of Node. This file runs under PyTorch's Python; nothing of the tests is
imported here.
"""
import logging
import os
import time

import fork_server
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent
from torch.distributed.elastic.rendezvous import RendezvousParameters, etcd_rendezvous

POLL = 0.1  # seconds between two looks of an agent at who waits
logging.disable(logging.CRITICAL)


class Node:
    """One EtcdRendezvousHandler, made by PyTorch's own function from the parameters that a user gives."""

    handler = store = version = None

    def pid(self):
        return os.getpid()

    def open(self, endpoint, run_id, nodes, **options):
        parameters = RendezvousParameters("etcd", endpoint, run_id, *nodes, **options)
        self.handler = etcd_rendezvous.create_rdzv_handler(parameters)

    def next(self):
        """Joins the next round as an agent does, which is done when it knows where rank 0 is."""
        barrier = self.handler._rdzv_impl.rendezvous_barrier

        def remember():
            self.version, *rest = barrier()
            return (self.version, *rest)

        self.handler._rdzv_impl.rendezvous_barrier = remember
        try:
            self.store, rank, world_size = self.handler.next_rendezvous()
        finally:
            del self.handler._rdzv_impl.rendezvous_barrier
        if rank == 0:
            SimpleElasticAgent._set_master_addr_port(self.store, None, None)
        return {"round": int(self.version), "rank": rank, "world_size": world_size,
                "master": SimpleElasticAgent._get_master_addr_port(self.store)}

    def next_when_some_wait(self):
        """What an agent does all the time: begins another round when somebody waits for it."""
        self.await_some_waiting()
        return self.next()

    def await_some_waiting(self):
        while self.handler.num_nodes_waiting() == 0:
            time.sleep(POLL)
        return self.handler.num_nodes_waiting()

    def is_closed(self):
        return self.handler.is_closed()

    def shutdown(self):
        return self.handler.shutdown()

    def set(self, key, value):
        self.store.set(key, value)

    def get(self, key):
        return self.store.get(key)

    def add_often(self, key, times):
        return [self.store.add(key, 1) for _ in range(times)][-1]

    def store_extra(self, key, value):
        self.handler._rdzv_impl.store_extra_data(self.version, key, value)

    def load_extra(self, key):
        return self.handler._rdzv_impl.load_extra_data(self.version, key)


def answer(node, name, arguments, keywords):
    try:
        return ("result", getattr(node, name)(*arguments, **keywords))
    except Exception as error:  # whatever it is, the test wants to see it
        return ("error", type(error).__name__, str(error))


fork_server.serve(Node, answer)
