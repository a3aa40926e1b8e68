# SPDX-License-Identifier: BSD-3-Clause
"""One test for each limit of `rdzv serve`: at it is fine; over it that client is refused, with the reason in the log
and, for our own client, in its error; the others are served as before."""
import os
import signal
import time

import rdzvtest
from rawclient import NUMBERS, Client, Raw, keys, request, sized, u64
from rdzvtest import slow

REFUSED = 6  # what the command exits with


class Limits(rdzvtest.Case):
    def open(self, *options):
        self.log_path = self.path("log")
        with open(self.log_path, "w", encoding="utf8") as log:
            self.server = self.serve(*options, stderr=log)
        self.port = self.server.port
        self.witness = Client(self.port, "v2")
        self.addCleanup(self.witness.close)
        self.witness.set(b"/witness", b"here")

    def tearDown(self):
        self.assertEqual(self.witness.get(b"/witness"), b"here")
        self.witness.close()
        self.stop(self.server)
        super().tearDown()

    def log(self):
        with open(self.log_path, encoding="utf8") as file:
            return file.read()

    def assert_logged(self, reason):
        rdzvtest.wait_until(lambda: reason in self.log(), f"'{reason}' is in the log")

    def assert_closed(self, dialect, data):
        """PyTorch's clients can be told no only by closing."""
        with Raw(self.port, dialect) as peer:
            peer.send(data)
            self.assert_brief(peer.wait_closed(), 10)

    def assert_refused(self, reason, *arguments, **options):
        """Our own client gets the reason as a sentence."""
        done = self.store(self.server, *arguments, **options)
        self.assertIn(reason, done.stderr)
        self.assertEqual(done.returncode, REFUSED, done.stderr)

    def assert_done(self, *arguments, **options):
        done = self.store(self.server, *arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_max_key_bytes(self):
        """The length of a key as the user gives it: the slash that clients put before it is not counted."""
        self.open("--max-key-bytes", "100")
        for dialect in ("auto", "v1", "v2"):
            self.assert_done("--dialect", dialect, "set", "k" * 100, "v")
            self.assertEqual(self.assert_done("--dialect", dialect, "get", "k" * 100), "v\n")
        too_long = "a key is too long: 101 (limit 100)"
        self.assert_refused(too_long, "set", "k" * 101, "v")
        self.assert_refused(too_long, "check", "short", "k" * 101)
        for dialect in ("v1", "v2"):
            self.assert_closed(dialect, request(dialect, "get", sized(b"/" + b"k" * 101)))
            self.assert_closed(dialect, request(dialect, "wait", keys(b"short", b"/" + b"k" * 101)))
        self.assert_logged("a key is too long")

    def test_max_value_bytes(self):
        """The length of a value, also of one that grows by appending."""
        self.open("--max-value-bytes", "1K")
        self.assert_done("set", "k", "v" * 1024)
        self.assert_refused("a value is too long", "set", "k", "v" * 1025)
        self.assert_refused("a value is too long", "mset", "a", "1", "b", "v" * 1025)
        self.assert_done("check", "k")
        self.assertEqual(self.store(self.server, "check", "a").returncode, 1)  # nothing of it was set
        self.assert_done("set", "half", "v" * 600)
        self.assert_refused("value limit", "append", "half", "v" * 600)
        self.assertEqual(self.assert_done("get", "half"), "v" * 600 + "\n")
        for dialect in ("v1", "v2"):
            self.assert_closed(dialect, request(dialect, "set", sized(b"/k") + u64(1025)))
            self.assert_closed(dialect, request(dialect, "compare_set", sized(b"/k") + sized(b"") + u64(1025)))
        self.assert_logged("a value is too long")

    def test_a_value_that_is_far_over_the_limit(self):
        """The reason reaches a client that is still sending when it is refused."""
        self.open()
        value = "v" * (64 << 20)
        for _ in range(3):
            self.assert_refused("a value is too long", "set", "k", "-", input=value)
        self.assert_logged("a value is too long")

    def test_max_keys(self):
        """The number of keys in one request."""
        self.open("--max-keys", "5")
        names = [f"k{i}" for i in range(6)]
        self.assert_done("mset", *(text for name in names[:5] for text in (name, "v")))
        self.assert_done("check", *names[:5])
        self.assert_refused("too many keys", "check", *names)
        self.assert_refused("too many keys", "mget", *names)
        self.assert_refused("too many keys", "mset",
                            *(text for name in names for text in (name, "v")))
        for dialect in ("v1", "v2"):
            self.assert_closed(dialect, request(dialect, "check", u64(6)))
            self.assert_closed(dialect, request(dialect, "wait", u64(2**64 - 1)))
        self.assert_logged("too many keys")

    def test_max_waits(self):
        """The keys that one client waits for and watches; those that it does not wait for any more do not count."""
        self.open("--max-waits", "5")
        with Client(self.port, "rdzv") as client:
            for _ in range(3):
                client.begin_wait(b"/a", b"/b", b"/c")
                client.begin_wait(b"/d", b"/e")
                client.begin_wait(b"/f")
                self.assertIn("too many keys: 6 (limit 5)", client.receive_status()[1])
                client.ask("cancel_wait")
                self.assertEqual(client.receive(1), b"\1")
        with Raw(self.port, "v1") as peer:
            peer.send(request("v1", "watch_key", sized(b"/w")) * 5)
            self.assertEqual(peer.receive(5), b"\3" * 5)
            peer.ask("watch_key", sized(b"/w"))
            self.assert_brief(peer.wait_closed(), 10)
        self.assert_logged("too many keys: 6 (limit 5)")

    def fill(self, client, size=50000):
        """Sets values until one is refused; gives how many were set."""
        count = 0
        while True:
            client.ask("set", sized(b"/fill/%d" % count) + sized(bytes(size)))
            status = client.receive_status()
            if status != 0:
                self.assertEqual(status[0], -11)
                return count
            count += 1

    def test_max_memory(self):
        """Memory that is used up refuses what needs more of it; deleting makes room, all of it, again and again."""
        self.open("--max-memory", "4M")
        with Client(self.port, "rdzv") as client:
            first = self.fill(client)
            self.assertGreater(first, 50)
            self.assertLess(first, 84)
            self.assert_refused("memory limit", "set", "one-more", "v" * 50000)
            self.assertEqual(self.witness.get(b"/witness"), b"here")
            self.assertEqual(self.witness.add(b"/small", 1), 1)
            self.assert_closed("v2", request("v2", "set", sized(b"/k") + sized(bytes(50000))))
            self.assert_logged("memory limit")
            for _ in range(5):
                for i in range(first):
                    self.assertTrue(client.delete(b"/fill/%d" % i))
                self.assertEqual(self.fill(client), first)

    def test_max_memory_counts_waits(self):
        """Those who wait take memory too, and give it back when they leave."""
        self.open("--max-memory", "2M")
        with Client(self.port, "rdzv") as client:
            before = self.fill(client, 10000)
            for i in range(before):
                client.delete(b"/fill/%d" % i)
        for _ in range(3):
            with Raw(self.port, "v2") as waiting:
                try:
                    for i in range(20000):
                        waiting.ask("wait", keys(b"/never/%d" % i))
                except ConnectionError:
                    pass
                waiting.wait_closed()
        self.assert_logged("no memory is left for its wait")
        with Client(self.port, "rdzv") as client:
            self.assertEqual(self.fill(client, 10000), before)

    def test_max_memory_is_not_taken_by_announcing(self):
        """Memory comes with the bytes of a value, not with its length."""
        self.open("--max-memory", "20M", "--request-timeout", "60")
        peers = [Raw(self.port, dialect) for dialect in NUMBERS for _ in range(10)]
        for peer in peers:
            peer.ask("set", sized(b"/announced") + u64(8 << 20) + bytes(1000))
        self.witness.num_keys()  # all that was sent before has been read
        for peer in peers:
            peer.send(bytes(1000))
        self.witness.num_keys()
        for i in range(10):
            self.assert_done("set", f"k{i}", "-", input="v" * (1 << 20))
        self.assertEqual(self.log(), "")
        for peer in peers:
            peer.close()

    def test_max_memory_holds_though_connections_come_and_go(self):
        """Connections that come while memory is used up must not make the count of it drift when they go."""
        self.open("--max-memory", "2M")
        with Client(self.port, "rdzv") as client:
            self.fill(client)
            size, count = 50000, 0
            while size > 0:  # to the last byte
                client.ask("set", sized(b"/rest/%d" % count) + sized(bytes(size)))
                size, count = (size // 2, count) if client.receive_status() != 0 else (size, count + 1)
            for _ in range(10):
                peers = [Raw(self.port) for _ in range(200)]
                client.num_keys()
                for peer in peers:
                    peer.close()
            client.num_keys()
            client.ask("set", sized(b"/more") + sized(bytes(100000)))
            self.assertNotEqual(client.receive_status(), 0, "there is memory that was not there before")

    def test_max_connections(self):
        """One over the limit is closed; when another leaves there is room again."""
        self.open("--max-connections", "3")
        first, second = Client(self.port, "rdzv"), Client(self.port, "v1")
        first.num_keys(), second.num_keys()
        with Raw(self.port) as third:
            self.assert_brief(third.wait_closed(), 10)
        self.assert_logged("the limit of connections is reached")
        done = self.store(self.server, "--timeout", "0.5", "num-keys")
        self.assertEqual(done.returncode, 3, done.stderr)
        first.close()
        rdzvtest.wait_until(lambda: self.store(self.server, "num-keys").returncode == 0, "there is room again")
        second.close()

    def test_request_timeout(self):
        """For the rest of a request, and for reading an answer. One that waits for a key has finished its request."""
        self.open("--request-timeout", str(slow(0.5)))
        waiting = Client(self.port, "v1")
        waiting.begin_wait(b"/later")
        with Raw(self.port, "v2") as half:
            half.send(request("v2", "set")[:-1])
            lasted = half.wait_closed()
            self.assertGreater(lasted, 0.4)
            self.assert_brief(lasted, 10)
        self.assert_logged("it did not finish its request in time")
        self.witness.set(b"/large", bytes(8 << 20))
        self.witness.num_keys()  # so that it is there for the others
        unread = Raw(self.port, "v2", receive_buffer=4096)
        for _ in range(5):
            unread.ask("get", sized(b"/large"))
        self.assert_logged("it did not read its answer in time")
        unread.close()
        self.witness.set(b"/later", b"")
        waiting.end_wait()
        waiting.close()

    def test_a_slow_reader_that_keeps_reading_is_served(self):
        """The timeout is for one that does not read, not for all that it has asked for together."""
        timeout = slow(1.5)
        self.open("--request-timeout", str(timeout))
        self.witness.set(b"/large", bytes(1 << 20))
        self.witness.num_keys()  # so that it is there for the others
        with Client(self.port, "v2", receive_buffer=4096) as reader:
            for _ in range(20):
                reader.ask("get", sized(b"/large"))
            began = time.monotonic()
            for _ in range(20):
                self.assertEqual(len(reader.receive_value()), 1 << 20)
                time.sleep(timeout / 8)
            self.assertGreater(time.monotonic() - began, 2 * timeout)
            self.assertGreater(reader.num_keys(), 0)

    def test_a_refusal_tells_our_client_that_was_too_slow(self):
        """A client of our dialect is told why, if it is still there to read."""
        self.open("--request-timeout", "0.3")
        with Raw(self.port, "rdzv") as half:
            half.send(request("rdzv", "set")[:-1])
            self.assertEqual(half.receive_status(), (-3, "it did not finish its request in time"))
            half.wait_closed()

    def test_idle_timeout(self):
        """A client that asks for nothing is closed; one that waits is not idle, nor one that watches."""
        idle_time = slow(1.5)
        self.open("--idle-timeout", str(idle_time))
        waiting = Client(self.port, "rdzv")
        waiting.begin_wait(b"/later")
        watching = Raw(self.port, "v1")
        watching.ask("watch_key", sized(b"/later"))
        self.assertEqual(watching.receive(1), b"\3")
        with Raw(self.port, "v1") as silent, Client(self.port, "v2") as idle:
            idle.num_keys()
            for peer in (silent, idle):
                self.assert_brief(peer.wait_closed(), 10)
        self.assert_logged("it was idle for too long")
        end = time.monotonic() + idle_time
        self.witness.close()
        self.witness = Client(self.port, "v2")
        while time.monotonic() < end:  # the limit once more; this one is never idle
            self.witness.num_keys()
            time.sleep(0.02)
        self.witness.set(b"/later", b"")
        waiting.end_wait()
        self.assertEqual(watching.receive(1), b"\1")
        waiting.close()
        watching.close()

    def test_the_end_of_a_wait_is_no_idleness(self):
        """The idle time of one that waited begins when its wait is over, not when it asked."""
        idle_time = slow(2)
        self.open("--idle-timeout", str(idle_time))
        with Client(self.port, "v2") as waiting:
            waiting.begin_wait(b"/later")
            end = time.monotonic() + 0.9 * idle_time
            while time.monotonic() < end:
                self.witness.num_keys()
                time.sleep(0.02)
            self.witness.set(b"/later", b"")
            waiting.end_wait()
            end = time.monotonic() + 0.4 * idle_time  # longer since it asked than it may be idle, not since it was answered
            while time.monotonic() < end:
                self.witness.num_keys()
                time.sleep(0.02)
            waiting.num_keys()

    def test_who_is_answered_late_was_not_idle(self):
        """The waits of many end at once. They are answered one by one, and meanwhile none is taken for idle."""
        idle_time = slow(0.5)
        self.open("--idle-timeout", str(idle_time))
        for turn in range(12):
            waiting = []
            for _ in range(200):
                waiting.append(Client(self.port, "rdzv"))
                self.addCleanup(waiting[-1].close)
                waiting[-1].ask("get_wait", keys(b"/%d" % turn))
            time.sleep(idle_time + turn * 0.007)  # the subject: the idle time is over, at one moment or another
            waiting = [client for client in waiting if not client.is_closed()]  # who was too slow with its request
            self.assertGreater(len(waiting), 100)
            with Client(self.port, "v2") as last:
                last.set(b"/%d" % turn, bytes(60000))
            for client in waiting:
                self.assertEqual(client.receive_status(), 0)
                self.assertEqual(len(client.receive_value()), 60000)
                client.close()
        self.witness = Client(self.port, "v2")

    def test_a_large_value_that_ends_a_wait_leaves_the_connection_in_order(self):
        """An answer that does not fit into the socket at once, given to one that waited, is followed by the next."""
        self.open()
        large = os.urandom(1 << 20) * 7
        for dialect in ("rdzv", "v1"):
            with Client(self.port, dialect, receive_buffer=4096) as reader:
                if dialect == "rdzv":
                    reader.ask("get_wait", keys(b"/large"))
                else:
                    reader.ask("watch_key", sized(b"/large"))
                    self.assertEqual(reader.receive(1), b"\3")
                self.witness.num_keys()
                self.witness.set(b"/large", large)
                if dialect == "rdzv":
                    self.assertEqual(reader.receive_status(), 0)
                else:
                    self.assertEqual(reader.receive(1), b"\1")
                    self.assertEqual(reader.receive_value(), b"/large")
                    self.assertEqual(reader.receive_value(), b"")
                self.assertEqual(reader.receive_value(), large)
                self.witness.num_keys()
                self.assertEqual(reader.add(b"/after", 1), 1)
            self.witness.delete(b"/large")
            self.witness.delete(b"/after")

    def test_signals_until_the_end(self):
        """Signals that come again and again while it ends change nothing: it ends once, with 0."""
        self.open()
        clients = [Client(self.port, dialect) for dialect in NUMBERS for _ in range(20)]
        for client in clients:
            client.begin_wait(b"/never")
        server, port_file = self.server, self.server.port_file
        while server.poll() is None:
            server.send_signal(signal.SIGTERM)
            server.send_signal(signal.SIGINT)
        self.assertEqual(server.returncode, 0, self.log())
        self.assertFalse(os.path.exists(port_file))
        for client in clients:
            if client.dialect == "rdzv":
                self.assertEqual(client.receive_status(), (-18, "the server is stopping"))
            client.wait_closed()
            client.close()
        self.witness.close()
        self.open()  # for tearDown


if __name__ == "__main__":
    rdzvtest.main()
