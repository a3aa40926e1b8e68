# SPDX-License-Identifier: BSD-3-Clause
"""Where etcd is: every way to say it to `rdzv store --etcd URL`, what is said of those that are none, and how long the
commands that only look in wait for one that is not there."""
import base64
import contextlib
import http.server
import os
import socket
import subprocess
import threading

import etcd
import rdzvtest

etcd.need()
LONG = "x" * 1100
TIMEOUT = str(rdzvtest.DEADLINE - 10)  # seconds: every command here has its answer at once
VALUE = b'{"action":"get","node":{"key":"/p/aw==","value":"dg==","modifiedIndex":1,"createdIndex":1}}'


class Listening(http.server.BaseHTTPRequestHandler):
    """Answers every read with the same node, and notes by whom it was asked for keys. Where an answer is late, the client
    also asks, without a user, what the server is."""

    def do_GET(self):
        if self.path.startswith("/v2/keys/"):
            self.server.asked.add((self.headers.get("Host"), self.headers.get("Authorization")))
        self.send_response(200)
        self.send_header("Content-Length", str(len(VALUE)))
        self.send_header("X-Etcd-Index", "1")
        self.end_headers()
        self.wfile.write(VALUE)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def __init__(self, host="127.0.0.1"):
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.asked = set()
        super().__init__((host, 0), Listening)
        self.port = self.server_address[1]


@contextlib.contextmanager
def serving(host="127.0.0.1"):
    with Server(host) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class Case(rdzvtest.Case):
    def get(self, url, *options):
        environment = {name: text for name, text in os.environ.items() if not name.lower().endswith("_proxy")}
        return self.rdzv("store", "--etcd", url, "--prefix", "/p", "--timeout", TIMEOUT, *options, "get", "k",
                         env=environment)

    def assert_reaches(self, url):
        finished = self.get(url)
        self.assertEqual((finished.returncode, finished.stdout), (0, "v\n"), (url, finished.stderr))

    def assert_usage(self, url, sentence, *options):
        finished = self.get(url, *options)
        self.assertEqual((finished.returncode, finished.stdout), (2, ""), (url, finished.stderr))
        self.assertRegex(finished.stderr, sentence)
        return finished


class Reaches(Case):
    @classmethod
    def setUpClass(cls):
        member = etcd.shared()
        member.put("/p/aw==", "dg==")
        cls.here, cls.gone = member.endpoint, f"127.0.0.1:{etcd.free_port()}"

    def test_one(self):
        for url in self.here, f"http://{self.here}", f"http://{self.here}/":
            self.assert_reaches(url)

    def test_a_list(self):
        """Whether the scheme stands before the first or before each; one that is not there is passed over."""
        for url in (f"{self.here},{self.gone}", f"{self.gone},{self.here}", f"http://{self.gone},{self.here}",
                    f"http://{self.gone}/,http://{self.here}/", f"http://u:p@{self.gone},{self.here}"):
            self.assert_reaches(url)

    def test_a_list_that_is_long(self):
        """Nothing is cut off: what is behind a thousand characters is asked, too."""
        names = [f"{'x' * 60}{i}.invalid" for i in range(16)]
        self.assertGreater(len(",".join(names)), 1024)
        self.assert_reaches("http://" + ",".join([*names, self.here]))

    def test_ipv6(self):
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as error:
            self.skipTest(f"no IPv6: {error}")
        with serving("::1") as server:
            self.assert_reaches(f"http://[::1]:{server.port}")
            self.assert_reaches(f"{self.gone},[::1]:{server.port}")


class Users(Case):
    def assert_user(self, user_info, expected):
        with serving() as server:
            self.assert_reaches(f"http://{user_info}@127.0.0.1:{server.port}")
        given = {header.split()[1] for _, header in server.asked}
        self.assertEqual({base64.b64decode(text).decode() for text in given}, {expected})

    def test_user_and_password(self):
        for user_info, expected in (("root:secret", "root:secret"), ("root", "root:"), ("root:a:b", "root:a:b"),
                                    ("root:a@b/c", "root:a@b/c"), ("r%3Aot:%2C%25%40", "r:ot:,%@"),
                                    ("root:" + LONG, "root:" + LONG)):
            with self.subTest(user_info[:20]):
                self.assert_user(user_info, expected)

    def test_nobody(self):
        with serving() as server:
            self.assert_reaches(f"http://127.0.0.1:{server.port}")
        self.assertEqual({header for _, header in server.asked}, {None})


class Refused(Case):
    def test_what_is_no_url(self):
        for url, sentence in (("", "a host is missing"), ("http://", "a host is missing"), ("u:p@", "a host is missing"),
                              ("a:1,,b:2", "a host is missing"), ("ftp://h:1", "neither http nor https"),
                              ("http://a:1,https://b:2", "cannot be used together"), ("h:1/v2", "a path"),
                              ("h:1/x,h:2", "a path"), (":p@h:1", "user is empty"),
                              ("h:1,u:p@h:2", "only the first host may have a user"), ("u:%4@h:1", "two hexadecimal digits"),
                              ("u:%00@h:1", "two hexadecimal digits"), ("h:0", "the port is 0"),
                              ("h:65536", "above 65535"), ("h:x", "not a number"), ("h:", "port is missing"),
                              ("[::1", "bracket is not closed"), ("[::1]x", "may follow the bracket"),
                              ("a b:1", "character that no host name has"), (LONG, "longer than 255 characters")):
            with self.subTest(url[:40]):
                self.assert_usage(url, sentence)

    def test_a_password_is_not_repeated(self):
        for url in ("http://u:geheim@", "u:geheim@h:1/x", "u:geheim%@h:1", "u:geheim@h:x", "h:1,u:geheim@h:2"):
            self.assertNotIn("geheim", self.assert_usage(url, "rdzv store: ").stderr)

    def test_certificates_without_https(self):
        """Nothing goes out in the clear that was meant not to."""
        for name in "--cacert", "--cert", "--key":
            self.assert_usage("127.0.0.1:1", "need --etcd https://", name, "file")
            finished = self.rdzv("store", name, "file", "get", "k")
            self.assertEqual(finished.returncode, 2)
            self.assertIn("need --etcd https://", finished.stderr)


class Guests(Case):
    def test_status_and_close_wait_for_seconds_only(self):
        where = ("--rdzv-endpoint", f"127.0.0.1:{etcd.free_port()}", "--rdzv-id", "x")
        guests = [self.start([rdzvtest.RDZV, command, "--rdzv-backend", backend, *where, *conf],
                             stderr=subprocess.PIPE, text=True)
                  for command in ("status", "close") for backend in ("etcd", "etcd-v1", "etcd-v2")
                  for conf in ((), ("--rdzv-conf", "last_call_timeout=1"))]
        for guest in guests:
            _, message = guest.communicate(timeout=rdzvtest.DEADLINE)
            self.assertEqual(guest.returncode, 3, message)
            self.assertIn("no answer", message)


if __name__ == "__main__":
    rdzvtest.main()
