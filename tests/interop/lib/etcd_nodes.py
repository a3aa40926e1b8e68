# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of mixed rendezvous in etcd share: nodes of PyTorch and of ours, and what they must agree on."""
import functools
import json
import os
import shutil
import subprocess
import tempfile
import unittest
import uuid

import peers
import rdzvtest
from join_node import CLOSED, Ours  # noqa: F401, the tests have them from here

FAST = (1, rdzvtest.slow_int(5))  # seconds between heartbeats, and how many may be missing
SOON = "next_when_some_wait"


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


class Place:
    """One rendezvous, and what its nodes are told. The last call leaves time for PyTorch's nodes, which look once a
    second."""

    def __init__(self, case, endpoint, nodes, keep_alive=FAST, last_call=3):
        self.case, self.endpoint, self.nodes = case, endpoint, nodes
        self.keep_alive, self.last_call, self.run_id = keep_alive, rdzvtest.slow_int(last_call), uuid.uuid4().hex

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
        return Ours(self.case, f"{addr}-{uuid.uuid4().hex}", [*self.arguments(**more), "--nnodes",
                                                              ":".join(map(str, self.nodes)), "--local-addr", addr])

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
