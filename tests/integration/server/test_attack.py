# SPDX-License-Identifier: BSD-3-Clause
"""One client must not stop the others: whatever it asks for is done in slices, between which everybody is served.

Each attack runs beside a witness, a well-behaved client that reads, writes and waits all the time. Its longest wait is
bounded generously: a busy machine takes a fraction of it, a server that does the attacker's work in one go takes longer.
"""
import multiprocessing
import select
import socket
import struct
import time

import rdzvtest
from rawclient import Client, Raw, keys, request, sized, u64

LONGEST = 2.0  # seconds
MANY = 131072  # keys in one request, and waited for by one client, at most
SLICE = 1024   # keys that are done at once
context = multiprocessing.get_context("fork")


def bear_witness(port, stopping, rounds, longest):
    """Does what clients do, in a process of its own, until it is stopped."""
    with Client(port, "rdzv") as reader, Client(port, "v2") as waiter:
        while not stopping.is_set():
            began = time.monotonic()
            name = b"/witness/%d" % rounds.value
            waiter.begin_wait(name)
            reader.set(name, b"value")
            waiter.end_wait()
            assert reader.get(name) == b"value" and reader.delete(name)
            longest.value = max(longest.value, time.monotonic() - began)
            rounds.value += 1
            time.sleep(0.002)  # so that it does not take a processor for itself


class Attack(rdzvtest.Case):
    options = ()

    def setUp(self):
        super().setUp()
        self.log_path = self.path("log")
        with open(self.log_path, "w", encoding="utf8") as log:
            self.server = self.serve(*self.options, stderr=log)
        self.port = self.server.port
        self.peers = []
        self.stopping, self.rounds, self.longest = context.Event(), context.Value("Q", 0), context.Value("d", 0.0)
        self.witness = context.Process(target=bear_witness, daemon=True,
                                       args=(self.port, self.stopping, self.rounds, self.longest))
        self.witness.start()
        self.addCleanup(self.witness.join)
        self.addCleanup(self.witness.terminate)
        self.await_witness()

    def tearDown(self):
        """Those who leave with a million waits do not stop the others either."""
        for peer in self.peers:
            peer.close()
        self.await_witness()
        self.stopping.set()
        self.witness.join(rdzvtest.DEADLINE)
        self.assertEqual(self.witness.exitcode, 0)
        self.assert_brief(self.longest.value, LONGEST)
        self.stop(self.server)
        super().tearDown()

    def await_witness(self):
        wanted = self.rounds.value + 10
        rdzvtest.wait_until(lambda: self.rounds.value > wanted or not self.witness.is_alive(), "the witness is served")

    def peer(self, dialect="v2", cls=Client, **options):
        self.peers.append(cls(self.port, dialect, **options))
        return self.peers[-1]

    def log(self):
        with open(self.log_path, encoding="utf8") as file:
            return file.read()

    def fill(self, count, name=b"/key/%d"):
        """Sets that many keys."""
        client = self.peer("rdzv")
        for first in range(0, count, 10000):
            pairs = [(name % i, b"value %d" % i) for i in range(first, min(first + 10000, count))]
            client.ask("multi_set", u64(len(pairs)) + b"".join(sized(k) + sized(v) for k, v in pairs))
            client.done()
        return client


class Listing(Attack):
    def read_list(self, client):
        count = struct.unpack("<Q", client.receive(8))[0]
        return [client.receive_value() for _ in range(count)]

    def test_keys_that_are_only_waited_for_are_not_walked(self):
        """500 000 keys that clients wait for, and a segment of 60 000 LIST_KEYS."""
        for part in range(4):
            waiter = self.peer()
            waiter.begin_wait(*(b"%d.%d" % (part, i) for i in range(125000)))
            waiter.num_keys()
        lister = self.peer()
        lister.send(request("v2", "list_keys") * 60000 + request("v2", "num_keys"))
        for _ in range(60000):
            self.read_list(lister)
        self.assertLess(struct.unpack("<Q", lister.receive(8))[0], 10)

    def test_clients_that_list_many_keys_all_the_time(self):
        """Each list is 1.8 MB; they are read as fast as they come."""
        self.fill(100000)
        listers = [self.peer(cls=Raw) for _ in range(20)]
        for lister in listers:
            lister.send(request("v2", "list_keys") * 10000)
        buffer, end = bytearray(1 << 20), time.monotonic() + 4
        received, rounds = 0, self.rounds.value
        while time.monotonic() < end:
            for lister in select.select([peer.socket for peer in listers], [], [], 1)[0]:
                received += lister.recv_into(buffer)
        self.assertGreater(received, 10 << 20)
        self.assertGreater(self.rounds.value - rounds, 40)

    def test_a_list_has_every_key_that_was_there_throughout(self):
        """Also while others come and go, and no key twice."""
        self.fill(5000, b"/stays/%d")
        changer = self.peer("rdzv")
        lister = self.peer("rdzv")
        stays = {b"/stays/%d" % i for i in range(5000)}
        for turn in range(10):
            batch = b"".join(request("rdzv", "set", sized(b"/goes/%d/%d" % (turn, i)) + sized(b"v")) +
                             request("rdzv", "delete_key", sized(b"/goes/%d/%d" % (turn, i // 2)))
                             for i in range(3000))
            changer.send(batch)
            lister.ask("list_keys")
            lister.done()
            found = self.read_list(lister)
            self.assertEqual(len(found), len(set(found)))
            self.assertLessEqual(stays, set(found))
            for _ in range(3000):
                changer.receive(1 + 1 + 8)

    def test_own_writes_are_in_the_list(self):
        """Whoever asks while a list is being written down gets one that is begun later."""
        self.fill(20000)
        for _ in range(5):
            self.peer(cls=Raw).send(request("v2", "list_keys") * 10)
        client = self.peer("rdzv")
        for i in range(30):
            client.send(request("rdzv", "set", sized(b"/own/%d" % i) + sized(b"v")) + request("rdzv", "list_keys"))
            client.done()
            client.done()
            self.assertIn(b"/own/%d" % i, self.read_list(client))


class Watches(Attack):
    def test_one_key_watched_many_times_and_set_to_a_long_value(self):
        """The client that watches does not read: it is closed, and costs nobody anything."""
        watcher = self.peer("v1", cls=Raw)
        watcher.send(request("v1", "watch_key", sized(b"/watched")) * 100000)
        watcher.receive(100000)
        client = self.peer("rdzv")
        for byte in (b"a", b"b", b"c"):
            client.set(b"/watched", byte * (8 << 20))
        rdzvtest.wait_until(lambda: "does not read its answers" in self.log(), "it is closed")
        watcher.wait_closed()

    def test_all_changes_are_told_to_all_in_order(self):
        """Also when there are too many to be told at once."""
        watchers = [self.peer("v1") for _ in range(300)]
        for watcher in watchers:
            watcher.ask("watch_key", sized(b"/watched"))
            watcher.receive(1)
        client = self.peer("v2")
        values = [b"", b"a", b"bb" * 20000, b"c"]
        client.send(b"".join(request("v2", "set", sized(b"/watched") + sized(value)) for value in values) +
                    request("v2", "delete_key", sized(b"/watched")))
        late = self.peer("v1")
        client.receive(8)
        late.ask("watch_key", sized(b"/watched"))
        late.receive(1)
        client.set(b"/watched", b"last")
        for watcher in watchers:
            before = b""
            for i, value in enumerate(values):
                self.assertEqual(watcher.receive(1), b"\0" if i else b"\1")
                self.assertEqual([watcher.receive_value() for _ in range(3)], [b"/watched", before, value])
                before = value
            self.assertEqual(watcher.receive(1), b"\2")
            self.assertEqual([watcher.receive_value() for _ in range(3)], [b"/watched", before, b""])
        for watcher in (*watchers, late):
            self.assertEqual(watcher.receive(1), b"\1")
            self.assertEqual([watcher.receive_value() for _ in range(3)], [b"/watched", b"", b"last"])


class Waits(Attack):
    def test_a_million_waits_for_one_key(self):
        """They are all woken, and the answers to one client leave together."""
        waiters = [self.peer() for _ in range(8)]
        for waiter in waiters:
            waiter.send(request("v2", "wait", keys(b"/awaited")) * 125000)
            waiter.num_keys()
        client = self.peer("rdzv")
        began = time.monotonic()
        client.set(b"/awaited", b"")
        self.assert_within(began, LONGEST)
        for waiter in waiters:
            self.assertEqual(waiter.receive(125000), bytes(125000))
            info = waiter.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
            segments = struct.unpack_from("=I", info, 140)[0]  # tcpi_segs_in
            self.assertLess(segments, 20000)

    def test_a_client_that_waits_for_too_many_keys_is_refused(self):
        for dialect in ("v1", "v2"):
            peer = self.peer(dialect, cls=Raw)
            try:
                peer.send(request(dialect, "wait", keys(b"/never")) * (MANY + 1))
                peer.wait_closed()
            except ConnectionError:
                pass
        rdzvtest.wait_until(lambda: self.log().count("waits for and watches too many keys: 131073") == 2, "it is told")
        ours = self.peer("rdzv")
        ours.begin_wait(*(b"/never/%d" % i for i in range(MANY)))
        ours.begin_wait(b"/never")
        self.assertEqual(ours.receive_status(), (-11, "it waits for and watches too many keys: 131073 (limit 131072)"))
        self.assertGreaterEqual(ours.num_keys(), 0)

    def test_many_waits_are_canceled(self):
        for dialect in ("v2", "rdzv"):
            peer = self.peer(dialect)
            peer.begin_wait(*(b"/never/%d" % i for i in range(100000)))
            peer.send(request(dialect, "wait", keys(b"/never")) * 10000)
            peer.send(request(dialect, "cancel_wait") + request(dialect, "add", sized(b"/sum") + u64(1)))
            self.assertEqual(peer.receive(1), b"\1")
            peer.done()
            self.assertEqual(peer.receive(8)[1:], bytes(7))
            peer.begin_wait(*(b"/never/%d" % i for i in range(MANY)))  # there is room for all again
            self.assertEqual(self.peer("rdzv").delete(b"/sum"), True)

    def test_a_wait_for_many_keys_ends_with_the_last_of_them(self):
        for dialect in ("v1", "v2", "rdzv"):
            self.fill(SLICE * 3, b"/" + dialect.encode() + b"/%d")
            last = b"/" + dialect.encode() + b"/last"
            peer = self.peer(dialect)
            names = [b"/" + dialect.encode() + b"/%d" % i for i in range(SLICE * 3)]
            peer.begin_wait(*names)
            peer.end_wait()
            peer.begin_wait(last, *names)
            self.assertGreaterEqual(peer.num_keys(), SLICE * 3)
            self.peer("rdzv").set(last, b"")
            peer.end_wait()


    def test_an_item_for_one_who_takes_its_wait_back_goes_to_the_next(self):
        """Who waited first is woken, but behind many others that are, and takes its wait back meanwhile; where the server is
        slow, it may have the item before."""
        many, pushes = 40000, 400
        crowd, first, second = (self.peer("rdzv") for _ in range(3))
        crowd.send(request("rdzv", "get_wait", keys(b"/last")) * many)
        crowd.send(b"".join(request("rdzv", "queue_pop_wait", sized(b"/q%d" % i)) for i in range(pushes)))
        for client in first, second:
            client.ask("queue_pop_wait", sized(b"/q"))
        for client in crowd, first, second:
            client.ask("ping")
            self.assertEqual(client.receive(5)[0], 0)  # so it waits
        first.send(request("rdzv", "set", sized(b"/last") + sized(b"")) +
                   b"".join(request("rdzv", "queue_push", sized(b"/q%d" % i) + sized(b"")) for i in range(pushes)) +
                   request("rdzv", "queue_push", sized(b"/q") + sized(b"item")) + request("rdzv", "cancel_wait"))
        self.assertEqual(first.receive(pushes + 2), bytes(pushes + 2))
        taker = first if first.receive(1) == b"\0" else second
        if taker is second:
            self.assertEqual(second.receive_status(), 0)
        self.assertEqual(taker.receive_value(), b"item")


class ManyKeys(Attack):
    def test_many_keys_are_set_and_got(self):
        """More than a slice has; with long and short values, in order."""
        names = [b"/m/%d" % i for i in range(SLICE * 5 + 7)]
        values = [b"%d" % i if i % 1000 else b"%d" % i * 20000 for i in range(len(names))]
        pairs = b"".join(sized(name) + sized(value) for name, value in zip(names, values))
        for dialect in ("v2", "rdzv"):
            peer = self.peer(dialect)
            peer.send(request(dialect, "multi_set", u64(len(names)) + pairs) +
                      request(dialect, "check", keys(*names)) + request(dialect, "check", keys(*names, b"/none")) +
                      request(dialect, "multi_get", keys(*names)))
            peer.done()
            for absent in (b"\0", b"\1"):
                peer.done()
                self.assertEqual(peer.receive(1), absent)
            peer.done()
            self.assertEqual([peer.receive_value() for _ in names], values)
            for name in names:
                peer.ask("delete_key", sized(name))
            for _ in names:
                peer.done()
                self.assertEqual(peer.receive(8), u64(1))

    def test_many_values_that_are_waited_for(self):
        names = [b"/w/%d" % i for i in range(SLICE * 4)]
        peer, other = self.peer("rdzv"), self.peer("rdzv")
        for turn in range(2):
            peer.ask("get_wait", keys(*names))
            self.assertGreaterEqual(peer.num_keys(), 0)
            for i, name in enumerate(names):
                other.ask("set", sized(name) + sized(b"%d" % (turn + i)))
            for _ in names:
                other.done()
            peer.done()
            self.assertEqual([peer.receive_value() for _ in names], [b"%d" % (turn + i) for i in range(len(names))])
            for name in names:
                self.assertTrue(other.delete(name))

    def test_all_are_set_or_none(self):
        """Whoever looks sees all of the values of one MULTI_SET or none, however long it took to prepare."""
        names = [b"/all/%d" % i for i in range(MANY)]
        writer, reader = self.peer("rdzv"), self.peer("rdzv")
        for turn in range(3):
            value = b"%d" % turn
            writer.ask("multi_set", u64(MANY) + b"".join(sized(name) + sized(value) for name in names))
            seen = b""
            while seen != value:
                reader.ask("multi_get", keys(names[0], names[SLICE + 1], names[-1]))
                reader.done()
                got = {reader.receive_value() for _ in range(3)}
                self.assertEqual(len(got), 1, got)
                seen = got.pop()
            writer.done()

    def test_a_client_that_leaves_in_the_middle(self):
        """Of each of these, with nothing left behind."""
        names = [b"/gone/%d" % i for i in range(MANY)]
        before = self.peer("rdzv")
        for op, fields in (("multi_set", u64(MANY) + b"".join(sized(name) + sized(b"v") for name in names)),
                           ("multi_get", keys(*names)), ("check", keys(*names)), ("wait", keys(*names)),
                           ("get_wait", keys(*names)), ("list_keys", b"")):
            for _ in range(3):
                peer = Raw(self.port, "rdzv")
                peer.ask(op, fields)
                peer.reset()
        self.assertGreaterEqual(before.num_keys(), 0)


if __name__ == "__main__":
    rdzvtest.main()
