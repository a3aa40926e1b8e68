# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's EtcdStore and its nodes of a rendezvous in etcd, for the tests: imports PyTorch once, then forks itself for
each connection to a Unix socket, and obeys as torch_peer.py does.

etcd_peer.py SOCKET    prints "ready", runs until stdin closes

The names that a process obeys are the methods of Peer, and those of its store. Only 1.13 has these with the etcd client
that Debian has.
"""
import dataclasses
import logging
import os
import socket
import time
from datetime import timedelta

import etcd
import fork_server
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent
from torch.distributed.elastic.rendezvous import RendezvousParameters, dynamic_rendezvous, etcd_rendezvous_backend
from torch.distributed.elastic.rendezvous.etcd_store import EtcdStore

POLL = 0.1  # seconds between two looks of an agent at the wait list
logging.disable(logging.WARNING)  # heartbeats fail when a test is over


class Peer:
    """What one process can be asked for, besides what its store can."""

    store = handler = None

    def pid(self):
        return os.getpid()

    # ---- EtcdStore

    def etcd_store(self, port, prefix, timeout=30):
        self.store = EtcdStore(etcd.Client("127.0.0.1", port), prefix, timedelta(seconds=timeout))

    def add_many(self, key, times):
        """Adds 1 so many times; gives every sum it was told."""
        return [self.store.add(key, 1) for _ in range(times)]

    # ---- a node, made by PyTorch's own functions from what a user gives

    def open(self, endpoint, run_id, nodes, addr, keep_alive=None, **options):
        """keep_alive, (seconds, attempts), replaces what PyTorch has no option for."""
        socket.getfqdn = lambda: addr
        parameters = RendezvousParameters("etcd-v2", endpoint, run_id, *nodes, **options)
        backend, store = etcd_rendezvous_backend.create_backend(parameters)
        self.handler = dynamic_rendezvous.create_handler(store, backend, parameters)
        if keep_alive:
            settings = dataclasses.replace(self.handler.settings, keep_alive_max_attempt=keep_alive[1],
                                           keep_alive_interval=timedelta(seconds=keep_alive[0]))
            holder = dynamic_rendezvous._BackendRendezvousStateHolder(backend, settings)
            self.handler = dynamic_rendezvous.DynamicRendezvousHandler(self.handler._this_node, settings, "etcd-v2",
                                                                       store, holder)

    def next(self):
        """Joins the next round as an agent does, which is done when it knows where rank 0 is."""
        store, rank, world_size = self.handler.next_rendezvous()
        self.store = store
        state = self.handler._state_holder.state
        if rank == 0:
            SimpleElasticAgent._set_master_addr_port(store, socket.getfqdn(), None)
        return {"round": state.round, "node": repr(self.handler._this_node), "rank": rank, "world_size": world_size,
                "members": sorted((rank, repr(node)) for node, rank in state.participants.items()),
                "master": SimpleElasticAgent._get_master_addr_port(store)}

    def next_when_some_wait(self):
        """What an agent does all the time: begins another round when somebody waits for it."""
        while self.handler.num_nodes_waiting() == 0:
            time.sleep(POLL)
        return self.next()

    def await_closed(self):
        while not self.handler.is_closed():
            time.sleep(POLL)
        return True

    def shutdown(self):
        return self.handler.shutdown()


def answer(peer, name, arguments, keywords):
    try:
        target = peer if hasattr(peer, name) else peer.store
        return ("result", getattr(target, name)(*arguments, **keywords))
    except Exception as error:  # whatever it is, the test wants to see it
        return ("error", type(error).__name__, str(error))


fork_server.serve(Peer, answer)
