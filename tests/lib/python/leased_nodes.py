# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of the backend etcd-v3 share: the places in etcd where nodes meet, and what a round must be."""
import base64
import json
import uuid

import rdzvtest
from join_node import Ours

LEASE = 60  # seconds: longer than any pause of a loaded machine
SHORT = rdzvtest.slow_int(6 if rdzvtest.SANITIZED else 3)  # where its end is waited for


class Place:
    """One rendezvous in an etcd: `member` is one to look with, `endpoints` what the nodes are told."""

    def __init__(self, case, member, nodes, endpoints=None, last_call=1, lease=LEASE, run_id=None):
        self.case, self.member, self.nodes = case, member, nodes
        self.endpoints = endpoints or member.endpoint
        self.last_call, self.lease = rdzvtest.slow(last_call), lease
        self.run_id = run_id or uuid.uuid4().hex
        self.count = 0

    def arguments(self, **more):
        conf = {"last_call_timeout": self.last_call, "join_timeout": 120, "lease_time": self.lease, **more}
        return ["--rdzv-backend", "etcd-v3", "--rdzv-endpoint", self.endpoints, "--rdzv-id", self.run_id,
                "--rdzv-conf", ",".join(f"{name}={value}" for name, value in conf.items())]

    def ours(self, *command, nodes=None, **more):
        """A node of ours, which joins at once."""
        self.count += 1
        nnodes = ":".join(map(str, nodes or self.nodes))
        return Ours(self.case, f"{self.run_id[:8]}-{self.count}",
                    [*self.arguments(**more), "--nnodes", nnodes, "--local-addr", "127.0.0.1", *command])

    def rdzv(self, command, *arguments, **more):
        return self.case.rdzv(command, *self.arguments(**more), *arguments)

    def status(self):
        finished = self.rdzv("status", "--json")
        self.case.assertEqual(finished.stderr, "")
        return json.loads(finished.stdout)

    def await_status(self, **facts):
        rdzvtest.wait_until(lambda: facts.items() <= self.status().items(), f"the status has {facts}")

    def keys(self):
        """What is in etcd, read without the code under test: values by keys below the run."""
        root = f"/rdzv/{self.run_id}/".encode()
        end = root[:-1] + bytes([root[-1] + 1])
        body = json.dumps({"key": base64.b64encode(root).decode(), "range_end": base64.b64encode(end).decode()})
        answer = json.loads(self.member.open_body("POST", "/v3/kv/range", body.encode()))
        return {base64.b64decode(kv["key"])[len(root):].decode(): base64.b64decode(kv.get("value", "")).decode()
                for kv in answer.get("kvs", [])}


def agree(case, nodes):
    """They are all in one round, with ranks 0..n-1 each once, and know the same. Gives one result."""
    results = [node.joined() for node in nodes]
    latest = max(result["round"] for result in results)
    for i, node in enumerate(nodes):
        while results[i]["round"] < latest or results[i]["world_size"] < len(nodes):
            results[i] = node.joined()
            latest = max(latest, results[i]["round"])
    for name in "round", "world_size", "master", "members":
        case.assertEqual({str(result[name]) for result in results}, {str(results[0][name])}, name)
    case.assertEqual(sorted(result["rank"] for result in results), list(range(len(nodes))))
    case.assertEqual(results[0]["world_size"], len(nodes))
    return results[0]
