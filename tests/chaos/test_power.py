# SPDX-License-Identifier: BSD-3-Clause
"""Power loss: what was synced is there, and of what was written since, any sectors. A durable server goes on from that
with every write that it has answered."""
import os
import shutil
import unittest

import chaos
import power
import rdzvtest
from rawclient import Client

SHIM = os.path.join(rdzvtest.BUILD, "tests", "write_log.so")
KEYS = 8


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
                power.image(self.log, self.state, folder, self.random)
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
                    out.write(power.record("w", name, file.read()) + power.record("s", name))

    def test_a_disk_that_lies_is_found_out(self):
        """Syncs that save nothing: the writes are gone, and the server says so instead of serving a part of them."""
        self.run_and_cut(100)
        folder = self.path("image")
        power.image(self.log, self.state, folder, self.random, lies=True)
        done = self.rdzv("serve", "--port", "0", "--state-dir", folder, timeout=rdzvtest.DEADLINE)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("is damaged", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
