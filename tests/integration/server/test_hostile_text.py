# SPDX-License-Identifier: BSD-3-Clause
"""Names, keys and values that others chose are shown so that a terminal does not obey them, and stay on their lines."""
import json
import os
import pty
import subprocess

import rdzvtest

EVIL = "\033]0;owned\a\033[31mn\nrdzv: fake line\r\x9b2J‮"
SHOWN = r"\x1b]0;owned\x07\x1b[31mn\x0ardzv: fake line\x0d\x9b2J\u202e"


def on_terminal(command):
    """What the command writes to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = b""
    try:
        while part := os.read(ours, 65536):
            text += part
    except OSError:  # the other side is closed
        pass
    os.close(ours)
    process.wait(rdzvtest.DEADLINE)
    return text.decode().replace("\r\n", "\n")


class Case(rdzvtest.Case):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def assert_harmless(self, text):
        for character in text:
            self.assertTrue(character in "\n\t" or character.isprintable(), text)


class Nodes(Case):
    FLAGS = ("--rdzv-id", "job")

    def flags(self, *more):
        return ["--rdzv-endpoint", self.server.endpoint, *self.FLAGS, *more]

    def evil_node(self, nnodes):
        node = self.start([rdzvtest.RDZV, "join", *self.flags("--nnodes", nnodes, "--local-addr", EVIL)],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        rdzvtest.wait_until(lambda: json.loads(self.rdzv("status", *self.flags("--json")).stdout)["participants"],
                            "the node is in the rendezvous")
        return node

    def test_status(self):
        self.evil_node("2")
        done = self.rdzv("status", *self.flags())
        self.assertIn(SHOWN, done.stdout)
        self.assert_harmless(done.stdout)
        names = [node["node"] for node in json.loads(self.rdzv("status", *self.flags("--json")).stdout)["nodes"]]
        self.assertTrue(names[0].startswith(EVIL), names)

    def test_who_is_there_when_the_time_to_join_is_over(self):
        self.evil_node("3")
        done = self.rdzv("join", *self.flags("--nnodes", "3", "--rdzv-conf", f"join_timeout={rdzvtest.slow(1)}"))
        self.assertIn(SHOWN, done.stderr)
        self.assert_harmless(done.stderr)

    def test_log_lines(self):
        done = self.rdzv("join", *self.flags("--local-addr", EVIL, "--once", "--log-level", "debug"))
        self.assertIn(SHOWN, done.stderr)
        self.assert_harmless(done.stderr)

    def test_a_run_id(self):
        done = self.rdzv("status", "--rdzv-endpoint", self.server.endpoint, "--rdzv-id", EVIL)
        self.assertEqual(done.stdout, f"rendezvous '{SHOWN}': no node has joined yet\n")


class Store(Case):
    def words(self, *more):
        return [rdzvtest.RDZV, "store", "--endpoint", self.server.endpoint, *more]

    def test_a_key_in_an_error(self):
        done = self.store(self.server, "--timeout", str(rdzvtest.slow(0.5)), "get", EVIL)
        self.assertIn(r"\x1b]0;owned\x07", done.stderr)
        self.assert_harmless(done.stderr)

    def test_keys_and_values_on_a_terminal(self):
        self.store(self.server, "set", EVIL, EVIL)
        self.assertEqual(on_terminal(self.words("keys")), SHOWN + "\n")
        lines = SHOWN.replace(r"\x0a", "\n") + "\n"
        self.assertEqual(on_terminal(self.words("get", EVIL)), lines)
        self.assertEqual(on_terminal(self.words("mget", EVIL, EVIL)), 2 * lines)

    def test_long_values_on_a_terminal(self):
        value = "é" * 5000 + "\n" + "x" * 1024 + "\n\n" + "y" * 1025
        self.store(self.server, "set", "k", value)
        self.assertEqual(on_terminal(self.words("get", "k")), value + "\n")

    def test_a_pipe_gets_the_bytes_as_they_are(self):
        self.store(self.server, "set", EVIL, EVIL)
        for words in (["get", EVIL], ["keys"], ["mget", EVIL]):
            done = self.store(self.server, *words, text=False)
            self.assertEqual(done.stdout, EVIL.encode() + b"\n")
        self.assertEqual(on_terminal(self.words("--raw", "get", EVIL)), EVIL.replace("\n", "\n"))


if __name__ == "__main__":
    rdzvtest.main()
