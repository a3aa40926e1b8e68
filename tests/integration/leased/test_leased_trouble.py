# SPDX-License-Identifier: BSD-3-Clause
"""Backend etcd-v3 and everything that can be wrong with an etcd: each has a sentence of its own, or is got over."""
import etcd
import etcd_tls
import rdzvtest
from etcd_v3 import await_forgotten, await_watch, b64, compact, fill, post, start_with_users
from leased_nodes import SHORT, Place, agree

MISTAKE, UNREACHABLE, FULL = 2, 3, 7  # exit codes
OPEN = "cannot open rendezvous '[0-9a-f]+': "
LOST = r"etcd at 127\.0\.0\.1:\d+ has lost its data: it is at revision \d+ and was at \d+"


class Case(rdzvtest.Case):
    @classmethod
    def setUpClass(cls):
        etcd.need()

    def place(self, member, *nodes, **keywords):
        return Place(self, member, nodes, **keywords)

    def assert_fails(self, node, code, sentence):
        """It ends by itself, with that code and sentence."""
        self.assertEqual(node.await_exit(), code, node.said())
        self.assertRegex(node.said(), f"rdzv join: {sentence}")


class Unreachable(Case):
    def test_one_of_three_endpoints_is_unreachable(self):
        member = etcd.shared()
        place = self.place(member, 2, endpoints=f"127.0.0.1:1,{member.endpoint},127.0.0.1:2")
        agree(self, [place.ours(), place.ours()])

    def test_all_are_unreachable(self):
        place = self.place(etcd.shared(), 1, endpoints="127.0.0.1:1,127.0.0.1:2,127.0.0.1:3")
        self.assert_fails(place.ours(read_timeout=rdzvtest.slow(1)), UNREACHABLE,
                          OPEN + r"not within read_timeout \([\d.]+ s\): etcd at 127.*: no answer \(\d+ tries in \d+ ms\): .*refused \(is etcd up")

    def test_all_become_unreachable_while_nodes_gather(self):
        member = etcd.start(self.addCleanup)
        place = self.place(member, 2, lease=SHORT)
        node = place.ours(join_timeout=rdzvtest.slow(4), read_timeout=rdzvtest.slow(1))
        rdzvtest.wait_until(lambda: len(place.keys()) == 1, "it has joined")
        member.kill()
        self.assert_fails(node, UNREACHABLE, r"cannot join the rendezvous in time: etcd at .*: no answer .*refused")
        self.assertNotIn("are all nodes started", node.said())


class Tls(Case):
    def test_each_error_of_tls(self):
        member = etcd_tls.server()
        right, wrong = etcd_tls.authority().cert, etcd_tls.authority("wrong").cert
        cert, key = etcd_tls.client()
        place = self.place(member, 1)
        for code, said, conf in (
                (MISTAKE, "does not verify with .*: SSL cert", {"protocol": "https", "cacert": wrong, "cert": cert,
                                                               "key": key}),
                (MISTAKE, "requires a client certificate", {"protocol": "https", "cacert": right}),
                (UNREACHABLE, "requires TLS", {})):
            with self.subTest(said):
                self.assert_fails(place.ours(read_timeout=rdzvtest.slow(3), **conf), code, OPEN + ".*" + said)
        agree(self, [place.ours(protocol="https", cacert=right, cert=cert, key=key)])


class Users(Case):
    def setUp(self):
        super().setUp()
        self.member = start_with_users(self.addCleanup, "/rdzv", "/rdzw")

    def test_a_wrong_password(self):
        place = self.place(self.member, 1)
        self.assert_fails(place.ours(user="job", password="wrong"), MISTAKE,
                          OPEN + ".* wrong user or password for 'job'")

    def test_no_user(self):
        place = self.place(self.member, 1)
        self.assert_fails(place.ours(), MISTAKE, OPEN + ".* requires a user and password")

    def test_no_permission(self):
        place = self.place(self.member, 1)
        self.assert_fails(place.ours(user="other", password="of other"), MISTAKE,
                          OPEN + "this user lacks permission in etcd .*permission denied")

    def test_tokens_that_expire(self):
        place = self.place(self.member, 2, 3)
        nodes = [place.ours(user="job", password="of job") for _ in range(2)]
        self.assertEqual(agree(self, nodes)["round"], 0)
        await_forgotten(self.member, "/rdzv/x")
        nodes.append(place.ours(user="job", password="of job"))
        agree(self, nodes)  # those of before write, with another token
        for node in nodes:
            self.assertEqual(node.leave(), 0, node.said())


class Full(Case):
    def test_a_full_etcd(self):
        member = etcd.start(self.addCleanup, ["--quota-backend-bytes", str(1 << 20)])
        place = self.place(member, 2, lease=SHORT)
        early = place.ours()
        rdzvtest.wait_until(lambda: len(place.keys()) == 1, "it has joined")
        fill(member)
        waiting = place.ours()
        waiting.await_said("is full (compact and defragment it")  # it may be mended while it waits, and says so
        self.assert_fails(place.ours(join_timeout=rdzvtest.slow(3)), FULL, r"cannot join the rendezvous in time: .* is full \(compact and defragment it.*space")
        self.assertIsNone(early.process.poll(), early.said())  # its lease is kept


class Lost(Case):
    def start_old(self):
        """An etcd with a past: after the loss it is younger than that, whatever the nodes write meanwhile."""
        member = etcd.start(self.addCleanup)
        for i in range(50):
            post(member, "/v3/kv/put", {"key": b64("noise"), "value": b64(str(i))})
        return member

    def test_an_etcd_that_lost_its_data_while_nodes_gather(self):
        member = self.start_old()
        place = self.place(member, 2, lease=SHORT)
        first = place.ours()
        await_watch(member)  # it has joined, and knows the revision
        member.kill()
        member.wipe()
        member.start().await_ready()
        agree(self, [first, place.ours()])
        self.assertRegex(first.said(), LOST)

    def test_an_etcd_that_lost_its_data_under_a_round(self):
        member = self.start_old()
        place = self.place(member, 2, lease=SHORT)
        nodes = [place.ours(), place.ours()]
        first = agree(self, nodes)
        member.kill()
        member.wipe()
        member.start().await_ready()
        self.assertGreater(agree(self, nodes)["round"], first["round"])
        for node in nodes:
            self.assertRegex(node.said(), LOST)
            self.assertNotIn("its lease ended", node.said())
            self.assertTrue("place in the round is lost: etcd has lost its data" in node.said() or
                            "a participant" in node.said(), node.said())


class Compaction(Case):
    def test_a_compaction_under_a_watch(self):
        member = etcd.start(self.addCleanup)
        place = self.place(member, 2, 3)
        nodes = [place.ours(), place.ours()]
        agree(self, nodes)
        nodes[0].stop()
        for i in range(5):
            post(member, "/v3/kv/put", {"key": b64("noise"), "value": b64(str(i))})
        compact(member)
        member.kill()
        member.start().await_ready()
        nodes[0].go_on()
        nodes.append(place.ours())
        agree(self, nodes)
        self.assertIn("etcd was compacted before this node had seen all changes", nodes[0].said())
        self.assertNotIn("a participant died", nodes[0].said())  # the other one went to the next round


if __name__ == "__main__":
    rdzvtest.main()
