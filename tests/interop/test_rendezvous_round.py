# SPDX-License-Identifier: BSD-3-Clause
"""Rounds of PyTorch's nodes and ours together, wherever the store is; and what each reads of what the other wrote."""
import peers
from rendezvous_nodes import CLOSED, FAST, NO_HOST, SOON, Case

LOW, HIGH = ["127.0.0.1", "127.0.0.4"], ["127.0.0.3", "127.0.0.2"]  # whoever has LOW has the first rank and the last


class Rounds(Case):
    def check_round(self, place, theirs, ours):
        there, here = place.all(theirs, ours)
        first = self.assert_agree(there + here)
        self.assertEqual(first["round"], 0)
        self.assertEqual([name.split("_")[0] for _, name in first["members"]], sorted(theirs + ours))
        self.assertEqual(first["master"][0], "127.0.0.1")
        self.assertGreater(first["master"][1], 0)
        there[0].set("from-torch", "a")
        self.assert_done(place.store(0, "get", "from-torch"), "a\n")
        self.assert_done(place.store(0, "set", "from-ours", "b"))
        self.assertEqual([node.get("from-ours") for node in there], [b"b", b"b"])

    def test_rank_0_is_theirs(self):
        self.tell(lambda place: self.check_round(place, LOW, HIGH), (4, 4))

    def test_rank_0_is_ours(self):
        self.tell(lambda place: self.check_round(place, HIGH, LOW), (4, 4))

    def test_the_same_address_is_ordered_by_process(self):
        def story(place):
            theirs, ours = place.all(["127.0.0.1"] * 2, ["127.0.0.1"] * 2)
            self.assert_agree(theirs + ours)

        self.tell(story, (4, 4), ("torch", "join"))

    def test_last_call(self):
        """The round has its minimum; whoever comes last says when it ends, and all hold to it."""
        def story(place):
            theirs, ours = place.all(["127.0.0.1"], ["127.0.0.2"])
            self.assert_agree(theirs + ours)

        self.tell(story, (2, 8), last_call=1)

    def test_a_command_of_ours_in_the_round(self):
        script = "echo RANK=$RANK WORLD_SIZE=$WORLD_SIZE ROUND=$RDZV_ROUND MASTER=$MASTER_ADDR:$MASTER_PORT; exit 5"

        def story(place):
            theirs = place.theirs()
            ours = place.ours("127.0.0.2", ["--", "sh", "-c", script])
            theirs.join()
            addr, port = self.assert_agree([theirs, ours])["master"]
            self.assertEqual(ours.line(), f"RANK=1 WORLD_SIZE=2 ROUND=0 MASTER={addr}:{port}\n")
            self.assertEqual(ours.await_exit(), 5)

        self.tell(story, (2, 2), ("serve",))


class Closing(Case):
    def test_closed_by_ours(self):
        def story(place):
            (theirs,), (ours,) = place.all(["127.0.0.1"], ["127.0.0.2"])
            self.assert_agree([theirs, ours])
            place.close("--reason", "no more money")
            self.assertTrue(theirs.await_closed())
            with self.assertRaises(peers.TorchError) as caught:
                theirs.next()
            self.assertEqual(caught.exception.kind, "RendezvousClosedError")
            self.assertEqual(ours.await_exit(), CLOSED)
            self.assertIn("no more money", ours.said())

        self.tell(story, (2, 2), NO_HOST)

    def test_closed_by_theirs(self):
        def story(place):
            (theirs,), (ours,) = place.all(["127.0.0.1"], ["127.0.0.2"])
            self.assert_agree([theirs, ours])
            self.assertTrue(theirs.shutdown())
            self.assertEqual(ours.await_exit(), CLOSED)
            self.assertIn("the rendezvous is closed", ours.said())
            self.assertEqual(place.ours("127.0.0.3").await_exit(), CLOSED)  # for those who come later, too

        self.tell(story, (2, 2), NO_HOST)

    def test_closed_while_theirs_waits_for_others(self):
        def story(place):
            theirs = place.theirs().join()
            place.await_status(participants=1)
            place.close()
            with self.assertRaises(peers.TorchError) as caught:
                theirs.joined()
            self.assertEqual(caught.exception.kind, "RendezvousClosedError")

        self.tell(story, (2, 2), NO_HOST)


class Layouts(Case):
    """What is in the store, as stock pickle reads it."""

    def assert_like_own(self, place, theirs, nodes):
        """What ours wrote has the attributes that PyTorch's own objects have, in the same order, and one
        more, which PyTorch carries along."""
        written = theirs.written(place.run_id)
        self.assertTrue(written["class"])
        self.assertEqual(written["names"], [*written["own_names"], "rdzv_settings"])
        self.assertEqual(written["node_class"], {True})
        self.assertEqual(written["node_names"], {written["own_node_names"]})
        self.assertEqual(written["zones"], {"None" if place.version == "1.13" else "UTC"})
        self.assertEqual(written["nodes"], sorted(nodes))
        return written

    def test_a_state_that_ours_wrote_first(self):
        def story(place):
            theirs = place.theirs("127.0.0.2")
            ours = place.ours()
            alone = ours.joined()
            self.assertEqual((alone["round"], alone["world_size"]), (0, 1))
            written = self.assert_like_own(place, theirs, [alone["node"]])
            self.assertEqual(written["types"], [*written["own_types"], "dict"])
            theirs.join()
            self.assertEqual(self.assert_agree([theirs, ours])["round"], 1)

        self.tell(story, (1, 2), NO_HOST)

    def test_a_state_with_a_deadline_and_one_with_a_wait_list(self):
        def story(place):
            theirs = place.theirs("127.0.0.2")
            ours = place.ours(command=["--once"], last_call_timeout=60)
            place.await_status(participants=1)
            written = self.assert_like_own(place, theirs, [f"127.0.0.1_{ours.process.pid}_0"])
            self.assertEqual((written["round"], written["complete"]), (0, False))
            self.assertRegex(written["deadline"], r"^\d{4}-")
            first = self.assert_agree([theirs.join(), ours])
            self.assertEqual(ours.await_exit(), 0)  # from here on it is dead
            late = place.ours("127.0.0.3")
            place.await_status(participants=1, waiting=1, spares=0)
            self.assert_like_own(place, theirs, [first["members"][1][1], f"127.0.0.3_{late.process.pid}_0"])
            self.assertEqual(self.assert_agree([theirs.begin(SOON), late])["round"], 1)

        self.tell(story, (1, 2), ("serve",), keep_alive=FAST, last_call=30)  # which ends when both are there

    def test_ours_takes_the_layout_that_it_finds(self):
        """Without being told the version."""
        def story(place):
            theirs = place.theirs("127.0.0.2").join()
            place.await_status(participants=1)
            first = self.assert_agree([theirs, place.ours(torch_version=None)])
            place.await_status(torch_layout=place.version, complete=True)
            self.assert_like_own(place, theirs, [name for _, name in first["members"]])

        self.tell(story, (2, 2), ("torch", "serve"))


if __name__ == "__main__":
    peers.main()
