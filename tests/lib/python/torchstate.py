# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch's pickled state without PyTorch: its classes by name, in the four layouts, and a node that swaps it."""
import base64
import datetime
import os
import pickle
import sys
import types

from rawclient import Client, sized

FIXTURES = os.path.join(os.path.dirname(__file__), "..", "..", "fixtures", "torch-state")
LAYOUTS = ("1.13", "2.1", "2.3", "2.6")  # one version of each, in the order of the layouts' numbers
SENTINEL = base64.b64encode(b"canimadam")


class _RendezvousState:
    pass


class _NodeDesc:
    def name(self):
        return (self.__dict__.get("addr") or self.__dict__["fqdn"], self.pid, self.local_id)

    def __eq__(self, other):
        return self.name() == other.name()

    def __hash__(self):
        return hash(self.name())


def _install():
    module = types.ModuleType("torch.distributed.elastic.rendezvous.dynamic_rendezvous")
    for class_ in (_RendezvousState, _NodeDesc):
        class_.__module__ = module.__name__
        setattr(module, class_.__name__, class_)
    parts = module.__name__.split(".")
    for i in range(1, len(parts)):
        sys.modules.setdefault(".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
    sys.modules[module.__name__] = module


_install()



def fixture(version, name, protocol=4):
    with open(os.path.join(FIXTURES, f"torch-{version}.{name}.p{protocol}.pickle"), "rb") as file:
        return file.read()


def load(text):
    return pickle.loads(base64.b64decode(text))


def dump(state, protocol=4):
    return base64.b64encode(pickle.dumps(state, protocol))


def make_node(version, addr, pid=1, local_id=0):
    node = _NodeDesc()
    node.__dict__["fqdn" if version == "1.13" else "addr"] = addr
    node.pid, node.local_id = pid, local_id
    return node


def heartbeat(version):
    now = datetime.datetime.now(datetime.timezone.utc)
    return now if version == "2.6" else now.replace(tzinfo=None)


class TorchNode:
    """What a PyTorch node does to the state, by swaps in V1 or V2."""

    def __init__(self, port, run_id, version, addr):
        self.client = Client(port, "v1" if version < "2.2" else "v2")
        self.key = b"/torch.rendezvous." + run_id.encode()
        self.version, self.node = version, make_node(version, addr)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.client.close()

    def compare_set(self, expected, desired):
        self.client.ask("compare_set", sized(self.key) + sized(expected) + sized(desired))
        return self.client.receive_value()

    def read(self):
        """As PyTorch reads: a swap that does nothing where there is a state."""
        return self.compare_set(b"", SENTINEL)

    def swap(self, change):
        """Changes the state by change(state) as often as it takes; gives how often that was."""
        for tries in range(1, 1000):
            text = self.read()
            state = load(text)
            change(state)
            desired = dump(state)
            if self.compare_set(text, desired) == desired:
                return tries
        raise AssertionError("1000 swaps were lost")

    def beat(self, state):
        state.last_heartbeats[self.node] = heartbeat(self.version)

    def join(self, complete=False):
        def change(state):
            state.participants[self.node] = 0
            self.beat(state)
            if complete:
                state.complete, state.deadline = True, None
                for rank, node in enumerate(sorted(state.participants, key=_NodeDesc.name)):
                    state.participants[node] = rank
        return self.swap(change)
