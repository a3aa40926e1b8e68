# SPDX-License-Identifier: BSD-3-Clause
"""The operations of native nodes, each by raw bytes: what it answers and changes, whom it tells, what it refuses."""
import rdzvtest
from nativeclient import (BEAT, CLOSED, E_CLOSED, E_IN_USE, E_PROTOCOL, E_STALE, E_TIMEOUT, EVICTED, IS_CLOSED, JOINED,
                          MEMBERS, NATIVE, NATIVE_PING, NEWS, RESUMED, SOMEONE_DIED, SOMEONE_LEFT, SOMEONE_WAITS,
                          STATUS, NativeNode, NodeConn, Session, join_request)
from rawclient import HELLO, VALIDATE, Client, Raw, sized, u64

PATIENT = {"keep_alive": 600000, "grace": 60000}  # nodes that are not dead however slow the machine is
HASTY = {"keep_alive": 600000, "grace": 1}        # whose end is news at once


class NativeCase(rdzvtest.Case):
    def setUp(self):
        super().setUp()
        self.server = self.serve()
        self.port = self.server.port

    def tearDown(self):
        self.stop(self.server)

    def node(self, name, run_id="run", **options):
        node = NativeNode(self.port, run_id, name, **{**PATIENT, **options})
        self.addCleanup(node.__exit__)
        return node

    def conn(self, **options):
        conn = NodeConn(self.port, **options)
        self.addCleanup(conn.close)
        return conn

    def client(self, dialect):
        client = Client(self.port, dialect)
        self.addCleanup(client.close)
        return client

    def pair(self, **options):
        """Two nodes in one round."""
        nodes = [self.node(name, min_nodes=2, max_nodes=2, **options).begin() for name in ("a", "b")]
        for node in nodes:
            node.joined()
        return nodes

    def status(self, run_id="run"):
        with NodeConn(self.port) as conn:
            conn.query(run_id)
            return conn.expect(STATUS)

    def await_status(self, condition, what, run_id="run"):
        return rdzvtest.wait_until(lambda: condition(self.status(run_id)), what)


class Greeting(NativeCase):
    def test_all_pings_of_a_native_node_in_one_segment(self):
        with Raw(self.port) as raw:
            raw.send(HELLO + bytes.fromhex("0dfeffffff") + b"\x0d\x78\x56\x34\xe2" + NATIVE_PING)
            answer = raw.receive(12 + 1 + 4 + 16 + 5 + 5)
            self.assertEqual(answer[:4] + answer[12:17], b"rdz\1\0ses\1")
            self.assertEqual(answer[33:], b"\0\x78\x56\x34\xe2\0nat\1")

    def test_a_client_of_pytorch_gets_its_number_back(self):
        with Raw(self.port) as raw:
            raw.send(VALIDATE + NATIVE_PING)
            self.assertEqual(raw.receive(4), NATIVE_PING[1:])


class Joining(NativeCase):
    def test_each_is_answered_once_when_the_round_is_complete(self):
        options = {"min_nodes": 2, "max_nodes": 2}
        first = self.node("a", master=("10.0.0.1", 4711), workers=("trainer", 4, 0), **options).begin()
        second = self.node("b", master=("10.0.0.2", 4712), workers=("trainer", 2, 1), **options).begin()
        answers = [first.joined(), second.joined()]
        for rank, answer in enumerate(answers):
            self.assertEqual((answer.number, answer.round, answer.rank, answer.world_size), (1, 0, rank, 2))
            self.assertEqual((answer.master_node, answer.master_addr, answer.master_port), ("a_1_0", "10.0.0.1", 4711))
        self.assertEqual([answer.ranks for answer in answers], [[0, 6, 0, 6, 1], [4, 6, 4, 6, 1]])

    def test_the_next_round_is_another_number(self):
        first, second = self.pair()
        first.begin()
        self.assertEqual(second.conn.expect(NEWS).what & SOMEONE_LEFT, SOMEONE_LEFT)
        second.begin()
        self.assertEqual([(node.joined().round, node.session.number) for node in (first, second)], [(1, 2), (1, 2)])

    def test_a_node_beyond_the_round_waits(self):
        self.pair()
        self.node("c", min_nodes=2, max_nodes=3).begin()
        self.await_status(lambda status: len(status.nodes) == 3, "the third node is in the status")
        kinds = {node.addr: node.kinds for node in self.status().nodes}
        self.assertEqual((kinds["a"], kinds["b"]), (1, 1))
        self.assertIn(kinds["c"], (2, 4))

    def test_someone_waits_is_news(self):
        nodes = [self.node(name, min_nodes=2, max_nodes=3, last_call_timeout=1).begin() for name in ("a", "b")]
        for node in nodes:
            self.assertEqual(node.joined().world_size, 2)
        self.node("c", min_nodes=2, max_nodes=3, last_call_timeout=1).begin()
        for node in nodes:
            news = node.conn.expect(NEWS)
            self.assertEqual((news.what, news.waiting), (SOMEONE_WAITS, 1))

    def test_a_join_that_takes_too_long_is_refused(self):
        node = self.node("a", min_nodes=2, max_nodes=2, join_timeout=50).begin()
        node.conn.refused(E_TIMEOUT, 134, number=1)
        self.await_status(lambda status: not status.nodes, "the node is out again")

    def test_what_is_no_join_is_refused_and_the_connection_goes_on(self):
        conn = self.conn()
        whole = join_request("run", Session("a"), **PATIENT)
        self.assertEqual(whole[0], 134)
        for value in (b"", b"\0", whole[9:-1], whole[9:] + b"\0", bytes(4096), b"\xff" * 5000):
            conn.send(bytes([134]) + sized(value))
            conn.refused(E_PROTOCOL, 134)
            conn.send(bytes([135]) + sized(value))
            conn.refused(E_PROTOCOL, 135)
        conn.query("run")
        self.assertFalse(conn.expect(STATUS).exists)

    def test_one_connection_is_one_node(self):
        node = self.node("a", min_nodes=2, max_nodes=2).begin()
        other = Session("b")
        other.epoch = other.number = 1
        node.conn.join("run", other, **PATIENT)
        self.assertIn("belongs to node", node.conn.refused(-8, 134))
        node.conn.join("another run", other, **PATIENT)
        node.conn.refused(-8, 134)
        self.assertFalse(self.status("another run").exists)


class Sessions(NativeCase):
    def test_the_same_join_again_is_answered_again_and_the_node_is_not_in_twice(self):
        first, second = self.pair()
        old = first.conn
        answer = first.again().joined()
        self.assertEqual((answer.number, answer.round, answer.rank, answer.world_size), (1, 0, 0, 2))
        old.wait_closed()
        self.assertEqual([node.addr for node in self.status().nodes], ["a", "b"])
        second.conn.beat(answer=True)
        second.conn.expect(BEAT)  # and no news before it

    def test_a_join_moves_to_a_new_connection_before_it_is_answered(self):
        node = self.node("a", min_nodes=2, max_nodes=2).begin()
        old = node.conn
        node.again()
        old.wait_closed()
        other = self.node("b", min_nodes=2, max_nodes=2).begin()
        self.assertEqual([node.joined().rank, other.joined().rank], [0, 1])

    def test_a_resumed_session_hears_what_it_missed(self):
        first, second = self.pair(keep_alive=600000, grace=60000)
        first.conn.close()
        self.await_status(lambda status: len(status.nodes) == 2, "both are in")
        second.conn.leave()
        first.connect().resume("run", first.session)
        self.assertEqual(first.conn.expect(RESUMED), 1)
        news = first.conn.expect(NEWS)
        self.assertEqual((news.what, news.gone, news.nodes), (SOMEONE_LEFT, 1, [("b", 1, 0)]))

    def test_news_that_may_be_lost_with_its_connection_is_told_again(self):
        first, second = self.pair()
        second.conn.leave()
        for _ in range(2):
            first.conn.expect(NEWS)
            first.connect().resume("run", first.session)
            self.assertEqual(first.conn.expect(RESUMED), 1)
        self.assertEqual(first.conn.expect(NEWS).nodes, [("b", 1, 0)])

    def test_another_epoch_on_the_same_connection_ends_it(self):
        first, second = self.pair()
        first.session.epoch, first.session.number = 7, 2
        first.conn.join("run", first.session, min_nodes=2, max_nodes=2, **PATIENT)
        first.conn.wait_closed()
        second.conn.leave()  # which is told to nobody
        first.connect().resume("run", first.session)
        self.assertEqual(first.conn.expect(RESUMED), 1)
        self.assertEqual(first.conn.expect(NEWS).what, SOMEONE_LEFT)

    def test_after_the_grace_the_place_is_lost(self):
        first, second = self.pair(**HASTY)
        first.conn.close()
        news = second.conn.expect(NEWS)
        self.assertEqual((news.what, news.nodes), (SOMEONE_DIED, [("a", 1, 0)]))
        first.connect().resume("run", first.session)
        self.assertIn("is over", first.conn.refused(E_STALE, 135, number=2))
        first.again()  # begins a new session with the old token
        self.await_status(lambda status: any(node.addr == "a" for node in status.nodes), "the node is there again")

    def test_a_forged_token_gets_nothing(self):
        first, second = self.pair()
        thief = Session("a")
        thief.epoch, thief.number = 99, 1
        conn = self.conn()
        conn.resume("run", thief)
        conn.refused(E_STALE, 135)
        conn.join("run", thief, min_nodes=2, max_nodes=2, **PATIENT)
        self.assertIn("another session", conn.refused(E_IN_USE, 134))
        for node in (first, second):
            node.conn.beat(answer=True)
            node.conn.expect(BEAT)

    def test_a_replayed_token_is_dropped_and_the_session_stays_where_it_is(self):
        first, _ = self.pair()
        first.again().joined()
        replayed = Session("a", token=first.session.token)
        for epoch in (1, 2):
            replayed.epoch, replayed.number = epoch, 1
            with NodeConn(self.port) as conn:
                conn.resume("run", replayed)
                conn.wait_closed()
            with NodeConn(self.port) as conn:
                conn.join("run", replayed, min_nodes=2, max_nodes=2, **PATIENT)
                conn.wait_closed()
        first.conn.beat(answer=True)
        first.conn.expect(BEAT)

    def test_a_silent_node_is_dead_and_its_connection_closed(self):
        quiet = self.node("a", min_nodes=2, max_nodes=2, keep_alive=1500).begin()
        other = self.node("b", min_nodes=2, max_nodes=2).begin()
        quiet.joined()
        other.joined()
        self.assertEqual(other.conn.expect(NEWS).what, SOMEONE_DIED)
        quiet.conn.wait_closed()

    def test_keep_alives_are_answered_when_asked_and_their_time_is_shown(self):
        node = self.node("a").begin()
        node.joined()
        node.conn.beat()
        node.conn.beat(trip_us=1234)
        node.conn.beat(answer=True)
        node.conn.expect(BEAT)
        seen, = self.status().nodes
        self.assertEqual((seen.way, seen.trip_us), (NATIVE, 1234))
        conn = self.conn()
        conn.beat()
        conn.refused(E_STALE, 138)


class Ending(NativeCase):
    def test_who_leaves_is_told_of_and_the_key_is_plain_again(self):
        first, second = self.pair()
        second.conn.leave()
        self.assertEqual(first.conn.expect(NEWS).what, SOMEONE_LEFT)
        first.conn.leave()
        status = self.status()
        self.assertTrue(status.exists and not status.nodes)
        with Client(self.port, "rdzv") as client:
            client.set(b"/torch.rendezvous.run", b"anything")
            self.assertEqual(client.get(b"/torch.rendezvous.run"), b"anything")

    def test_a_run_that_never_had_a_round_leaves_nothing(self):
        node = self.node("a", min_nodes=2, max_nodes=2).begin()
        self.await_status(lambda status: status.exists, "the node is in")
        with Client(self.port, "rdzv") as client:
            self.assertEqual(client.num_keys(), 1)
            node.conn.leave()
            self.assertEqual(client.num_keys(), 0)

    def test_closing_is_told_to_all_and_the_first_reason_stays(self):
        first, second = self.pair()
        waiting = self.node("c", min_nodes=2, max_nodes=2).begin()
        self.await_status(lambda status: len(status.nodes) == 3, "a spare is there")
        conn = self.conn()
        conn.close_run("run", "the data is bad")
        conn.expect(CLOSED)
        for node in (first, second):
            self.assertEqual(node.conn.expect(NEWS).what & IS_CLOSED, IS_CLOSED)
        self.assertIn(waiting.conn.expect(0).code, (E_CLOSED, -21))
        conn.close_run("run", "later")
        conn.expect(CLOSED)
        status = self.status()
        self.assertTrue(status.closed)
        self.assertEqual(status.reason, "the data is bad")
        with Client(self.port, "v2") as client:
            self.assertEqual(client.get(b"/rdzv.reason.run"), b"the data is bad")
        late = self.node("d", min_nodes=2, max_nodes=2).begin()
        self.assertIn("closed", late.conn.refused(E_CLOSED, 134))

    def test_a_run_without_native_nodes_can_be_closed(self):
        conn = self.conn()
        conn.close_run("nobody")
        conn.expect(CLOSED)
        self.assertTrue(self.status("nobody").closed)
        late = self.node("a", run_id="nobody").begin()
        late.conn.refused(E_CLOSED, 134)
        conn.ask("node_close", sized(b"x" * 513) + sized(b""))
        conn.refused(-8, 137)
        conn.ask("node_close", sized(b"x") + sized(b"y" * 513))
        conn.refused(-11, 137)

    def test_evicted_nodes_are_told_when_the_state_is_deleted(self):
        first, second = self.pair()
        with Client(self.port, "rdzv") as client:
            self.assertTrue(client.delete(b"/torch.rendezvous.run"))
        for node in (first, second):
            self.assertEqual(node.conn.expect(NEWS).what & EVICTED, EVICTED)


class Asking(NativeCase):
    def test_the_members_of_a_round(self):
        first, second = self.pair()
        first.conn.query("run", 0)
        number, members = first.conn.expect(MEMBERS)
        self.assertEqual((number, [(node.addr, node.rank, node.way) for node in members]),
                         (0, [("a", 0, NATIVE), ("b", 1, NATIVE)]))
        second.conn.leave()
        self.assertEqual(first.conn.expect(NEWS).what, SOMEONE_LEFT)
        first.conn.query("run", 0)
        self.assertEqual(len(first.conn.expect(MEMBERS)[1]), 2)  # also those that have left
        first.conn.query("run", 7)
        self.assertIn("round 7", first.conn.refused(E_STALE, 139))

    def test_a_run_that_is_not_there(self):
        conn = self.conn()
        conn.query("nothing")
        self.assertFalse(conn.expect(STATUS).exists)
        conn.query("nothing", 0)
        conn.refused(E_STALE, 139)
        conn.ask("node_query", sized(b"") + u64(0))
        conn.refused(-8, 139)
        conn.ask("node_query", sized(b"\xff\xfe") + u64(0))
        conn.refused(-8, 139)

    def test_joins_are_answered_among_other_requests(self):
        node = self.node("a", min_nodes=2, max_nodes=2).begin()
        for _ in range(3):
            node.conn.query("run")
            self.assertEqual(len(node.conn.expect(STATUS).nodes), 1)
        other = self.node("b", min_nodes=2, max_nodes=2).begin()
        self.assertEqual(node.conn.message()[0], JOINED)
        other.joined()


if __name__ == "__main__":
    rdzvtest.main()
