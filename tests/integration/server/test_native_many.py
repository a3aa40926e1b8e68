# SPDX-License-Identifier: BSD-3-Clause
"""Many native nodes at once, and nodes that misbehave: those who reconnect all together, one that never reads what it
is told, one that floods the server with runs. The others go on, and memory is bounded."""
import resource
import selectors
import time

import rdzvtest
from nativeclient import (BEAT, E_LIMIT, JOINED, NATIVE_PING, NEWS, RESUMED, SOMEONE_LEFT, STATUS,
                          NativeNode, NodeConn, Session, decode, join_request)
from rawclient import HELLO, Client, Raw, sized, u64

PATIENT = {"keep_alive": 600000, "grace": 60000}
MANY = 4000
BOUND = 120.0  # seconds, for what takes one or two on an idle machine
GREETED = 12 + 5


def raise_descriptors(count):
    """The server inherits the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        rdzvtest.skip(f"a process may open {hard} descriptors, and {count} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


class ManyCase(rdzvtest.Case):
    options = ()

    def setUp(self):
        super().setUp()
        self.log_path = self.path("log")
        with open(self.log_path, "w", encoding="utf8") as log:
            self.server = self.serve(*self.options, stderr=log)
        self.port = self.server.port

    def tearDown(self):
        self.stop(self.server)

    def log(self):
        with open(self.log_path, encoding="utf8") as log:
            return log.read()

    def status(self, run_id="run"):
        with NodeConn(self.port) as conn:
            conn.query(run_id)
            return conn.expect(STATUS)

    def node(self, name, **options):
        node = NativeNode(self.port, "run", name, **{**PATIENT, **options})
        self.addCleanup(node.__exit__)
        return node


class Reconnecting(ManyCase):
    def connect_all(self, sessions, request):
        """Connects them all, each with its greeting and a request behind it; gives their connections."""
        conns = []
        for session in sessions:
            session.epoch += 1
            raw = Raw(self.port)
            raw.send(HELLO + NATIVE_PING + request(session))
            conns.append(raw)
        return conns

    def answers(self, conns, kind):
        """Waits until each has its answer of that kind; gives the answers."""
        selector, buffers, answers = selectors.DefaultSelector(), {}, []
        for index, conn in enumerate(conns):
            selector.register(conn.socket, selectors.EVENT_READ, index)
            buffers[index] = b""
        end = time.monotonic() + BOUND
        while len(answers) < len(conns):
            self.assertLess(time.monotonic(), end, f"{len(answers)} answers in {BOUND} s")
            for key, _ in selector.select(1.0):
                index = key.data
                data = key.fileobj.recv(65536)
                self.assertTrue(data, "the server has closed a connection")
                buffers[index] += data
                message = buffers[index][GREETED:]
                size = int.from_bytes(message[1:9], "little") if len(message) >= 9 else None
                if size is None or len(message) < 9 + size:
                    continue
                self.assertEqual((message[0], message[9]), (0, kind))
                answers.append(decode(kind, message[10:9 + size]))
                selector.unregister(key.fileobj)
        selector.close()
        return answers

    def test_four_thousand_that_reconnect_at_once(self):
        sessions = [Session(f"node-{index:05}") for index in range(MANY)]
        for session in sessions:
            session.number = 1
        options = {**PATIENT, "min_nodes": MANY, "max_nodes": MANY}
        conns = self.connect_all(sessions, lambda session: join_request("run", session, **options))
        joined = self.answers(conns, JOINED)
        self.assertEqual(sorted(answer.rank for answer in joined), list(range(MANY)))
        for conn in conns:  # all lines are cut
            conn.reset()
        began = time.monotonic()
        conns = self.connect_all(
            sessions, lambda session: bytes([135]) + sized(b"\3\0run\0" + session.encode()))
        self.assertEqual(set(self.answers(conns, RESUMED)), {1})
        self.assert_within(began, BOUND)
        status = self.status()
        self.assertEqual((status.round, status.complete, len(status.nodes)), (0, True, MANY))
        conns[0].send(bytes([138]) + u64(1 << 63))
        self.assertEqual(conns[0].receive(10), b"\0" + u64(1) + bytes([BEAT]))  # nobody has heard of a death
        for conn in conns:
            conn.close()


class Unread(ManyCase):
    LONG = 1000  # bytes of an address

    def test_a_node_that_never_reads_is_closed_and_does_not_hold_up_the_others(self):
        count = 100
        names = [f"{index:03}" + "x" * (self.LONG - 3) for index in range(count)]
        nodes = [self.node(name, min_nodes=count, max_nodes=count).begin() for name in names]
        for node in nodes:
            node.joined()
        deaf, witness, leaving = nodes[0], nodes[1], nodes[2:-10]
        deaf.conn.socket.settimeout(1.0)
        try:  # its answers fill the line; when it is full, the server reads nothing more from it
            for _ in range(20000):
                deaf.conn.query("run")
        except TimeoutError:
            pass
        longest = 0.0
        for node in leaving:
            began = time.monotonic()
            node.conn.leave()
            news = witness.conn.expect(NEWS)
            longest = max(longest, time.monotonic() - began)
            self.assertEqual(news.what, SOMEONE_LEFT)
        self.assertLess(longest, 10.0)
        rdzvtest.wait_until(lambda: "it does not read its messages" in self.log(), "the deaf node is closed")


class Flood(ManyCase):
    options = ("--max-memory", "4194304")

    def test_runs_without_end_are_bounded_by_memory(self):
        before = resident_kib(self.server.pid)
        conns, refused = [], 0
        for index in range(5000):
            conn = NodeConn(self.port)
            conns.append(conn)
            session = Session(f"node-{index}")
            session.epoch = session.number = 1
            conn.join(f"run-{index}", session, min_nodes=2, max_nodes=2, keep_alive=600000, grace=0)
            conn.beat(answer=True)
            kind, message = conn.message()
            if kind == 0:
                self.assertEqual(message.code, E_LIMIT)
                refused += 1
                if refused == 10:
                    break
        self.assertEqual(refused, 10)
        self.assertGreater(len(conns), 100)
        self.assertLess(resident_kib(self.server.pid) - before, 256 * 1024)
        for conn in conns:
            conn.close()
        with Client(self.port, "rdzv") as client:  # all of it is given back
            rdzvtest.wait_until(lambda: client.num_keys() == 0, "the runs are gone")
        self.assertEqual(self.node("again").begin().joined().world_size, 1)



if __name__ == "__main__":
    raise_descriptors(2 * MANY)
    rdzvtest.main()
