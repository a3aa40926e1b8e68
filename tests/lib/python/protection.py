# SPDX-License-Identifier: BSD-3-Clause
"""Secrets and protected servers for tests, and the bytes that pass between both ends."""
import hashlib
import hmac
import os
import socket
import subprocess
import threading

import rdzvtest

SECRET = "a secret that only the tests know, the first"
OTHER = "a secret that only the tests know, the other"


def derive(secret, label, size):
    """HKDF-SHA256, as src/tls/secret.h says."""
    key = hmac.new(b"rdzv", secret.encode(), hashlib.sha256).digest()
    return hmac.new(key, label + b"\1", hashlib.sha256).digest()[:size]


def psk(secret):
    """What `openssl s_client` needs to come as a client with that secret."""
    return ["-psk", derive(secret, b"rdzv psk 1", 32).hex(), "-psk_identity", derive(secret, b"rdzv identity 1", 16).hex()]


def s_client(port, *arguments, said=b"", seconds=rdzvtest.DEADLINE):
    """What `openssl s_client` prints, and what the server has said to it."""
    return subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *arguments], input=said,
                          capture_output=True, timeout=seconds, check=False)


def without_variables():
    return {name: value for name, value in os.environ.items() if name != "RDZV_SECRET_FILE"}


class Case(rdzvtest.Case):
    """A test with secret files. No variable of the caller's is in the way."""

    def setUp(self):
        super().setUp()
        self.secret = self.secret_file("secret", SECRET)
        self.other = self.secret_file("other", OTHER)

    def secret_file(self, name, *lines, mode=0o600):
        path = self.path(name)
        fresh = path + ".new"
        with open(fresh, "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))
        os.chmod(fresh, mode)
        os.rename(fresh, path)
        return path

    def rdzv(self, *arguments, **options):
        options.setdefault("env", without_variables())
        return super().rdzv(*arguments, **options)

    def serve(self, *options, **popen_options):
        """A server whose log can be read."""
        log = self.path(f"log-{len(os.listdir(self.folder))}")
        popen_options.setdefault("env", without_variables())
        with open(log, "wb") as file:
            server = super().serve("--log-level", "info", *options, stderr=file, **popen_options)
        server.log_path = log
        return server

    def guarded(self, *options):
        return self.serve("--secret-file", self.secret, *options)

    @staticmethod
    def log_of(server):
        with open(server.log_path, encoding="utf-8") as file:
            return file.read()

    def wait_for_line(self, server, text):
        rdzvtest.wait_until(lambda: text in self.log_of(server), f"the log says '{text}'")

    def assert_works(self, server, *flags, value="1"):
        """A client with these flags reads back what it writes."""
        done = self.store(server, *flags, "set", "key", value)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.store(server, *flags, "get", "key")
        self.assertEqual((done.returncode, done.stdout), (0, value + "\n"), done.stderr)

    def assert_refused(self, server, sentence, *flags, **options):
        """A client with these flags is told so, at once."""
        done = self.store(server, *flags, "--timeout", "20", "get", "key", timeout=15, **options)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn(sentence, done.stderr)
        self.assertEqual(done.stdout, "")


def answer_of(port, data, seconds=rdzvtest.DEADLINE, end=True):
    """All that a server says to these bytes, until it closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as sock:
        said = b""
        try:
            sock.sendall(data)
            if end:
                sock.shutdown(socket.SHUT_WR)
            while chunk := sock.recv(65536):
                said += chunk
        except (ConnectionResetError, BrokenPipeError):
            pass
        return said


class Recorder:
    """A relay to a server that keeps what each client has sent."""

    def __init__(self, port):
        self.port_behind, self.sent, self.lock = port, [], threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port_behind))
            with self.lock:
                self.sent.append(b"")
                number = len(self.sent) - 1
            threading.Thread(target=self.copy, args=(client, server, number), daemon=True).start()
            threading.Thread(target=self.copy, args=(server, client, None), daemon=True).start()

    def copy(self, source, target, number):
        try:
            while data := source.recv(65536):
                if number is not None:
                    with self.lock:
                        self.sent[number] += data
                target.sendall(data)
        except OSError:
            pass
        for sock in (source, target):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()
