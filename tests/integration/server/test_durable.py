# SPDX-License-Identifier: BSD-3-Clause
"""`rdzv serve --state-dir`: what survives, what is refused, and what a full disk does. tests/chaos/test_durable.py kills
servers under load."""
import os
import random
import shutil
import socket
import sqlite3
import struct
import subprocess
import threading

import rdzvtest

MIB = 1 << 20
EXIT_IO = 7  # RDZV_E_NO_SPACE and RDZV_E_IO


class Client:
    """PyTorch's dialect of 2.x, as far as it is needed here."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), rdzvtest.DEADLINE)
        self.socket.sendall(b"\x00" + struct.pack("<I", 0x3C85F7CE))

    def text(self, value):
        return struct.pack("<Q", len(value)) + value

    def take(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(min(count - len(data), MIB))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data

    def set(self, key, value):
        """Acknowledged: the CHECK behind it is answered."""
        self.socket.sendall(b"\x01" + self.text(key) + self.text(value) + b"\x05" + struct.pack("<Q", 1) + self.text(key))
        return self.take(1) == b"\0"

    def get(self, key):
        self.socket.sendall(b"\x03" + self.text(key))
        return self.take(struct.unpack("<Q", self.take(8))[0])

    def push(self, key, value):
        self.socket.sendall(b"\x0e" + self.text(key) + self.text(value))

    def pop(self, key):
        self.socket.sendall(b"\x0f" + self.text(key))
        left = struct.unpack("<Q", self.take(8))[0]
        return self.take(struct.unpack("<Q", self.take(8))[0]) if left else None

    def delete(self, key):
        self.socket.sendall(b"\x08" + self.text(key))
        return struct.unpack("<Q", self.take(8))[0]

    def close(self):
        self.socket.close()


class Case(rdzvtest.Case):
    def setUp(self):
        super().setUp()
        self.state = self.path("state")

    def durable(self, *flags, state=None, **options):
        return self.serve("--state-dir", state or self.state, *flags, **options)

    def client(self, server):
        client = Client(server.port)
        self.addCleanup(client.close)
        return client

    def kill(self, server):
        server.kill()
        server.wait()

    def refused(self, *flags, state=None):
        """The server does not start; gives its sentence."""
        done = self.rdzv("serve", "--port", "0", "--state-dir", state or self.state, *flags, timeout=rdzvtest.DEADLINE)
        self.assertNotIn(done.returncode, (0, -6, -11), done.stderr)
        self.assertRegex(done.stderr, "^rdzv serve: .+\n$")
        return done.stderr

    def contents(self):
        """Of the files of the state."""
        found = {}
        for name in os.listdir(self.state):
            with open(os.path.join(self.state, name), "rb") as file:
                found[name] = file.read()
        return found


class Survives(Case):
    def test_all_kinds_survive_a_kill(self):
        server = self.durable()
        for dialect in ("v1", "v2", "rdzv"):
            self.assertEqual(self.store(server, "--dialect", dialect, "set", f"k {dialect}", dialect).returncode, 0)
        self.store(server, "add", "number", "41")
        self.store(server, "append", "text", "one")
        self.store(server, "append", "text", " two")
        self.store(server, "set", "gone", "x")
        self.store(server, "delete", "gone")
        self.kill(server)
        server = self.durable()
        self.assertEqual(self.store(server, "keys").stdout.split("\n")[:-1], ["k v1", "k v2", "k rdzv", "number", "text"])
        self.assertEqual(self.store(server, "get", "text").stdout, "one two\n")
        self.assertEqual(self.store(server, "add", "number", "1").stdout, "42\n")
        self.stop(server)

    def test_the_keys_are_counted(self):
        for keys, loaded, left in ((1, "1 key is loaded", "0 clients and 2 keys"), (2, "2 keys are loaded", "0 clients and 3 keys")):
            with self.subTest(keys):
                server = self.durable()
                self.store(server, "set", f"k{keys}", "v")
                self.stop(server)
                with open(self.path("log"), "w+", encoding="utf-8") as log:
                    server = self.durable("--log-level", "info", stderr=log)
                    self.store(server, "set", "another", "v")
                    self.stop(server)
                    log.seek(0)
                    text = log.read()
                self.assertIn(f"info: {loaded} from '", text)
                self.assertIn(f"info: stopping, with {left}\n", text)
                server = self.durable()
                self.store(server, "delete", "another")
                self.stop(server)

    def test_long_values_and_long_keys(self):
        server = self.durable()
        client, key = self.client(server), b"/" + b"k" * 8000
        values = [os.urandom(size) for size in (0, 16 * 1024, 16 * 1024 + 1, 512 * 1024, 3 * MIB)]
        for value in values:  # each in the place of the one before, too
            self.assertTrue(client.set(key, value))
        for number, value in enumerate(values):
            self.assertTrue(client.set(b"/%d" % number, value))
        self.kill(server)
        server = self.durable()
        client = self.client(server)
        self.assertEqual(client.get(key), values[-1])
        for number, value in enumerate(values):
            self.assertEqual(client.get(b"/%d" % number), value)

    def test_queues(self):
        server = self.durable()
        client = self.client(server)
        for number in range(10):
            client.push(b"/q", b"item %d" % number)
        client.push(b"/q", b"x" * 100000)
        self.assertEqual([client.pop(b"/q") for _ in range(3)], [b"item 0", b"item 1", b"item 2"])
        self.kill(server)
        server = self.durable()
        client = self.client(server)
        client.push(b"/q", b"last")
        self.assertEqual([client.pop(b"/q") for _ in range(7)], [b"item %d" % n for n in range(3, 10)])
        self.kill(server)
        client = self.client(self.durable())
        self.assertEqual([client.pop(b"/q"), client.pop(b"/q"), client.pop(b"/q")], [b"x" * 100000, b"last", None])

    def test_a_waiter_is_told_when_it_is_durable(self):
        """What a woken waiter has heard survives."""
        server = self.durable()
        for number in range(20):
            waiter = self.start([rdzvtest.RDZV, "store", "--endpoint", server.endpoint, "get", f"k{number}"],
                                stdout=subprocess.PIPE, text=True)
            writer = self.client(server)
            writer.socket.sendall(b"\x01" + writer.text(b"/k%d" % number) + writer.text(b"v"))  # without an answer
            self.assertEqual(waiter.stdout.readline(), "v\n")
            port = server.port
            self.kill(server)
            server = self.durable("--port", str(port))
            self.assertEqual(self.client(server).get(b"/k%d" % number), b"v")

    def test_an_orderly_stop_keeps_all(self):
        server = self.durable()
        client = self.client(server)
        for number in range(200):
            client.socket.sendall(b"\x01" + client.text(b"/k%d" % number) + client.text(b"v"))
        self.assertTrue(client.set(b"/end", b"v"))
        self.stop(server)
        self.assertEqual(self.store(self.durable(), "num-keys").stdout, "201\n")

    def test_the_folder_follows_the_data(self):
        server = self.durable()
        client = self.client(server)
        for number in range(24):
            self.assertTrue(client.set(b"/%d" % number, os.urandom(MIB)))
        self.assertGreater(self.size(), 24 * MIB)
        for number in range(24):
            self.assertEqual(client.delete(b"/%d" % number), 1)
        rdzvtest.wait_until(lambda: self.size() < 24 * MIB, "the folder gets small")
        rdzvtest.wait_until(lambda: os.path.getsize(os.path.join(self.state, "state.db")) < MIB, "the database, too")

    def size(self):
        return sum(os.path.getsize(os.path.join(self.state, name)) for name in os.listdir(self.state))

    def test_many_clients_while_it_is_killed_lose_nothing(self):
        """Each counts up; after each kill the counter is what was answered, or one more."""
        server = self.durable()
        port, said = server.port, {}
        for _ in range(5):
            workers = [threading.Thread(target=self.count_up, args=(port, number, said)) for number in range(8)]
            for worker in workers:
                worker.start()
            before = sum(said.values())
            rdzvtest.wait_until(lambda: sum(said.values()) > before + 200, "clients count")
            self.kill(server)
            for worker in workers:
                worker.join()
            server = self.durable("--port", str(port))
            for number, last in said.items():
                now = int(self.client(server).get(b"/n%d" % number))
                self.assertIn(now, (last, last + 1), f"counter {number}")
                said[number] = now
            self.store(server, "set", "x", "y")

    @staticmethod
    def count_up(port, number, said):
        client = Client(port)
        try:
            while True:
                client.socket.sendall(b"\x04" + client.text(b"/n%d" % number) + struct.pack("<q", 1))
                said[number] = struct.unpack("<q", client.take(8))[0]
        except OSError:
            client.close()


class Refused(Case):
    def test_a_second_server(self):
        server = self.durable()
        self.assertIn("is in use by another server", self.refused())
        self.assertEqual(self.store(server, "set", "a", "b").returncode, 0)
        self.stop(server)
        self.stop(self.durable())

    def test_what_is_no_folder(self):
        with open(self.state, "w", encoding="ascii") as file:
            file.write("text")
        self.assertRegex(self.refused(), "cannot open the state folder '.*': Not a directory")
        self.assertIn("No such file or directory", self.refused(state=self.path("no/such")))

    def test_no_permission(self):
        os.mkdir(self.state, 0o700)
        done = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", self.rdzv_for_all(), "serve",
                               "--port", "0", "--state-dir", self.state], capture_output=True, text=True, check=False)
        if "setpriv: " in done.stderr:
            rdzvtest.skip("setpriv does not work here")
        self.assertRegex(done.stderr, "cannot open the state folder '.*': Permission denied")

    def test_a_foreign_file(self):
        os.mkdir(self.state)
        with open(os.path.join(self.state, "state.db"), "wb") as file:
            file.write(b"not a database, but some text " * 100)
        before = self.contents()["state.db"]
        self.assertIn("is damaged, or was not made by rdzv", self.refused())
        self.assertEqual(self.contents()["state.db"], before)

    def test_a_foreign_database(self):
        os.mkdir(self.state)
        with sqlite3.connect(os.path.join(self.state, "state.db")) as other:
            other.execute("CREATE TABLE t(x)")
        other.close()
        self.assertIn("was not made by rdzv", self.refused())

    def test_a_newer_format(self):
        self.stop(self.durable())
        with sqlite3.connect(os.path.join(self.state, "state.db")) as database:
            database.execute("PRAGMA user_version = 2")
        database.close()
        self.assertIn("has format 2, but this version of rdzv reads only format 1", self.refused())


class Damaged(Case):
    """Files are cut and changed while no server runs. A state that is served is the whole one that was acknowledged."""

    KEYS = 300

    def fill(self):
        server = self.durable()
        client = self.client(server)
        for number in range(self.KEYS):
            self.assertTrue(client.set(b"/%d" % number, b"value %d " % number * (1 + number % 40)))
        for number in range(0, self.KEYS, 3):
            self.assertTrue(client.set(b"/%d" % number, b"again %d" % number))
        client.push(b"/q", b"item")
        self.assertEqual(client.delete(b"/1"), 1)
        self.kill(server)

    def is_whole(self, server):
        client = self.client(server)
        for number in range(self.KEYS):
            want = b"again %d" % number if number % 3 == 0 else b"value %d " % number * (1 + number % 40)
            self.assertEqual(client.get(b"/%d" % number), b"" if number == 1 else want)
        self.assertEqual(client.pop(b"/q"), b"item")

    def damage(self, draw, folder):
        name = draw.choice(["state.db", "state.db", "state.db-wal", "state.db-wal", "mark"])
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            return f"no {name}"
        size = os.path.getsize(path)
        what = draw.choice(["cut", "flip", "zeros", "noise", "remove"])
        with open(path, "r+b") as file:
            if what == "cut":
                file.truncate(draw.randrange(size))
            elif what != "remove":
                at, length = draw.randrange(size), 1 if what == "flip" else draw.choice([16, 512, 4096])
                file.seek(at)
                old = file.read(length)
                file.seek(at)
                file.write({"flip": bytes([old[0] ^ 1 << draw.randrange(8)]), "zeros": bytes(len(old)),
                            "noise": draw.randbytes(len(old))}[what])
        if what == "remove":
            os.unlink(path)
        return f"{what} {name} ({size} bytes)"

    def test_damage_is_refused_or_mended_and_never_served(self):
        self.fill()
        draw = random.Random(os.environ.get("CHAOS_SEED", "1"))
        counts = {"refused": 0, "whole": 0}
        for number in range(24):
            copy = self.path(f"copy-{number}")
            shutil.copytree(self.state, copy)
            said = self.damage(draw, copy)
            log = self.path("err")
            with open(log, "wb") as errors:
                try:
                    server = self.durable(state=copy, stderr=errors)
                except RuntimeError as error:
                    server = None
                    self.assertRegex(str(error), "ended with [1-9]", said)  # by itself, and not by a signal
            if server:
                try:
                    self.is_whole(server)
                except AssertionError as error:
                    self.fail(f"{said}: served wrong: {error}")
                self.kill(server)
                counts["whole"] += 1
            else:
                with open(log, encoding="utf-8") as file:
                    self.assertRegex(file.read(), "^rdzv serve: .*(damaged|not made by rdzv|malformed|format).*\n$", said)
                counts["refused"] += 1
            shutil.rmtree(copy)
        self.assertGreater(counts["refused"], 4)
        self.assertGreater(counts["whole"], 0)

    def test_a_log_that_lacks_its_last_commit_is_refused(self):
        self.fill()
        path = os.path.join(self.state, "state.db-wal")
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) - 1)
        before = self.contents()
        self.assertRegex(self.refused(), "is damaged: commit [0-9]+ is there, and [0-9]+ was the last one")
        after = self.contents()
        for name in ("state.db", "state.db-wal", "mark"):
            self.assertTrue(before[name] == after[name], f"{name} was changed")


class Full(Case):
    """On a small file system of its own."""

    def mount(self, size):
        self.disk = self.path("disk")
        os.mkdir(self.disk)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.disk], capture_output=True,
                              check=False)
        if done.returncode:
            rdzvtest.skip("a tmpfs cannot be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", self.disk], check=False)
        self.state = os.path.join(self.disk, "state")

    def fill_up(self, leave):
        """Another program takes all space but so much."""
        filler = os.path.join(self.disk, "filler")
        free = os.statvfs(self.disk)
        with open(filler, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_bsize - leave))
        return filler

    def test_writes_are_refused_and_succeed_again(self):
        self.mount("64m")
        server = self.durable("--log-level", "off")
        self.assertEqual(self.store(server, "set", "first", "1").returncode, 0)
        filler = self.fill_up(64 * 1024)
        stored, said = 0, ""
        for number in range(200):
            done = self.store(server, "set", f"k{number}", "x" * 50000)
            if done.returncode:
                said = done.stderr
                self.assertEqual(done.returncode, EXIT_IO, said)
                break
            stored += 1
        self.assertIn("no space", said)
        self.assertEqual(self.store(server, "get", "first").stdout, "1\n")  # reads go on
        for number in range(stored):
            self.assertEqual(self.store(server, "check", f"k{number}").returncode, 0)
        self.assertEqual(self.store(server, "check", f"k{stored}").returncode, 1)  # refused is not done
        os.unlink(filler)
        rdzvtest.wait_until(lambda: self.store(server, "set", "later", "2").returncode == 0, "writes succeed again")
        self.kill(server)
        server = self.durable()
        self.assertEqual(self.store(server, "num-keys").stdout, f"{stored + 2}\n")
        self.assertEqual(self.store(server, "get", "later").stdout, "2\n")

    def test_a_commit_that_does_not_fit_at_all(self):
        """A client of PyTorch waits for space. Other keys are read meanwhile, and all that depends on the commit is refused."""
        self.mount("64m")
        server = self.durable("--log-level", "off")
        self.assertEqual(self.store(server, "set", "first", "1").returncode, 0)
        filler = self.fill_up(64 * 1024)
        writer, value = self.client(server), os.urandom(7 * MIB)  # more than the reserve
        waiting = threading.Thread(target=writer.set, args=(b"/large", value))
        waiting.start()
        rdzvtest.wait_until(lambda: "no space is left" in self.store(server, "--timeout", "1", "set", "k", "v").stderr,
                            "writes are refused")  # the first may be in the same commit
        self.assertEqual(self.store(server, "get", "first").stdout, "1\n")
        done = self.store(server, "--timeout", "60", "num-keys")  # which depends on the commit
        self.assertEqual(done.returncode, EXIT_IO, done.stderr)
        self.assertIn("no space is left", done.stderr)
        self.assertTrue(waiting.is_alive())
        os.unlink(filler)
        waiting.join(rdzvtest.DEADLINE)
        self.assertFalse(waiting.is_alive())
        self.kill(server)
        self.assertEqual(self.client(self.durable()).get(b"/large"), value)

    def test_a_node_that_waits_for_space_says_so(self):
        self.mount("64m")
        server = self.durable("--log-level", "off")
        filler = self.fill_up(0)
        rdzvtest.wait_until(lambda: "no space is left" in self.store(server, "set", "k", "v").stderr, "writes are refused")
        at = ["join", "--once", "--rdzv-endpoint", server.endpoint, "--rdzv-id", "job", "--rdzv-conf"]
        done = self.rdzv(*at, "join_timeout=3")
        self.assertEqual(done.returncode, EXIT_IO, done.stderr)
        self.assertRegex(done.stderr, "warning: the server does not let this node join yet: no space is left for the state .*; "
                         "trying for 3 s more\n")
        self.assertIn("rdzv join: cannot join the rendezvous: no space is left for the state", done.stderr)
        self.assertNotIn("no answer", done.stderr)
        waiting = self.start([rdzvtest.RDZV, *at, "join_timeout=600"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True)
        self.assertIn("no space is left", waiting.stderr.readline())
        os.unlink(filler)
        self.assertIn('"rank":0', waiting.communicate(timeout=rdzvtest.DEADLINE)[0])

    def test_a_disk_that_is_full_at_the_start(self):
        self.mount("16m")
        self.fill_up(0)
        self.assertIn("No space left on device", self.refused())

    def test_a_disk_that_became_read_only(self):
        self.mount("32m")
        server = self.durable("--log-level", "off")
        self.assertEqual(self.store(server, "set", "a", "1").returncode, 0)
        self.stop(server)
        subprocess.run(["mount", "-o", "remount,ro", self.disk], check=True)
        self.assertIn("Read-only file system", self.refused())
        subprocess.run(["mount", "-o", "remount,rw", self.disk], check=True)
        self.assertEqual(self.store(self.durable(), "get", "a").stdout, "1\n")


if __name__ == "__main__":
    rdzvtest.main()
