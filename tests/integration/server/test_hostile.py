# SPDX-License-Identifier: BSD-3-Clause
"""A server under clients that mean no good, while others work: those must see no error and no long wait.

Every test here runs with three well-behaved clients, one of each dialect, that set, get, add and wait all the time and
check every answer. Afterwards the server has no descriptor more than at the beginning, and ends in order.
"""
import contextlib
import multiprocessing
import os
import random
import re
import resource
import select
import socket
import time

import rdzvtest
from rawclient import NUMBERS, SAMPLES, Client, HELLO, Raw, VALIDATE, keys, request, sized, u64

LATENCY = rdzvtest.slow(5.0)  # seconds: far more than is needed, far less than a stalled server takes
REQUEST_TIMEOUT = rdzvtest.slow(1.0)
SEED = int(os.environ.get("RDZV_SEED", "20240607"))
context = multiprocessing.get_context("fork")


def work(dialect, port, stop, report):
    """What a well-behaved client does until it is told to stop; reports its rounds, its longest wait and its error."""
    rounds, longest, error = 0, 0.0, None
    name = dialect.encode()
    dice = random.Random(dialect)
    try:
        with Client(port, dialect) as one, Client(port, dialect) as two:
            while not stop.is_set():
                value = dice.randbytes(dice.choice((0, 10, 2000)))
                turn = b"/turn/%s/%d" % (name, rounds)
                began = time.monotonic()
                one.begin_wait(turn)
                two.set(b"/value/" + name, value)
                got = two.get(b"/value/" + name)
                count = two.add(b"/count/" + name, 1)
                two.set(turn, b"")
                one.end_wait()
                deleted = two.delete(turn)
                longest = max(longest, time.monotonic() - began)
                rounds += 1
                time.sleep(0.002)  # so that it does not take a processor for itself
                assert got == value and count == rounds and deleted, (got == value, count, rounds, deleted)
    except Exception as what:  # whatever it is, the test must hear of it
        error = f"{dialect}, round {rounds}: {what!r}"
    report.put((rounds, longest, error))


class Hostile(rdzvtest.Case):
    options = ()

    def setUp(self):
        super().setUp()
        self.dice = random.Random(SEED)
        self.log_path = self.path("log")
        with open(self.log_path, "w", encoding="utf8") as log:
            self.server = self.serve("--request-timeout", str(REQUEST_TIMEOUT), *self.options, stderr=log)
        self.port = self.server.port
        with Client(self.port, "rdzv") as client:  # so that all that is made once is made
            client.set(b"/first", b"")
        rdzvtest.wait_until(lambda: self.descriptors() == self.listening(), "the server closes its first client")
        self.baseline = self.descriptors()
        self.stopping = context.Event()
        self.reports = context.Queue()
        self.workers = [context.Process(target=work, args=(dialect, self.port, self.stopping, self.reports))
                        for dialect in NUMBERS]
        for worker in self.workers:
            worker.start()
            self.addCleanup(worker.join)
            self.addCleanup(worker.terminate)
        with Client(self.port, "v2") as client:
            for dialect in NUMBERS:  # until each has begun
                client.begin_wait(b"/count/" + dialect.encode())
                client.end_wait()

    def tearDown(self):
        if self.server.poll() is not None:
            self.fail(f"the server ended with {self.server.returncode}: {self.log()[-3000:]}")
        self.stopping.set()
        reports = [self.reports.get(timeout=rdzvtest.DEADLINE) for _ in self.workers]
        for worker in self.workers:
            worker.join(rdzvtest.DEADLINE)
        for rounds, longest, error in reports:
            self.assertIsNone(error)
            self.assertGreater(rounds, 0)
            self.assert_brief(longest, LATENCY)
        rdzvtest.wait_until(lambda: self.descriptors() <= self.baseline, "the server closes every connection")
        self.stop(self.server)
        super().tearDown()

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.server.pid}/fd"))

    def listening(self):
        """The descriptors of a server without clients: all but connected sockets."""
        connected = sum(name.startswith("socket:") for name in rdzvtest.descriptors(self.server.pid).values())
        return self.descriptors() - connected + 1

    def resident(self):
        """Bytes of memory that the server really has."""
        with open(f"/proc/{self.server.pid}/smaps_rollup", encoding="ascii") as file:
            return int(re.search(r"^Rss:\s+(\d+) kB", file.read(), re.M).group(1)) * 1024

    def log(self):
        with open(self.log_path, encoding="utf8") as file:
            return file.read()

    def assert_logged(self, *reasons):
        for reason in reasons:
            rdzvtest.wait_until(lambda: reason in self.log(), f"'{reason}' is in the log")

    def assert_grows_less_than(self, before, limit):
        if not rdzvtest.SANITIZED:  # a sanitizer keeps what was freed
            self.assertLess(self.resident() - before, limit)


class Garbage(Hostile):
    def test_random_bytes(self):
        """Bytes that mean nothing end in a closed connection, or in waiting for more of them, and in nothing else."""
        for i in range(300):
            with Raw(self.port) as peer:
                data = self.dice.randbytes(self.dice.randint(1, 3000))
                if i % 3 == 1:
                    data = VALIDATE + data
                if i % 3 == 2:
                    data = HELLO + data
                try:
                    peer.send(data)
                    peer.socket.shutdown(socket.SHUT_WR)
                    peer.wait_closed()
                except ConnectionError:
                    pass

    def test_other_protocols(self):
        """What else knocks at a port: a browser, TLS, SSH, a Redis client, a port scanner that says nothing."""
        for knock in (b"GET / HTTP/1.1\r\nHost: rdzv\r\n\r\n", bytes.fromhex("16030100f8010000f40303") + bytes(240),
                      b"SSH-2.0-OpenSSH_9.2\r\n", b"*1\r\n$4\r\nPING\r\n", b""):
            with Raw(self.port) as peer:
                peer.send(knock)
                peer.socket.shutdown(socket.SHUT_WR)
                peer.wait_closed()

    def test_requests_that_are_cut_off(self):
        """Every operation of every dialect, cut at some byte, then the end: orderly or by a reset."""
        for dialect, numbers in NUMBERS.items():
            for op in numbers:
                whole = request(dialect, op)
                for cut in {0, 1, len(whole) // 2, len(whole) - 1}:
                    peer = Raw(self.port, dialect)
                    peer.send(whole[:cut])
                    if self.dice.random() < 0.5:
                        peer.reset()
                    else:
                        peer.close()

    def test_lengths_that_lie(self):
        """A length or count that is over its limit ends the connection at once, before its bytes and the timeout."""
        before = self.resident()
        for number in (2**64 - 1, 2**63, 2**63 - 1, 2**32, 2**31, 64 << 20):
            for dialect in NUMBERS:
                lies = (request(dialect, "get", u64(number)), request(dialect, "set", sized(b"/k") + u64(number)),
                        request(dialect, "wait", u64(number)), request(dialect, "check", u64(1) + u64(number)),
                        request(dialect, "compare_set", sized(b"/k") + sized(b"") + u64(number)))
                for lie in lies:
                    with Raw(self.port, dialect) as peer:
                        peer.send(lie)
                        peer.wait_closed()
        self.assert_logged("a key is too long", "a value is too long",
                           "too many keys")
        self.assertNotIn("it did not finish its request in time", self.log())
        self.assert_grows_less_than(before, 16 << 20)

    def test_lengths_without_their_bytes_take_no_memory(self):
        """To announce a value costs nothing: memory comes with the bytes. 99 clients announce 8 MiB each."""
        before = self.resident()
        peers = [Raw(self.port, dialect) for _ in range(33) for dialect in NUMBERS]
        for peer in peers:
            peer.ask("set", sized(b"/k") + u64(8 << 20) + bytes(1000))
        with Client(self.port, "v2") as client:
            client.num_keys()  # all that was sent before has been read
            for peer in peers:
                peer.send(bytes(1000))
            client.num_keys()
        self.assert_grows_less_than(before, 32 << 20)
        for peer in peers:
            peer.wait_closed()
            peer.close()


class Slow(Hostile):
    def test_half_a_request_is_closed_after_the_request_timeout(self):
        """Half a request holds a connection no longer than the timeout, in every dialect."""
        peers = []
        for dialect in NUMBERS:
            peers.append(Raw(self.port, dialect))
            peers[-1].send(request(dialect, "set")[:12])
        for peer in peers:
            self.assert_brief(peer.wait_closed(), REQUEST_TIMEOUT + LATENCY)
            peer.close()
        self.assert_logged("it did not finish its request in time")

    def test_a_drip_is_closed_after_the_request_timeout(self):
        """Neither does a request that comes byte by byte: each byte is no new beginning."""
        with Raw(self.port, "rdzv") as peer:
            began = time.monotonic()
            data = request("rdzv", "set", sized(b"/k") + sized(bytes(1000)))
            for byte in data:
                if select.select([peer.socket], [], [], 0.05)[0]:
                    break
                try:
                    peer.send(bytes([byte]))
                except ConnectionError:
                    break
            lasted = time.monotonic() - began
            self.assertGreater(lasted, REQUEST_TIMEOUT * 0.9)
            self.assert_brief(lasted, REQUEST_TIMEOUT + LATENCY)

    def test_half_a_greeting_is_closed_too(self):
        """The first bytes, from which the dialect is found out, are a request like any other."""
        with Raw(self.port) as peer:
            peer.send(VALIDATE[:3])
            self.assert_brief(peer.wait_closed(), REQUEST_TIMEOUT + LATENCY)

    def test_a_slow_request_that_is_finished_in_time_is_served(self):
        """Slow is not late: pieces that make up a request within the timeout are answered."""
        with Client(self.port, "v1") as client:
            for _ in range(3):
                for byte in request("v1", "add", sized(b"/slow") + u64(1)):
                    client.send(bytes([byte]))
                    time.sleep(REQUEST_TIMEOUT / 60)
                client.receive(8)


class NeverReads(Hostile):
    def setUp(self):
        super().setUp()
        with Client(self.port, "rdzv") as client:
            client.set(b"/large", bytes(8 << 20))
            client.set(b"/small", bytes(1000))

    def assert_closed_and_bounded(self, peers, before):
        """While they do not read the server's memory is bounded, and after the timeout they are closed."""
        most = 0
        end = time.monotonic() + REQUEST_TIMEOUT + rdzvtest.DEADLINE
        while time.monotonic() < end and self.descriptors() > self.baseline + 6:
            most = max(most, self.resident())
            time.sleep(0.05)
        self.assertLessEqual(self.descriptors(), self.baseline + 6, "they were not closed")
        if not rdzvtest.SANITIZED:
            self.assertLess(most - before, 16 * (8 << 20) + (32 << 20))
        for peer in peers:
            peer.close()

    def pipeline(self, dialect, op, fields, count):
        """A client that asks and asks and does not read. It sends as long as its socket takes it."""
        peer = Raw(self.port, dialect, receive_buffer=4096)
        peer.socket.setblocking(False)
        try:
            for _ in range(count):
                peer.ask(op, fields)
        except (BlockingIOError, ConnectionError):
            pass  # it takes no more, or has been closed for it already
        return peer

    def test_answers_that_are_not_read(self):
        """One answer's worth is kept for a client that does not read, however many it has asked for."""
        before = self.resident()
        peers = [self.pipeline(dialect, "get", sized(b"/large"), 1000) for dialect in NUMBERS for _ in range(4)]
        self.assert_closed_and_bounded(peers, before)
        self.assert_logged("it did not read its answer in time")

    def test_small_answers_that_are_not_read(self):
        """The same with many small ones."""
        before = self.resident()
        peers = [self.pipeline(dialect, "get", sized(b"/small"), 200000) for dialect in NUMBERS for _ in range(2)]
        self.assert_closed_and_bounded(peers, before)

    def test_waits_whose_answers_are_not_read(self):
        """Answers that come later, when somebody else sets the key, are kept and timed like the others."""
        before = self.resident()
        peers = [self.pipeline("rdzv", "get_wait", keys(b"/later"), 3) for _ in range(8)]
        with Client(self.port, "v2") as client:
            client.num_keys()
            client.set(b"/later", bytes(4 << 20))
            client.num_keys()
        self.assert_closed_and_bounded(peers, before)
        self.assert_logged("it did not read its answer in time")

    def test_a_watcher_that_does_not_read(self):
        """A watcher that does not read what it is told is closed like any other that does not read."""
        before = self.resident()
        peers = [self.pipeline("v1", "watch_key", sized(b"/watched"), 1) for _ in range(4)]
        with Client(self.port, "v2") as client:
            client.num_keys()
            for _ in range(4):
                client.set(b"/watched", bytes(2 << 20))
            client.num_keys()
        self.assert_closed_and_bounded(peers, before)

    def test_a_watcher_that_stops_reading(self):
        """One that read at first and then no more is closed too: what it has read before does not count for ever."""
        watcher = self.pipeline("v1", "watch_key", sized(b"/watched"), 1)
        watcher.socket.settimeout(rdzvtest.DEADLINE)
        size = 4 << 20
        with Client(self.port, "v2") as client:
            client.num_keys()
            for _ in range(4):
                client.set(b"/watched", bytes(size))
            client.num_keys()
        watcher.receive(2 * size)  # the answer to its request, the first event, most of the second
        self.assert_closed_and_bounded([watcher], self.resident())


class Crowd(Hostile):
    def test_thousands_of_connections_that_come_and_go(self):
        """Connections that say nothing and leave, in all the ways one can leave."""
        for _ in range(30):
            peers = [Raw(self.port) for _ in range(100)]
            for i, peer in enumerate(peers):
                if i % 3 == 0:
                    peer.reset()
                else:
                    peer.close()

    def test_many_waits_that_are_left_behind(self):
        """10000 waits for keys that do not come in time: when they are gone, the keys that come wake nobody."""
        names = [b"/never/%d" % n for n in range(1250)]
        for round_ in range(2):
            peers = [Raw(self.port, dialect) for dialect in ("v1", "v2", "rdzv", "rdzv")]
            for peer in peers:
                peer.send(b"".join(request(peer.dialect, "wait", keys(b"/n%d" % n, name))
                                   for n, name in enumerate(names)))
            with Client(self.port, "v1") as client:
                client.num_keys()
            for peer in peers:
                peer.reset() if round_ else peer.close()
        rdzvtest.wait_until(lambda: self.descriptors() <= self.baseline + 6, "they are gone")
        with Client(self.port, "rdzv") as client:
            before = client.num_keys()
            for n, name in enumerate(names):
                client.set(name, b"")
                client.set(b"/n%d" % n, b"")
            self.assertGreaterEqual(client.num_keys(), before + 2 * len(names) - 3)  # the others come and go

    def test_many_who_wait_for_one_key(self):
        """Three hundred wait for a key, half of them leave, one sets it: the others are told, once."""
        peers = [Client(self.port, dialect) for _ in range(100) for dialect in NUMBERS]
        for peer in peers:
            peer.begin_wait(b"/start", b"/start")
        for peer in peers[::2]:
            peer.reset()
        with Client(self.port, "v2") as client:
            client.num_keys()
            client.set(b"/start", b"")
            for peer in peers[1::2]:
                peer.end_wait()
                peer.num_keys()  # and the connection is in order
                peer.close()


class Flood(Hostile):
    options = ("--max-connections", "40")

    def test_more_connections_than_are_allowed(self):
        """Those over the limit are closed at once; the others notice nothing, and places are free again afterwards."""
        for _ in range(5):
            peers = [Raw(self.port) for _ in range(100)]
            refused = 0
            for peer in peers:
                peer.socket.settimeout(0.2)
                try:
                    refused += peer.socket.recv(1) == b""
                except TimeoutError:
                    break  # one that was let in: so are none after it, whose answers are there already
                except ConnectionError:
                    refused += 1
            rdzvtest.wait_until(lambda: self.descriptors() <= self.baseline + 40, "the flood is held back")
            for peer in peers:
                peer.close()
            rdzvtest.wait_until(lambda: self.descriptors() <= self.baseline + 6, "their places are free")
            with Client(self.port, "rdzv") as client:
                client.num_keys()
        self.assert_logged("the limit of connections is reached")


class NoDescriptors(Hostile):
    def setUp(self):
        self.limit = 60
        super().setUp()

    def serve(self, *options, **popen_options):
        return super().serve(*options, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60)),
                             **popen_options)

    def test_more_connections_than_descriptors(self):
        """A process that has no descriptors left for them closes newcomers, keeps its clients, and recovers."""
        for _ in range(3):
            peers = [Raw(self.port) for _ in range(150)]
            rdzvtest.wait_until(lambda: self.descriptors() >= self.limit - 40, "the descriptors are used up")
            for peer in peers:
                peer.close()
            rdzvtest.wait_until(lambda: self.descriptors() <= self.baseline + 6, "they are free again")
            with Client(self.port, "rdzv") as client:
                client.num_keys()


class ServerWithoutDescriptors(rdzvtest.Case):
    """Other parts of the process have taken the descriptors, which no limit of the server's own can know."""

    def setUp(self):
        super().setUp()
        taken = [os.open("/dev/null", os.O_RDONLY) for _ in range(40)]
        self.addCleanup(lambda: [os.close(fd) for fd in taken])
        self.log_path = self.path("log")
        with open(self.log_path, "w", encoding="utf8") as log:
            self.server = self.serve(stderr=log, pass_fds=taken,
                                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))

    def log(self):
        with open(self.log_path, encoding="utf8") as file:
            return file.read()

    def test_surplus_clients_are_closed_with_a_reason_in_the_log(self):
        peers = [Raw(self.server.port) for _ in range(30)]
        closed = 0
        for peer in reversed(peers):  # the first ones have got the descriptors
            if closed == 5:
                break
            peer.wait_closed(10)
            closed += 1
        rdzvtest.wait_until(lambda: "cannot open more descriptors" in self.log(), "the reason is in the log")
        self.assertLess(self.log().count("\n"), 200)
        with contextlib.suppress(ConnectionError):
            for _ in range(2000):  # a flood of them gets some lines a second, not a line each
                Raw(self.server.port).close()
        self.assertLess(self.log().count("\n"), 200)
        for peer in peers:
            peer.close()
        rdzvtest.wait_until(self.is_served, "there is room again")
        self.stop(self.server)

    def is_served(self):
        return self.store(self.server, "num-keys").returncode == 0


class Everything(Hostile):
    def test_everything_at_once(self):
        """Some seconds of all of it, mixed by dice."""
        end = time.monotonic() + 4
        open_peers = []
        ops = [(dialect, op) for dialect, numbers in NUMBERS.items() for op in numbers]
        while time.monotonic() < end:
            dialect, op = self.dice.choice(ops)
            try:
                peer = Raw(self.port, dialect)
                whole = request(dialect, op, self.dice.choice((None, None, self.dice.randbytes(30))))
                peer.send(whole[:self.dice.randint(0, len(whole))] if self.dice.random() < 0.5 else
                          whole * self.dice.randint(1, 50))
                open_peers.append(peer)
            except ConnectionError:
                pass
            if len(open_peers) > 100:
                victim = open_peers.pop(self.dice.randrange(len(open_peers)))
                victim.reset() if self.dice.random() < 0.5 else victim.close()
        for peer in open_peers:
            peer.close()


assert set(SAMPLES) >= set(NUMBERS["rdzv"])

if __name__ == "__main__":
    print(f"RDZV_SEED={SEED}")
    rdzvtest.main()
