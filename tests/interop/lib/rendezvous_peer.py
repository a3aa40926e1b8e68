# SPDX-License-Identifier: BSD-3-Clause
"""Nodes of PyTorch's own rendezvous for the tests: imports PyTorch once, then forks itself for each connection to a
Unix socket, and obeys as torch_peer.py does.

rendezvous_peer.py SOCKET    prints "ready", runs until stdin closes

The names that a node obeys are the methods of Node. This file runs under 1.13's Python and under 2.6's; nothing of the
tests is imported here.
"""
import base64
import dataclasses
import functools
import logging
import os
import pickle
import socket
import time
from datetime import timedelta

import fork_server
import torch
import torch.distributed as dist
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent
from torch.distributed.elastic.rendezvous import RendezvousParameters, c10d_rendezvous_backend, dynamic_rendezvous

IS_2 = not torch.__version__.startswith("1.")
POLL = 0.1  # seconds between two looks of an agent at the wait list
logging.disable(logging.WARNING)  # heartbeats fail when a test is over


def serve_workers(_, addr, port):
    return dist.TCPStore(addr, port, is_master=True, multi_tenant=True, use_libuv=False)


class Node:
    """One DynamicRendezvousHandler, made by PyTorch's own functions from the parameters that a user gives."""

    handler = store = backend = round_store = None

    def pid(self):
        return os.getpid()

    def open(self, endpoint, run_id, nodes, addr, keep_alive=None, shared=False, **options):
        """keep_alive, (seconds, attempts), replaces what PyTorch has no option for. shared: rank 0 serves a store for
        the workers as long as it lives, as 2.4 and later do unless told otherwise. Gives the store's port, if any."""
        os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "0" if shared else "1"
        if IS_2:  # Debian's 2.6 is built without libuv
            c10d_rendezvous_backend.TCPStore = functools.partial(dist.TCPStore, use_libuv=False)
            dynamic_rendezvous.DynamicRendezvousHandler._create_tcp_store_server = serve_workers
            options["local_addr"] = addr
        else:  # 1.13 has no such option
            socket.getfqdn = lambda: addr
        parameters = RendezvousParameters("c10d", endpoint, run_id, *nodes, **options)
        self.backend, self.store = c10d_rendezvous_backend.create_backend(parameters)
        self.handler = dynamic_rendezvous.create_handler(self.store, self.backend, parameters)
        if keep_alive:
            self.set_keep_alive(*keep_alive)
        return getattr(self.store, "port", None)

    def set_keep_alive(self, interval, attempts):
        settings = dataclasses.replace(self.handler.settings, keep_alive_interval=timedelta(seconds=interval),
                                       keep_alive_max_attempt=attempts)
        holder = dynamic_rendezvous._BackendRendezvousStateHolder(self.backend, settings)
        self.handler = dynamic_rendezvous.DynamicRendezvousHandler(self.handler._this_node, settings, "c10d",
                                                                   self.store, holder)

    def name(self):
        return repr(self.handler._this_node)

    def keep_alive(self):
        settings = self.handler.settings
        return settings.keep_alive_interval.total_seconds(), settings.keep_alive_max_attempt

    def next(self):
        """Joins the next round as an agent does, which is done when it knows where rank 0 is."""
        info = self.handler.next_rendezvous()
        state = self.handler._state_holder.state
        result = {"round": state.round, "node": self.name(),
                  "members": sorted((rank, repr(node)) for node, rank in state.participants.items())}
        if IS_2:
            self.round_store, result["rank"], result["world_size"] = info.store, info.rank, info.world_size
            master = info.bootstrap_store_info
            result["master"] = (master.master_addr, master.master_port)
        else:
            self.round_store, result["rank"], result["world_size"] = info
            if result["rank"] == 0:
                SimpleElasticAgent._set_master_addr_port(self.round_store, socket.getfqdn(), None)
            result["master"] = SimpleElasticAgent._get_master_addr_port(self.round_store)
        return result

    def next_when_some_wait(self):
        """What an agent does all the time: begins another round when somebody waits for it."""
        self.await_some_waiting()
        return self.next()

    def await_some_waiting(self):
        while self.handler.num_nodes_waiting() == 0:
            time.sleep(POLL)
        return self.handler.num_nodes_waiting()

    def await_closed(self):
        while not self.handler.is_closed():
            time.sleep(POLL)
        return True

    def shutdown(self):
        return self.handler.shutdown()

    def leave(self):
        """Out of the round without closing it, which for PyTorch is the first half of joining the next."""
        self.handler._stop_heartbeats()
        self.handler._op_executor.run(dynamic_rendezvous._RendezvousExitOp(), time.monotonic() + 30)

    def lose(self, run_id):
        """The state is as before the first round."""
        self.handler._stop_heartbeats()
        self.store.set(f"torch.rendezvous.{run_id}", "Y2FuaW1hZGFt")
        self.store.add("settled", 0)

    def set(self, key, value):
        self.round_store.set(key, value)
        self.store.add("settled", 0)  # an answer behind it: it has arrived

    def get(self, key):
        return self.round_store.get(key)

    def written(self, run_id):
        """What stock pickle makes of the state in the store, beside what PyTorch makes itself: the names of the
        attributes, and the types of what is in them."""
        state = pickle.loads(base64.b64decode(self.store.get(f"torch.rendezvous.{run_id}")))
        own, node = dynamic_rendezvous._RendezvousState(), self.handler._this_node
        nodes = [*state.participants, *state.wait_list, *state.last_heartbeats, *getattr(state, "redundancy_list", [])]
        return {"class": type(state) is type(own), "names": list(vars(state)), "own_names": list(vars(own)),
                "types": [type(value).__name__ for value in vars(state).values()],
                "own_types": [type(value).__name__ for value in vars(own).values()],
                "node_class": {type(each) is type(node) for each in nodes},
                "node_names": {tuple(vars(each)) for each in nodes}, "own_node_names": tuple(vars(node)),
                "zones": {str(beat.tzinfo) for beat in state.last_heartbeats.values()},
                "nodes": sorted({repr(each) for each in nodes}), "deadline": str(state.deadline),
                "round": state.round, "complete": state.complete}


def answer(node, name, arguments, keywords):
    try:
        return ("result", getattr(node, name)(*arguments, **keywords))
    except Exception as error:  # whatever it is, the test wants to see it
        return ("error", type(error).__name__, str(error))


fork_server.serve(Node, answer)
