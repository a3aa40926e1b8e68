# SPDX-License-Identifier: BSD-3-Clause
"""No wait is silent: what `rdzv` says while it waits, how soon, and which waits end in seconds because they cannot get
better. The promises are 1 s for the first failure, 3 s for a wait without one, and seconds for an end; a machine that
is busy with other tests gets some seconds more. stderr is a pipe here, not a terminal."""
import fcntl
import http.server
import signal
import socket
import ssl
import subprocess
import threading
import time

import etcd
import rdzvtest
from rdzvtest import RDZV, slow, slow_int, wait_until
from wait_lines import YES, USAGE, CONNECT, FIRST_S, QUIET_S, Heard, Waits


class MayGetBetter(Waits):
    """The first failure is said with its cause and the likely cure, and the wait goes on."""

    def test_refused(self):
        endpoint = f"127.0.0.1:{self.held_port()}"
        for heard in self.join(endpoint), self.run_job(endpoint):
            line = heard.expect(FIRST_S, endpoint, "Connection refused", "is the server up")
            self.assertRegex(line, r"trying for (60|[1-5]\d) s more")
            heard.goes_on()
            heard.stop()

    def test_the_end_tells_the_cause_and_all_tries(self):
        """A last try that the deadline cuts off does not hide what the others found."""
        endpoint = f"localhost:{self.held_port()}"
        for command in (["store", "--endpoint", endpoint, "--timeout", "2", "get", "k"],
                        ["status", "--rdzv-endpoint", endpoint, "--rdzv-id", "job"]):
            heard = Heard(self, *command)
            heard.exits(CONNECT)
            last = heard.lines[-1][1]
            self.assertIn("Connection refused", last)
            self.assertRegex(last, r"\(([2-9]|\d\d) tries in \d{4,} ms\)")

    def test_a_name_that_does_not_resolve(self):
        for heard in self.join("no-such-host.invalid:29400"), self.run_job("no-such-host.invalid:29400"):
            heard.expect(FIRST_S + 10, "cannot resolve 'no-such-host.invalid'", "?")  # as fast as the resolver is
            heard.goes_on()
            heard.stop()

    def test_no_route(self):
        """A namespace has no network at first."""
        alone = ["unshare", "--map-root-user", "--net"]
        if subprocess.run([*alone, "true"], check=False, capture_output=True).returncode:
            self.skipTest("`unshare --net` does not work here")
        heard = Heard(self, "join", "--rdzv-endpoint", "10.77.0.9:29400", "--rdzv-id", "job", before=alone)
        heard.expect(FIRST_S, "10.77.0.9:29400: Network is unreachable", "check the address and the route")
        heard.goes_on()
        heard.stop()

    def test_a_server_that_accepts_and_never_answers(self):
        port = self.listener().getsockname()[1]
        for heard in self.join(f"127.0.0.1:{port}"), self.run_job(f"127.0.0.1:{port}"):
            heard.expect(QUIET_S, f"127.0.0.1:{port}", "accepts connections, but does not answer", "is this a store server")
            heard.goes_on()
            heard.stop()

    def test_a_guest_says_so_too(self):
        endpoint = f"127.0.0.1:{self.held_port()}"
        for command in "status", "close":
            heard = Heard(self, command, "--rdzv-endpoint", endpoint, "--rdzv-id", "job")
            heard.expect(FIRST_S, "Connection refused", "is the server up", "trying for")
            heard.exits(CONNECT)
        heard = Heard(self, "store", "--endpoint", endpoint, "--timeout", "5", "get", "k")
        heard.expect(FIRST_S, "Connection refused", "is the server up", "trying for")
        heard.exits(CONNECT)

    def test_a_server_that_comes_late_is_found(self):
        """What is said does not end the wait."""
        server = self.serve()
        self.stop(server)
        heard = self.join(server.endpoint, "--once")
        heard.expect(FIRST_S, "Connection refused")
        self.start([RDZV, "serve", "--bind", "127.0.0.1", "--port", str(server.port)], stdout=subprocess.DEVNULL)
        heard.exits(YES, rdzvtest.DEADLINE)


class TwoTimes(Waits):
    """What a join may take, and read_timeout: the smaller one ends the wait for a silent endpoint, and is named."""

    def test_the_smaller_one(self):
        endpoint = f"127.0.0.1:{self.listener().getsockname()[1]}"
        names = {"c10d": "join_timeout", "etcd-v2": "join_timeout", "etcd-v3": "join_timeout", "etcd": "timeout"}
        for small, large in ("read_timeout", None), (None, "read_timeout"):
            heard = {}
            for kind, name in names.items():
                conf = f"{small or name}=1.5,{large or name}=600{',is_host=false' * (kind == 'c10d')}"
                heard[kind] = self.join(endpoint, "--rdzv-backend", kind, conf=conf)
            for kind, name in names.items():
                heard[kind].exits(CONNECT, rdzvtest.DEADLINE)
                self.assertIn(f"cannot open rendezvous 'job': not within {small or name} (1.5 s): ",
                              heard[kind].lines[-1][1], kind)

    def test_static(self):
        endpoint = f"127.0.0.1:{self.listener().getsockname()[1]}"
        heard = self.join(endpoint, "--rdzv-backend", "static", "--nnodes", "2", conf="rank=1,timeout=1.5")
        heard.exits(CONNECT, rdzvtest.DEADLINE)
        self.assertIn("cannot join as rank 1: not within timeout (1.5 s): ", heard.lines[-1][1])


class Held(Waits):
    """The endpoint names this machine, but the port is held by something that does not listen."""

    def test_both_causes_are_said(self):
        port = self.held_port()
        for heard in self.join(f"127.0.0.1:{port}", conf="read_timeout=2"), self.run_job(f"127.0.0.1:{port}", conf=""):
            heard.expect(FIRST_S, f"127.0.0.1:{port}", "Address already in use", "Connection refused", "choose another")
            heard.stop()
        heard = self.join(f"127.0.0.1:{port}", conf=f"read_timeout={rdzvtest.slow(1)}")
        heard.exits(CONNECT)
        self.assertIsNotNone(heard.line("rdzv join:", "Address already in use", "Connection refused"), heard.text())

    def test_the_node_serves_when_the_port_is_free_again(self):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            endpoint = f"127.0.0.1:{holder.getsockname()[1]}"
            heard = self.join(endpoint, "--once", conf="last_call_timeout=0.1")
            heard.expect(FIRST_S, "Address already in use", "Connection refused")
        heard.exits(YES, rdzvtest.DEADLINE)

    def test_the_node_is_a_client_when_the_holder_begins_to_serve(self):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            endpoint = f"127.0.0.1:{holder.getsockname()[1]}"
            heard = self.join(endpoint, "--once", conf="last_call_timeout=0.1")
            heard.expect(FIRST_S, "Address already in use", "Connection refused")
            holder.listen()
            heard.expect(rdzvtest.DEADLINE, endpoint, "accepts connections, but does not answer")
            heard.stop()


class Static(Waits):
    def test_a_rank_waits_for_rank_0(self):
        port = self.held_port()
        endpoint = f"127.0.0.1:{port}"
        join = Heard(self, "join", "--rdzv-backend", "static", "--rdzv-endpoint", endpoint, "--rdzv-id", "job",
                     "--nnodes", "2", "--rdzv-conf", "rank=1")
        run = Heard(self, "run", "--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--master-port",
                    str(port), "--no-python", "/bin/true")
        for heard in join, run:
            line = heard.expect(FIRST_S, f"rank 0 at '{endpoint}' has not started", "Connection refused")
            self.assertRegex(line, r"trying for (600|5\d\d|900|8\d\d) s more")
            heard.goes_on()
            heard.stop()


class Nodes(Waits):
    """What is waited for once the store is reached."""
    FEW = "last_call_timeout=0.1"

    def test_a_node_waits_for_others(self):
        server = self.serve()
        join = self.join(server.endpoint, "--nnodes", "2", "--local-addr", "first", conf=self.FEW)
        line = join.expect(QUIET_S, "waiting for nodes: 1 of at least 2 have joined", "'first_")
        self.assertRegex(line, r"; 5\d\d s left")
        join.stop()

    def test_a_node_waits_for_others_over_etcd(self):
        etcd.need()
        for backend in ("etcd-v2",):
            join = Heard(self, "join", "--rdzv-backend", backend, "--rdzv-endpoint", etcd.shared().endpoint, "--rdzv-id",
                         f"job-{backend}-{self.id()}", "--nnodes", "2")
            join.expect(QUIET_S, "waiting for nodes: 1 of at least 2 have joined")
            join.stop()

    def test_a_change_is_told_before_the_next_line_is_due(self):
        """With 30 s between two lines that say the same, the second node is told of within some seconds."""
        server = self.serve()
        first = self.join(server.endpoint, "--nnodes", "3", "--local-addr", "first", conf=self.FEW)
        first.expect(QUIET_S, "1 of at least 3 have joined")
        second = self.join(server.endpoint, "--nnodes", "3", "--local-addr", "second", conf=self.FEW)
        before = time.monotonic() - first.began
        first.expect(before + rdzvtest.slow(12), "2 of at least 3 have joined", "'first_", "'second_")
        second.expect(QUIET_S, "2 of at least 3 have joined")
        for heard in first, second:
            self.assertLessEqual(len(heard.lines), 4, heard.text())
            heard.stop()

    def test_a_node_waits_for_the_next_round(self):
        """The other is in round 0 and silent, which is not missed for a long time."""
        server = self.serve()
        conf = self.FEW + ",session_keep_alive=60"
        first = self.join(server.endpoint, "--nnodes", "1:2", "--log-level", "info", conf=conf)
        first.expect(rdzvtest.DEADLINE, "joined round 0")
        first.process.send_signal(signal.SIGSTOP)
        late = self.join(server.endpoint, "--nnodes", "1:2", conf=conf)
        late.expect(QUIET_S, "waiting for the next round: round 0 goes on with 1 of at most 2 nodes")
        late.stop()

    def test_a_swap_node_waits_for_the_next_round(self):
        server = self.serve()
        conf = self.FEW + ",mode=swap,keep_alive_interval=60"
        first = self.join(server.endpoint, "--nnodes", "1:2", "--once", conf=conf)
        first.exits(YES, rdzvtest.DEADLINE)
        late = self.join(server.endpoint, "--nnodes", "1:2", conf=conf)
        late.expect(QUIET_S, "waiting for the next round: round 0 goes on with 1 of at most 2 nodes")
        late.stop()

    def test_a_job_waits_for_others(self):
        server = self.serve()
        heard = self.run_job(server.endpoint)
        heard.expect(QUIET_S, "waiting for nodes: 1 of at least 2 have joined")
        heard.stop()

    def test_a_job_waits_for_its_workers_to_end(self):
        """A worker that is told to end, and does not."""
        heard = Heard(self, "run", "--standalone", "--shutdown-timeout", "30", "--no-python", "/bin/sh", "-c",
                      "trap '' TERM; echo ready >&2; while :; do sleep 1; done")
        heard.expect(rdzvtest.DEADLINE, "ready")
        before = time.monotonic() - heard.began
        heard.process.send_signal(signal.SIGTERM)
        heard.expect(before + QUIET_S, "waiting for 1 worker to end", "s left")
        heard.process.send_signal(signal.SIGTERM)
        heard.process.wait(rdzvtest.DEADLINE)

    def test_a_job_waits_for_the_workers_of_others(self):
        """The one whose worker sleeps has nothing to say."""
        server = self.serve()
        options = ["run", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", server.endpoint, "--rdzv-id",
                   "job", "--rdzv-conf", self.FEW, "--no-python", "/bin/sh", "-c", '[ "$RANK" = 0 ] || sleep 300']
        jobs = [Heard(self, *options) for _ in range(2)]
        wait_until(lambda: any(job.line("waiting for the workers of other nodes") for job in jobs), "one waits")
        for job in jobs:
            job.process.send_signal(signal.SIGTERM)
        for job in jobs:
            job.process.wait(rdzvtest.DEADLINE)


class Stores(Waits):
    def test_a_request_without_an_answer(self):
        """With its dialect named, a server is not greeted, so it is the first request that gets no answer."""
        port = self.listener().getsockname()[1]
        heard = Heard(self, "store", "--endpoint", f"127.0.0.1:{port}", "--dialect", "v1", "--timeout", "60", "add", "n",
                      "1")
        line = heard.expect(QUIET_S, f"add to 'n' at '127.0.0.1:{port}': no answer yet")
        self.assertRegex(line, r"; [1-5]\d s left")

    def test_a_key_that_is_waited_for(self):
        server = self.serve()
        path = self.path("store")
        for where in ["--endpoint", server.endpoint], ["--file", path]:
            for words in ["get", "k"], ["wait", "k", "other"]:
                heard = Heard(self, "store", *where, "--timeout", "60", *words)
                line = heard.expect(QUIET_S, "waiting for the key", "'k'")
                self.assertRegex(line, r"; [1-5]\d s left")
                heard.process.terminate()
                heard.process.wait(rdzvtest.DEADLINE)

    def test_a_lock_that_another_process_holds(self):
        path = self.path("store")
        with open(path, "w", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            heard = Heard(self, "store", "--file", path, "--timeout", "60", "set", "k", "v")
            heard.expect(QUIET_S, f"another process holds the lock of '{path}'")
        heard.exits(YES, rdzvtest.DEADLINE)


class FileLocks(Waits):
    """A lock that another process does not give up ends the wait of a rendezvous with the time of its options, and a
    signal ends it at once."""

    def hold(self):
        """The path of a store whose lock is held."""
        path = self.path("store")
        file = open(path, "w", encoding="ascii")  # pylint: disable=consider-using-with
        self.addCleanup(file.close)
        fcntl.flock(file, fcntl.LOCK_EX)
        return path, file

    def test_the_shorter_time_bounds_it(self):
        path, _ = self.hold()
        job = ["--no-python", "true"]
        for words in ["join", "--once"], ["run", "--rdzv-backend", "c10d"], ["status"], ["close"], ["reset"]:
            for option in "join_timeout", "read_timeout":
                heard = Heard(self, words[0], "--rdzv-endpoint", path, "--rdzv-id", "job", "--rdzv-conf",
                              f"store_type=file,{option}=1", *words[1:], *(job if words[0] == "run" else []))
                heard.exits(CONNECT)
                self.assertIsNotNone(heard.line(f"not within {option} (1 s): cannot lock '{path}'",
                                                "another process holds its lock"), heard.text())
        heard = Heard(self, "list", "--rdzv-endpoint", path, "--rdzv-conf", "store_type=file,join_timeout=1")
        heard.exits(CONNECT)
        self.assertIsNotNone(heard.line("not within join_timeout (1 s)", "another process holds its lock"), heard.text())

    def test_a_signal_ends_it(self):
        path, _ = self.hold()
        options = ["--rdzv-endpoint", path, "--rdzv-id", "job", "--rdzv-conf", "store_type=file,read_timeout=300"]
        for words in (["join", *options], ["run", "--rdzv-backend", "c10d", *options, "--no-python", "true"],
                      ["status", *options], ["list", *options[:2], *options[4:]]):
            heard = Heard(self, *words)
            heard.expect(QUIET_S, f"another process holds the lock of '{path}'")
            heard.process.send_signal(signal.SIGTERM)
            heard.exits(143 if words[0] == "run" else YES, slow(30))
            self.assertIsNone(heard.line("canceled"), heard.text())

    def test_a_lock_that_is_held_after_the_node_has_joined(self):
        path = self.path("store")
        heard = Heard(self, "join", "--rdzv-endpoint", path, "--rdzv-id", "job", "--nnodes", "2", "--rdzv-conf",
                      f"store_type=file,join_timeout={slow_int(4)}", "--log-level", "info")
        heard.expect(slow(4), "is a participant of the round")
        with open(path, "r", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            heard.exits(CONNECT, slow(30))
            self.assertIsNotNone(heard.line("cannot join the rendezvous", f"cannot lock '{path}'",
                                            "another process holds its lock"), heard.text())


class CannotGetBetter(Waits):
    """A server of another protocol ends the wait within seconds, with what it is and the likely cure."""

    def check(self, port, *parts):
        for heard in self.join(f"127.0.0.1:{port}"), self.run_job(f"127.0.0.1:{port}"):
            heard.exits(CONNECT)
            self.assertIsNotNone(heard.line(f"127.0.0.1:{port}", *parts), heard.text())

    def test_a_web_server(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), QuietHandler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.check(server.server_address[1], "a web server answers", "is the port right?")

    def test_a_web_server_that_does_one_connection_at_a_time(self):
        def answer(connection):
            request = connection.recv(1024)
            while request and b"\n" not in request:
                request = connection.recv(1024)
            connection.sendall(b"HTTP/1.0 404 Not Found\r\n\r\n")

        self.check(self.answering(answer), "a web server answers", "is the port right?")

    def test_etcd(self):
        etcd.need()
        self.check(etcd.shared().port, "etcd answers", "--rdzv-backend etcd-v2")

    def test_a_tls_server(self):
        key, certificate = self.path("key.pem"), self.path("certificate.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost"],
                       check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.check(self.answering(lambda connection: context.wrap_socket(connection, server_side=True).close()),
                   "TLS", "protocol=https")

    def test_an_ssh_server(self):
        def answer(connection):
            connection.sendall(b"SSH-2.0-OpenSSH_9.2p1\r\n")
            while connection.recv(1024):
                pass

        self.check(self.answering(answer), "an SSH server answers", "is the port right?")

    def test_an_illegal_name(self):
        for endpoint, why in (("10.0.0.256:29400", "not an IPv4 address"), ("a..b:29400", "empty part"),
                              ("1:2:3", "IPv6"), ("node:70000", "above 65535")):
            heard = self.join(endpoint)
            heard.exits(USAGE)
            self.assertIsNotNone(heard.line(endpoint, why), heard.text())


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


if __name__ == "__main__":
    rdzvtest.main()
