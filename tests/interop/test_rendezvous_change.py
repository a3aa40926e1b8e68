# SPDX-License-Identifier: BSD-3-Clause
"""What happens after a round: nodes leave, come and wait, PyTorch's and ours; both sides see it and go on."""
import peers
from rendezvous_nodes import CLOSED, FAST, NO_HOST, SOON, Case


class Changes(Case):
    def test_one_of_ours_leaves(self):
        def story(place):
            (theirs,), (stays, leaves) = place.all(["127.0.0.1"], ["127.0.0.2", "127.0.0.3"])
            self.assert_agree([theirs, stays, leaves])
            theirs.begin(SOON)
            self.assertEqual(leaves.leave(), 0)
            self.assertEqual(self.assert_agree([theirs, stays])["round"], 1)
            self.assertIn(f"a participant left the round: 127.0.0.3_{leaves.process.pid}_0", stays.events())

        self.tell(story, (2, 3))

    def test_one_of_theirs_leaves(self):
        def story(place):
            (stays, leaves), (ours,) = place.all(["127.0.0.1", "127.0.0.2"], ["127.0.0.3"])
            self.assert_agree([stays, leaves, ours])
            stays.begin(SOON)
            leaves.leave()
            self.assertEqual(self.assert_agree([stays, ours])["round"], 1)
            self.assertIn(f"a participant left the round: {leaves.name()}", ours.events())

        self.tell(story, (2, 3), NO_HOST)

    def test_ours_waits_for_the_next_round(self):
        """And is its rank 0, which theirs has to hear."""
        def story(place):
            (theirs,), (ours,) = place.all(["127.0.0.1"], ["127.0.0.2"])
            self.assert_agree([theirs, ours])
            late = place.ours("127.0.0.0")
            self.assertGreaterEqual(theirs.await_some_waiting(), 1)
            self.assertEqual(self.assert_agree([theirs.join(), ours, late])["round"], 1)
            self.assertIn("a node waits for the next round", ours.events())

        self.tell(story, (2, 3))

    def test_theirs_waits_for_a_round_of_ours(self):
        """In which no PyTorch is."""
        def story(place):
            theirs = place.theirs("127.0.0.2")
            ours = [place.ours("127.0.0.1"), place.ours("127.0.0.3")]
            self.assert_agree(ours)
            self.assertEqual(self.assert_agree([theirs.join(), *ours])["round"], 1)
            self.assertIn("a node waits for the next round", ours[0].events() + ours[1].events())

        self.tell(story, (2, 3), ("torch", "serve"))

    def test_the_state_is_lost(self):
        """Whoever makes the new one: with a node of ours in it, the round has a number that was not given before."""
        def story(place):
            (theirs,), (ours,) = place.all(["127.0.0.1"], ["127.0.0.2"])
            self.assert_agree([theirs, ours])
            theirs.lose(place.run_id)
            self.assertEqual(self.assert_agree([theirs.join(), ours])["round"], 1)
            heard = ours.events()  # one that polls may see no more than the new state, which has no member but the other
            self.assertTrue(any(line.startswith(("the round goes on without this node", "a participant left the round"))
                                for line in heard), heard)

        self.tell(story, (2, 2), ("torch", "serve", "file"))


class Masters(Case):
    """Where rank 0 is, in the second round of its life."""

    def test_theirs_says_it_anew(self):
        """The port is another one in each round: 1.13's agents do so, and 2.6 if it does not share its store."""
        def story(place):
            (theirs,), (ours,) = place.all(["127.0.0.1"], ["127.0.0.2"])
            first = self.assert_agree([theirs, ours])
            theirs.begin(SOON)
            second = self.assert_agree([theirs, ours, place.ours("127.0.0.3")])
            self.assertNotEqual(first["master"], second["master"])

        self.tell(story, (2, 3), ("torch", "serve"))

    def test_theirs_has_said_it_once(self):
        """2.6 shares one store with the workers of all rounds, unless told otherwise, and tells the first only."""
        def story(place):
            (theirs,), (ours,) = place.all(["127.0.0.1"], ["127.0.0.2"])
            first = self.assert_agree([theirs, ours])
            theirs.begin(SOON)
            second = self.assert_agree([theirs, ours, place.ours("127.0.0.3")])
            self.assertEqual(first["master"], second["master"])

        self.tell(story, (2, 3), ("torch", "serve"), ("2.6",), shared=True)


class Spares(Case):
    """More nodes than the maximum. 1.13 has no list of them: they are not to be seen, and look for room."""

    @staticmethod
    def await_spares(place, count):
        place.await_status(complete=True, participants=2, waiting=0, spares=0 if place.version == "1.13" else count)

    def test_ours_takes_over(self):
        def story(place):
            stays, leaves = place.theirs("127.0.0.1").join(), place.theirs("127.0.0.2").join()
            self.assert_agree([stays, leaves])
            spare = place.ours("127.0.0.3")
            self.await_spares(place, 1)
            stays.begin(SOON)
            leaves.leave()
            self.assertEqual(self.assert_agree([stays, spare])["round"], 1)

        self.tell(story, (2, 2), NO_HOST)

    def test_theirs_takes_over(self):
        def story(place):
            spare = place.theirs("127.0.0.2")
            stays, leaves = place.ours("127.0.0.1"), place.ours("127.0.0.3")
            self.assert_agree([stays, leaves])
            spare.join()
            self.await_spares(place, 1)
            self.assertEqual(leaves.leave(), 0)
            self.assertEqual(self.assert_agree([spare, stays])["round"], 1)

        self.tell(story, (2, 2), NO_HOST)

    def test_closed_while_both_are_spares(self):
        def story(place):
            (theirs,), (ours,) = place.all(["127.0.0.1"], ["127.0.0.2"])
            self.assert_agree([theirs, ours])
            here, there = place.ours("127.0.0.3"), place.theirs("127.0.0.4").join()
            self.await_spares(place, 2)
            place.close()
            with self.assertRaises(peers.TorchError) as caught:
                there.joined()
            expected = "RendezvousClosedError" if place.version == "1.13" else "RendezvousGracefulExitError"
            self.assertEqual(caught.exception.kind, expected)
            self.assertEqual(here.await_exit(), CLOSED if place.version == "1.13" else 0)

        self.tell(story, (2, 2), ("torch", "serve"))

    def test_both_take_over_from_the_dead(self):
        """The whole round dies at once."""
        def story(place):
            place.theirs("127.0.0.9")  # which has the store at a "torch" place, and does not join
            (theirs,), (ours,) = place.all(["127.0.0.1"], ["127.0.0.2"])
            self.assert_agree([theirs, ours])
            spares = [place.ours("127.0.0.3"), place.theirs("127.0.0.4").join()]
            self.await_spares(place, 2)
            theirs.kill()
            ours.kill()
            self.assertEqual(self.assert_agree(spares)["round"], 1)

        self.tell(story, (2, 2), NO_HOST, keep_alive=FAST)


if __name__ == "__main__":
    peers.main()
