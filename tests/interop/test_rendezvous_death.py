# SPDX-License-Identifier: BSD-3-Clause
"""Nodes of a mixed round are killed, PyTorch's and ours; both sides notice, and those who are left form another."""
import peers
from rendezvous_nodes import DEFAULTS, FAST, SOON, Case


class Deaths(Case):
    def assert_noticed(self, gone, ours):
        """PyTorch's nodes, whose times are FAST here, may be the first to find it dead: then it has left, to ours."""
        said = "\n".join(event for node in ours for event in node.events())
        self.assertRegex(said, f"a participant (died|left the round): {gone}")

    def test_one_of_theirs_is_replaced(self):
        def story(place):
            (stays, dies), ours = place.all(["127.0.0.1", "127.0.0.3"], ["127.0.0.2", "127.0.0.4"])
            self.assert_agree([stays, dies, *ours])
            gone = dies.name()
            stays.begin(SOON)
            dies.kill()
            comes = place.theirs("127.0.0.5").join()
            second = self.assert_agree([stays, comes, *ours])
            self.assertEqual(second["round"], 1)
            self.assertNotIn(gone, [name for _, name in second["members"]])
            # The second of ours may hear of the first, which joins again, instead.
            self.assert_noticed(gone, ours)

        self.tell(story, (4, 4), keep_alive=FAST)

    def test_one_of_ours_is_replaced(self):
        def story(place):
            theirs, (stays, dies) = place.all(["127.0.0.1", "127.0.0.3"], ["127.0.0.2", "127.0.0.4"])
            self.assert_agree([*theirs, stays, dies])
            for node in theirs:
                node.begin(SOON)
            dies.kill()
            comes = place.ours("127.0.0.5")
            self.assertEqual(self.assert_agree([*theirs, stays, comes])["round"], 1)
            self.assert_noticed(f"127.0.0.4_{dies.process.pid}_0", [stays])

        self.tell(story, (4, 4), keep_alive=FAST)

    def test_nobody_comes_instead(self):
        """Ours begins another round, and PyTorch's node, which would not by itself, follows."""
        def story(place):
            (stays, dies), (ours,) = place.all(["127.0.0.1", "127.0.0.2"], ["127.0.0.3"])
            self.assert_agree([stays, dies, ours])
            stays.begin(SOON)
            dies.kill()
            self.assertEqual(self.assert_agree([stays, ours])["round"], 1)

        self.tell(story, (2, 3), ("torch", "serve"), keep_alive=FAST)


class Defaults(Case):
    """All settings are as PyTorch has them, so that it takes its 15 s."""

    def test_one_of_theirs_and_one_of_ours_are_killed_and_replaced(self):
        def story(place):
            theirs, ours = place.all(["127.0.0.1", "127.0.0.3"], ["127.0.0.2", "127.0.0.4"])
            self.assert_agree([*theirs, *ours])
            self.assertEqual(theirs[0].keep_alive(), DEFAULTS)
            theirs[0].begin(SOON)
            theirs[1].kill()
            ours[1].kill()
            new = [place.theirs("127.0.0.5").join(), place.ours("127.0.0.6")]
            self.assertEqual(self.assert_agree([theirs[0], ours[0], *new])["round"], 1)

        self.tell(story, (3, 4), ("torch", "serve"), last_call=None)


if __name__ == "__main__":
    peers.main()
