# SPDX-License-Identifier: BSD-3-Clause
"""Pickled rendezvous states go from Python through our reader and writer, and Python reads the same state from it.

The fixtures of all four layouts are read by stand-ins for PyTorch's classes; states of PyTorch 1.13 and 2.6 are made
and read by the real ones, in a process of their own: this file again, as `test_state_pickle.py peer`.
"""
import base64
import contextlib
import copy
import dataclasses
import importlib
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
import types
from datetime import datetime, timedelta, timezone

MODULE = "torch.distributed.elastic.rendezvous.dynamic_rendezvous"
PLAIN = {
    "x_none": None, "x_yes": True, "x_no": False, "x_int": -70000, "x_long": 1 << 300, "x_negative": -(1 << 300) + 7,
    "x_float": 0.1, "x_inf": float("inf"), "x_text": "n\u0153ud \U0001f600 \0", "x_long_text": "x" * 300,
    "x_bytes": bytes(range(256)), "x_no_bytes": b"", "x_list": [1, [2, []], "a"],
    "x_tuple": ((), (1,), (1, 2), (1, 2, 3, 4)),
    "x_set": {1, "a", (2, None)}, "x_dict": {"b": 1, "a": {"$tuple": []}, 3: None, (4, "x"): b"y"},
    "x_many": list(range(2500)), "x_many_pairs": {n: -n for n in range(2001)},
}


# ---- states, and when they are the same ------------------------------------------------------------------------------

def difference(one, other, at="state", ordered=True):
    """What tells the two apart, types and orders included; None: nothing. Nodes and attributes have no order."""
    if type(one) is not type(other):
        return f"{at}: {type(one)} and {type(other)}"
    if isinstance(one, datetime):
        same = one == other and one.tzinfo == other.tzinfo and one.fold == other.fold
        return None if same else f"{at}: {one!r} and {other!r}"
    if hasattr(one, "__dict__"):
        return difference(vars(one), vars(other), at, ordered=False)
    if isinstance(one, dict):
        keys_of = list if ordered and not any(hasattr(key, "pid") for key in one) else set
        if keys_of(one) != keys_of(other):
            return f"{at}: the keys {list(one)} and {list(other)}"
        keys = {key: key for key in other}
        pairs = [(keys[key], key, f"key {key!r} of {at}") for key in one]
        pairs += [(one[key], other[key], f"{at}[{key!r}]") for key in one]
    elif isinstance(one, (set, list, tuple)):
        if (one if isinstance(one, set) else len(one)) != (other if isinstance(one, set) else len(other)):
            return f"{at}: {one!r} and {other!r}"
        same = {item: item for item in other} if isinstance(one, set) else None
        pairs = [(item, same[item] if same else other[n], f"{at}[{n}]") for n, item in enumerate(one)]
    else:
        return None if repr(one) == repr(other) else f"{at}: {one!r} and {other!r}"
    return next((found for pair in pairs if (found := difference(*pair))), None)


def kept(state, protocol):
    """What Python itself gets back from its pickle: before protocol 4, times lose their `fold`."""
    return pickle.loads(pickle.dumps(state, protocol))


def states(module, now):
    """States as PyTorch makes them, by name; `now` is its way to tell the time."""
    node, empty = module._NodeDesc, module._RendezvousState
    made = {"empty": empty(), "closed": empty(), "joining": empty(), "complete": empty(), "one_host": empty(),
            "unicode": empty(), "large": empty(), "odd": empty(), "extra": empty()}
    made["closed"].closed = True
    made["joining"].deadline = now + timedelta(seconds=30)
    fill(made["joining"], [node(f"host{n}", n, 0) for n in (3, 20, 1)], now)
    made["complete"].round, made["complete"].complete = 12345, True
    fill(made["complete"], [node(f"node{n}.example.com", 4000 + n, n % 3) for n in range(8)], now)
    wait(made["complete"], "wait_list", [node("later", 1, 2), node("later", 1, 1)], now)
    fill(made["one_host"], [node("".join("host"), 300 + n, n % 2) for n in range(300)], now)
    fill(made["unicode"], [node("n\u0153ud-\u00e9", 1 << 40, 1 << 31), node("\U0001f600", -1, 0), node("", 0, 0)], now)
    made["large"].round = 1 << 40
    fill(made["large"], [node(f"node{n * 7919 % 2500}.example.com", n, 0) for n in range(2500)], now)
    wait(made["large"], "wait_list", [node(f"waiting{n}", n, 0) for n in range(1001)], now)
    if hasattr(made["complete"], "redundancy_list"):
        wait(made["complete"], "redundancy_list", [node("spare", 1, 0)], now)
    fill(made["odd"], [node("heartbeat", 1, 0), node("both", 2, 0)], now)
    del made["odd"].participants[node("heartbeat", 1, 0)]
    made["odd"].wait_list.add(node("both", 2, 0))
    vars(made["extra"]).update(PLAIN)
    fill(made["extra"], [node("a", 1, 0)], now)
    return made


def fill(state, nodes, now):
    for rank, node in enumerate(nodes):
        state.participants[node] = len(nodes) - rank
        # One object in both, or one for each: both happen. Heartbeats of our nodes have `fold` set.
        heartbeat = (now + timedelta(microseconds=rank * 1234567)).replace(fold=int(rank % 3 == 0))
        state.last_heartbeats[node if rank % 2 else copy.copy(node)] = heartbeat


def wait(state, name, nodes, now):
    for node in nodes:
        getattr(state, name).add(node)
        state.last_heartbeats[node] = now


# ---- the process with the real PyTorch ------------------------------------------------------------------------------

class Peer:
    """Obeys what comes in by lines of JSON, and answers so; bytes are base64."""

    def __init__(self):
        self.module = importlib.import_module(MODULE)
        now = datetime.now(timezone.utc)
        is_old = "fqdn" in self.module._NodeDesc.__dataclass_fields__
        self.states = states(self.module, now.replace(tzinfo=None) if is_old else now)

    def run(self):
        self.say(None)
        for line in sys.stdin:
            request = json.loads(line)
            self.say(getattr(self, request["do"])(*request["with"]))

    @staticmethod
    def say(answer):
        print(json.dumps(answer), flush=True)

    def make(self, name, protocol):
        return base64.b64encode(pickle.dumps(self.states[name], protocol)).decode()

    def names(self):
        return sorted(self.states)

    def compare(self, name, bits, protocol=4):
        return difference(kept(self.states[name], protocol), pickle.loads(base64.b64decode(bits)))

    def hold(self, name, bits):
        """What PyTorch's own holder makes of a state that it reads, and then writes."""
        backend = Backend(lambda written: written, base64.b64decode(bits))
        settings = types.SimpleNamespace(run_id="run", min_nodes=1, max_nodes=4, keep_alive_max_attempt=3,
                                         keep_alive_interval=timedelta(days=365))
        holder = self.module._BackendRendezvousStateHolder(backend, settings)
        holder.sync()
        found = difference(self.states[name], holder.state)
        holder.mark_dirty()
        has_set = holder.sync()
        return found or (None if has_set else "not set"), base64.b64encode(backend.bits).decode()

    def rendezvous(self, nodes):
        """Its handlers meet; every state they write is first given to whoever drives this process, to be converted."""
        backend = Backend(self.convert)
        store = importlib.import_module("torch.distributed").HashStore()
        made = [self.handler(backend, store, nodes) for _ in range(nodes)]
        results = queue.Queue()
        threads = [threading.Thread(target=lambda one=one: results.put(self.join(one))) for one in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        closed = [made[1].is_closed()]
        made[0].set_closed()
        closed.append(wait_for(made[1].is_closed))  # PyTorch looks only once a second
        for one in made:
            one.shutdown()
        return sorted(results.get_nowait() for _ in made), closed, backend.writes

    def handler(self, backend, store, nodes):
        timeout = self.module.RendezvousTimeout(join=timedelta(seconds=60))
        return self.module.DynamicRendezvousHandler.from_backend("run", store, backend, nodes, nodes, timeout=timeout)

    @staticmethod
    def join(handler):
        result = handler.next_rendezvous()
        return list(result[1:]) if isinstance(result, tuple) else [result.rank, result.world_size]

    def convert(self, bits):
        self.say({"convert": base64.b64encode(bits).decode()})
        return base64.b64decode(json.loads(sys.stdin.readline()))


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


class Backend:
    """PyTorch's contract of a backend, in memory; what is set goes through `convert`."""

    name = "memory"

    def __init__(self, convert, bits=None):
        self.convert, self.bits, self.writes = convert, bits, 0
        self.lock = threading.Lock()

    def get_state(self):
        with self.lock:
            return (self.bits, self.writes) if self.bits else None

    def set_state(self, bits, token=None):
        with self.lock:
            has_set = token == self.writes if self.bits else True
            if has_set:
                self.bits = self.convert(bits)
                self.writes += 1
            return self.bits, self.writes, has_set


if __name__ == "__main__" and sys.argv[1:] == ["peer"]:
    Peer().run()
    sys.exit(0)

# ---- the tests -------------------------------------------------------------------------------------------------------

# pylint: disable=wrong-import-position
import peers  # noqa: E402
import rdzvtest  # noqa: E402

FIXTURES = os.path.join(rdzvtest.SOURCE, "tests", "fixtures", "torch-state")
CONVERT = rdzvtest.built("tests/state_convert")
ROWS = ("1.13", "2.0", "2.3", "2.6")


def convert(bits, to="same"):
    """What our reader and writer make of a pickle (or JSON)."""
    done = subprocess.run([CONVERT, to], input=bits, capture_output=True, check=False, timeout=rdzvtest.DEADLINE)
    if done.returncode != 0:
        raise AssertionError(f"state_convert {to}: {done.stderr.decode()}")
    return done.stdout


@contextlib.contextmanager
def stand_ins(row):
    """Classes of PyTorch's names, as the fixtures were made with, in the place of PyTorch's module."""
    address = "fqdn" if row == "1.13" else "addr"
    fields = [(address, str), ("pid", int), ("local_id", int)]
    node = dataclasses.make_dataclass("_NodeDesc", fields, eq=True, order=True, frozen=True)

    class _RendezvousState:
        def __init__(self):
            self.round, self.complete, self.deadline, self.closed = 0, False, None, False
            self.participants, self.wait_list = {}, set()
            if row >= "2.3":
                self.redundancy_list = set()
            self.last_heartbeats = {}

    module = types.ModuleType(MODULE)
    module._NodeDesc, module._RendezvousState = node, _RendezvousState
    for cls, name in ((node, "_NodeDesc"), (_RendezvousState, "_RendezvousState")):
        cls.__module__, cls.__qualname__ = MODULE, name
    names = [MODULE.rsplit(".", n)[0] for n in range(1, MODULE.count(".") + 1)]
    before = dict(sys.modules)
    sys.modules.update({name: types.ModuleType(name) for name in names}, **{MODULE: module})
    try:
        yield module
    finally:
        for name in (*names, MODULE):
            sys.modules.pop(name)
            if name in before:
                sys.modules[name] = before[name]


def now_for(row):
    now = datetime(2026, 11, 15, 12, 0, 0, 7, timezone.utc)
    return now if row == "2.6" else now.replace(tzinfo=None)


class StandIns(rdzvtest.Case):
    def assert_same(self, one, bits, what):
        self.assertIsNone(difference(one, pickle.loads(bits)), what)

    def test_every_fixture_is_read_by_python_as_it_was(self):
        count = 0
        for name in sorted(os.listdir(FIXTURES)):
            if not name.endswith(".pickle"):
                continue
            version = ".".join(name.split("-")[1].split(".")[:2])
            with stand_ins("2.0" if version == "2.1" else version), self.subTest(name):
                with open(os.path.join(FIXTURES, name), "rb") as file:
                    bits = file.read()
                self.assert_same(pickle.loads(bits), convert(bits, version), name)
                count += 1
        self.assertGreater(count, 60)

    def test_every_state_of_every_layout_in_every_protocol(self):
        for row in ROWS:
            with stand_ins(row) as module:
                for name, state in states(module, now_for(row)).items():
                    for protocol in (2, 3, 4, 5):
                        with self.subTest(row=row, name=name, protocol=protocol):
                            self.assert_same(kept(state, protocol), convert(pickle.dumps(state, protocol), row), name)

    def test_json_and_back_is_the_same_too(self):
        for row in ROWS:
            with stand_ins(row) as module:
                for name, state in states(module, now_for(row)).items():
                    with self.subTest(row=row, name=name):
                        text = convert(pickle.dumps(state), "json")
                        self.assertEqual(json.loads(text)["round"], state.round)
                        self.assert_same(state, convert(text, row), name)

    def test_a_state_with_nodes_and_times_shows_its_layout(self):
        for row in ROWS:
            with stand_ins(row) as module:
                state = states(module, now_for(row))["joining"]
                self.assertEqual(convert(pickle.dumps(state), "layouts").decode().split(), [row, row])

    def test_what_the_optimizer_of_pickles_makes_is_read(self):
        """It takes out what is put in the memo and not used again."""
        import pickletools  # pylint: disable=import-outside-toplevel
        with stand_ins("2.6") as module:
            for name, state in states(module, now_for("2.6")).items():
                for protocol in (2, 4):
                    bits = pickletools.optimize(pickle.dumps(state, protocol))
                    self.assert_same(kept(state, protocol), convert(bits), name)

    def test_the_pickler_in_python_is_read_like_that_in_c(self):
        with stand_ins("2.3") as module:
            for name, state in states(module, now_for("2.3")).items():
                self.assert_same(state, convert(pickle._dumps(state), "2.3"), name)  # pylint: disable=protected-access

    def test_the_unpickler_in_python_reads_it_like_that_in_c(self):
        with stand_ins("2.6") as module:
            for name, state in states(module, now_for("2.6")).items():
                again = pickle._loads(convert(pickle.dumps(state)))  # pylint: disable=protected-access
                self.assertIsNone(difference(state, again), name)

    def test_what_would_run_code_is_refused_by_name(self):
        class Evil:
            def __reduce__(self):
                return os.system, ("touch /tmp/never",)

        with stand_ins("2.6") as module:
            state = module._RendezvousState()
            state.evil = Evil()
            for protocol in (2, 3, 4, 5):
                with self.assertRaisesRegex(AssertionError, r"asks for 'posix\.system', which is not part"):
                    convert(pickle.dumps(state, protocol))


class RealTorch:
    """What holds for both versions."""

    version = None

    def setUp(self):
        super().setUp()
        peers.need(self.version)
        command = rdzvtest.torch_python(self.version) + [os.path.abspath(__file__), "peer"]
        self.peer = self.start(command, cwd=rdzvtest.SOURCE, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               env=dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1",
                                        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1"))
        self.assertIsNone(self.listen())

    def listen(self):
        too_late = threading.Timer(rdzvtest.DEADLINE, self.peer.kill)
        too_late.start()
        line = self.peer.stdout.readline()
        too_late.cancel()
        self.assertTrue(line, f"PyTorch {self.version} ended, or did not answer")
        return json.loads(line)

    def tell(self, what):
        self.peer.stdin.write(json.dumps(what).encode() + b"\n")
        self.peer.stdin.flush()

    def ask(self, what, *arguments):
        self.tell({"do": what, "with": arguments})
        while isinstance(answer := self.listen(), dict):
            self.tell(base64.b64encode(convert(base64.b64decode(answer["convert"]), self.version)).decode())
        return answer

    def converted(self, name, protocol, to):
        return base64.b64encode(convert(base64.b64decode(self.ask("make", name, protocol)), to)).decode()

    def test_its_states_come_back_to_it_as_they_were(self):
        for name in self.ask("names"):
            for protocol in (2, 3, 4, 5):
                with self.subTest(name=name, protocol=protocol):
                    self.assertIsNone(self.ask("compare", name, self.converted(name, protocol, self.version), protocol))

    def test_its_holder_reads_and_writes_what_we_wrote(self):
        for name in self.ask("names"):
            with self.subTest(name=name):
                found, bits = self.ask("hold", name, self.converted(name, 4, self.version))
                self.assertIsNone(found)
                again = base64.b64encode(convert(base64.b64decode(bits), self.version)).decode()
                self.assertIsNone(self.ask("compare", name, again))

    def test_its_states_show_their_layout(self):
        for name in ("joining", "complete", "unicode"):
            bits = base64.b64decode(self.ask("make", name, 4))
            self.assertEqual(convert(bits, "layouts").decode().split(), [self.version] * 2)

    def test_its_handlers_meet_over_states_that_all_went_through_ours(self):
        results, closed, writes = self.ask("rendezvous", 3)
        self.assertEqual(results, [[rank, 3] for rank in range(3)])
        self.assertEqual(closed, [False, True])
        self.assertGreaterEqual(writes, 4)


class Torch113(RealTorch, peers.Case):
    version = "1.13"


class Torch26(RealTorch, peers.Case):
    version = "2.6"


if __name__ == "__main__":
    peers.main()
