# SPDX-License-Identifier: BSD-3-Clause
"""Nodes of a run that differ in a setting that must be the same: each says at once which node differs in what. The later
one fails if the ranges do not overlap, and the others go on."""
import time

import etcd
import rdzvtest
from join_node import Ours

REFUSED = 6  # what `rdzv join` exits with


class Places(rdzvtest.Case):
    def places(self):
        server = self.serve()
        return {"native": ["--rdzv-endpoint", server.endpoint],
                "swap": ["--rdzv-endpoint", server.endpoint, "--rdzv-conf", "mode=swap"],
                "file": ["--rdzv-endpoint", self.path("store"), "--rdzv-conf", "store_type=file"]}

    def node(self, place, run_id, addr, nnodes, *more):
        return Ours(self, f"{run_id}-{addr}", [*place, "--rdzv-id", run_id, "--local-addr", addr, "--nnodes", nnodes, *more])


class Differ(Places):
    def test_no_round_can_have_both(self):
        for name, place in self.places().items():
            with self.subTest(name):
                first = self.node(place, name, "a", "2")
                first.await_said("waiting for nodes")
                second = self.node(place, name, "b", "3")
                there = f"'b_{second.process.pid}_0' has nnodes=3:3, this node 2:2"
                here = f"'a_{first.process.pid}_0' has nnodes=2:2, this node 3:3"
                first.await_said(there)
                second.await_said(here)
                self.assertEqual(second.await_exit(), REFUSED, second.said())
                self.assertIn(f"cannot join the rendezvous: the --nnodes ranges of these nodes do not overlap: {here}", second.said())
                third = self.node(place, name, "c", "2")
                self.assertEqual([node.joined()["world_size"] for node in (first, third)], [2, 2])
                self.assertEqual(first.said().count(there), 1)

    def test_a_node_is_refused_before_the_next_heartbeat(self):
        """The node that came before answers with one at once."""
        etcd.need()
        places = {"swap": self.places()["swap"], "etcd-v2": ["--rdzv-backend", "etcd-v2", "--rdzv-endpoint", etcd.shared().endpoint]}
        for name, place in places.items():
            with self.subTest(name):
                run_id = f"{name}-{time.monotonic_ns()}"
                conf = ["--rdzv-conf", ("mode=swap," if name == "swap" else "") + "keep_alive_interval=60"]
                first = self.node(place, run_id, "a", "2", *conf)
                first.await_said("waiting for nodes")
                start = time.monotonic()
                second = self.node(place, run_id, "b", "3", *conf)
                self.assertEqual(second.await_exit(), REFUSED, second.said())
                self.assert_within(start, 3)
                self.assertNotIn("no answer yet", second.said())

    def test_a_round_can_have_both(self):
        for name, place in self.places().items():
            with self.subTest(name):
                conf = "" if name == "native" else place[-1] + ","
                first = self.node([*place, "--rdzv-conf", conf + "last_call_timeout=0.1,rank_order=stable"], name, "a", "2:3")
                first.await_said("waiting for nodes")
                second = self.node([*place, "--rdzv-conf", conf + "last_call_timeout=0.2,rank_order=natural"], name, "b", "2:4")
                self.assertEqual([node.joined()["world_size"] for node in (first, second)], [2, 2])
                first.await_said(f"'b_{second.process.pid}_0' has nnodes=2:4, this node 2:3; "
                                 "rank_order=natural, this node stable (use the same values on all nodes)")
                second.await_said(f"'a_{first.process.pid}_0' has nnodes=2:3, this node 2:4; "
                                  "rank_order=stable, this node natural (use the same values on all nodes)")


class Agents(Places):
    def places(self):
        etcd.need()
        at = ["--rdzv-endpoint", etcd.shared().endpoint]
        return {**super().places(), **{name: ["--rdzv-backend", name, *at] for name in ("etcd-v2", "etcd-v3", "etcd")}}

    def agent(self, place, run_id, addr, *more):
        """Gives the process, and what it has said so far."""
        path = self.path(f"agent-{run_id}-{addr}")
        with open(path, "w", encoding="utf-8") as out:
            process = self.start([rdzvtest.RDZV, "run", *(["--rdzv-backend", "c10d"] if "--rdzv-backend" not in place else []), *place,
                                  "--rdzv-id", run_id, "--local-addr", addr, "--nnodes", "2", *more, "--no-python", "true"],
                                 stdout=out, stderr=out)

        def said():
            with open(path, encoding="utf-8") as file:
                return file.read()
        return process, said

    def test_an_agent_and_a_node_that_is_none(self):
        for name, place in self.places().items():
            with self.subTest(name):
                run_id = f"{name}-{time.monotonic_ns()}"
                first = self.node(place, run_id, "127.0.0.1", "2")
                first.await_said("waiting for nodes")
                agent, said = self.agent(place, run_id, "127.0.0.2")
                self.assertNotEqual(agent.wait(rdzvtest.DEADLINE), 0, said())
                self.assertRegex(said(), rf"rdzv run: cannot join the rendezvous: '127.0.0.1_{first.process.pid}(_0)?' is no agent, as of "
                                 r"'rdzv join', and this node is one: they cannot be in one round \(start all nodes with 'rdzv run'")
                self.node(place, run_id, "127.0.0.3", "2")
                self.assertEqual(first.joined()["world_size"], 2)

    def test_a_node_that_is_no_agent_comes_to_agents(self):
        place = self.places()["native"]
        agent, said = self.agent(place, "job", "127.0.0.1")
        status = ["status", *place, "--rdzv-id", "job"]
        rdzvtest.wait_until(lambda: "1 participant" in self.rdzv(*status).stdout, "the agent waits")
        other = self.node(place, "job", "127.0.0.2", "2")
        self.assertEqual(other.await_exit(), REFUSED, other.said())
        self.assertIn(f"'127.0.0.1_{agent.pid}_0' is an agent, as of 'rdzv run', and this node is none: ", other.said())
        rdzvtest.wait_until(lambda: f"'127.0.0.2_{other.process.pid}_0' has agent=no, this node yes" in said(), "the agent warns")

    def test_agents_with_other_numbers_of_restarts(self):
        for name, place in self.places().items():
            with self.subTest(name):
                run_id = f"{name}-{time.monotonic_ns()}"
                agents = [self.agent(place, run_id, f"127.0.0.{number}", "--max-restarts", str(number)) for number in (1, 3)]
                for process, said in agents:
                    self.assertEqual(process.wait(rdzvtest.DEADLINE), 0, said())
                told = "".join(said() for _, said in agents)
                self.assertRegex(told, r"'\S+' has max_restarts=[13], this node [13] \(use the same values on all nodes\)")


if __name__ == "__main__":
    rdzvtest.main()
