# SPDX-License-Identifier: BSD-3-Clause
"""Backend etcd-v3: nodes of a run that differ in a setting that must be the same."""
import etcd
import rdzvtest
from leased_nodes import SHORT, Place, agree

REFUSED = 6  # what `rdzv join` exits with


class Differ(rdzvtest.Case):
    @classmethod
    def setUpClass(cls):
        etcd.need()

    def setUp(self):
        super().setUp()
        self.member = etcd.Member(self.folder).start()
        self.addCleanup(self.member.kill)
        self.member.await_ready()
        self.place = Place(self, self.member, (2,), lease=SHORT)

    def name(self, node):
        return f"127.0.0.1_{node.process.pid}_0"

    def test_the_later_node_fails_and_the_first_goes_on(self):
        first = self.place.ours()
        first.await_said("waiting for nodes")
        second = self.place.ours(nodes=(3,))
        here = f"'{self.name(first)}' has nnodes=2:2, this node 3:3 (use the same values on all nodes)"
        first.await_said(f"warning: '{self.name(second)}' has nnodes=3:3, this node 2:2")
        second.await_said(f"warning: {here}")
        self.assertEqual(second.await_exit(), REFUSED, second.said())
        self.assertIn(f"cannot join the rendezvous: the --nnodes ranges of these nodes do not overlap: {here}", second.said())
        third = self.place.ours()
        self.assertEqual(agree(self, [first, third])["world_size"], 2)

    def test_a_node_that_comes_to_a_round_that_goes_on_fails(self):
        nodes = [self.place.ours(), self.place.ours()]
        agree(self, nodes)
        late = self.place.ours(nodes=(3,))
        self.assertEqual(late.await_exit(), REFUSED, late.said())
        self.assertIn("has nnodes=2:2, this node 3:3", late.said())

    def test_nodes_that_died_do_not_make_another_fail(self):
        first = self.place.ours()
        first.await_said("waiting for nodes")
        first.kill()
        nodes = [self.place.ours(nodes=(3,)) for _ in range(3)]
        self.assertEqual(agree(self, nodes)["world_size"], 3)


if __name__ == "__main__":
    etcd.need()
    rdzvtest.main()
