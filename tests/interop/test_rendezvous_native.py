# SPDX-License-Identifier: BSD-3-Clause
"""Three kinds of nodes in one rendezvous at `rdzv serve`: PyTorch's, ours by the blob (swap), ours by a session (native).
Each story is told once for each kind: that kind dies, leaves, waits, is a spare, closes, completes the round, is rank 0."""
import json
import subprocess

import peers
import rdzvtest
from rendezvous_nodes import FAST, SOON, Case, Place

KINDS = ("theirs", "swap", "native")
THEIRS, OURS = 64, 1000


class Three(Place):
    """A rendezvous of one node of each kind; `who` is the one that the story is about."""

    def __init__(self, case, version, who, nodes, **keywords):
        super().__init__(case, version, "serve", nodes, **keywords)
        self.who = who
        self.run_id += f"-{who}"
        self.others = [kind for kind in KINDS if kind != who]

    def node(self, kind, addr):
        """Joins at once."""
        return self.theirs(addr).join() if kind == "theirs" else self.ours(addr, mode=kind)

    def round(self, *kinds):
        """Nodes of these kinds, which form a round; in their order, with rising addresses."""
        nodes = [self.node(kind, f"127.0.0.{place + 2}") for place, kind in enumerate(kinds)]
        self.case.assert_agree(nodes)
        return nodes

    def follow(self, kinds, nodes):
        """PyTorch's agents look for waiting nodes by themselves, ours are told."""
        for kind, node in zip(kinds, nodes):
            if kind == "theirs":
                node.begin(SOON)

    def leave(self, node):
        if self.who == "theirs":
            node.leave()
        else:
            self.case.assertEqual(node.leave(), 0)


class Kinds(Case):
    def tell_at(self, story, version, kind, nodes, keywords):
        story(Three(self, version, kind, nodes, **keywords))

    def each(self, story, nodes, **keywords):
        self.tell(story, nodes, KINDS, **keywords)

    def test_it_is_rank_0(self):
        def story(place):
            place.round(place.who, *place.others)
            ways = [node["way"] for node in place.await_status(complete=True)["nodes"]]
            self.assertEqual(sorted(ways), ["PyTorch", "native", "swap"])

        self.each(story, (3, 3))

    def test_it_completes_the_round(self):
        def story(place):
            nodes = [place.node(kind, f"127.0.0.{at + 2}") for at, kind in enumerate(place.others)]
            place.await_status(participants=2, complete=False)
            self.assert_agree([*nodes, place.node(place.who, "127.0.0.9")])

        self.each(story, (3, 3))

    def test_it_leaves(self):
        def story(place):
            *stay, leaves = place.round(*place.others, place.who)
            place.follow(place.others, stay)
            place.leave(leaves)
            self.assertEqual(self.assert_agree(stay)["round"], 1)

        self.each(story, (2, 3))

    def test_it_dies(self):
        def story(place):
            *stay, dies = place.round(*place.others, place.who)
            place.follow(place.others, stay)
            dies.kill()
            self.assertEqual(self.assert_agree(stay)["round"], 1)

        self.each(story, (2, 3), keep_alive=FAST)

    def test_it_waits_for_the_next_round(self):
        def story(place):
            nodes = place.round(*place.others)
            place.follow(place.others, nodes)
            late = place.node(place.who, "127.0.0.1")
            self.assertEqual(self.assert_agree([late, *nodes])["round"], 1)

        self.each(story, (2, 3))

    def test_it_is_a_spare_and_takes_over(self):
        """The one that leaves is the kind before it, so that each kind gives its place to another."""
        def story(place):
            stays, leaves = place.round(*place.others)
            spare = place.node(place.who, "127.0.0.9")
            place.await_status(participants=2, waiting=0, spares=0 if place.version == "1.13" else 1)
            place.follow(place.others[:1], [stays])
            place.who = place.others[1]
            place.leave(leaves)
            self.assertEqual(self.assert_agree([stays, spare])["round"], 1)

        self.each(story, (2, 2))

    def test_it_closes(self):
        def story(place):
            nodes = dict(zip(KINDS, place.round(*KINDS)))
            if place.who == "theirs":
                self.assertTrue(nodes["theirs"].shutdown())
            else:
                done = self.rdzv("close", *place.arguments(torch_version=None, mode=place.who), "--reason", "enough")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertTrue(nodes["theirs"].await_closed())
            for kind in ("swap", "native"):
                nodes[kind].await_exit()
                self.assertIn("closed", nodes[kind].said())

        self.each(story, (3, 3))


class Crowd(Case):
    """64 PyTorch nodes and 1000 native ones, which are handlers in the threads of one program."""

    def test_64_and_1000_form_one_world(self):
        def story(place):
            theirs = [place.theirs(f"127.0.1.{number}").join() for number in range(THEIRS)]
            place.await_status(participants=THEIRS)
            joiners = self.start([rdzvtest.built("bench/joiners"), "--endpoint", place.endpoint, "--run-id",
                                  place.run_id, "--nodes", str(OURS), "--others", str(THEIRS), "--conf",
                                  "is_host=false,mode=native", "--limit", "240", "--hold"],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.assertEqual(json.loads(joiners.stdout.readline())["joined"], OURS)
            results = [node.joined() for node in theirs]
            self.assertEqual({(result["round"], result["world_size"]) for result in results}, {(0, OURS + THEIRS)})
            self.assertEqual(len({result["rank"] for result in results}), THEIRS)
            joiners.stdin.close()
            self.assertEqual(joiners.wait(rdzvtest.DEADLINE), 0)

        self.tell(story, (OURS + THEIRS, OURS + THEIRS), ("serve",), ("2.6",))


if __name__ == "__main__":
    peers.main()
