# SPDX-License-Identifier: BSD-3-Clause
"""Backend etcd-v3 at a real etcd, by the command: rounds, nodes that come, leave, die and sleep, spares, closing."""
import base64
import json
import os
import subprocess
import time

import etcd
import rdzvtest
from join_node import CLOSED
from leased_nodes import SHORT, Place, agree
from rdzvtest import wait_until


NEWER = os.path.join(rdzvtest.torch26_folder(), "usr/bin/etcd")  # 3.5


class Case(rdzvtest.Case):
    binary = "etcd"

    @classmethod
    def setUpClass(cls):
        etcd.need()

    def setUp(self):
        super().setUp()
        self.member = etcd.Member(self.folder, binary=self.binary).start()
        self.addCleanup(self.member.kill)
        self.member.await_ready()

    def place(self, *nodes, **keywords):
        return Place(self, self.member, nodes, **keywords)


def await_told(nodes, text):
    """Each of them is told so."""
    for node in nodes:
        node.await_event(text)


class Rounds(Case):
    def test_nodes_agree_and_their_keys_are_readable(self):
        place = self.place(3)
        nodes = [place.ours() for _ in range(3)]
        first = agree(self, nodes)
        self.assertEqual(first["round"], 0)
        keys = place.keys()
        world = json.loads(keys["world"])
        self.assertEqual((world["round"], world["size"]), (0, 3))
        names = {json.loads(value)["node"] for key, value in keys.items() if key.startswith("0/nodes/")}
        self.assertEqual(names, {name for _, name in first["members"]})
        self.assertEqual(first["master"], (world["master_addr"], world["master_port"]))

    def test_one_that_comes_late_makes_another_round(self):
        place = self.place(2, 4)
        nodes = [place.ours(), place.ours()]
        self.assertEqual(agree(self, nodes)["round"], 0)
        for node in nodes:
            node.stop()  # so that the third waits for a while
        third = place.ours()
        place.await_status(participants=2, waiting=1, spares=0)
        for node in nodes:
            node.go_on()
        nodes.append(third)
        self.assertGreaterEqual(agree(self, nodes)["round"], 1)

    def test_one_that_leaves_is_told_of_and_the_others_go_on(self):
        place = self.place(2, 3)
        nodes = [place.ours() for _ in range(3)]
        agree(self, nodes)
        self.assertEqual(nodes[0].leave(), 0, nodes[0].said())
        self.assertEqual(agree(self, nodes[1:])["round"], 1)
        await_told(nodes[1:], "a participant left the round")

    def test_one_that_is_killed_is_missed_within_its_lease_and_a_second(self):
        place = self.place(2, 3, lease=SHORT)
        nodes = [place.ours() for _ in range(3)]
        agree(self, nodes)
        nodes[0].kill()
        began = time.monotonic()
        rdzvtest.wait_until(lambda: any("a participant died" in event for node in nodes[1:] for event in node.events()),
                            "one hears of the death; the other may hear first that this one left for the next round")
        took = time.monotonic() - began
        agree(self, nodes[1:])
        self.assert_brief(took, SHORT + 20)  # bench/etcd measures it; a node of another backend takes longer

    def test_a_spare_takes_the_place_of_one_that_dies(self):
        place = self.place(2, 2, lease=SHORT)
        nodes = [place.ours(), place.ours()]
        agree(self, nodes)
        nodes.append(place.ours())
        place.await_status(participants=2, spares=1, waiting=0, complete=True)
        nodes.pop(0).kill()
        agree(self, nodes)

    def test_the_last_call_takes_those_who_come_in_time(self):
        place = self.place(2, 4, last_call=8)
        nodes = [place.ours(), place.ours()]
        place.await_status(participants=2, phase="last call")
        self.assertEqual([node["trip_us"] for node in place.status()["nodes"]], [None, None])  # of native nodes only
        nodes.append(place.ours())
        self.assertEqual(agree(self, nodes)["round"], 0)


class Sleep(Case):
    def test_a_node_that_slept_past_its_lease_says_that_its_place_is_lost(self):
        place = self.place(2, 3, lease=SHORT)
        nodes = [place.ours() for _ in range(3)]
        agree(self, nodes)
        nodes[0].stop()
        agree(self, nodes[1:])  # the others are told, and go on
        before = json.loads(place.keys()["world"])
        nodes[0].go_on()
        nodes[0].await_event("this node's place in the round is lost")
        self.assertGreaterEqual(json.loads(place.keys()["world"])["round"], before["round"])
        agree(self, nodes)  # and it comes back, with a lease of its own

    def test_the_oldest_that_sleeps_while_nodes_gather_does_not_hold_them_up(self):
        place = self.place(3, lease=SHORT)
        oldest = place.ours()
        wait_until(lambda: len(place.keys()) == 1, "it has joined")
        oldest.stop()
        nodes = [place.ours() for _ in range(3)]
        first = agree(self, nodes)
        self.assertEqual(first["world_size"], 3)
        oldest.go_on()
        place.await_status(participants=3, spares=1)


class Ends(Case):
    def test_closing_ends_it_for_all_with_the_reason(self):
        place = self.place(2)
        nodes = [place.ours(), place.ours()]
        agree(self, nodes)
        finished = place.rdzv("close", "--reason", "maintenance")
        self.assertEqual(finished.returncode, 0, finished.stderr)
        for node in nodes:
            self.assertEqual(node.await_exit(), CLOSED, node.said())
            self.assertIn("maintenance", node.said())
        late = place.ours()
        self.assertEqual(late.await_exit(), CLOSED)
        self.assertIn("maintenance", late.said())
        self.assertTrue(place.status()["closed"])

    def test_nothing_is_left_but_what_a_lease_will_end(self):
        place = self.place(2, lease=SHORT)
        nodes = [place.ours(), place.ours()]
        agree(self, nodes)
        for node in nodes:
            node.kill()
        wait_until(lambda: not any("/nodes/" in key for key in place.keys()), "the keys of dead nodes go")
        for key in place.keys():
            self.assertGreater(self.lease_of(place, key), 0, key)

    def lease_of(self, place, key):
        body = json.dumps({"key": base64.b64encode(f"/rdzv/{place.run_id}/{key}".encode()).decode()})
        answer = json.loads(self.member.open_body("POST", "/v3/kv/range", body.encode()))
        return int(answer["kvs"][0].get("lease", 0))

    def test_a_join_that_nobody_follows_ends_in_time_and_says_who_is_there(self):
        place = self.place(2)
        node = place.ours(join_timeout=rdzvtest.slow(2))
        self.assertNotEqual(node.await_exit(), 0)
        self.assertIn("join timed out: waiting for nodes: 1 of at least 2 have joined", node.said())
        self.assertEqual(place.keys(), {})  # without waiting for its lease to end


class Looking(Case):
    def test_the_status_follows(self):
        place = self.place(2)
        watching = self.start([rdzvtest.RDZV, "status", *place.arguments(), "--json", "--watch"],
                              stdout=subprocess.PIPE, text=True)
        nodes = [place.ours(), place.ours()]
        agree(self, nodes)
        for line in watching.stdout:
            status = json.loads(line)
            if status.get("complete"):
                break
        self.assertEqual(status["participants"], 2)


class Newer(Case):
    """With etcd 3.5."""

    binary = NEWER

    def setUp(self):
        if os.environ.get("RDZV_TORCH26") == "off":
            self.skipTest("switched off")
        if not os.path.exists(NEWER):
            rdzvtest.skip(f"there is no {NEWER}: scripts/torch26 setup adds it")
        super().setUp()

    def test_rounds_a_death_and_the_end(self):
        place = self.place(2, 3, lease=SHORT)
        nodes = [place.ours() for _ in range(3)]
        agree(self, nodes)
        nodes.pop().kill()
        agree(self, nodes)
        listed = self.rdzv("list", "--rdzv-backend", "etcd-v3", "--rdzv-endpoint", self.member.endpoint)
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertIn(f"{place.run_id} complete", listed.stdout)
        for node in nodes:
            self.assertEqual(node.leave(), 0, node.said())
        finished = place.rdzv("reset", "--force")
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertEqual(place.keys(), {})


if __name__ == "__main__":
    rdzvtest.main()
