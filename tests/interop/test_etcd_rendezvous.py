# SPDX-License-Identifier: BSD-3-Clause
"""The backend etcd-v2: nodes of PyTorch and of ours in one rendezvous, through one etcd."""
import base64
import pickle

import etcd
import peers
import rdzvtest
from etcd_nodes import CLOSED, SOON, Case, Place
from etcd_v1_nodes import tell


class Rendezvous(Case):
    def setUp(self):
        super().setUp()
        peers.need("1.13")
        self.etcd = etcd.shared()
        self.etcd.put("/torch/elastic/store/Zmlyc3Q=", "")  # PyTorch's get needs the directory

    def place(self, nodes, endpoint=None, **keywords):
        return Place(self, endpoint or self.etcd.endpoint, nodes, **keywords)

    def test_rounds(self):
        tell(self, self.ranks_agree,
             self.last_call_and_who_comes_later,
             self.theirs_is_killed_and_replaced,
             self.ours_is_killed_and_replaced,
             self.closed_by_ours,
             self.closed_by_theirs,
             self.the_leader_of_a_cluster_is_killed)

    def ranks_agree(self):
        place = self.place((4, 4))
        nodes = [place.theirs("127.0.0.1"), place.ours("127.0.0.4"), place.theirs("127.0.0.3"), place.ours("127.0.0.2")]
        self.assertEqual(self.assert_agree(nodes)["round"], 0)
        node = self.etcd.node(f"/torch/elastic/rendezvous/{place.run_id}")
        self.assertGreater(node["ttl"], 7000)
        self.assertEqual(pickle.loads(base64.b64decode(node["value"])).round, 0)

    def last_call_and_who_comes_later(self):
        place = self.place((2, 3))
        theirs, ours = place.theirs("127.0.0.2"), place.ours("127.0.0.1")
        self.assertEqual(self.assert_agree([theirs, ours])["round"], 0)
        theirs.begin(SOON)
        late = place.ours("127.0.0.3")
        self.assertEqual(self.assert_agree([theirs, ours, late])["round"], 1)

    def theirs_is_killed_and_replaced(self):
        place = self.place((2, 2))
        theirs, ours = place.theirs("127.0.0.1"), place.ours("127.0.0.2")
        self.assert_agree([theirs, ours])
        theirs.kill()
        self.assertEqual(self.assert_agree([ours, place.theirs("127.0.0.3")])["round"], 1)

    def ours_is_killed_and_replaced(self):
        place = self.place((2, 2))
        theirs, ours = place.theirs("127.0.0.1"), place.ours("127.0.0.2")
        self.assert_agree([theirs, ours])
        ours.kill()
        theirs.begin(SOON)
        self.assertEqual(self.assert_agree([theirs, place.ours("127.0.0.3")])["round"], 1)

    def closed_by_ours(self):
        place = self.place((2, 2))
        theirs, ours = place.theirs("127.0.0.1"), place.ours("127.0.0.2")
        self.assert_agree([theirs, ours])
        self.assertEqual(place.status()["participants"], 2)
        place.close()
        self.assertTrue(theirs.await_closed())
        self.assertEqual(ours.await_exit(), CLOSED)
        with self.assertRaises(peers.TorchError) as caught:
            place.theirs("127.0.0.3").joined()
        self.assertEqual(caught.exception.kind, "RendezvousClosedError")

    def closed_by_theirs(self):
        place = self.place((2, 2))
        theirs, ours = place.theirs("127.0.0.1"), place.ours("127.0.0.2")
        self.assert_agree([theirs, ours])
        self.assertTrue(theirs.shutdown())
        self.assertEqual(ours.await_exit(), CLOSED)
        self.assertTrue(place.status()["closed"])

    def the_leader_of_a_cluster_is_killed(self):
        """PyTorch's node is a member of a complete round, at a member that stays; ours knows the leader only. (Where it
        is in a call just then, PyTorch's fails.)"""
        cluster = etcd.start_cluster(self.addCleanup)
        leader, follower = cluster.leader(), cluster.follower()
        follower.put("/torch/elastic/store/Zmlyc3Q=", "")
        place = self.place((2, 3), follower.endpoint, keep_alive=(1, rdzvtest.slow_int(20)))  # their client waits long for the dead
        theirs = place.theirs("127.0.0.2")
        place.endpoint = leader.endpoint
        ours = place.ours("127.0.0.1")
        self.assertEqual(self.assert_agree([theirs, ours])["round"], 0)
        leader.kill()
        cluster.leader()
        theirs.begin(SOON)
        place.endpoint = cluster.endpoints
        self.assertEqual(self.assert_agree([theirs, ours, place.ours("127.0.0.3")])["round"], 1)


if __name__ == "__main__":
    etcd.need()
    peers.main()
