# SPDX-License-Identifier: BSD-3-Clause
"""Strangers at a protected server: scans, downgrades, cut, changed, slow and replayed handshakes, and floods of them."""
import os
import random
import re
import resource
import socket
import subprocess
import time
import unittest

import protection
import rawclient
import rdzvtest
from protection import OTHER, SECRET, s_client

GREETED = b"rdz\1"  # what our server says to a greeting that it has read; src/wire/op.h


class Scan(protection.Case):
    """`openssl s_client`: what it is offered, and what it gets."""

    def assert_nothing(self, server, *flags):
        done = s_client(server.port, *flags, said=rawclient.HELLO)
        self.assertNotEqual(done.returncode, 0, flags)
        self.assertRegex(done.stdout + done.stderr, rb"alert|error|no protocols", flags)
        self.assertNotIn(b"BEGIN CERTIFICATE", done.stdout)
        self.assertIn(b"read 0 bytes" if b"read 0 bytes" in done.stdout else b"New, (NONE)", done.stdout, flags)

    def test_a_client_with_the_key_is_let_in(self):
        """The protection is TLS 1.3 as others speak it, with forward secrecy, and without a ticket."""
        server = self.guarded()
        client = self.start(["openssl", "s_client", "-connect", server.endpoint, "-tls1_3", *protection.psk(SECRET)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        client.stdin.write(rawclient.HELLO)
        client.stdin.flush()
        said = b""
        while GREETED not in said:
            self.assertTrue(chunk := os.read(client.stdout.fileno(), 65536), said)
            said += chunk
        for text in (b"Reused, TLSv1.3, Cipher is TLS_", b"Server Temp Key: X25519"):
            self.assertIn(text, said)
        for text in (b"Session Ticket", b"BEGIN CERTIFICATE"):
            self.assertNotIn(text, said)
        self.stop(server)

    def test_nobody_else_is(self):
        server = self.guarded()
        right = protection.psk(SECRET)
        for flags in (["-tls1_3"], ["-tls1_3", *protection.psk(OTHER)], ["-tls1_3", "-psk", "00" * 32, *right[2:]],
                      ["-tls1_3", *right[:2], "-psk_identity", "Client_identity"],
                      ["-tls1_3", *right, "-ciphersuites", "TLS_AES_256_GCM_SHA384"],
                      ["-tls1_3", *right, "-groups", "X448"]):
            self.assert_nothing(server, *flags)
        self.assert_works(server, "--secret-file", self.secret)
        self.stop(server)

    def test_no_older_version(self):
        server = self.guarded()
        for flags in (["-tls1_2"], ["-tls1_2", *protection.psk(SECRET)], ["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
                      ["-tls1", "-cipher", "ALL:@SECLEVEL=0"], ["-no_tls1_3", *protection.psk(SECRET)]):
            self.assert_nothing(server, *flags)
        self.wait_for_line(server, "it does not speak TLS 1.3")
        self.stop(server)

    def test_no_early_data(self):
        """A client that sends requests before the server has answered is not executed."""
        server = self.guarded()
        early = self.path("early")
        with open(early, "wb") as file:
            file.write(rawclient.HELLO)
        done = s_client(server.port, "-tls1_3", *protection.psk(SECRET), "-early_data", early)
        self.assertNotIn(b"Early data was accepted", done.stdout)
        self.stop(server)


class Handshakes(protection.Case):
    def recorded(self, server, *operation):
        """The bytes of a client that was let in."""
        recorder = protection.Recorder(server.port)
        self.addCleanup(recorder.close)
        done = self.rdzv("store", "--endpoint", f"127.0.0.1:{recorder.port}", "--secret-file", self.secret, *operation)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [data for data in recorder.sent if data][-1]

    def count(self, server, key="n"):
        return self.store(server, "--secret-file", self.secret, "get", key).stdout

    def test_a_replayed_client_does_nothing(self):
        server = self.guarded()
        key = "replayed-" * 2  # long enough not to be in random bytes by chance
        data = self.recorded(server, "add", key, "1")
        self.assertNotIn(key.encode(), data)
        for _ in range(5):
            said = protection.answer_of(server.port, data)
            self.assertEqual(said[:1], b"\x16")  # the hello is as good as any
        self.assertEqual(self.count(server, key), "1\n")
        self.stop(server)

    def test_a_client_that_is_cut_does_nothing(self):
        server = self.guarded()
        data = self.recorded(server, "add", "n", "1")
        for size in [*range(1, 40), *range(40, len(data), 17)]:
            protection.answer_of(server.port, data[:size])
        self.assertEqual(self.count(server), "1\n")
        self.stop(server)

    def test_a_changed_client_does_nothing(self):
        server = self.guarded()
        data = self.recorded(server, "add", "n", "1")
        dice = random.Random(7)
        for _ in range(200):
            changed = bytearray(data)
            for _ in range(dice.randrange(1, 4)):
                changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
            said = protection.answer_of(server.port, bytes(changed))
            self.assertIn(said[:1], (b"", b"\x15", b"\x16"))
        self.assertEqual(self.count(server), "1\n")
        self.stop(server)

    def test_what_follows_a_handshake_byte_is_never_answered_by_the_store(self):
        """Strangers hear records of TLS: an alert, or a hello. Never data, and never the store."""
        server = self.guarded()
        dice = random.Random(11)
        for _ in range(200):
            data = b"\x16\x03\x01" + dice.randbytes(dice.randrange(80)) + rawclient.HELLO
            said = protection.answer_of(server.port, data)
            self.assertIn(said[:2], (b"", b"\x15\x03", b"\x16\x03"))
            self.assertNotIn(GREETED, said)
        self.stop(server)

    def test_a_slow_handshake_is_closed(self):
        server = self.guarded("--request-timeout", "1")
        silent = socket.create_connection(("127.0.0.1", server.port), timeout=rdzvtest.DEADLINE)
        begun = socket.create_connection(("127.0.0.1", server.port), timeout=rdzvtest.DEADLINE)
        begun.sendall(b"\x16\x03\x01\x01\x00")
        for sock in (silent, begun):
            self.assertEqual(sock.recv(1), b"")
            sock.close()
        self.wait_for_line(server, "it did not finish its handshake in time")
        self.stop(server)

    def test_a_client_that_waits_after_its_handshake_stays(self):
        """The time for the handshake is not the time for a request."""
        server = self.guarded("--request-timeout", "1")
        began = time.monotonic()
        waiting = self.start([rdzvtest.RDZV, "store", "--endpoint", server.endpoint, "--secret-file", self.secret, "get",
                              "late"], stdout=-1, env=protection.without_variables())
        stranger = socket.create_connection(("127.0.0.1", server.port), timeout=rdzvtest.DEADLINE)
        self.assertEqual(stranger.recv(1), b"")  # which is after the time of both
        stranger.close()
        self.assertGreater(time.monotonic() - began, 0.9)
        self.store(server, "--secret-file", self.secret, "set", "late", "here")
        self.assertEqual(waiting.communicate(timeout=rdzvtest.DEADLINE)[0], b"here\n")
        self.stop(server)


class Flood(protection.Case):
    MOST = 4096  # clients that have not finished their handshakes; src/server/cover/cover.c

    def setUp(self):
        super().setUp()
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        if before[1] < self.MOST + 600:
            self.skipTest("too few descriptors")
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, before)

    @staticmethod
    def memory(server):
        with open(f"/proc/{server.pid}/status", encoding="ascii") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1])

    @staticmethod
    def stranger(server, data):
        """Without a look-up of its name: all have to come within the time of a handshake."""
        sock = socket.socket()
        sock.settimeout(rdzvtest.DEADLINE)
        sock.connect(("127.0.0.1", server.port))
        sock.sendall(data)
        return sock

    @unittest.skipIf(rdzvtest.SANITIZED, "the server is too slow for so many in the time of a handshake")
    def test_strangers_are_bounded_and_others_are_served(self):
        """Beyond the bound the oldest one goes. Each has begun a handshake, and holds what the server keeps for it."""
        server = self.guarded()
        self.assert_works(server, "--secret-file", self.secret)
        before = self.memory(server)
        begin = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(32)
        strangers = []
        self.addCleanup(lambda: [sock.close() for sock in strangers])
        for _ in range(self.MOST + 200):
            strangers.append(self.stranger(server, begin))
        strangers[-1].setblocking(False)
        with self.assertRaises(BlockingIOError):
            strangers[-1].recv(1)
        self.assertEqual(strangers[0].recv(1), b"")  # the oldest was closed for a younger one
        self.assertLess(self.memory(server) - before, self.MOST * 48)  # KiB
        self.wait_for_line(server, "too many clients have not finished their handshakes")
        self.assert_works(server, "--secret-file", self.secret, value="2")
        self.stop(server)

    def test_a_flood_does_not_hold_up_a_client(self):
        """While strangers come and go, and send what costs the server most: whole hellos with a wrong secret."""
        server = self.guarded()
        recorder = protection.Recorder(server.port)
        self.addCleanup(recorder.close)
        self.rdzv("store", "--endpoint", f"127.0.0.1:{recorder.port}", "--secret-file", self.secret, "num-keys")
        hello = recorder.sent[0]
        strangers = []
        for round_ in range(10):
            for _ in range(40):
                strangers.append(self.stranger(server, hello))
            self.assert_works(server, "--secret-file", self.secret, value=str(round_))
        for sock in strangers:
            sock.close()
        self.stop(server)


if __name__ == "__main__":
    rdzvtest.main()
