# SPDX-License-Identifier: BSD-3-Clause
"""The command as a user runs it: `rdzv serve`, `rdzv store`, their options, output and exit codes."""
import json
import os
import re
import resource
import signal
import socket
import subprocess

import rdzvtest
from rdzvtest import slow

YES, NO, USAGE, CONNECT, TIMEOUT, UNKNOWN, REFUSED, IO = range(8)


class Usage(rdzvtest.Case):
    def check(self, arguments, code, text):
        done = self.rdzv(*arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(text, done.stderr if code else done.stdout)

    def test_help_is_printed_where_it_is_asked_for(self):
        self.check(["--help"], YES, "commands:")
        self.check(["serve", "--help"], YES, "--max-memory BYTES")
        self.check(["help", "serve"], YES, "--max-memory BYTES")
        self.check(["store", "--help"], YES, "exit codes:")

    def test_a_help_that_cannot_be_printed_is_not_success(self):
        for words in (["--help"], ["--version"], ["run", "--help"]):
            with self.subTest(words), open("/dev/full", "w", encoding="ascii") as full:
                done = subprocess.run([rdzvtest.RDZV, *words], stdout=full, stderr=subprocess.PIPE, text=True,
                                      timeout=rdzvtest.DEADLINE, check=False)
                self.assertEqual(done.returncode, IO)
                self.assertEqual(done.stderr, "rdzv: cannot write to stdout: No space left on device\n")

    def test_a_closed_stdout_is_not_success_where_the_output_is_the_purpose(self):
        server = self.serve()
        place = ["--rdzv-endpoint", server.endpoint]
        self.store(server, "set", "k", "v")
        for words, name in ((["--version"], "rdzv"), (["run", "--help"], "rdzv"),
                            (["status", *place, "--rdzv-id", "job"], "rdzv status"),
                            (["status", "--json", *place, "--rdzv-id", "job"], "rdzv status"),
                            (["store", *place, "get", "k"], "rdzv store")):
            with self.subTest(words):
                done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", rdzvtest.RDZV, *words], stderr=subprocess.PIPE,
                                      text=True, timeout=rdzvtest.DEADLINE, check=False)
                self.assertEqual(done.returncode, IO)
                self.assertRegex(done.stderr, f"^{name}: cannot write .*: Bad file descriptor\n$")
        for words in (["store", *place, "set", "k", "v"], ["run", "--standalone", "--no-python", "--log-level", "off", "true"]):
            with self.subTest(words):
                done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", rdzvtest.RDZV, *words], stderr=subprocess.PIPE,
                                      text=True, timeout=rdzvtest.DEADLINE, check=False)
                self.assertEqual((done.returncode, done.stderr), (YES, ""))

    def test_version_is_that_of_the_header(self):
        with open(os.path.join(rdzvtest.SOURCE, "include/rdzv/version.h"), encoding="ascii") as header:
            numbers = [line.split()[2] for line in header if re.match(r"#define RDZV_VERSION_\w+ \d", line)]
        self.check(["--version"], YES, "rdzv " + ".".join(numbers))

    def test_wrong_command_lines_are_named(self):
        for arguments, text in (
            ([], "usage:"),
            (["nonsense"], "unknown command 'nonsense' (see 'rdzv --help')"),
            (["serve", "--nope"], "unknown flag '--nope'"),
            (["serve", "extra"], "unexpected argument 'extra'"),
            (["serve", "--port"], "needs a value"),
            (["serve", "--port", "70000"], "invalid value '70000'"),
            (["serve", "--port", "x"], "invalid value 'x' for --port: expected a whole number"),
            (["serve", "--max-memory", "1T"], "invalid value '1T'"),
            (["serve", "--max-connections", "0"], ": a limit must be greater than 0"),
            (["serve", "--max-keys", "-5"], ": a limit must be greater than 0"),
            (["serve", "--bind", "127.0.0.1:5", "--port", "0"], "the address must not include a port"),
            (["serve", "--log-level", "loud"], "invalid value 'loud'"),
            (["store"], "no operation given"),
            (["store", "frob"], "unknown operation 'frob' (see 'rdzv store --help')"),
            (["store", "set", "k"], "usage: rdzv store [FLAG...] set K V"),
            (["store", "mset", "a", "1", "b"], "usage: rdzv store [FLAG...] mset K V [K V]..."),
            (["store", "add", "k", "x"], "cannot add 'x': not a 64-bit whole number"),
            (["store", "--timeout", "-1", "get", "k"], "invalid value '-1'"),
            (["store", "--json=1", "get", "k"], "flag '--json' takes no value"),
            (["store", "--endpoint", "a:b:c:1", "--file", "x", "get", "k"], "cannot be used together"),
            (["store", "--endpoint", "host:0", "get", "k"], "the port is 0"),
            (["store", "--endpoint", "[::1", "get", "k"], "the bracket is not closed"),
        ):
            with self.subTest(arguments=arguments):
                self.check(arguments, USAGE, text)

    def test_a_slip_is_answered_with_the_name_that_was_meant(self):
        for arguments, text in (
            (["sevre"], "rdzv: unknown command 'sevre' (did you mean 'serve'?)"),
            (["help", "sevre"], "rdzv: unknown command 'sevre' (did you mean 'serve'?)"),
            (["store", "gte", "k"], "rdzv store: unknown operation 'gte' (did you mean 'get'?)"),
            (["store", "--dialect", "v3", "keys"], "invalid value 'v3' for --dialect: expected auto|v1|v2|rdzv\n"),
            (["serve", "--prot", "1"], "rdzv serve: unknown flag '--prot' (did you mean '--port'?)"),
            (["run", "--rdzv-endpiont=h:1", "x"], "rdzv run: unknown flag '--rdzv-endpiont' (did you mean '--rdzv-endpoint'?)"),
            (["run", "--rdzv_endpiont", "h:1", "x"], "(did you mean '--rdzv-endpoint'?)"),
            (["store", "apend", "k", "v"], "rdzv store: unknown operation 'apend' (did you mean 'append'?)"),
            (["store", "--dialect", "rdvz", "keys"], "invalid value 'rdvz' for --dialect: expected auto|v1|v2|rdzv (did you mean 'rdzv'?)"),
            (["list", "--log-level", "wraning"], "(did you mean 'warning'?)"),
            (["join", "--rdzv-id", "j", "--rdzv-backend", "c01d"], "did you mean 'c10d'?"),
        ):
            with self.subTest(arguments=arguments):
                self.check(arguments, USAGE, text)

    def test_underscores_are_as_good_as_dashes(self):
        self.check(["serve", "--max_memory", "x"], USAGE, "invalid value 'x' for --max-memory")


class Serve(rdzvtest.Case):
    def test_says_where_it_listens_and_removes_its_port_file_at_the_end(self):
        server = self.start([rdzvtest.RDZV, "serve", "--port", "0", "--port-file", self.path("port")],
                            stdout=subprocess.PIPE, text=True)
        line = server.stdout.readline()
        with open(self.path("port"), encoding="ascii") as file:
            port = int(file.read())
        self.assertEqual(line, f"rdzv: listening on 127.0.0.1:{port}\n")
        # ThreadSanitizer holds back a signal that comes before the loop waits, until the next one.
        self.rdzv("store", "--endpoint", f"127.0.0.1:{port}", "num-keys")
        self.stop(server)
        self.assertFalse(os.path.exists(self.path("port")))

    def test_a_full_disk_behind_stdout_is_named_at_once_and_it_serves(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            server = self.start([rdzvtest.RDZV, "serve", "--port", "0", "--port-file", self.path("port")], stdout=full,
                                stderr=subprocess.PIPE, text=True)
        self.assertEqual(server.stderr.readline(), "rdzv serve: cannot write to stdout: No space left on device\n")
        with open(self.path("port"), encoding="ascii") as file:
            self.assertEqual(self.rdzv("store", "--endpoint", f"127.0.0.1:{file.read().strip()}", "set", "k", "v").returncode, YES)
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.communicate(timeout=rdzvtest.DEADLINE)[1], "")
        self.assertEqual(server.returncode, IO)

    def test_sigint_ends_it_as_sigterm_does(self):
        server = self.serve()
        server.send_signal(signal.SIGINT)
        self.assertEqual(server.wait(rdzvtest.DEADLINE), 0)

    def test_a_port_that_is_taken_is_named(self):
        server = self.serve()
        done = self.rdzv("serve", "--port", str(server.port))
        self.assertEqual(done.returncode, CONNECT)
        self.assertIn(f"cannot listen on 127.0.0.1:{server.port}: Address already in use (is another server running? "
                      "choose another --port)", done.stderr)

    def test_a_bind_address_that_is_not_ours_is_named(self):
        done = self.rdzv("serve", "--bind", "192.0.2.1", "--port", "0")
        self.assertEqual(done.returncode, IO)
        self.assertIn("cannot listen on 192.0.2.1:0", done.stderr)

    def test_a_port_file_that_cannot_be_written_is_an_error(self):
        done = self.rdzv("serve", "--port", "0", "--port-file", self.path("no/such/folder"))
        self.assertEqual(done.returncode, IO)
        self.assertIn("cannot write", done.stderr)

    def test_it_listens_on_ipv6(self):
        server = self.serve("--bind", "::1")
        done = self.rdzv("store", "--endpoint", f"[::1]:{server.port}", "set", "k", "v")
        self.assertEqual(done.returncode, YES, done.stderr)
        self.stop(server)

    def test_it_opens_as_many_descriptors_as_its_hard_limit_says(self):
        server = self.serve(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 1000)))
        with open(f"/proc/{server.pid}/limits", encoding="ascii") as limits:
            self.assertRegex(limits.read(), r"Max open files +1000 +1000")
        self.stop(server)

    def test_a_listening_socket_can_be_handed_over(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        # The shell's process id is that of the server, which it becomes.
        script = 'exec 3<&"$1"; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$2" serve'
        server = self.start(["/bin/bash", "-c", script, "sh", str(listener.fileno()), rdzvtest.RDZV],
                            stdout=subprocess.PIPE, text=True, pass_fds=[listener.fileno()])
        port = listener.getsockname()[1]
        self.assertEqual(server.stdout.readline(), f"rdzv: listening on 127.0.0.1:{port}\n")
        self.assertEqual(self.rdzv("store", "--endpoint", f"127.0.0.1:{port}", "num-keys").stdout, "0\n")
        self.stop(server)

    def test_what_is_handed_over_must_listen(self):
        script = 'exec 3</dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$1" serve'
        done = subprocess.run(["/bin/bash", "-c", script, "sh", rdzvtest.RDZV], capture_output=True, text=True,
                              timeout=rdzvtest.DEADLINE, check=False)
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("cannot use descriptor 3", done.stderr)

    def test_waiting_clients_are_told_that_it_stops(self):
        server = self.serve("--log-level", "debug", stderr=subprocess.PIPE)
        waiter = self.start([rdzvtest.RDZV, "store", "--endpoint", server.endpoint, "get", "never"],
                            stderr=subprocess.PIPE, text=True)
        # The server has a client when it counts one descriptor more.
        sockets = lambda: sum(name.startswith("socket:") for name in rdzvtest.descriptors(server.pid).values())
        rdzvtest.wait_until(lambda: sockets() == 2, "the waiter connects")
        self.stop(server)
        self.assertEqual(waiter.wait(rdzvtest.DEADLINE), CONNECT)
        self.assertRegex(waiter.stderr.read(), "the server is stopping|cannot connect")


class Store(rdzvtest.Case):
    def setUp(self):
        super().setUp()
        self.server = self.serve()

    def expect(self, arguments, code, stdout="", **options):
        done = self.store(self.server, *arguments, **options)
        self.assertEqual((done.returncode, done.stdout), (code, stdout), done.stderr)
        return done

    def test_every_operation_answers_and_exits_as_documented(self):
        self.expect(["set", "k", "v"], YES)
        self.expect(["get", "k"], YES, "v\n")
        self.expect(["--raw", "get", "k"], YES, "v")
        self.expect(["add", "n", "5"], YES, "5\n")
        self.expect(["add", "n", "-7"], YES, "-2\n")
        self.expect(["add", "n", "x"], USAGE)
        self.expect(["add", "k", "1"], REFUSED)
        self.expect(["cas", "k", "v", "w"], YES, "w\n")
        self.expect(["cas", "k", "v", "x"], NO, "w\n")
        self.expect(["check", "k", "n"], YES)
        self.expect(["check", "k", "missing"], NO)
        self.expect(["wait", "k", "n"], YES)
        self.expect(["append", "k", "!"], YES)
        self.expect(["mset", "a", "1", "b", "2"], YES)
        self.expect(["mget", "a", "k", "b"], YES, "1\nw!\n2\n")
        self.expect(["num-keys"], YES, "4\n")
        self.expect(["delete", "a"], YES)
        self.expect(["delete", "a"], NO)
        done = self.store(self.server, "keys")
        self.assertEqual(sorted(done.stdout.split()), ["b", "k", "n"])

    def test_json_for_machines(self):
        self.expect(["--json", "set", "k", "v"], YES, '{"ok":true}\n')
        self.expect(["--json", "get", "k"], YES, '{"key":"k","value":"v"}\n')
        self.expect(["--json", "add", "n", "1"], YES, '{"value":1}\n')
        self.expect(["--json", "check", "no"], NO, '{"all":false}\n')
        self.expect(["--json", "cas", "k", "x", "y"], NO, '{"key":"k","value":"v","swapped":false}\n')
        self.expect(["set", "bin", "-"], YES, input="\udcff\x00".encode("utf-8", "surrogateescape"), text=False,
                    stdout=b"")
        self.expect(["--json", "get", "bin"], YES, '{"key":"bin","value_hex":"ff00"}\n')
        done = self.expect(["--json", "--timeout", str(slow(0.5)), "get", "no"], TIMEOUT)
        self.assertEqual(json.loads(done.stderr.splitlines()[-1])["error"]["code"], "TIMEOUT")  # before it, how it waits

    def test_a_value_can_come_from_stdin_byte_for_byte(self):
        data = bytes(range(256)) * 300
        self.expect(["set", "blob", "-"], YES, input=data, text=False, stdout=b"")
        self.expect(["--raw", "get", "blob"], YES, text=False, stdout=data)

    def test_a_key_that_is_not_there_is_a_timeout_or_with_timeout_0_a_no(self):
        seconds = slow(0.5)  # it has to connect in that time, too
        done = self.expect(["--timeout", str(seconds), "get", "missing"], TIMEOUT)
        self.assertIn("get 'missing' at '127.0.0.1:", done.stderr)
        self.assertIn(f"timed out after {seconds * 1000:.0f} ms", done.stderr)
        self.assertEqual(self.expect(["--timeout", "0", "get", "missing"], NO).stderr, "rdzv store: the key is absent\n")
        self.expect(["--timeout", "0", "wait", "missing"], NO)
        self.assertIn("not all of the keys exist", self.expect(["--timeout", "0", "mget", "a", "b"], NO).stderr)

    def test_a_blocked_get_is_woken(self):
        waiter = self.start([rdzvtest.RDZV, "store", "--endpoint", self.server.endpoint, "get", "late"],
                            stdout=subprocess.PIPE, text=True)
        self.expect(["set", "late", "here"], YES)
        self.assertEqual(waiter.communicate(timeout=rdzvtest.DEADLINE)[0], "here\n")

    def test_prefix_and_environment(self):
        self.expect(["--prefix", "p", "set", "k", "v"], YES)
        self.expect(["get", "p/k"], YES, "v\n")
        self.expect(["--prefix", "p", "keys"], YES, "k\n")
        done = self.rdzv("store", "get", "p/k", env={**os.environ, "RDZV_ENDPOINT": self.server.endpoint})
        self.assertEqual(done.stdout, "v\n")

    def test_no_server_is_a_connection_error_that_names_address_and_cause(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        done = self.rdzv("store", "--endpoint", f"127.0.0.1:{port}", "--timeout", str(slow(0.5)), "get", "k")
        self.assertEqual(done.returncode, CONNECT)
        last = done.stderr.splitlines()[-1]
        self.assertRegex(last, rf"^rdzv store: cannot connect to '127.0.0.1:{port}' \(\d+ (try|tries) in \d+ ms\): 127.0.0.1:{port}: Connection refused")

    def test_a_name_that_does_not_resolve_is_named(self):
        done = self.rdzv("store", "--endpoint", "no-such-host.invalid", "--timeout", str(slow(0.5)), "get", "k")
        self.assertEqual(done.returncode, CONNECT)
        self.assertIn("cannot resolve 'no-such-host.invalid'", done.stderr)

    def test_a_server_that_starts_late_is_found(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        client = self.start([rdzvtest.RDZV, "store", "--endpoint", f"127.0.0.1:{port}", "set", "k", "v"],
                            stderr=subprocess.PIPE, text=True)
        self.assertIn("cannot connect", client.stderr.readline())  # it has tried at least once
        late = self.start([rdzvtest.RDZV, "serve", "--port", str(port)], stdout=subprocess.DEVNULL)
        self.assertEqual(client.wait(rdzvtest.DEADLINE), YES)
        self.stop(late)

    def test_a_full_disk_behind_stdout_is_not_success(self):
        self.expect(["set", "k", "v"], YES)
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run([rdzvtest.RDZV, "store", "--endpoint", self.server.endpoint, "get", "k"], stdout=full,
                                  stderr=subprocess.PIPE, text=True, timeout=rdzvtest.DEADLINE, check=False)
        self.assertEqual(done.returncode, IO)
        self.assertIn("cannot write the answer", done.stderr)

    def test_the_file_store_is_used_in_the_same_way(self):
        path = self.path("store")
        for arguments, code, stdout in ((["set", "k", "v"], YES, ""), (["get", "k"], YES, "v\n"),
                                        (["add", "n", "3"], YES, "3\n"), (["keys"], YES, None),
                                        (["check", "no"], NO, ""), (["--timeout", str(slow(0.5)), "get", "no"], TIMEOUT, "")):
            with self.subTest(arguments=arguments):
                done = self.rdzv("store", "--file", path, *arguments)
                self.assertEqual(done.returncode, code, done.stderr)
                if stdout is not None:
                    self.assertEqual(done.stdout, stdout)


if __name__ == "__main__":
    rdzvtest.main()
