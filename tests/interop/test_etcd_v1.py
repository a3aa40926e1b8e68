# SPDX-License-Identifier: BSD-3-Clause
"""Rounds of PyTorch's EtcdRendezvousHandler and `rdzv join --rdzv-backend etcd` together, through one etcd."""
import functools
import json
import os
import shutil
import subprocess
import tempfile
import unittest

import etcd
import peers
import rdzvtest
from etcd_v1_nodes import CLOSED, Place, agree, tell

etcd.need()
SOON = "next_when_some_wait"  # what PyTorch's agents do all the time


@functools.lru_cache(maxsize=None)
def torch_nodes():
    """Starts etcd_v1_peer.py, for all tests of this file; gives its socket's path."""
    folder = tempfile.mkdtemp(prefix="rdzv-torch-")
    unittest.addModuleCleanup(shutil.rmtree, folder)
    path = os.path.join(folder, "socket")
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    environment.pop("PYTHONPATH", None)  # our etcd.py has the name of python-etcd's module
    process = subprocess.Popen(rdzvtest.torch_python("1.13") + [os.path.join(peers.HERE, "etcd_v1_peer.py"), path],
                               cwd=rdzvtest.SOURCE, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    unittest.addModuleCleanup(peers.end_torch, process)
    if process.stdout.readline() != b"ready\n":
        raise RuntimeError("PyTorch 1.13 does not start")
    return path


def setUpModule():
    peers.need("1.13")
    etcd.shared()
    torch_nodes()


class Theirs(peers.TorchProcess):
    """A node of PyTorch; the methods are those of etcd_v1_peer.py's Node."""

    def __init__(self, case, place):
        super().__init__(torch_nodes())
        case.addCleanup(self.end)
        self.open(place.endpoints, place.run_id, place.nodes, timeout=60, last_call_timeout=place.last_call)

    def join(self):
        return self.begin("next")

    def joined(self):
        return self.finish()

    def end(self):
        """In whatever it is."""
        if not self.connection.closed:
            self.kill()


class Case(peers.Case):
    def place(self, nodes, **keywords):
        return Place(self, etcd.shared(), nodes, **keywords)

    def theirs(self, place):
        return Theirs(self, place)

    def agree(self, nodes):
        return agree(self, nodes)


class Rounds(Case):
    def test_rounds(self):
        tell(self, self.full_at_the_maximum,
             self.the_order_is_that_of_joining,
             self.last_call_is_ours,
             self.last_call_is_theirs,
             self.unknown_members_of_the_state_survive,
             self.what_is_ours_in_the_state_is_carried_along)

    def full_at_the_maximum(self):
        """In any order; both find where rank 0 is, and what the other wrote to the store."""
        for backend in "etcd", "etcd-v1":
            place = self.place((4, 4), backend=backend)
            there = [self.theirs(place) for _ in range(2)]
            here = [place.ours() for _ in range(2)]
            for node in there:
                node.join()
            first = self.agree(there + here)[0]
            self.assertEqual(first["round"], 1)
            self.assertGreater(first["master"][1], 0)
            self.check_store(place, there)

    def check_store(self, place, there):
        there[0].set("from-torch", "a/b")
        self.assert_done(place.store(1, "get", "from-torch"), "a/b\n")
        self.assert_done(place.store(1, "set", "from-ours", "b"))
        self.assertEqual([node.get("from-ours") for node in there], [b"b", b"b"])
        for node in there:
            node.begin("add_often", "n", 20)
        for _ in range(5):
            self.assert_done(place.store(1, "add", "n", "1"))
        self.assertLessEqual(max(node.finish() for node in there), 45)
        self.assert_done(place.store(1, "get", "n"), "45\n")

    def the_order_is_that_of_joining(self):
        place = self.place((3, 3))
        first = place.ours()
        place.await_active(status="joinable", participants=[0])
        second = self.theirs(place).join()
        place.await_active(participants=[0, 1])
        third = place.ours()
        self.assertEqual([node.joined()["rank"] for node in (first, second, third)], [0, 1, 2])

    def last_call_is_ours(self):
        """Who makes it enough calls, and whoever comes before the end is in."""
        place = self.place((2, 8), last_call=3)
        first = self.theirs(place).join()
        place.await_active(participants=[0])
        nodes = [first, place.ours()]
        place.await_active(participants=[0, 1])
        nodes += [place.ours(), self.theirs(place).join()]
        self.agree(nodes)

    def last_call_is_theirs(self):
        place = self.place((2, 8), last_call=3)
        first = place.ours()
        place.await_active(participants=[0])
        nodes = [first, self.theirs(place).join()]
        place.await_active(participants=[0, 1])
        nodes += [place.ours(), self.theirs(place).join()]
        self.agree(nodes)

    def unknown_members_of_the_state_survive(self):
        place = self.place((3, 3))
        first = self.theirs(place).join()
        place.await_active(participants=[0])
        more = {"ü": {"deep": [1, 2.5, None]}, "text": "a\"\\/\u2028"}
        text = place.text()
        place.swap(text, {**json.loads(text), **more})
        self.agree([first, place.ours(), place.ours()])
        final = place.await_active(status="final")
        self.assertEqual({name: final[name] for name in more}, more)
        self.assertEqual((final["version"], final["participants"], final["num_workers_waiting"]), ("1", [0, 1, 2], 0))
        self.assertEqual(sorted(final["keep_alives"]), [place.key(f"v_1/rank_{rank}") for rank in range(3)])


    def what_is_ours_in_the_state_is_carried_along(self):
        """By PyTorch, in all states: while one sets up, while nodes gather, where it is final and where it is closed."""
        place = self.place((3, 3))
        etcd.shared().put(place.key("active_version"), json.dumps({"status": "setup", "rdzv_setup": "me"}), ttl=2)
        first = self.theirs(place).join()
        place.await_active(status="joinable", participants=[0])  # of its own, after that has expired
        nodes = [first, place.ours()]
        joins = place.await_active(participants=[0, 1])["rdzv_joins"]
        self.assertEqual(list(joins.values()), [1])
        nodes.append(self.theirs(place).join())
        self.agree(nodes)
        active = place.await_active(status="final")
        self.assertIn(active.get("rdzv_joins"), [None, joins])  # whoever was the last to confirm
        place.swap(place.text(), {**active, "rdzv_joins": joins})
        self.theirs(place).join()
        place.await_active(num_workers_waiting=1, rdzv_joins=joins)
        first.shutdown()
        place.await_active(status="closed", rdzv_joins=joins)


class Extra(Case):
    def test_extra_data(self):
        """Of both, read by both."""
        place = self.place((2, 2))
        theirs = self.theirs(place).join()
        program = rdzvtest.built("tests/test_etcd_v1_handler")
        ours = self.start([program, "extra", place.endpoints, place.run_id, "ours", "ü", "theirs"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        theirs.joined()
        self.assertEqual(theirs.load_extra("ours"), "ü")
        theirs.store_extra("theirs", "a \"b\"")
        self.assert_done(self.finish_store(ours), "a \"b\"\n")
        self.assertEqual(place.extra(1), {"ours": "ü", "theirs": "a \"b\""})


class Changes(Case):
    def test_changes(self):
        tell(self, self.ours_waits_and_is_admitted,
             self.theirs_waits_for_a_round_of_ours,
             self.both_wait_for_a_round_of_theirs,
             self.ours_leaves,
             self.closed_by_theirs,
             self.closed_by_ours,
             self.one_is_killed_and_replaced)

    def ours_waits_and_is_admitted(self):
        place = self.place((2, 3), last_call=3)  # PyTorch sleeps a second after each try
        nodes = [self.theirs(place).join(), place.ours()]
        self.agree(nodes)
        nodes[0].begin(SOON)
        nodes.append(place.ours())
        self.assertEqual(self.agree(nodes)[0]["round"], 2)
        nodes[1].await_event("a node waits for the next round")

    def theirs_waits_for_a_round_of_ours(self):
        place = self.place((2, 3), last_call=3)  # the same
        nodes = [place.ours(), place.ours()]
        self.agree(nodes)
        self.assertEqual(self.agree([*nodes, self.theirs(place).join()])[0]["round"], 2)

    def both_wait_for_a_round_of_theirs(self):
        """PyTorch lets its lease lapse for the next round, which takes its time."""
        place = self.place((1, 3), last_call=2)
        first = self.theirs(place).join()
        first.joined()
        nodes = [place.ours(), self.theirs(place).join()]
        place.await_active(num_workers_waiting=2)
        self.assertEqual(self.agree([first.join(), *nodes])[0]["round"], 2)

    def ours_leaves(self):
        """Its key goes with it, so that the others need not wait for it to expire."""
        place = self.place((1, 3), last_call=2)
        theirs, stays, leaves = self.theirs(place).join(), place.ours(), place.ours()
        ranks = {id(node): node.joined()["rank"] for node in (theirs, stays, leaves)}
        self.assertEqual(leaves.leave(), 0)
        self.assertFalse(place.has(f"v_1/rank_{ranks[id(leaves)]}"))
        self.assertEqual(self.agree([theirs.join(), stays])[0]["round"], 2)
        stays.await_event(f"a participant died: rank_{ranks[id(leaves)]}")

    def closed_by_theirs(self):
        place = self.place((2, 2))
        nodes = [self.theirs(place).join(), place.ours()]
        self.agree(nodes)
        waits = place.ours()
        place.await_active(num_workers_waiting=1)
        self.assertTrue(nodes[0].shutdown())
        self.assertEqual([node.await_exit() for node in (nodes[1], waits)], [CLOSED, CLOSED])
        self.assertIn("closed", waits.said())

    def closed_by_ours(self):
        place = self.place((2, 2))
        nodes = [self.theirs(place).join(), place.ours()]
        self.agree(nodes)
        waits, late = self.theirs(place).join(), self.theirs(place)
        place.await_active(num_workers_waiting=1)
        self.assertFalse(late.is_closed())
        self.assert_done(place.rdzv("close", "--reason", "enough"))
        self.assertTrue(late.is_closed())
        for node in waits, late.join():
            with self.assertRaises(peers.TorchError) as caught:
                node.joined()
            self.assertEqual(caught.exception.kind, "RendezvousClosedError")
        self.assertEqual(nodes[1].await_exit(), CLOSED)

    def one_is_killed_and_replaced(self):
        """Keep-alives last 10 s, by the protocol."""
        one, two = self.place((3, 3)), self.place((3, 3))
        first = [self.theirs(one).join(), self.theirs(one).join(), one.ours()]
        second = [self.theirs(two).join(), two.ours(), two.ours()]
        ranks = {id(node): node.joined()["rank"] for node in first + second}
        first[1].kill()
        second[2].kill()
        first[2].await_event(f"a participant died: rank_{ranks[id(first[1])]}")
        second[1].await_event(f"a participant died: rank_{ranks[id(second[2])]}")
        self.assertEqual(self.agree([first[0].join(), first[2], one.ours()])[0]["round"], 2)
        self.assertEqual(self.agree([second[0].join(), second[1], self.theirs(two).join()])[0]["round"], 2)


if __name__ == "__main__":
    peers.main()
