# SPDX-License-Identifier: BSD-3-Clause
"""No wait for etcd is silent, and none is long that cannot get better: `rdzv store --etcd` and both backends, at
endpoints that are wrong in every way. The promises are those of test_waits.py, which has the same for the other
stores."""
import http.server
import shutil
import threading

import etcd
import etcd_tls as tls
import etcd_wire
import rdzvtest
from rdzvtest import wait_until
from wait_lines import CONNECT, FIRST_S, QUIET_S, REFUSED, USAGE, YES, Heard, Waits

NOT_ENABLED = ["--enable-v2=false"]


class Case(Waits):
    def commands(self, endpoint, secure=False):
        """All that speak to etcd, reading and writing first."""
        files = [f"cacert={tls.authority().cert}"] if secure else []
        store = ["store", "--etcd", f"http{'s' if secure else ''}://{endpoint}", "--prefix", "/p"]
        store += ["--cacert", tls.authority().cert] if secure else []
        yield [*store, "get", "k"]
        yield [*store, "set", "k", "v"]
        conf = ",".join(["protocol=https", *files] if secure else []) or "read_timeout=60"
        for backend in "etcd", "etcd-v2":
            place = ["--rdzv-backend", backend, "--rdzv-endpoint", endpoint, "--rdzv-id", "job", "--rdzv-conf", conf]
            yield ["join", *place, "--nnodes", "2"]
            yield ["run", *place, "--nnodes", "2", "--no-python", "/bin/true"]
            yield ["status", *place]

    def all(self, endpoint, **keywords):
        return [Heard(self, *command) for command in self.commands(endpoint, **keywords)]

    def goes_on(self, endpoint, within, *parts):
        for heard in self.all(endpoint):
            line = heard.expect(within, "no answer from etcd yet", endpoint, *parts)
            self.assertRegex(line, r"trying for \d+ s more")
            heard.goes_on()
            heard.stop()

    def ends(self, code, endpoint, *parts, **keywords):
        for heard in self.all(endpoint, **keywords):
            heard.exits(code)
            self.assertIsNotNone(heard.line(endpoint, *parts), heard.text())


class MayGetBetter(Case):
    """The first failure is said with its cause and the likely cure, and the wait goes on."""

    def test_refused(self):
        self.goes_on(f"127.0.0.1:{self.held_port()}", FIRST_S, "Connection refused", "is etcd up, and the port right?")

    def test_a_name_that_does_not_resolve(self):
        self.goes_on("no-such-host.invalid:2379", FIRST_S + 10, "cannot resolve the name", "is it right")

    def test_a_server_that_accepts_and_never_answers(self):
        endpoint = f"127.0.0.1:{self.listener().getsockname()[1]}"
        self.goes_on(endpoint, QUIET_S, "no answer in time", "is it etcd, and is it running?")

    def test_a_server_that_closes_every_connection(self):
        server = etcd_wire.Broken(lambda server, connection, path: False)
        self.addCleanup(server.close)
        self.goes_on(server.endpoint, FIRST_S, "closed without an answer")

    def test_a_proxy_without_an_etcd_behind_it(self):
        server = etcd_wire.Broken(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
        self.addCleanup(server.close)
        self.goes_on(server.endpoint, FIRST_S, "502")

    def test_an_etcd_that_comes_late_is_found(self):
        member = etcd.start(self.addCleanup)
        member.kill()
        heard = Heard(self, "store", "--etcd", member.url, "--prefix", "/late", "--timeout", "60", "set", "k", "v")
        heard.expect(FIRST_S, "Connection refused")
        member.start()
        heard.exits(YES, rdzvtest.DEADLINE)
        self.assertIsNotNone(heard.line("answers again"), heard.text())

    def test_one_of_several_is_wrong(self):
        """The others are asked instead."""
        web = WebServer(self)
        for endpoints in (f"{web.endpoint},{etcd.shared().endpoint}",
                          f"{etcd.shared().endpoint},{web.endpoint}",
                          f"127.0.0.1:{etcd.shared().peer_port},{etcd.shared().endpoint}"):
            heard = Heard(self, "store", "--etcd", f"http://{endpoints}", "--prefix", "/some", "set", "k", "v")
            heard.exits(YES)

    def test_many_short_requests_in_vain_are_said_once(self):
        """Those of a member, which renews its lease and looks at the round all the time until that is over."""
        member = etcd.start(self.addCleanup)
        for backend, prefix, key, conf in (
                ("etcd", "/torchelastic/p2p/run_vain/rdzv/v_1/kv", "MASTER_PORT", "read_timeout=1"),
                ("etcd-v2", "/torch/elastic/store", "torch.rendezvous.vain.0/MASTER_PORT",
                 "read_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=10")):
            heard = Heard(self, "join", "--rdzv-backend", backend, "--rdzv-endpoint", member.endpoint, "--rdzv-id",
                          "vain", "--nnodes", "1", "--log-level", "info", "--rdzv-conf", conf)
            joined = self.rdzv("store", "--etcd", member.url, "--prefix", prefix, "get", key)
            self.assertEqual(joined.returncode, YES, joined.stderr)
            member.kill()
            heard.exits(CONNECT, rdzvtest.DEADLINE)
            said = [line for _, line in heard.lines if "no answer from etcd yet" in line]
            self.assertEqual(len(said), 1, heard.text())
            self.assertIn("Connection refused", said[0])
            member.start().await_ready()

    def test_nodes_that_are_missing(self):
        for backend in "etcd", "etcd-v2":
            heard = Heard(self, "join", "--rdzv-backend", backend, "--rdzv-endpoint", etcd.shared().endpoint,
                          "--rdzv-id", f"missing-{backend}", "--nnodes", "2")
            heard.expect(QUIET_S, "waiting for nodes: 1 of at least 2 have joined")
            heard.stop()


class WebServer:
    def __init__(self, case):
        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"127.0.0.1:{self.server.server_address[1]}"
        thread = threading.Thread(target=self.server.serve_forever)
        thread.start()
        case.addCleanup(thread.join)
        case.addCleanup(self.server.server_close)
        case.addCleanup(self.server.shutdown)


class CannotGetBetter(Case):
    """It ends within seconds, and says what is there and what to do. Nothing is said to be of unknown outcome."""

    def test_a_web_server(self):
        self.ends(CONNECT, WebServer(self).endpoint, "a web server answers", "not etcd", "is the port right?")

    def test_our_own_server(self):
        self.ends(CONNECT, self.serve().endpoint, "a TCPStore answers", "not etcd", "--rdzv-backend c10d")

    def test_an_ssh_server(self):
        def answer(connection):
            connection.sendall(b"SSH-2.0-OpenSSH_9.2p1\r\n")
            while connection.recv(1024):
                pass

        self.ends(CONNECT, f"127.0.0.1:{self.answering(answer)}", "an SSH server answers", "is the port right?")

    def test_something_that_speaks_of_itself(self):
        def answer(connection):
            connection.sendall(b"220 mail.example ESMTP\r\n")
            while connection.recv(1024):
                pass

        self.ends(CONNECT, f"127.0.0.1:{self.answering(answer)}", "does not speak HTTP")

    def test_the_port_for_peers(self):
        member = etcd.shared()
        wait_until(lambda: member.get("/v2/members")["members"][0]["clientURLs"], "it has said where it serves clients")
        self.ends(CONNECT, f"127.0.0.1:{member.peer_port}", "port for peers",
                  f"clients are served at {member.url}")

    def test_the_v2_api_is_not_enabled(self):
        member = etcd.start(self.addCleanup, NOT_ENABLED)
        self.ends(REFUSED, member.endpoint, "has no v2 API", "start etcd with --enable-v2")

    def test_plain_words_to_a_server_with_tls(self):
        self.ends(CONNECT, tls.server().endpoint, "requires TLS", "set protocol=https")

    def test_tls_to_a_server_without(self):
        self.ends(CONNECT, etcd.shared().endpoint, "does not speak TLS", "set protocol=http", secure=True)

    def test_tls_to_a_web_server_without(self):
        self.ends(CONNECT, WebServer(self).endpoint, "does not speak TLS", "set protocol=http", secure=True)

    def test_tls_to_our_own_server(self):
        self.ends(CONNECT, self.serve().endpoint, "a TCPStore answers", "not etcd", secure=True)

    def test_no_client_certificate(self):
        self.ends(USAGE, tls.server().endpoint, "requires a client certificate", "cert and key", secure=True)

    def test_an_illegal_name(self):
        self.ends(USAGE, "a..b:2379", "empty part")

    def test_all_of_several_are_wrong(self):
        web = WebServer(self)
        peers = f"127.0.0.1:{etcd.shared().peer_port}"
        heard = Heard(self, "store", "--etcd", f"http://{web.endpoint},{peers}", "--prefix", "/p", "set", "k", "v")
        heard.exits(CONNECT)


if __name__ == "__main__":
    etcd.need()
    if not shutil.which("openssl"):
        rdzvtest.skip("there is no openssl")
    rdzvtest.main()
