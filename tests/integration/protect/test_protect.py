# SPDX-License-Identifier: BSD-3-Clause
"""A server with a secret: who is let in, what the others are told, and how the secret is replaced."""
import os
import signal
import subprocess
import unittest

import protection
import rawclient
import rdzvtest
from protection import OTHER, SECRET


class LetIn(protection.Case):
    def test_a_client_with_the_secret(self):
        server = self.guarded()
        self.assert_works(server, "--secret-file", self.secret)
        self.stop(server)

    def test_the_variable_names_the_secret_at_both_ends(self):
        variables = {**protection.without_variables(), "RDZV_SECRET_FILE": self.secret}
        server = self.serve(env=variables)
        done = self.store(server, "set", "key", "1", env=variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assert_refused(server, "requires TLS")
        self.stop(server)

    def test_a_value_of_megabytes_arrives_whole(self):
        server = self.guarded()
        value = os.urandom(3 << 20).hex()
        done = self.store(server, "--secret-file", self.secret, "set", "big", "-", input=value)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.store(server, "--secret-file", self.secret, "get", "big")
        self.assertEqual(done.stdout.rstrip("\n"), value)
        self.stop(server)

    def test_every_dialect(self):
        server = self.guarded()
        for dialect in ("v1", "v2", "rdzv"):
            self.assert_works(server, "--secret-file", self.secret, "--dialect", dialect, value=dialect)
        self.stop(server)

    def test_nodes_of_a_rendezvous(self):
        """By the option, the flag and the variable; native nodes and swap nodes."""
        server = self.guarded()
        ways = ((["--rdzv-conf", f"secret_file={self.secret}"], {}), (["--secret-file", self.secret], {}),
                (["--rdzv-conf", "mode=swap", "--secret-file", self.secret], {}),
                ([], {"RDZV_SECRET_FILE": self.secret}))
        for number, (flags, variables) in enumerate(ways):
            words = [rdzvtest.RDZV, "join", "--rdzv-endpoint", server.endpoint, "--rdzv-id", f"run{number}", "--nnodes", "2",
                     "--rdzv-conf", "last_call_timeout=1", *flags]
            if "--rdzv-conf" in flags:
                words.remove("last_call_timeout=1")
                words.remove("--rdzv-conf")
            nodes = [self.start([*words, "--", "true"], env={**protection.without_variables(), **variables},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
            for node in nodes:
                output, errors = node.communicate(timeout=rdzvtest.DEADLINE)
                self.assertEqual(node.returncode, 0, errors)
                self.assertIn(b'"world_size":2', output)
        for command in ("status", "close", "reset"):
            done = self.rdzv(command, "--rdzv-endpoint", server.endpoint, "--rdzv-id", "run0", "--secret-file", self.secret)
            self.assertEqual(done.returncode, 0, (command, done.stderr))
        done = self.rdzv("list", "--rdzv-endpoint", server.endpoint, "--secret-file", self.secret)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("run1", done.stdout)
        self.stop(server)

    def test_a_node_that_serves_the_store_protects_it(self):
        """Whoever has the secret is let in, nobody else; on the address of the endpoint only."""
        node = self.start([rdzvtest.RDZV, "join", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-id", "j", "--nnodes", "2",
                           "--secret-file", self.secret, "--log-level", "info"], stderr=subprocess.PIPE,
                          stdout=subprocess.DEVNULL, text=True, env=protection.without_variables())
        for line in node.stderr:
            if "serves the store of the rendezvous on 127.0.0.1:" in line:
                port = int(line.split("on 127.0.0.1:")[1].split(":")[0])
                break
        self.assertEqual(protection.answer_of(port, rawclient.HELLO), b"")
        done = self.rdzv("status", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "j", "--secret-file", self.secret)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.rdzv("status", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "j", "--secret-file", self.other)
        self.assertIn("the server does not accept the secret", done.stderr)


class Refused(protection.Case):
    def test_a_wrong_secret(self):
        server = self.guarded()
        self.assert_refused(server, "the server does not accept the secret", "--secret-file", self.other)
        self.wait_for_line(server, "its secret is not in the secret file")
        self.stop(server)

    def test_no_secret(self):
        server = self.guarded()
        self.assert_refused(server, "the server there requires TLS (give its secret with --secret-file")
        self.wait_for_line(server, "it did not start TLS, which this server requires")
        self.stop(server)

    def test_a_secret_for_a_server_without(self):
        server = self.serve()
        self.assert_refused(server, "the store there does not use TLS", "--secret-file", self.secret)
        self.wait_for_line(server, "it started TLS, and this server has no secret or certificate")
        self.stop(server)

    def test_plain_requests_are_not_answered(self):
        """Every operation in every dialect, and every first byte."""
        server = self.guarded()
        self.assert_works(server, "--secret-file", self.secret)
        for dialect, numbers in rawclient.NUMBERS.items():
            greeting = {"v1": b"", "v2": rawclient.VALIDATE, "rdzv": rawclient.HELLO}[dialect]
            for op in numbers:
                self.assertEqual(protection.answer_of(server.port, greeting + rawclient.request(dialect, op)), b"", op)
        for first in set(range(256)) - {0x16}:
            self.assertEqual(protection.answer_of(server.port, bytes([first]) + bytes(64)), b"", first)
        done = self.store(server, "--secret-file", self.secret, "num-keys")
        self.assertEqual(done.stdout, "1\n")
        self.stop(server)

    def test_the_log_of_refusals_is_bounded(self):
        server = self.guarded()
        for _ in range(100):
            protection.answer_of(server.port, b"GET / HTTP/1.0\r\n\r\n")
        self.assertLess(self.log_of(server).count("did not start TLS"), 60)
        self.stop(server)


class Plain(protection.Case):
    def greeting(self, server):
        return protection.answer_of(server.port, rawclient.HELLO)

    def test_addresses_that_may_be_plain(self):
        for networks, answered in (("loopback", True), ("10.0.0.0/8,127.0.0.1", True), ("127.0.0.0/30", True),
                                   ("10.0.0.0/8", False), ("127.0.0.2", False)):
            server = self.guarded("--allow-plain", networks)
            self.assertEqual(self.greeting(server) != b"", answered, networks)
            self.assert_works(server, "--secret-file", self.secret)
            if answered:
                self.assert_works(server)
            self.stop(server)

    def test_a_wrong_list(self):
        done = self.rdzv("serve", "--port", "0", "--secret-file", self.secret, "--allow-plain", "nobody")
        self.assertEqual(done.returncode, 2)
        self.assertIn("invalid network 'nobody'", done.stderr)


class Rotation(protection.Case):
    def reload(self, server, count):
        server.send_signal(signal.SIGHUP)
        rdzvtest.wait_until(lambda: self.log_of(server).count("reloaded the secret") == count, "the files are read again")

    def test_a_secret_is_replaced_without_a_gap(self):
        server = self.guarded()
        old, new = self.secret_file("old", SECRET), self.secret_file("new", OTHER)
        waiting = self.start([rdzvtest.RDZV, "store", "--endpoint", server.endpoint, "--secret-file", old, "get", "later"],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=protection.without_variables())
        self.secret_file("secret", OTHER, SECRET)
        self.reload(server, 1)
        self.assert_works(server, "--secret-file", old)
        self.assert_works(server, "--secret-file", new)
        self.secret_file("secret", OTHER)
        self.reload(server, 2)
        self.assert_refused(server, "the server does not accept the secret", "--secret-file", old)
        self.assert_works(server, "--secret-file", new)
        self.assertEqual(waiting.wait(rdzvtest.DEADLINE), 3, "it was connected, and its secret is gone")
        self.assertIn(b"does not accept the secret", waiting.stderr.read())
        self.stop(server)

    def test_a_node_goes_on_with_the_new_secret_of_its_file(self):
        """Its connection is ended with the old secret, and it comes back to its place with the new one."""
        server, mine = self.guarded(), self.secret_file("mine", SECRET)
        words = ["--rdzv-endpoint", server.endpoint, "--rdzv-id", "j", "--secret-file", mine]
        join = [rdzvtest.RDZV, "join", *words, "--rdzv-conf", "session_grace=60", "--nnodes", "2", "--", "true"]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": protection.without_variables()}
        first = self.start(join, **options)
        rdzvtest.wait_until(lambda: '"participant"' in self.rdzv("status", *words, "--json").stdout,
                            "the first node waits")
        self.secret_file("mine", OTHER)
        self.secret_file("secret", OTHER)
        self.reload(server, 1)
        self.wait_for_line(server, "its secret was removed from the secret file")
        second = self.start(join, **options)
        for node in (first, second):
            output, errors = node.communicate(timeout=rdzvtest.DEADLINE)
            self.assertEqual(node.returncode, 0, errors)
            self.assertIn(b'"world_size":2', output)
        self.stop(server)

    def test_a_file_that_cannot_be_used_changes_nothing(self):
        server = self.guarded()
        for damage in (lambda: self.secret_file("secret", "short"), lambda: self.secret_file("secret", OTHER, mode=0o644),
                       lambda: os.unlink(self.secret)):
            damage()
            before = self.log_of(server).count("remain in use")
            server.send_signal(signal.SIGHUP)
            rdzvtest.wait_until(lambda: self.log_of(server).count("remain in use") > before, "the error is logged")
            self.assert_works(server, "--secret-file", self.secret_file("same", SECRET))
        self.stop(server)

    def test_a_hang_up_does_not_end_a_plain_server(self):
        server = self.serve()
        server.send_signal(signal.SIGHUP)
        self.assert_works(server)
        self.stop(server)


class Secrecy(protection.Case):
    def test_files_that_are_refused(self):
        for name, text, sentence in (("short", "short", "16 to 1024"), ("open", SECRET, "chmod 600")):
            path = self.secret_file(name, text, mode=0o644 if name == "open" else 0o600)
            for command in (["serve", "--port", "0"], ["store", "get", "k"], ["join", "--rdzv-id", "j"],
                            ["run", "--standalone", "--no-python", "true"]):
                done = self.rdzv(command[0], "--secret-file", path, *command[1:])
                self.assertEqual(done.returncode, 2, (command, done.stderr))
                self.assertIn(sentence, done.stderr)
                self.assertNotIn(text + "\n", done.stderr)

    def test_a_path_with_a_comma_is_refused(self):
        done = self.rdzv("join", "--rdzv-id", "j", "--secret-file", "/a,b")
        self.assertEqual((done.returncode, "comma" in done.stderr), (2, True))

    @unittest.skipUnless(os.geteuid() == 0, "only root can look into the memory")
    def test_the_text_is_not_in_the_memory_of_the_server(self):
        server = self.guarded("--log-level", "debug")
        self.assert_works(server, "--secret-file", self.secret)
        self.assert_refused(server, "", "--secret-file", self.other)
        self.assertFalse(self.find(server.pid, SECRET.encode()))
        self.assertTrue(self.find(server.pid, self.secret.encode()))  # its path is: so the search works
        self.assertNotIn(SECRET, self.log_of(server))
        self.stop(server)

    @unittest.skipUnless(os.geteuid() == 0, "only root can look into the memory")
    def test_the_kept_key_is_where_core_files_do_not_go(self):
        """Before anybody connects, the key is in the server's memory once, in pages that are not dumped."""
        server = self.guarded()
        key = protection.derive(SECRET, b"rdzv psk 1", 32)
        places = self.find(server.pid, key)
        self.assertEqual(len(places), 1)
        self.assertIn("dd", places[0])
        self.stop(server)

    @staticmethod
    def find(pid, text):
        """The flags of the mappings that have the text."""
        found, flags, ranges = [], None, []
        with open(f"/proc/{pid}/smaps", encoding="utf-8") as file:
            for line in file:
                first = line.split()[0]
                if "-" in first and not first.endswith(":"):
                    ranges.append([*(int(part, 16) for part in first.split("-")), line.split()[1]])
                elif first == "VmFlags:":
                    ranges[-1].append(line.split()[1:])
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for begin, end, rights, flags in ranges:
                if rights[0] != "r" or "io" in flags or end - begin > 256 << 20:
                    continue
                try:
                    memory.seek(begin)
                    if text in memory.read(end - begin):
                        found.append(flags)
                except (OSError, ValueError, OverflowError):
                    continue
        return found

    def test_there_is_no_core_file(self):
        """A server that crashes leaves none, whatever the limit."""
        limited = ["sh", "-c", 'ulimit -c unlimited 2>/dev/null; exec "$@"', "sh"]
        port_file = self.path("port")
        server = self.start([*limited, rdzvtest.RDZV, "serve", "--port", "0", "--port-file", port_file, "--secret-file",
                             self.secret], stdout=subprocess.DEVNULL, cwd=self.folder)
        rdzvtest.wait_until(lambda: os.path.exists(port_file), "the server is there")
        os.kill(server.pid, signal.SIGQUIT)
        status = os.waitpid(server.pid, 0)[1]
        server.returncode = -signal.SIGQUIT
        self.assertTrue(os.WIFSIGNALED(status))
        self.assertFalse(os.WCOREDUMP(status))


if __name__ == "__main__":
    rdzvtest.main()
