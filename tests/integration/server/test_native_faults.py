# SPDX-License-Identifier: BSD-3-Clause
"""Native nodes whose connections are cut, half-open or slow, and a server that is stopped for a while: who is in stays
in, nobody is in twice, and who is gone is found out."""
import signal
import threading
import time

import rdzvtest
from nativeclient import (BEAT, E_STALE, JOINED, NEWS, RESUMED, SOMEONE_DIED, STATUS, NativeNode, NodeConn, Session,
                          join_request)
from rawclient import HELLO
from relay import Relay

PATIENT = {"keep_alive": 600000, "grace": 60000}
GREETING = len(HELLO) + 5


class FaultCase(rdzvtest.Case):
    def setUp(self):
        super().setUp()
        with open(self.path("log"), "w", encoding="utf8") as log:
            self.server = self.serve(stderr=log)
        self.port = self.server.port
        self.relay = Relay(self.port)
        self.addCleanup(self.relay.close)

    def tearDown(self):
        self.stop(self.server)

    def node(self, name, port=None, run_id="run", **options):
        options = {**PATIENT, "min_nodes": 2, "max_nodes": 2, **options}
        node = NativeNode(port or self.relay.port, run_id, name, **options)
        self.addCleanup(node.__exit__)
        return node

    def status(self, run_id="run"):
        with NodeConn(self.port) as conn:
            conn.query(run_id)
            return conn.expect(STATUS)

    def names(self, run_id="run"):
        return [node.addr for node in self.status(run_id).nodes]

    def pair(self, **options):
        """One through the relay and one that the relay does not harm."""
        nodes = [self.node("a", **options).begin(), self.node("b", port=self.port).begin()]
        for node in nodes:
            node.joined()
        return nodes


class Cut(FaultCase):
    def test_a_join_cut_at_every_byte_takes_effect_or_does_not_and_then_does(self):
        session = Session("a")
        session.epoch = session.number = 1
        whole = len(join_request("run-000", session, min_nodes=2, max_nodes=2, **PATIENT))
        for cut in range(1, whole + 1):
            run_id = f"run-{cut:03}"
            self.relay.cut_after = GREETING + cut
            node = self.node("a", run_id=run_id)
            node.begin()
            node.conn.wait_closed()
            self.relay.cut_after = None
            node.again()
            other = self.node("b", port=self.port, run_id=run_id).begin()
            answers = [node.joined(), other.joined()]
            self.assertEqual([(answer.rank, answer.world_size, answer.number) for answer in answers],
                             [(0, 2, 1), (1, 2, 1)], f"cut after {cut} bytes")
            self.assertEqual(self.names(run_id), ["a", "b"])

    def test_an_answer_that_is_lost_is_given_again(self):
        first = self.node("a").begin()
        rdzvtest.wait_until(lambda: self.names() == ["a"], "the node is in")
        self.relay.lose_answers = True
        second = self.node("b", port=self.port).begin()
        second.joined()
        first.conn.wait_closed()
        self.assertEqual(self.relay.lost, 1)
        self.relay.lose_answers = False
        answer = first.again().joined()
        self.assertEqual((answer.round, answer.rank, answer.world_size), (0, 0, 2))
        self.assertEqual(self.names(), ["a", "b"])
        second.conn.beat(answer=True)
        second.conn.expect(BEAT)  # it has not heard of anything

    def test_an_answer_that_is_lost_is_given_with_the_session(self):
        first = self.node("a").begin()
        rdzvtest.wait_until(lambda: self.names() == ["a"], "the node is in")
        first.conn.close()
        rdzvtest.wait_until(lambda: not self.relay.pairs, "the connection is gone")
        self.node("b", port=self.port).begin().joined()
        first.connect().resume("run", first.session)
        self.assertEqual(first.conn.expect(RESUMED), 1)
        self.assertEqual(first.joined().rank, 0)

    def test_a_session_that_is_resumed_in_time_goes_on(self):
        first, second = self.pair()
        for _ in range(5):
            first.conn.close()
            time.sleep(0.1)
            first.connect().resume("run", first.session)
            self.assertEqual(first.conn.expect(RESUMED), 1)
        second.conn.beat(answer=True)
        second.conn.expect(BEAT)
        self.assertEqual(self.names(), ["a", "b"])

    def test_a_session_that_is_resumed_after_the_grace_is_over(self):
        first, second = self.pair(grace=300)
        began = time.monotonic()
        first.conn.close()
        news = second.conn.expect(NEWS)
        self.assertGreater(time.monotonic() - began, 0.25)
        self.assertEqual((news.what, news.nodes), (SOMEONE_DIED, [("a", 1, 0)]))
        first.connect().resume("run", first.session)
        first.conn.refused(E_STALE, 135)


class Slow(FaultCase):
    def test_a_half_open_connection_is_found_out(self):
        first, second = self.pair(keep_alive=1500)
        self.relay.frozen = True
        news = second.conn.expect(NEWS)  # nothing was heard for three intervals
        self.assertEqual((news.what, news.nodes), (SOMEONE_DIED, [("a", 1, 0)]))
        self.assertEqual(self.names(), ["b"])
        first.connect(self.port).resume("run", first.session)
        first.conn.refused(E_STALE, 135)

    def test_a_half_open_connection_gives_way_to_a_new_one(self):
        first, second = self.pair()
        self.relay.frozen = True
        first.connect(self.port).resume("run", first.session)  # the server has not heard of the end of the old one
        self.assertEqual(first.conn.expect(RESUMED), 1)
        first.conn.beat(answer=True)
        first.conn.expect(BEAT)
        second.conn.beat(answer=True)
        second.conn.expect(BEAT)

    def test_a_slow_line_is_no_death(self):
        self.relay.delay = 0.2
        first, second = self.pair(keep_alive=20000)
        for _ in range(3):
            first.conn.beat(answer=True)
            first.conn.expect(BEAT)
        second.conn.beat(answer=True)
        second.conn.expect(BEAT)
        self.assertEqual(self.names(), ["a", "b"])


class Paused(FaultCase):
    def test_a_server_that_was_stopped_blames_nobody(self):
        """Two nodes whose silence is death after 4.5 s. One goes on sending keep-alives, the other says nothing while
        the server is stopped, as if the whole machine had been."""
        options = {"keep_alive": 1500, "port": self.port}
        talking, quiet = [self.node(name, **options).begin() for name in ("talking", "quiet")]
        for node in (talking, quiet):
            node.joined()
        ended, stopped = threading.Event(), threading.Event()

        def beat():
            while not ended.wait(0.2):
                talking.conn.beat()
                if not stopped.is_set():
                    quiet.conn.beat()
        beating = threading.Thread(target=beat)
        beating.start()
        try:
            stopped.set()
            self.server.send_signal(signal.SIGSTOP)
            time.sleep(5.0)
            self.server.send_signal(signal.SIGCONT)
            stopped.clear()
            for _ in range(10):
                time.sleep(0.1)
                self.assertEqual(self.names(), ["quiet", "talking"])
        finally:
            self.server.send_signal(signal.SIGCONT)
            ended.set()
            beating.join()
        for node in (talking, quiet):
            node.conn.beat(answer=True)
            node.conn.expect(BEAT)

    def test_joins_that_wait_for_a_stopped_server_are_answered(self):
        first = self.node("a", port=self.port).begin()
        rdzvtest.wait_until(lambda: self.names() == ["a"], "the node is in")
        second = self.node("b", port=self.port)
        second.connect()
        self.server.send_signal(signal.SIGSTOP)
        second.begin()
        time.sleep(0.5)
        self.server.send_signal(signal.SIGCONT)
        self.assertEqual([first.conn.message()[0], second.conn.message()[0]], [JOINED, JOINED])


if __name__ == "__main__":
    rdzvtest.main()
