# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of the first-generation rendezvous share: nodes of ours, and the places in etcd where they meet."""
import concurrent.futures
import datetime
import json
import urllib.parse
import uuid

import rdzvtest
from join_node import CLOSED, Ours  # noqa: F401, the tests have them from here

LEASE = 10  # seconds, by the protocol


class Place:
    """One rendezvous in an etcd: `member` is one to look with, `endpoints` what the nodes are told."""

    def __init__(self, case, member, nodes, endpoints=None, last_call=1, backend="etcd", run_id=None, **conf):
        self.case, self.member, self.nodes, self.backend = case, member, nodes, backend
        self.endpoints = endpoints or member.endpoint
        self.last_call, self.conf = rdzvtest.slow_int(last_call), conf
        self.name = uuid.uuid4().hex
        self.run_id = run_id or self.name
        self.root = f"/torchelastic/p2p/run_{self.run_id}"
        self.count = 0

    def arguments(self, **more):
        conf = {"last_call_timeout": self.last_call, "timeout": 300, **self.conf, **more}
        return ["--rdzv-backend", self.backend, "--rdzv-endpoint", self.endpoints, "--rdzv-id", self.run_id,
                "--rdzv-conf", ",".join(f"{name}={value}" for name, value in conf.items())]

    def ours(self, *command, nodes=None, **more):
        """A node of ours, which joins at once."""
        self.count += 1
        nnodes = ":".join(map(str, nodes or self.nodes))
        return Ours(self.case, f"{self.name}-{self.count}",
                    [*self.arguments(**more), "--nnodes", nnodes, "--local-addr", "127.0.0.1", *command])

    def rdzv(self, command, *arguments, **more):
        return self.case.rdzv(command, *self.arguments(**more), *arguments)

    def status(self):
        finished = self.rdzv("status", "--json")
        self.case.assertEqual((finished.returncode, finished.stderr), (0 if finished.stdout else 1, ""))
        return json.loads(finished.stdout)

    # What is in etcd, looked at and changed without the code under test.

    def key(self, path):
        return f"{self.root}/rdzv/{path}"

    def text(self):
        """Of active_version; "" if there is none."""
        try:
            node = self.member.node(self.key("active_version"))
        except OSError:  # while members die
            node = None
        return node["value"] if node else ""

    def active(self):
        return json.loads(self.text() or "{}")

    def await_active(self, **facts):
        """Looks until these are in it; gives it all."""
        def look():
            active = self.active()
            return active if facts.items() <= active.items() else None

        return rdzvtest.wait_until(look, f"active_version has {facts}")

    def swap(self, old, new, **form):
        """As a PyTorch node does."""
        return self.member.put(self.key("active_version"), json.dumps(new), prevValue=old, **form)

    def delete(self, path):
        self.member.open("DELETE", f"/v2/keys{urllib.parse.quote(self.key(path))}")

    def has(self, path):
        return self.member.node(self.key(path)) is not None

    def expires(self, path):
        """When the key at that path does, if nobody renews it; None: etcd cannot say just now."""
        try:
            node = self.member.node(self.key(path))
        except OSError:  # between two leaders
            return None
        self.case.assertIsNotNone(node, f"{path} has expired")
        return datetime.datetime.fromisoformat(node["expiration"][:19])

    def await_renewed(self, path, seconds):
        """Until it has been made to last so much longer than it would have."""
        first = rdzvtest.wait_until(lambda: self.expires(path), f"{path} is there")
        longer = first + datetime.timedelta(seconds=seconds)
        rdzvtest.wait_until(lambda: (now := self.expires(path)) and now >= longer, f"{path} is renewed")

    def seconds_left(self):
        """Of the run's directory."""
        return self.member.node(self.root)["ttl"]

    def extra(self, version):
        return json.loads(self.member.node(self.key(f"v_{version}/extra_data"))["value"])

    def store(self, version, *arguments):
        """`rdzv store` on the store of that version."""
        return self.case.rdzv("store", "--etcd", f"http://{self.endpoints}", "--prefix", self.key(f"v_{version}/kv"),
                              *arguments)


def agree(case, nodes):
    """They all are in one round, with ranks 0..n-1 each once. Gives their results, by rank."""
    results = [node.joined() for node in nodes]
    for result in results:
        for name in "round", "world_size", "master":
            case.assertEqual(result[name], results[0][name], name)
    case.assertEqual(sorted(result["rank"] for result in results), list(range(len(nodes))))
    case.assertEqual(results[0]["world_size"], len(nodes))
    return sorted(results, key=lambda result: result["rank"])


def tell(case, *stories):
    """Tells them all at the same time: they mostly wait. Each is a function, and a test of its own in the report."""
    with concurrent.futures.ThreadPoolExecutor(len(stories)) as pool:
        ends = [pool.submit(story) for story in stories]
    for story, end in zip(stories, ends):
        with case.subTest(story.__name__):
            end.result()
