# SPDX-License-Identifier: BSD-3-Clause
"""`rdzv run` under test: nodes with output files and event logs of their own, workers that are small shell scripts, and
the check that no process outlives its test.

Workers meet the test through files: note() adds a line to a file, await waits for one that the test makes.
"""
import json
import os
import signal
import subprocess

import rdzvtest
from rdzvtest import free_port, slow, wait_until

YES, NO, USAGE, CONNECT, TIMEOUT, UNKNOWN, REFUSED, IO, CLOSED = range(9)

# What every worker script begins with. "note" is one write to a file that all share. "forever" sleeps shortly: a
# signal that comes between two commands is acted on after the next one.
PRELUDE = """
note() { printf '%s\\n' "$*" >>"$T/notes"; }
await() { while [ ! -e "$T/$1" ]; do sleep 0.02; done; }
forever() { while :; do sleep 0.1; done; }
"""
QUICK = f"last_call_timeout={slow(0.5)},keep_alive_interval={slow(0.3)},keep_alive_max_attempt=5"  # dead after 1.5 s
NEVER = f"last_call_timeout={slow(0.5)},keep_alive_interval=60"  # nobody dies: who is missed has said so
STEADY = f"last_call_timeout={slow(0.5)}"  # time for the others, who start at the same moment


def environment_of(pid):
    """As bytes; empty where it is a zombie, or gone."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


def state_of(pid):
    """"R", "S", "Z" …; "" where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def is_alive(pid):
    return state_of(pid) not in ("", "Z", "X")


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return -1


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def children_of(pid):
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and parent_of(entry) == pid]


def text_of(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


class Node:
    """One `rdzv run`: `process`, and what it has written by now."""

    def __init__(self, name, folder):
        self.name = name
        self.out_path, self.err_path = os.path.join(folder, f"{name}.out"), os.path.join(folder, f"{name}.err")
        self.event_path = os.path.join(folder, f"{name}.events")
        self.process = None

    @property
    def pid(self):
        return self.process.pid

    def out(self):
        return text_of(self.out_path)

    def err(self):
        return text_of(self.err_path)

    def events(self, source=None, state=None):
        """The lines that are there whole."""
        lines = [json.loads(line) for line in text_of(self.event_path).split("\n")[:-1]]
        return [line for line in lines if source in (None, line["source"]) and state in (None, line["state"])]

    def signal(self, number):
        self.process.send_signal(number)

    def guard(self):
        """The process that kills what is left when the agent is gone."""
        return wait_until(lambda: [child for child in children_of(self.pid) if name_of(child) == "rdzv-guard"],
                          f"{self.name} has a guard")[0]


class Run(rdzvtest.Case):
    """Nodes on loopback. When a test is over, so is everything that its nodes have started."""
    RUN_ID = "job"
    CONF = STEADY

    def setUp(self):
        super().setUp()
        self.mark = f"RDZV_TEST_MARK={self.folder}".encode()
        self.nodes = []
        self.server = None
        os.mkdir(self.path("tmp"))

    def tearDown(self):
        for node in self.nodes:
            if node.process.poll() is None:
                node.process.kill()
            node.process.wait()
        try:
            wait_until(lambda: not self.marked(), "all that the nodes have started is gone")
        except TimeoutError as error:
            left = [f"{pid} {name_of(pid)}" for pid in self.marked()]
            for pid in self.marked():
                os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"{error}: {left}") from None
        finally:
            super().tearDown()

    def marked(self):
        """All processes that descend from our nodes."""
        return [int(entry) for entry in os.listdir("/proc")
                if entry.isdigit() and self.mark in environment_of(entry).split(b"\0") and is_alive(entry)]

    # ---- starting ----

    def environment(self, **more):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("PET_", "MASTER_", "TORCH", "NCCL", "OMP", "CUDA", "HIP", "ROCR"))}
        environment.update(T=self.folder, TMPDIR=self.path("tmp"), RDZV_TEST_MARK=self.folder,
                           PYTHON_EXEC=rdzvtest.PYTHON)
        environment.update({name: str(value) for name, value in more.items()})
        return environment

    def script(self, text, name="worker"):
        """Writes a worker; gives its path."""
        path = self.path(f"{name}.sh")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + PRELUDE + text)
        os.chmod(path, 0o755)
        return path

    def launch(self, name, flags, program, env=None, prefix=(), **options):
        """Starts a node with its event log; `program` is a list of words, `prefix` of those that execute it."""
        node = Node(name, self.folder)
        command = [*prefix, rdzvtest.RDZV, "run", "--event-log", node.event_path, *flags, *program]
        with open(node.out_path, "w", encoding="utf-8") as out, open(node.err_path, "w", encoding="utf-8") as err:
            options = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, **options}
            node.process = self.start(command, env=self.environment(**(env or {})), **options)
        self.nodes.append(node)
        return node

    def alone(self, text, *flags, name="alone", **options):
        """A node that needs no other."""
        return self.launch(name, ["--standalone", *flags], [self.script(text)], **options)

    def run_alone(self, text, *flags, code=YES, **options):
        return self.gone(self.alone(text, *flags, **options), code)

    def serve_store(self):
        self.server = self.serve()
        return self.server.endpoint

    def join_flags(self, name, nnodes, endpoint=None, conf=None, backend="c10d"):
        return ["--nnodes", nnodes, "--rdzv-backend", backend, "--rdzv-endpoint", endpoint or self.server.endpoint,
                "--rdzv-id", self.RUN_ID, "--rdzv-conf", conf or self.CONF, "--local-addr", "127.0.0.1",
                "--role", name]

    def node(self, name, nnodes, worker, *flags, endpoint=None, conf=None, backend="c10d", **options):
        """One of several nodes: all on 127.0.0.1, told apart by their roles, which are their names."""
        return self.launch(name, [*self.join_flags(name, nnodes, endpoint, conf, backend), *flags], [worker], **options)

    # ---- looking ----

    def gone(self, node, code=YES, seconds=rdzvtest.DEADLINE):
        """Waits for its end, which must be that."""
        try:
            ended = node.process.wait(seconds)
        except subprocess.TimeoutExpired:
            ended = "still running"
        self.assertEqual(ended, code, f"{node.name}: {node.err()}")
        return node

    def notes(self):
        return text_of(self.path("notes")).split("\n")[:-1]

    def touch(self, name):
        with open(self.path(name), "w", encoding="ascii"):
            pass

    def wait_notes(self, *lines, more=False):
        """Until exactly these are there, in any order; with `more`, among others. Gives all."""
        def there():
            found = self.notes()
            enough = all(found.count(line) >= lines.count(line) for line in lines)
            return enough and found

        try:
            found = wait_until(there, f"the notes {lines}")
        except TimeoutError as error:
            raise AssertionError(f"{error}; there are {self.notes()}; {self.all_err()}") from None
        if not more:
            self.assertEqual(sorted(found), sorted(lines))
        return found

    def all_err(self):
        return "\n".join(f"--- {node.name}:\n{node.err()}" for node in self.nodes)

    def wait_for(self, condition, what):
        """As wait_until, and what the nodes said comes with the error."""
        try:
            return wait_until(condition, what)
        except TimeoutError as error:
            raise AssertionError(f"{error}; notes {self.notes()}; {self.all_err()}") from None

    def wait_world(self, *nodes, size=None, after=-1):
        """Until all these nodes run workers in the same round, of so many nodes as they are; gives its number."""
        size = size or len(nodes)

        def there():
            for node in nodes:
                if node.process.poll() is not None:
                    raise AssertionError(f"{node.name} ended with {node.process.returncode}: {node.err()}")
            last = [(node.events("AGENT") or [None])[-1] for node in nodes]
            if any(one is None or one["state"] != "RUNNING" or one["group_world_size"] != size for one in last):
                return None
            rounds = {one["round"] for one in last}
            return len(rounds) == 1 and max(rounds) > after and (rounds.pop(),)

        return self.wait_for(there, f"a round of {[node.name for node in nodes]} after {after}")[0]

    def temporary(self):
        """Folders that `rdzv run` has made for itself."""
        return os.listdir(self.path("tmp"))

    def files_below(self, folder):
        return sorted(os.path.relpath(os.path.join(where, name), folder)
                      for where, _, names in os.walk(folder) for name in names)

