# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of mixed rendezvous in etcd share: nodes of PyTorch and of ours, and what they must agree on."""
import functools
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest
import uuid

import peers
import rdzvtest

FAST = (1, 4)  # seconds between heartbeats, and how many may be missing
SOON = "next_when_some_wait"
CLOSED = 8  # what `rdzv join` exits with


@functools.lru_cache(maxsize=None)
def torch_socket():
    """Starts etcd_peer.py, for all tests of this file; gives its socket's path."""
    folder = tempfile.mkdtemp(prefix="rdzv-torch-")
    unittest.addModuleCleanup(shutil.rmtree, folder)
    path = os.path.join(folder, "socket")
    environment = dict(os.environ, OMP_NUM_THREADS="1", TORCH_CPP_LOG_LEVEL="FATAL", PYTHONDONTWRITEBYTECODE="1")
    environment.pop("PYTHONPATH")  # our etcd.py is not the client of that name
    process = subprocess.Popen(rdzvtest.torch_python("1.13") + [os.path.join(peers.HERE, "etcd_peer.py"), path],
                               cwd=rdzvtest.SOURCE, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    unittest.addModuleCleanup(peers.end_torch, process)
    if process.stdout.readline() != b"ready\n":
        raise RuntimeError("PyTorch 1.13 with python3-etcd does not start")
    return path


class Theirs(peers.TorchProcess):
    """A process with PyTorch; the methods are those of etcd_peer.py's Peer."""

    def join(self):
        return self.begin("next")

    def joined(self):
        return self.finish()

    def end(self):
        """In whatever it is."""
        if not self.connection.closed:
            self.kill()


class Ours:
    """A node of ours: `rdzv join`."""

    def __init__(self, case, command):
        self.complaints = case.path(f"stderr-{id(self)}")
        with open(self.complaints, "w", encoding="utf-8") as stderr:
            self.process = case.start(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()
        case.addCleanup(self.kill)

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def joined(self):
        """The next round that it prints."""
        try:
            line = self.lines.get(timeout=rdzvtest.DEADLINE)
        except queue.Empty:
            raise TimeoutError(f"rdzv join says nothing; so far: {self.said()}") from None
        if line is None:
            raise AssertionError(f"rdzv join ended with {self.process.wait()}: {self.said()}")
        result = json.loads(line)
        result["members"] = [(member["rank"], member["node"]) for member in result["members"]]
        result["master"] = (result["master_addr"], result["master_port"])
        return result

    def said(self):
        with open(self.complaints, encoding="utf-8") as file:
            return file.read()

    def await_exit(self):
        return self.process.wait(rdzvtest.DEADLINE)

    def leave(self):
        self.process.send_signal(signal.SIGTERM)
        return self.await_exit()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()


class Place:
    """One rendezvous, and what its nodes are told. The last call leaves time for PyTorch's nodes, which look once a
    second."""

    def __init__(self, case, endpoint, nodes, keep_alive=FAST, last_call=3):
        self.case, self.endpoint, self.nodes = case, endpoint, nodes
        self.keep_alive, self.last_call, self.run_id = keep_alive, last_call, uuid.uuid4().hex

    def theirs(self, addr):
        node = Theirs(torch_socket())
        self.case.addCleanup(node.end)
        node.open(self.endpoint.split(",")[0], self.run_id, self.nodes, addr, keep_alive=self.keep_alive,
                  last_call_timeout=str(self.last_call))
        return node.join()

    def arguments(self, **more):
        conf = {"last_call_timeout": self.last_call, "keep_alive_interval": self.keep_alive[0],
                "keep_alive_max_attempt": self.keep_alive[1], "torch_version": "1.13", **more}
        return ["--rdzv-backend", "etcd-v2", "--rdzv-endpoint", self.endpoint, "--rdzv-id", self.run_id, "--rdzv-conf",
                ",".join(f"{name}={value}" for name, value in conf.items())]

    def ours(self, addr, **more):
        return Ours(self.case, [rdzvtest.RDZV, "join", *self.arguments(**more), "--nnodes",
                                ":".join(map(str, self.nodes)), "--local-addr", addr, "--log-level", "info"])

    def status(self):
        finished = self.case.rdzv("status", *self.arguments(), "--json")
        self.case.assertIn((finished.returncode, finished.stderr), ((0, ""), (1, "")))
        return json.loads(finished.stdout)

    def close(self):
        finished = self.case.rdzv("close", *self.arguments())
        self.case.assertEqual((finished.returncode, finished.stderr), (0, ""))


def order(node):
    addr, pid, local_id = node.rsplit("_", 2)
    return addr, int(pid), int(local_id)


class Case(peers.Case):
    def assert_agree(self, nodes):
        """They all are in one round, see the same members, and have the ranks that PyTorch gives. Gives the round."""
        results = [node.joined() for node in nodes]
        first, size = results[0], len(nodes)
        for result in results:
            for name in "round", "world_size", "members", "master":
                self.assertEqual(result[name], first[name], name)
            self.assertEqual(result["members"][result["rank"]], (result["rank"], result["node"]))
        self.assertEqual(first["world_size"], size)
        names = [name for _, name in first["members"]]
        self.assertEqual([rank for rank, _ in first["members"]], list(range(size)))
        self.assertEqual(names, sorted(names, key=order))
        self.assertEqual(len({result["node"] for result in results}), size)
        return first
