# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of mixed rendezvous share: nodes of PyTorch and of ours, and the places where they meet."""
import concurrent.futures
import functools
import json
import os
import shutil
import subprocess
import tempfile
import unittest

import peers
import rdzvtest
from join_node import CLOSED, Ours  # noqa: F401, the tests have them from here
from rdzvtest import free_port

DEFAULTS = (5, 3)  # seconds between heartbeats, and how many may be missing
FAST = (1, rdzvtest.slow_int(5))  # for tests in which nodes die; PyTorch looks once a second
PLACES = ("torch", "serve", "join", "file")  # who has the store: a PyTorch node, `rdzv serve`, our node, nobody
NO_HOST = ("torch", "serve", "file")  # where it does not go with a node of ours
SOON = "next_when_some_wait"  # what PyTorch's agents do all the time


@functools.lru_cache(maxsize=None)
def torch_nodes(version):
    """Starts rendezvous_peer.py of that version, for all tests of this file; gives its socket's path."""
    folder = tempfile.mkdtemp(prefix="rdzv-torch-")
    unittest.addModuleCleanup(shutil.rmtree, folder)
    path = os.path.join(folder, "socket")
    environment = dict(os.environ, USE_LIBUV="0", OMP_NUM_THREADS="1",
                       TORCH_CPP_LOG_LEVEL="FATAL", PYTHONDONTWRITEBYTECODE="1")
    process = subprocess.Popen(
        rdzvtest.torch_python(version) + [os.path.join(peers.HERE, "rendezvous_peer.py"), path],
        cwd=rdzvtest.SOURCE, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    unittest.addModuleCleanup(peers.end_torch, process)
    if process.stdout.readline() != b"ready\n":
        raise RuntimeError(f"PyTorch {version} does not start")
    return path


class Theirs(peers.TorchProcess):
    """A node of PyTorch; the methods are those of rendezvous_peer.py's Node."""

    def join(self):
        return self.begin("next")

    def joined(self):
        return self.finish()

    def end(self):
        """In whatever it is."""
        if not self.connection.closed:
            self.kill()


class Place:
    """One rendezvous: where its store is, and what its nodes are told. The last call leaves time for PyTorch's nodes,
    which look once a second."""

    def __init__(self, case, version, kind, nodes, keep_alive=DEFAULTS, last_call=2, shared=False):
        self.case, self.version, self.kind, self.shared = case, version, kind, shared
        self.nodes, self.keep_alive = nodes, keep_alive
        self.last_call = last_call and rdzvtest.slow_int(last_call)
        self.run_id = f"run-{kind}-{version}"
        self.endpoint = None
        self.count = 0
        if kind == "serve":
            self.endpoint = case.serve().endpoint
        elif kind == "join":
            self.endpoint = f"127.0.0.1:{free_port()}"
        elif kind == "file":
            self.endpoint = case.path(self.run_id)

    def theirs(self, addr="127.0.0.1"):
        """A node of PyTorch, which is not in a round yet. At a "torch" place the first has the store."""
        node = Theirs(torch_nodes(self.version))
        self.case.addCleanup(node.end)
        options = {"store_type": "file"} if self.kind == "file" else {} if self.endpoint else {"is_host": "true"}
        if self.last_call:
            options["last_call_timeout"] = str(self.last_call)
        if self.keep_alive != DEFAULTS:
            options["keep_alive"] = self.keep_alive
        port = node.open(self.endpoint or "127.0.0.1:0", self.run_id, self.nodes, addr, shared=self.shared, **options)
        self.endpoint = self.endpoint or f"127.0.0.1:{port}"
        return node

    def conf(self, **more):
        conf = {"store_type": "file"} if self.kind == "file" else {}
        if self.last_call:
            conf["last_call_timeout"] = self.last_call
        if self.keep_alive != DEFAULTS:
            conf["keep_alive_interval"], conf["keep_alive_max_attempt"] = self.keep_alive
        if self.version == "1.13":
            conf["torch_version"] = "1.13"
        conf.update(more)
        return ",".join(f"{name}={value}" for name, value in conf.items() if value is not None)

    def arguments(self, **more):
        return ["--rdzv-endpoint", self.endpoint, "--rdzv-id", self.run_id, "--rdzv-conf", self.conf(**more)]

    def ours(self, addr="127.0.0.1", command=(), **more):
        """A node of ours, which joins at once. At a "join" place the first has the store."""
        self.count += 1
        node = Ours(self.case, f"{self.run_id}-{self.count}",
                    [*self.arguments(**more), "--nnodes", ":".join(map(str, self.nodes)), "--local-addr", addr,
                     *command])
        if self.kind == "join" and self.count == 1:
            node.await_said("this process serves the store")
        return node

    def all(self, theirs, ours):
        """Nodes with these addresses; whoever has the store is made first. They join, all at once."""
        if self.kind == "join":
            here = [self.ours(addr) for addr in ours]
            there = [self.theirs(addr) for addr in theirs]
        else:
            there = [self.theirs(addr) for addr in theirs]
            here = [self.ours(addr) for addr in ours]
        for node in there:
            node.join()
        return there, here

    def store(self, round_number, *arguments):
        """`rdzv store` on the store of that round."""
        where = ["--file", self.endpoint] if self.kind == "file" else ["--endpoint", self.endpoint]
        prefix = f"torch.rendezvous.{self.run_id}.{round_number}"
        return self.case.rdzv("store", *where, "--prefix", prefix, *arguments)

    def await_status(self, **facts):
        """Looks with `rdzv status` until these are what it prints; gives it all."""
        def look():
            finished = self.case.rdzv("status", *self.arguments(torch_version=None), "--json")
            self.case.assertIn((finished.returncode, finished.stderr), ((0, ""), (1, "")))
            status = json.loads(finished.stdout)
            return status if facts.items() <= status.items() else None

        return rdzvtest.wait_until(look, f"the status has {facts}")

    def close(self, *arguments):
        finished = self.case.rdzv("close", *self.arguments(torch_version=None), *arguments)
        self.case.assertEqual((finished.returncode, finished.stderr), (0, ""))


def order(node):
    addr, pid, local_id = node.rsplit("_", 2)
    return addr, int(pid), int(local_id)


class Case(peers.Case):
    """A test that is a story, told with nodes of each PyTorch at several places."""

    def tell(self, story, nodes, kinds=PLACES, versions=peers.VERSIONS, **keywords):
        """At all places at the same time: they mostly wait."""
        pool = concurrent.futures.ThreadPoolExecutor(len(versions) * len(kinds))
        ends = {}
        for version in self.those_here(versions):
            torch_nodes(version)
            for kind in kinds:
                ends[version, kind] = pool.submit(self.tell_at, story, version, kind, nodes, keywords)
        pool.shutdown()
        for (version, kind), end in ends.items():
            with self.subTest(torch=version, place=kind):
                end.result()

    @staticmethod
    def those_here(versions):
        """Those that are installed, all of them in CI; without any, the test is skipped."""
        reasons = []
        for version in versions:
            try:
                peers.need(version)
            except unittest.SkipTest as skip:
                reasons.append(str(skip))
        if len(reasons) == len(versions):
            raise unittest.SkipTest("; ".join(reasons))
        return [version for version in versions if not peers.why_missing(version)]

    def tell_at(self, story, version, kind, nodes, keywords):
        story(Place(self, version, kind, nodes, **keywords))

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
        self.assertEqual(len({result["node"] for result in results}), len(nodes))
        return first
