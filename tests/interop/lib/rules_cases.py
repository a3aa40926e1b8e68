# SPDX-License-Identifier: BSD-3-Clause
"""Random states, and what the real PyTorch does with them, for test_rules.py; runs under PyTorch's own Python.

rules_cases.py SEED COUNT    prints a line for each: a question as rules_driver takes it, a tab, the action and the
                             state after it, pickled, in hex
"""
import pickle
import random
import sys
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import torch
from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dynamic

IS_2 = not torch.__version__.startswith("1.")
EPOCH = datetime(1970, 1, 1)
NOW = datetime(2026, 11, 15, 20, 0, 0, 123456)
MONOTONIC = 1000.0
OPERATIONS = {"join": "_RendezvousJoinOp", "exit": "_RendezvousExitOp", "close": "_RendezvousCloseOp",
              "keep_alive": "_RendezvousKeepAliveOp"}
# Around each edge: the keep-alive interval of 5 s, and the 15 s after which a node is dead.
AGES = (0, 0.001, 4.999, 5, 5.001, 14.999, 15, 15.001, 60)
CALLS = (-60, -0.001, 0, 0.001, 30)
TIMES_LEFT = (600, 0.125, 0, -0.125, -5, -5.125, -60)  # exact in binary


def aware(time):
    return time.replace(tzinfo=timezone.utc) if IS_2 else time


class FrozenDatetime:
    """The module's clock."""

    @staticmethod
    def now(_zone=None):
        return aware(NOW)

    @staticmethod
    def utcnow():
        return NOW


class Holder:
    """A state holder with one state, which never goes anywhere."""

    def __init__(self, state):
        self.state = state

    def sync(self):
        return None

    def mark_dirty(self):
        pass


def freeze():
    dynamic.datetime = FrozenDatetime
    dynamic.time = SimpleNamespace(monotonic=lambda: MONOTONIC)
    dynamic._delay = lambda seconds: None
    dynamic.construct_and_record_rdzv_event = lambda **_: None


def random_settings(pick):
    least = pick.randint(1, 4)
    return dynamic.RendezvousSettings(
        run_id="run", min_nodes=least, max_nodes=least + pick.randint(0, 3), timeout=dynamic.RendezvousTimeout(),
        keep_alive_interval=timedelta(seconds=5), keep_alive_max_attempt=3)


def random_nodes(pick, count):
    """Few hosts, so that the order is decided by each part of a node."""
    return [dynamic._NodeDesc(pick.choice(("node1", "node2", "node10", "Ünder")), pick.randint(1, 99), number)
            for number in range(count)]


def put(pick, state, node):
    """In one collection mostly; a heartbeat goes with it."""
    kinds = ["participants", "participants", "participants", "wait_list", "nothing"]
    kinds += ["redundancy_list"] if IS_2 else []
    for kind in pick.sample(kinds, 2 if pick.random() < 0.05 else 1):
        if kind == "participants":
            state.participants[node] = pick.randint(0, 7)
        elif kind != "nothing":
            getattr(state, kind).add(node)
            state.last_heartbeats[node] = aware(NOW)
        if kind != "nothing":
            state.last_heartbeats[node] = aware(NOW) - timedelta(seconds=pick.choice(AGES))


def random_state(pick, nodes):
    state = dynamic._RendezvousState()
    state.round = pick.randint(0, 3)
    state.complete = pick.random() < 0.5
    state.closed = pick.random() < 0.1
    if not state.complete and pick.random() < 0.7:
        state.deadline = aware(NOW) + timedelta(seconds=pick.choice(CALLS))
    for node in nodes:
        put(pick, state, node)
    return state


def run(name, node, state, settings, left):
    """The action that PyTorch takes; the state is then as it makes it."""
    operation = getattr(dynamic, OPERATIONS[name])()
    actions = []

    def once(context, deadline):
        actions.append(operation(context, deadline) if not actions else dynamic._Action.FINISH)
        return actions[-1]

    try:
        dynamic._DistributedRendezvousOpExecutor(node, Holder(state), settings).run(once, MONOTONIC + left)
    except dynamic.RendezvousClosedError:
        return "ERROR_CLOSED"
    except dynamic.RendezvousTimeoutError:
        return "ERROR_TIMEOUT"
    except getattr(dynamic, "RendezvousGracefulExitError", ()):
        return "ERROR_GRACEFUL_EXIT"
    return actions[0].name


def sanitize(state, settings):
    holder = dynamic._BackendRendezvousStateHolder(None, settings)
    holder._state = state
    holder._sanitize()
    return "SANITIZE"


def case(pick):
    """One line, or None where PyTorch itself stumbles."""
    settings = random_settings(pick)
    nodes = random_nodes(pick, pick.randint(1, settings.max_nodes + 3))
    state = random_state(pick, nodes if pick.random() < 0.8 else nodes[1:])
    name = pick.choice(("join", "join", "join", "exit", "close", "keep_alive", "sanitize"))
    left = pick.choice(TIMES_LEFT) if pick.random() < 0.4 else 600
    microseconds = (NOW - EPOCH) // timedelta(microseconds=1)
    addr = nodes[0].addr if IS_2 else nodes[0].fqdn
    question = (f"{name} {addr} {nodes[0].pid} {nodes[0].local_id} {microseconds} {int(left * 1000)} "
                f"{settings.min_nodes} {settings.max_nodes} {pickle.dumps(state).hex()}")
    if not IS_2 and not state.complete and len(state.participants) > settings.max_nodes:
        return None  # 1.13 completes a round with more than max_nodes, 2.6 does not, nor do we
    try:
        action = sanitize(state, settings) if name == "sanitize" else run(name, nodes[0], state, settings, left)
    except (KeyError, TypeError):
        return None  # no heartbeat where there should be one; 1.13: no last call where there should be one
    return f"{question}\t{action} {pickle.dumps(state).hex()}"


def main(seed, count):
    freeze()
    pick = random.Random(seed)
    lines = 0
    while lines < count:
        line = case(pick)
        if line:
            print(line)
            lines += 1


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
