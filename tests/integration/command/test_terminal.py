# SPDX-License-Identifier: BSD-3-Clause
"""Terminals and readers that go away, and who says what."""
import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
import termios

import rdzvtest
from rdzvtest import wait_until
from run_nodes import IO


def take_terminal(fd):
    """For a child: a session of its own, with that terminal."""
    os.setsid()
    fcntl.ioctl(fd, termios.TIOCSCTTY, 0)


def in_terminal(words, **variables):
    """Runs the command with its stderr on a terminal; gives what it wrote there."""
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM", "RDZV_LOG")}
    process = subprocess.Popen([rdzvtest.RDZV, *words], stderr=theirs, stdout=subprocess.DEVNULL,
                               env={**kept, "TERM": "xterm", **variables})
    os.close(theirs)
    output = b""
    while True:
        try:
            output += os.read(ours, 65536)
        except OSError:  # all programs of the terminal have ended
            break
    os.close(ours)
    process.wait(rdzvtest.DEADLINE)
    return output.decode()


class Colors(rdzvtest.Case):
    WORDS = ["run", "--standalone", "--max-restarts=1", "false"]  # an error and a warning for each attempt

    def test_errors_are_red_and_warnings_yellow_on_a_terminal(self):
        text = in_terminal(["run", "--standalone", "--nproc-per-node=2", "sh", "-c",
                            'test $RANK = 0 && exit 3; exec sleep 1000'])
        self.assertRegex(text, r"\x1b\[31m\d\d:\d\d:\d\dZ rdzv run: error: rank 0 .*exit code 3\x1b\[m\r\n")
        self.assertRegex(text, r"\x1b\[33m\d\d:\d\d:\d\dZ rdzv run: warning: rank 0 .* stopping 1 worker\x1b\[m\r\n")
        self.assertRegex(text, r"\x1b\[31mrdzv run: FAILED: .*\x1b\[m\r\n")
        self.assertRegex(text, r"(?m)(^|\x1b\[K)\d\d:\d\d:\d\dZ rdzv run: started 2 workers\r$")

    def test_errors_that_end_a_command_are_red(self):
        taken = socket.create_server(("127.0.0.1", 0))  # a port without a server
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        taken.close()
        for words, text in (
            (["serve", "--no-such"], "rdzv serve: unknown flag '--no-such' .*"),
            (["nonsense"], "rdzv: unknown command 'nonsense' .*"),
            (["store", "--rdzv-endpoint", endpoint, "--timeout", "0.2", "get", "k"], "rdzv store: cannot connect to .*"),
            (["run", "--standalone", "/no/such"], "rdzv run: cannot start '/no/such'.*")):
            with self.subTest(words):
                self.assertRegex(in_terminal(words), rf"(?m)^\x1b\[31m{text}\x1b\[m\r$")
        self.assertEqual(in_terminal(["nonsense"], NO_COLOR="1"), "rdzv: unknown command 'nonsense' (see 'rdzv --help')\r\n")

    def test_no_color_leaves_the_short_lines(self):
        text = in_terminal(self.WORDS, NO_COLOR="1")
        self.assertNotRegex(text, r"\x1b\[[0-9;]*m")
        self.assertRegex(text, r"\d\d:\d\d:\d\dZ rdzv run: error: ")
        self.assertRegex(in_terminal(self.WORDS, NO_COLOR=""), r"\x1b\[31m")

    def test_a_dumb_terminal_gets_no_codes(self):
        text = in_terminal(self.WORDS, TERM="dumb")
        self.assertNotIn("\x1b", text)
        self.assertRegex(text, r"(?m)^\d\d:\d\d:\d\dZ rdzv run: error: ")

    def test_a_pipe_gets_whole_lines_without_codes(self):
        done = self.rdzv(*self.WORDS)
        self.assertNotIn("\x1b", done.stderr)
        self.assertRegex(done.stderr, r"(?m)^\d{4}-\S+Z \S+ rdzv run\[\d+\]: error: ")


class Serve(rdzvtest.Case):
    def test_each_line_of_the_json_log_is_an_object(self):
        server = self.serve("--log-level", "info", "--json-log", stderr=subprocess.PIPE, text=True)
        self.stop(server)
        lines = [json.loads(line) for line in server.stderr]
        self.assertIn(f"listening on {server.endpoint}", [line["message"] for line in lines])
        for line in lines:
            self.assertEqual(set(line), {"time", "host", "pid", "level", "message"})
            self.assertEqual((line["pid"], line["level"]), (server.pid, "info"))

    def test_an_error_is_an_object_too(self):
        done = self.rdzv("serve", "--json-log", "--port", "0", "--state-dir", "/dev/null/x")
        self.assertEqual(done.returncode, IO)
        line = json.loads(done.stderr)
        self.assertEqual(line["level"], "error")
        self.assertIn("/dev/null/x", line["message"])

    def test_the_server_outlives_its_terminal(self):
        ours, theirs = pty.openpty()
        server = self.serve(preexec_fn=lambda: take_terminal(theirs), stdin=theirs, stderr=theirs)
        self.store(server, "set", "k", "v")
        os.close(theirs)
        os.close(ours)  # the kernel sends SIGHUP
        self.assertEqual(self.store(server, "get", "k").stdout, "v\n")
        server.send_signal(signal.SIGHUP)
        self.assertEqual(self.store(server, "get", "k").stdout, "v\n")
        self.assertIsNone(server.poll())
        self.stop(server)

    def test_a_line_says_who_speaks(self):
        server = self.serve("--log-level", "debug", stderr=subprocess.PIPE, text=True)
        self.store(server, "set", "k", "v")
        line = server.stderr.readline()
        host = socket.gethostname().split(".")[0]
        self.assertRegex(line, rf"^\d{{4}}-\S+Z {host} rdzv serve\[{server.pid}\]: (info|debug): ")
        self.stop(server)


class Join(rdzvtest.Case):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def flags(self, *more):
        return ["--rdzv-endpoint", self.server.endpoint, "--rdzv-id", "job", "--nnodes", "1:2", "--rdzv-conf",
                "last_call_timeout=0.1,keep_alive_interval=60", *more]

    def join(self, addr):
        return self.start([rdzvtest.RDZV, "join", *self.flags("--local-addr", addr)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)

    def test_a_node_whose_reader_is_gone_leaves(self):
        """It finds out with the next round, and the others need not wait for its heartbeat."""
        first = self.join("a")
        first.stdout.readline()
        first.stdout.close()
        second = self.join("b")
        self.assertEqual(first.wait(rdzvtest.DEADLINE), IO)
        self.assertIn("cannot write to stdout: Broken pipe", first.stderr.read())

        def alone():
            line = json.loads(second.stdout.readline())
            return line["world_size"] == 1 and [member["addr"] for member in line["members"]] == ["b"]

        wait_until(alone, "the other one is alone")

    def test_a_command_does_not_ignore_the_signal(self):
        done = self.rdzv("join", "--rdzv-endpoint", self.server.endpoint, "--rdzv-id", "x", "--", "sh", "-c",
                         "kill -PIPE $$")
        self.assertEqual(done.returncode, 128 + signal.SIGPIPE)


class Store(rdzvtest.Case):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def test_keys_that_look_like_options(self):
        self.assertEqual(self.store(self.server, "set", "--", "-k", "v").returncode, 0)
        self.assertEqual(self.store(self.server, "get", "--", "-k").stdout, "v\n")
        self.assertEqual(self.store(self.server, "mget", "--", "-k", "-k").stdout, "v\nv\n")
        self.assertEqual(self.store(self.server, "keys", "--").stdout, "-k\n")

    def test_a_timeout_of_0_does_not_wait_and_is_none_of_the_connections(self):
        self.store(self.server, "set", "k", "v")
        self.assertEqual(self.store(self.server, "--timeout", "0", "get", "k").stdout, "v\n")
        self.assertEqual(self.store(self.server, "--timeout", "0", "get", "absent").returncode, 1)
        self.assertEqual(self.store(self.server, "--timeout", "0", "wait", "k").returncode, 0)


if __name__ == "__main__":
    rdzvtest.main()
