# SPDX-License-Identifier: BSD-3-Clause
"""`rdzv join --rdzv-backend etcd` among themselves: what happens when etcd is gone, comes back or is another; when its
leader dies; when what is in it is wrong. PyTorch is in tests/interop/test_etcd_v1.py."""
import json
import time

import etcd
import etcd_wire
import rdzvtest
from etcd_v1_nodes import CLOSED, LEASE, Place, agree, tell
from rdzvtest import wait_until

etcd.need()
REFUSED = 6  # what `rdzv join` exits with
SECONDS = 8  # "back within seconds", on a machine that has other things to do


class Case(rdzvtest.Case):
    def place(self, nodes, member=None, **keywords):
        return Place(self, member or etcd.shared(), nodes, **keywords)

    def agree(self, nodes):
        return agree(self, nodes)

    def assert_exit(self, finished, code, *sentences):
        self.assertEqual((finished.returncode, finished.stdout), (code, ""), finished.stderr)
        for sentence in sentences:
            self.assertRegex(finished.stderr, sentence)


class Differ(Case):
    """Nodes of a run that differ in --nnodes."""

    def name(self, node):
        return f"127.0.0.1_{node.process.pid}"

    def test_the_later_node_fails_at_once(self):
        place = self.place((3, 4))
        first = place.ours()
        place.await_active(participants=[0])
        start = time.monotonic()
        second = place.ours(nodes=(1, 2))
        self.assertEqual(second.await_exit(), REFUSED, second.said())
        self.assert_within(start, 3)
        here = f"'{self.name(first)}' has nnodes=3:4, this node 1:2 (use the same values on all nodes)"
        self.assertIn(f"cannot join the rendezvous: the --nnodes ranges of these nodes do not overlap: {here}", second.said())
        self.assertIn(f"warning: {here}", second.said())
        self.agree([first, place.ours(), place.ours()])

    def test_both_are_warned_where_a_round_can_have_both(self):
        place = self.place((2, 3))
        first = place.ours()
        place.await_active(participants=[0])
        second = place.ours(nodes=(2, 4))
        self.agree([first, second])
        first.await_said(f"warning: '{self.name(second)}' has nnodes=2:4, this node 2:3")
        second.await_said(f"warning: '{self.name(first)}' has nnodes=2:3, this node 2:4")

    def test_a_node_that_left_does_not_make_another_fail(self):
        place = self.place((3, 3))
        first = place.ours()
        place.await_active(participants=[0])
        self.assertEqual(first.leave(), 0)
        self.agree([place.ours(nodes=(2, 2)), place.ours(nodes=(2, 2))])

    def test_a_round_of_pytorch_nodes_that_is_too_small(self):
        """PyTorch's nodes have no entry: all that is known is the size of the round."""
        place = self.place((3, 4))
        node = place.ours()
        active = place.await_active(participants=[0])
        place.swap(place.text(), {**active, "status": "frozen", "participants": [0, 1], "keep_alives": []}, ttl=LEASE)
        self.assertEqual(node.await_exit(), REFUSED, node.said())
        self.assertIn("cannot join the rendezvous: round 1 has 2 nodes, and this node has nnodes=3:4", node.said())
        self.assertFalse(place.has("v_1/rank_0"))


class Waits(Case):
    def test_the_time_left_of_a_last_call_is_its_own(self):
        """The node that ends the call knows the time. The others do not, and tell none."""
        place = self.place((2, 3), last_call=8)
        first = place.ours()
        place.await_active(participants=[0])
        second = place.ours()
        line = "waiting for the end of the last call: 2 of at most 3 nodes have joined"
        for node in first, second:
            node.await_said(line)
        self.assertLess(int(second.said().partition(line + "; ")[2].split()[0]), place.last_call)
        self.assertNotIn(line + ";", first.said())


class Rounds(Case):
    def test_ranks_and_versions(self):
        """Eight at once; then all again, since one more comes."""
        place = self.place((2, 9), last_call=2)
        nodes = [place.ours() for _ in range(8)]
        self.assertEqual(self.agree(nodes)[0]["round"], 1)
        nodes.append(place.ours())
        self.assertEqual(self.agree(nodes)[0]["round"], 2)
        for node in nodes:
            self.assertEqual(node.leave(), 0)

    def test_one_leaves_and_the_others_go_on_at_once(self):
        place = self.place((1, 3), last_call=1)
        nodes = [place.ours() for _ in range(3)]
        self.agree(nodes)
        self.assertEqual(nodes.pop().leave(), 0)
        start = time.monotonic()
        self.assertEqual(self.agree(nodes)[0]["round"], 2)
        self.assert_within(start, LEASE / 2 + place.last_call)

    def test_names_with_odd_characters(self):
        place = self.place((2, 2), run_id=f"a b/ü%2f?&#+{time.monotonic_ns()}")
        nodes = [place.ours(), place.ours()]
        self.agree(nodes)
        self.assertEqual(place.await_active(status="final")["keep_alives"][0][:len(place.root)], place.root)
        nodes.append(place.ours(nodes=(2, 3)))
        place.await_active(num_workers_waiting=1)
        self.assertEqual([node.leave() for node in nodes], [0, 0, 0])

    def test_a_name_that_is_too_long(self):
        self.assert_exit(self.place((1, 1), run_id="x" * 395).rdzv("join"), 6, "too long")

    def test_by_another_prefix(self):
        place = self.place((1, 1), etcd_prefix="//mine/of/old/")
        place.ours().joined()
        self.assertIsNone(etcd.shared().node(place.root))
        place.root = f"/mine/of/old/run_{place.run_id}"
        self.assertEqual(place.active()["status"], "final")
        self.assertLessEqual(etcd.shared().node(place.root)["ttl"], 7200)

    def test_by_its_other_name(self):
        place = self.place((1, 1), backend="etcd-v1")
        self.assertEqual(place.ours().joined()["backend"], "etcd-v1")

    def test_the_directory_of_the_run_is_renewed(self):
        """Also where another made it, long ago."""
        place = self.place((1, 1))
        etcd.shared().open("PUT", f"/v2/keys{place.root}", {"dir": "true", "ttl": 60})
        place.ours().joined()
        wait_until(lambda: place.seconds_left() > 7000, "the directory is renewed")

    def test_a_command_is_run_in_the_round(self):
        place = self.place((1, 1))
        finished = place.rdzv("join", "--", "sh", "-c", "echo $RANK $WORLD_SIZE $RDZV_ROUND; exit 5")
        self.assertEqual((finished.returncode, finished.stdout.splitlines()[-1]), (5, "0 1 1"))
        self.assertFalse(place.has("v_1/rank_0"))  # it has left

    def test_who_waits_is_told_to_one_who_joined_late(self):
        """It announced itself before the last member knew that the round is complete."""
        place = self.place((2, 3), last_call=1)
        ours = place.ours()
        active = place.await_active(participants=[0])
        active = {**active, "status": "frozen", "participants": [0, 1], "keep_alives": []}
        place.swap(place.text(), active)
        active = place.await_active(keep_alives=[place.key("v_1/rank_0")])
        etcd.shared().put(place.key("v_1/rank_1"), "rdzv")
        active = {**active, "status": "final", "num_workers_waiting": 1}
        active["keep_alives"].append(place.key("v_1/rank_1"))
        place.swap(place.text(), active)
        self.assertEqual(ours.joined()["world_size"], 2)
        ours.await_event("a node waits for the next round")
        place.await_active(status="joinable", version="2")


class Commands(Case):
    def test_status_and_close(self):
        place = self.place((2, 3), last_call=1)
        finished = place.rdzv("status")
        self.assertEqual(finished.returncode, 1)
        self.assertIn("no node has joined yet", finished.stdout)
        nodes = [place.ours(), place.ours()]
        self.agree(nodes)
        facts = {"exists": True, "complete": True, "closed": False, "round": 1, "participants": 2, "waiting": 0}
        status = place.status()
        self.assertEqual({name: status[name] for name in facts}, facts)
        self.assertEqual([(node["node"], node["rank"]) for node in status["nodes"]], [("rank_0", 0), ("rank_1", 1)])
        self.assertEqual((place.rdzv("close").returncode, place.status()["closed"]), (0, True))
        self.assertEqual([node.await_exit() for node in nodes], [CLOSED, CLOSED])
        self.assert_exit(place.rdzv("join"), CLOSED, "the rendezvous is closed")
        self.assertEqual(place.rdzv("close").returncode, 0)  # once more
        self.assertIn("closed", place.rdzv("status").stdout)

    def facts(self, place):
        status = place.status()
        return tuple(status[name] for name in ("phase", "participants", "min_nodes", "max_nodes"))

    def test_status_has_the_nnodes_of_the_run(self):
        place = self.place((2, 3), last_call=60)
        nodes = [place.ours()]
        place.await_active(participants=[0])
        self.assertEqual(self.facts(place), ("gathering", 1, 2, 3))
        nodes.append(place.ours())
        place.await_active(participants=[0, 1])
        self.assertEqual(self.facts(place), ("last call", 2, 2, 3))
        self.assertIn("(min 2, max 3)", place.rdzv("status").stdout)

    def test_status_of_pytorch_nodes_has_no_nnodes(self):
        place = self.place((1, 1))
        active = {"status": "joinable", "version": "1", "participants": [0]}
        etcd.shared().put(place.key("active_version"), json.dumps(active))
        self.assertEqual(self.facts(place), ("gathering", 1, None, None))
        self.assertNotIn("min", place.rdzv("status").stdout)

    def test_status_after_all_nodes_died(self):
        """The state of a final round stays; the keep-alives of its nodes end."""
        place = self.place((2, 2))
        nodes = [place.ours(), place.ours()]
        self.agree(nodes)
        self.assertEqual(self.facts(place), ("complete", 2, 2, 2))
        for node in nodes:
            node.stop()  # neither begins a round without the other
        for node in nodes:
            node.kill()
        wait_until(lambda: self.facts(place) == ("ended", 0, 2, 2), "the keep-alives end")

    def test_status_of_those_who_wait(self):
        place = self.place((1, 1))
        place.ours().joined()
        place.ours()
        place.await_active(num_workers_waiting=1)
        self.assertEqual((place.status()["waiting"], place.status()["participants"]), (1, 1))
        self.assertIn("1 waiting", place.rdzv("status").stdout)

    def test_who_looks_leaves_nothing(self):
        place = self.place((1, 1))
        self.assertEqual(place.rdzv("status").returncode, 1)
        self.assertIsNone(etcd.shared().node(place.root))

    def test_closed_before_anybody_came(self):
        """It is closed for those who come, but not for ever."""
        place = self.place((1, 1))
        self.assertEqual(place.rdzv("close").returncode, 0)
        self.assertEqual(place.active(), {"status": "closed"})
        self.assertGreater(place.seconds_left(), 7000)
        self.assert_exit(place.rdzv("join"), CLOSED, "closed")

    def test_sigterm_while_joining(self):
        """Wherever it is: alone, in the last call, waiting for another round."""
        alone, call, full = self.place((2, 2)), self.place((1, 2), last_call=50), self.place((1, 1))
        full.ours().joined()
        nodes = [alone.ours(), call.ours(), full.ours()]
        alone.await_active(participants=[0])
        call.await_active(participants=[0])
        full.await_active(num_workers_waiting=1)
        for node in nodes:
            start = time.monotonic()
            self.assertEqual(node.leave(), 0)
            self.assert_within(start, 3)

    def test_sigterm_while_rank_0_does_not_say_where_it_is(self):
        member = etcd.start(self.addCleanup)
        place = self.place((2, 2), member)
        member.put(place.key("active_version"),
                   json.dumps({"status": "joinable", "version": "1", "participants": [0]}))
        node = place.ours()
        active = place.await_active(keep_alives=[place.key("v_1/rank_1")])
        member.put(place.key("v_1/rank_0"), "")
        active["keep_alives"].append(place.key("v_1/rank_0"))
        missed = member.counts()["getsFail"]
        place.swap(place.text(), {**active, "status": "final", "num_workers_waiting": 0})
        rdzvtest.wait_until(lambda: member.counts()["getsFail"] > missed and member.counts()["watchers"],
                            "it does not find the address, and waits for it")
        start = time.monotonic()
        self.assertEqual(node.leave(), 0)
        self.assert_within(start, 3)


class Wrong(Case):
    """What is in etcd is not what it should be."""

    def test_nobody_else_comes(self):
        place = self.place((2, 3))
        self.assert_exit(place.rdzv("join", "--nnodes", "2:3", timeout=rdzvtest.slow_int(2)), 4, f"at etcd .*{place.run_id}",
                         "cannot join the rendezvous: join timed out: 1 of at least 2 nodes joined")

    def test_the_round_is_full(self):
        place = self.place((1, 1))
        place.ours().joined()
        self.assert_exit(place.rdzv("join", timeout=rdzvtest.slow_int(2)), 4, "join timed out: .*round '1' is final")

    def test_no_state_of_a_rendezvous(self):
        texts = {"": "not JSON", "{": "not JSON", "[]": "not an object", "7": "not JSON|not an object",
                 '{"status": "odd"}': "status", '{"status": 1}': "status", '{"status": "joinable"}': "no version",
                 '{"status": "final", "version": "x"}': "version is not a number",
                 '{"status": "joinable", "version": "1", "participants": 3}': "not a list",
                 '{"status": "final", "version": "1", "participants": [0], "keep_alives": [0]}': "wrong type",
                 '{"status": "final", "version": "1", "participants": [0], "keep_alives": []}': "num_workers_waiting"}
        place = self.place((1, 1))
        for text, sentence in texts.items():
            with self.subTest(text):
                etcd.shared().put(place.key("active_version"), text)
                for command in "join", "status", "close":
                    self.assert_exit(place.rdzv(command), 6, "state of the rendezvous in etcd is", sentence)

    def test_it_becomes_wrong_while_we_are_in_it(self):
        place = self.place((1, 1))
        node = place.ours()
        node.joined()
        etcd.shared().put(place.key("active_version"), "{broken")
        self.assertEqual(node.await_exit(), 6)
        self.assertIn("the state of the rendezvous in etcd is not JSON", node.said())

    def test_a_folder_where_the_state_should_be(self):
        place = self.place((1, 1))
        etcd.shared().open("PUT", f"/v2/keys{place.key('active_version')}", {"dir": "true"})
        for command in "join", "status", "close":
            self.assert_exit(place.rdzv(command), 6, "state of the rendezvous in etcd is")

    def test_no_etcd(self):
        place = self.place((1, 1), endpoints=f"127.0.0.1:{etcd.free_port()}", read_timeout=rdzvtest.slow_int(1))
        self.assert_exit(place.rdzv("join"), 3, "127.0.0.1:")


class Leases(Case):
    """And etcd itself, which goes and comes."""

    def test_leases(self):
        tell(self, self.our_key_is_deleted,
             self.of_those_who_are_killed_and_those_who_are_not,
             self.survive_etcd_being_gone_for_a_while,
             self.etcd_is_gone_while_joining,
             self.etcd_comes_back_without_its_data,
             self.the_same_place_is_given_away)

    def our_key_is_deleted(self):
        """The others take us for dead; we say so, and come again."""
        place = self.place((1, 2), last_call=1)
        node = place.ours()
        node.joined()
        place.delete("v_1/rank_0")
        self.assertEqual(node.joined()["round"], 2)
        node.await_event("this node's place in the round is lost")

    def of_those_who_are_killed_and_those_who_are_not(self):
        """After more than a lease's time the round is still there; then one is killed, and one comes instead."""
        place = self.place((2, 2))
        nodes = [place.ours(), place.ours()]
        ranks = [node.joined()["rank"] for node in nodes]
        text = place.text()
        for rank in ranks:
            place.await_renewed(f"v_1/rank_{rank}", LEASE)
        self.assertEqual(place.text(), text)
        self.assertTrue(all(place.has(f"v_1/rank_{rank}") for rank in ranks))
        nodes[0].kill()
        nodes[1].await_event(f"a participant died: rank_{ranks[0]}")
        nodes[0] = place.ours()
        self.assertEqual(self.agree(nodes)[0]["round"], 2)

    def survive_etcd_being_gone_for_a_while(self):
        """It stops for some seconds, and is killed and started again with its data; nobody is lost."""
        member = etcd.start(self.addCleanup)
        place = self.place((2, 2), member)
        nodes = [place.ours(), place.ours()]
        self.agree(nodes)
        text = place.text()
        member.pause()
        time.sleep(4)  # so long nobody hears from it: the story itself
        member.resume()
        member.kill()
        member.start().await_ready()
        for rank in range(2):
            place.await_renewed(f"v_1/rank_{rank}", LEASE)
        self.assertEqual(place.text(), text)
        self.assertTrue(place.has("v_1/rank_0") and place.has("v_1/rank_1"))
        self.assertEqual(place.rdzv("close").returncode, 0)
        self.assertEqual([node.await_exit() for node in nodes], [CLOSED, CLOSED])

    def etcd_is_gone_while_joining(self):
        """The time to join holds also then, and the reason is told."""
        member = etcd.start(self.addCleanup)
        place = self.place((3, 3), member)
        seconds = rdzvtest.slow_int(6)
        late, patient = place.ours(timeout=seconds), place.ours()
        place.await_active(participants=[0, 1])
        member.pause()
        start = time.monotonic()
        self.assertEqual(late.await_exit(), 4)
        self.assert_within(start, seconds + 7)
        self.assertIn("join timed out", late.said())
        member.resume()
        self.assertEqual(patient.leave(), 0)

    def etcd_comes_back_without_its_data(self):
        """A fresh round for members, and for those who wait."""
        member = etcd.start(self.addCleanup)
        joined, waiting = self.place((2, 2), member), self.place((2, 2), member)
        nodes, early = [joined.ours(), joined.ours()], waiting.ours()
        self.agree(nodes)
        waiting.await_active(participants=[0])
        member.kill()
        member.wipe()
        member.start().await_ready()
        start = time.monotonic()
        self.agree(nodes)
        self.agree([early, waiting.ours()])
        self.assert_within(start, LEASE + SECONDS + joined.last_call)
        self.assertGreater(min(joined.seconds_left(), waiting.seconds_left()), 7000)  # made anew with its time
        self.assertEqual([node.leave() for node in (*nodes, early)], [0, 0, 0])

    def the_same_place_is_given_away(self):
        """etcd comes back empty, and somebody else is rank 0 of version 1 before we look."""
        member = etcd.start(self.addCleanup)
        place = self.place((1, 2), member, last_call=1)
        first = place.ours()
        self.assertEqual(first.joined()["rank"], 0)
        first.stop()
        member.kill()
        member.wipe()
        member.start().await_ready()
        second = place.ours()
        joined = second.joined()
        self.assertEqual((joined["round"], joined["rank"], joined["world_size"]), (1, 0, 1))
        first.go_on()
        self.assertEqual(self.agree([first, second])[0]["round"], 2)


class Unanswered(Case):
    """etcd does what it is asked for, and the answer is lost. Who asked finds out, and nobody waits for it."""

    # What it is that the value, or for a keep-alive the path, has for the first time.
    STEPS = {"setting up": b"rdzv_setup", "publishing": b"participants%22%3A%20%5B%5D", "joining": b"rdzv_joins",
             "confirming": b"keep_alives%22%3A%20%5B%22"}

    def lose_once(self, sign):
        lost = []

        def rule(method, path, body):
            if method == "PUT" and sign in body and not lost:
                lost.append(path)
                return etcd_wire.CLOSE_AFTER
            return None

        proxy = etcd_wire.Proxy(etcd.shared().port, rule)
        self.addCleanup(proxy.close)
        return proxy, lost

    def test_each_step(self):
        for step, sign in self.STEPS.items():
            with self.subTest(step):
                proxy, lost = self.lose_once(sign)
                place = self.place((2, 2))
                through = self.place((2, 2), endpoints=proxy.endpoint, run_id=place.run_id)
                start = time.monotonic()
                first = through.ours()
                wait_until(lambda: lost or place.active().get("participants"), "the first is on its way")
                self.assertEqual(self.agree([first, place.ours()])[0]["round"], 1)
                self.assert_within(start, LEASE / 2 + place.last_call)
                self.assertEqual(lost, [f"/v2/keys{place.key('active_version')}"])


class Leader(Case):
    """The leader of a cluster of three is killed."""

    def setUp(self):
        super().setUp()
        etcd.shared_cluster().heal()

    def cluster_place(self, nodes, **keywords):
        cluster = etcd.shared_cluster()
        follower = next(member for member in cluster.members if member is not cluster.leader())
        return self.place(nodes, follower, endpoints=cluster.endpoints, **keywords)

    def kill_leader_and_agree(self, place, nodes):
        etcd.shared_cluster().kill_leader()
        start = time.monotonic()
        self.agree(nodes)
        self.assert_within(start, LEASE + SECONDS + place.last_call)

    def test_during_the_join(self):
        place = self.cluster_place((8, 8))
        nodes = [place.ours() for _ in range(4)]
        wait_until(lambda: place.active().get("participants"), "one has joined")
        nodes += [place.ours() for _ in range(4)]
        self.kill_leader_and_agree(place, nodes)

    def test_during_the_last_call(self):
        place = self.cluster_place((2, 8), last_call=6)
        nodes = [place.ours() for _ in range(3)]
        place.await_active(status="joinable", participants=[0, 1, 2])
        self.kill_leader_and_agree(place, nodes)

    def test_while_one_waits(self):
        place = self.cluster_place((2, 2))
        nodes = [place.ours(), place.ours()]
        self.agree(nodes)
        waits = place.ours()
        place.await_active(num_workers_waiting=1)
        etcd.shared_cluster().kill_leader()
        for rank in range(2):  # at another member
            place.await_renewed(f"v_1/rank_{rank}", 1)
        self.assertEqual(place.active()["version"], "1")
        self.assertTrue(place.has("v_1/rank_0") and place.has("v_1/rank_1"))
        self.assertEqual(nodes.pop().leave(), 0)
        start = time.monotonic()
        self.assertEqual(self.agree([*nodes, waits])[0]["round"], 2)
        self.assert_within(start, SECONDS + place.last_call)


if __name__ == "__main__":
    rdzvtest.main()
