# SPDX-License-Identifier: BSD-3-Clause
"""Power loss. What was synced is there, and of what was written since, any sectors: tests/lib/write_log.c notes both. A
durable server goes on from that with every write that it has answered."""
import os
import shutil
import struct
import unittest

import chaos
import rdzvtest
from rawclient import Client

SHIM = rdzvtest.built("tests/write_log.so")
KEYS = 8
SECTOR = 512


class File:
    def __init__(self):
        self.safe = bytearray()  # as it was when it was synced last
        self.later = []  # (offset, bytes), or (length, None): cut to that length
        self.is_there, self.is_gone = False, False  # for good; perhaps

    def sync(self):
        for offset, data in self.later:
            put(self.safe, offset, data)
        self.later, self.is_there, self.is_gone = [], True, False

    def after(self, luck, lies):
        """Its bytes; None: it is not there. `lies`: a sync has saved nothing."""
        if (not self.is_there or self.is_gone) and luck.random() < 0.5:
            return None
        found = bytearray() if lies else bytearray(self.safe)
        reached = luck.choice((0, 0.5, 0.9))
        for offset, data in [] if lies else self.later:
            if data is None:
                if luck.random() < reached:
                    put(found, offset, None)
                continue
            for at in range(0, len(data), SECTOR):
                if luck.random() < reached:
                    put(found, offset + at, data[at:at + SECTOR])
        return bytes(found)


def put(content, offset, data):
    if data is None:
        del content[offset:]
    elif len(content) < offset:
        content.extend(bytes(offset - len(content)))
    if data is not None:
        content[offset:offset + len(data)] = data


def log_record(kind, name, data=b"", offset=0):
    """As write_log.c writes it."""
    return struct.pack("<cB", kind.encode(), len(name)) + name.encode() + struct.pack("<qq", offset, len(data)) + data


def read_log(log):
    """The files, by name."""
    with open(log, "rb") as file:
        text = file.read()
    files, at = {}, 0
    while at < len(text):
        kind, size = chr(text[at]), text[at + 1]
        name = text[at + 2:at + 2 + size].decode()
        at += 2 + size
        offset, length = struct.unpack_from("<qq", text, at)
        at += 16
        if kind == "s" and not name:
            for gone in [each for each in files if files[each].is_gone]:
                del files[gone]
            continue
        file = files.setdefault(name, File())
        if kind == "w":
            file.later.append((offset, text[at:at + length]))
            at += length
        elif kind == "t":
            file.later.append((offset, None))
        elif kind == "u":
            file.is_gone = True
        else:
            file.sync()
    return files


def make_image(log, left, folder, luck, lies=False):
    """Makes the folder as it may be. `left`: as the process has left it, for what it has mapped and so was not logged."""
    os.mkdir(folder, 0o700)
    for name, file in read_log(log).items():
        content = file.after(luck, lies)
        if content is not None:
            with open(os.path.join(folder, name), "wb") as out:
                out.write(content)
    for name in ("mark", "reserve"):
        if os.path.exists(os.path.join(left, name)):
            shutil.copy(os.path.join(left, name), folder)


@unittest.skipIf(rdzvtest.SANITIZED, "the sanitizer wants to be loaded first")
class Power(chaos.Case):
    def setUp(self):
        super().setUp()
        self.state, self.log = self.path("state"), self.path("log")
        self.sent, self.answered = [0] * KEYS, [0] * KEYS  # the last value of each key: written, and answered

    def value(self, number):
        """Of any length, so that the log of the database comes round."""
        return b"%d " % number + bytes(number * 7919 % 30000)

    def run_and_cut(self, writes):
        """Writes at a server, and takes the power away; other writes are under way then."""
        environment = dict(os.environ, LD_PRELOAD=SHIM, WRITE_LOG=self.log, WRITE_LOG_OF=self.state)
        server = self.serve("--state-dir", self.state, env=environment)
        client = Client(server.port, "v2")
        for number in range(writes):
            key = self.random.randrange(KEYS)
            self.sent[key] += 1
            client.set(b"/%d" % key, self.value(self.sent[key]))
            if number < writes - 3 and self.random.random() < 0.7:
                client.num_keys()
                self.answered = list(self.sent)
        server.kill()
        server.wait()
        client.close()

    def values(self, folder):
        server = self.serve("--state-dir", folder)
        client = Client(server.port, "v2")
        there = [client.check(b"/%d" % key) for key in range(KEYS)]
        found = [client.get(b"/%d" % key) if there[key] else b"0 " for key in range(KEYS)]
        client.close()
        self.stop(server)
        return found

    def check(self, folder):
        """Each key has the value that was answered last, or a later one."""
        numbers = []
        for key, value in enumerate(self.values(folder)):
            number = int(value.split(b" ")[0])
            self.assertTrue(number == 0 or value == self.value(number), f"key {key} is neither of them")
            self.assertLessEqual(self.answered[key], number, f"key {key}: an answered write is lost")
            self.assertLessEqual(number, self.sent[key])
            numbers.append(number)
        return numbers

    def test_nothing_that_was_answered_is_lost(self):
        """Again and again, each time from what the last time has left."""
        for turn in range(8):
            self.run_and_cut(self.random.choice((1, 10, 100, 400)))
            images = [self.path(f"image-{turn}-{number}") for number in range(4)]
            for folder in images:
                make_image(self.log, self.state, folder, self.random)
                numbers = self.check(folder)
            self.sent, self.answered = list(numbers), list(numbers)
            shutil.rmtree(self.state)
            self.state = images[-1]
            self.log = self.path(f"log-{turn}")
            self.seed_log()

    def seed_log(self):
        """What is there is safe."""
        files = {name: os.path.join(self.state, name) for name in os.listdir(self.state) if name not in ("mark", "reserve")}
        with open(self.log, "wb") as out:
            for name, path in files.items():
                with open(path, "rb") as file:
                    out.write(log_record("w", name, file.read()) + log_record("s", name))

    def test_a_disk_that_lies_is_found_out(self):
        """Syncs that save nothing: the writes are gone, and the server says so instead of serving a part of them."""
        self.run_and_cut(100)
        folder = self.path("image")
        make_image(self.log, self.state, folder, self.random, lies=True)
        done = self.rdzv("serve", "--port", "0", "--state-dir", folder, timeout=rdzvtest.DEADLINE)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("is damaged", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
