# SPDX-License-Identifier: BSD-3-Clause
"""`rdzv store --etcd3` on real etcds: every operation, and everything that can be wrong with an etcd."""
import http.server
import os
import subprocess
import threading

import etcd
import etcd_tls
import etcd_wire
import rdzvtest
from etcd_v3 import await_forgotten, await_watch, b64, compact, post, start_with_users

NEWER = os.path.join(rdzvtest.torch26_folder(), "usr", "bin", "etcd")


class Case(rdzvtest.Case):
    def setUp(self):
        super().setUp()
        self.prefix = f"/tests/{self.id()}"

    def flags(self, where, *arguments):
        where = where if isinstance(where, str) else where.url
        return ["store", "--etcd3", where, "--prefix", self.prefix, *arguments]

    def ours(self, where, *arguments, **options):
        return self.rdzv(*self.flags(where, *arguments), **options)

    def assert_done(self, finished, output=""):
        self.assertEqual((finished.returncode, finished.stdout), (0, output), finished.stderr)

    def assert_exit(self, finished, code, sentence):
        self.assertEqual(finished.returncode, code, finished.stderr)
        self.assertRegex(finished.stderr, sentence)

    def begin(self, where, *arguments):
        return self.start([rdzvtest.RDZV, *self.flags(where, *arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)

    def finish(self, process):
        stdout, stderr = process.communicate(timeout=rdzvtest.DEADLINE)
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def play(self, member):
        """Every operation, once."""
        self.assert_done(self.ours(member, "set", "k", "v"))
        self.assert_done(self.ours(member, "get", "k"), "v\n")
        self.assert_done(self.ours(member, "add", "n", "5"), "5\n")
        self.assert_done(self.ours(member, "add", "n", "-7"), "-2\n")
        self.assert_done(self.ours(member, "cas", "k", "v", "w"), "w\n")
        self.assertEqual(self.ours(member, "cas", "k", "v", "x").returncode, 1)
        self.assert_done(self.ours(member, "append", "k", "!"))
        self.assert_done(self.ours(member, "mset", "a", "1", "b", "", "a", "2"))
        self.assert_done(self.ours(member, "mget", "b", "k", "a"), "\nw!\n2\n")
        self.assert_done(self.ours(member, "check", "a", "b"))
        self.assertEqual(self.ours(member, "check", "a", "z").returncode, 1)
        self.assert_done(self.ours(member, "wait", "a", "k"))
        self.assert_done(self.ours(member, "num-keys"), "4\n")
        self.assertEqual(sorted(self.ours(member, "keys").stdout.split()), ["a", "b", "k", "n"])
        self.assert_done(self.ours(member, "delete", "a"))
        self.assertEqual(self.ours(member, "delete", "a").returncode, 1)
        many = [word for i in range(300) for word in (f"many{i}", str(i))]
        self.assert_done(self.ours(member, "mset", *many))
        self.assert_done(self.ours(member, "mget", *many[::2]), "".join(f"{i}\n" for i in range(300)))
        self.assertEqual(self.ours(member, "--timeout", "0", "get", "z").returncode, 1)


class Operations(Case):
    def test_every_operation(self):
        member = etcd.shared()
        self.play(member)
        found = post(member, "/v3/kv/range", {"key": b64(f"{self.prefix}/keys/k")})["kvs"][0]
        self.assertEqual(found["value"], b64("w!"))  # as it is, for everybody to read

    def test_nothing_but_keys_stays(self):
        member = etcd.shared()
        self.assert_done(self.ours(member, "set", "k", "v"))
        found = post(member, "/v3/kv/range", {"key": b64(self.prefix), "range_end": b64(self.prefix + "0")})["kvs"]
        self.assertEqual([kv["key"] for kv in found], [b64(f"{self.prefix}/keys/k")])

    def test_every_operation_on_3_5(self):
        if os.environ.get("RDZV_TORCH26") == "off":
            self.skipTest("switched off")
        if not os.path.exists(NEWER):
            rdzvtest.skip(f"there is no {NEWER}: scripts/torch26 setup adds it")
        member = etcd.start(self.addCleanup, binary=NEWER)
        self.play(member)

    def test_a_get_is_woken_by_a_set(self):
        member = etcd.start(self.addCleanup)
        waiting = self.begin(member, "get", "late")
        await_watch(member)
        self.assert_done(self.ours(member, "set", "late", "x"))
        self.assert_done(self.finish(waiting), "x\n")

    def test_a_get_outlives_its_etcd_and_a_compaction(self):
        member = etcd.start(self.addCleanup)
        self.assert_done(self.ours(member, "set", "other", "0"))
        waiting = self.begin(member, "get", "late")
        await_watch(member)
        for i in range(3):
            self.assert_done(self.ours(member, "set", "other", str(i)))
        compact(member)
        member.kill()
        member.start().await_ready()
        self.assert_done(self.ours(member, "set", "late", "x"))
        self.assert_done(self.finish(waiting), "x\n")


class Keeps:
    """The first transaction that comes to any of the proxies is kept until it may go; the others, until they may."""

    def __init__(self):
        self.kept, self.go, self.others_go, self.passed = (threading.Event() for _ in range(4))


class Late(etcd_wire.Proxy):
    def __init__(self, keeps):
        self.keeps = keeps
        super().__init__(None)

    def answer(self, connection, method, path, headers, body):
        keeps = self.keeps
        if path.endswith("/lease/revoke"):  # which would end what is late, too
            return False
        if path != "/v3/kv/txn":
            return super().answer(connection, method, path, headers, body)
        if keeps.kept.is_set():
            keeps.others_go.wait(rdzvtest.DEADLINE)
            return super().answer(connection, method, path, headers, body)
        keeps.kept.set()
        keeps.go.wait(rdzvtest.DEADLINE)
        try:
            return super().answer(connection, method, path, headers, body)
        finally:
            keeps.passed.set()


class Trouble(Case):
    def test_a_refused_swap_is_not_done_late(self):
        """It comes to one member and stays there; the key is set; it is sent again by another way, and refused. The key
        is deleted, and then the member passes it on."""
        keeps = Keeps()
        ways = [Late(keeps), Late(keeps)]
        for way in ways:
            self.addCleanup(way.close)
        self.addCleanup(keeps.go.set)
        self.addCleanup(keeps.others_go.set)
        member = etcd.start(self.addCleanup, ["--advertise-client-urls", ",".join(way.url for way in ways)])
        for way in ways:
            way.target = member.port
        swap = self.begin(",".join(way.endpoint for way in ways), "cas", "k", "", "late")
        self.assertTrue(keeps.kept.wait(rdzvtest.DEADLINE))
        post(member, "/v3/kv/put", {"key": b64(f"{self.prefix}/keys/k"), "value": b64("x")})
        keeps.others_go.set()
        finished = self.finish(swap)
        self.assertEqual((finished.returncode, finished.stdout), (1, "x\n"), finished.stderr)
        post(member, "/v3/kv/deleterange", {"key": b64(f"{self.prefix}/keys/k")})
        keeps.go.set()
        self.assertTrue(keeps.passed.wait(rdzvtest.DEADLINE))
        self.assertNotIn("kvs", post(member, "/v3/kv/range", {"key": b64(f"{self.prefix}/keys/k")}))

    def test_one_of_three_endpoints_is_unreachable(self):
        member = etcd.shared()
        where = f"127.0.0.1:1,{member.endpoint},127.0.0.1:2"
        self.assert_done(self.ours(where, "set", "k", "v"))
        self.assert_done(self.ours(where, "get", "k"), "v\n")

    def test_all_are_unreachable(self):
        self.assert_exit(self.ours("127.0.0.1:1,127.0.0.1:2", "--timeout", "1", "set", "k", "v"), 3,
                         r"set 'k' in etcd3 .*: no answer .*refused")

    def test_the_gateway_is_switched_off(self):
        member = etcd.start(self.addCleanup, ["--enable-grpc-gateway=false"])
        self.assert_exit(self.ours(member, "set", "k", "v"), 6,
                         r"etcd 3\.4\.\d+ at .* has its gateway for HTTP switched off")

    def before_etcd(self, status, body):
        """A proxy that says what etcd it is before, and answers the rest by itself; a range that is not POSTed as etcd
        does. Gives its endpoint."""
        class Answers(http.server.BaseHTTPRequestHandler):
            def answer(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                known = {"/version": (200, b'{"etcdserver":"3.5.16","etcdcluster":"3.5.0"}'),
                         "/v3/kv/range": (405, b"Method Not Allowed")}
                code, text = known.get(self.path, (status, body)) if self.command == "GET" else (status, body)
                self.send_response(code)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = answer

            def log_message(self, *_):
                """Silent."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"127.0.0.1:{server.server_port}"

    def test_another_404_is_not_the_gateway(self):
        """Nor is any other status, and nor is it a v2 API that is switched off."""
        for status, body in (404, b"<html>not here</html>"), (404, b"404 page not found"), (403, b"<html>no</html>"):
            where = self.before_etcd(status, body)
            self.assert_exit(self.ours(where, "--timeout", "5", "set", "k", "v"), 3,
                             rf"etcd 3\.5\.16 answers at {where}, but a request of its v3 API gets status {status} "
                             r"\(does a proxy answer in its place\?\)")
        where = self.before_etcd(404, b"<html>not here</html>")
        finished = self.rdzv("store", "--etcd", where, "--prefix", self.prefix, "--timeout", "5", "get", "k")
        self.assert_exit(finished, 3, r"a request of its v2 API gets status 404")

    def test_no_v2_api(self):
        member = etcd.start(self.addCleanup, ["--enable-v2=false"])
        finished = self.rdzv("store", "--etcd", member.url, "--prefix", self.prefix, "get", "k")
        self.assert_exit(finished, 6, r"has no v2 API \(start etcd with --enable-v2; for its v3 API: .*etcd-v3.*--etcd3\)")
        for backend in ("etcd", "etcd-v2"):
            finished = self.rdzv("join", "--rdzv-backend", backend, "--rdzv-endpoint", member.endpoint, "--rdzv-id", "r",
                                 "--nnodes", "1")
            self.assertNotEqual(finished.returncode, 0)
            self.assertRegex(finished.stderr, r"has no v2 API \(.*--rdzv-backend etcd-v3")

    def test_a_full_etcd(self):
        member = etcd.start(self.addCleanup, ["--quota-backend-bytes", str(1 << 20)])
        value = "x" * 100000
        for i in range(60):
            finished = self.ours(member, "set", f"k{i}", value)
            if finished.returncode != 0:
                break
        self.assert_exit(finished, 7, r"set 'k\d+' in etcd3 .* is full \(compact and defragment it.*space exceeded")
        self.assert_done(self.ours(member, "get", "k0"), value + "\n")

    def test_a_value_too_large(self):
        finished = self.ours(etcd.shared(), "set", "k", "-", input="x" * (3 << 20))
        self.assert_exit(finished, 6, "refuses the size")

    def test_an_etcd_that_lost_its_data(self):
        member = etcd.start(self.addCleanup)
        for i in range(5):
            self.assert_done(self.ours(member, "set", "k", str(i)))
        waiting = self.begin(member, "get", "late")
        await_watch(member)
        member.kill()
        member.wipe()
        member.start().await_ready()
        self.assert_exit(self.finish(waiting), 6, r"get 'late' in etcd3 .* has lost its data: it is at revision 1 and was")

    def test_tls(self):
        cert, key = etcd_tls.authority().issue("v3", "IP:127.0.0.1")
        member = etcd.start(self.addCleanup, ["--cert-file", cert, "--key-file", key], scheme="https",
                            context=etcd_tls.ssl.create_default_context(cafile=etcd_tls.authority().cert))
        right, wrong = etcd_tls.authority().cert, etcd_tls.authority("wrong").cert
        self.assert_done(self.ours(member, "--cacert", right, "set", "k", "v"))
        self.assert_done(self.ours(member, "--cacert", right, "get", "k"), "v\n")
        self.assert_exit(self.ours(member, "--cacert", wrong, "get", "k"), 2, "does not verify with")
        self.assert_exit(self.ours(member.endpoint, "get", "k"), 3, "requires TLS")


class Doubt(Case):
    """An etcd whose watch tells that data may be lost, and that is silent when asked."""

    def test_a_wait_ends_in_time(self):
        asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                asked.append(self.path)
                if self.path == "/v3/watch":
                    self.say('{"result":{"header":{"cluster_id":"7","revision":"1"},"watch_id":"1","created":true}}\n', True)
                if self.path == "/v3/watch" or "/v3/watch" in asked:
                    over.wait()
                else:
                    self.say('{"header":{"cluster_id":"7","revision":"9"}}')

            def say(self, text, goes_on=False):
                self.send_response(200)
                if not goes_on:
                    self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())
                self.wfile.flush()

            def log_message(self, *unused):
                pass

        over = threading.Event()
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            waiting = self.begin(f"http://127.0.0.1:{server.server_address[1]}", "--timeout", str(rdzvtest.slow(2)), "get", "late")
            finished = self.finish(waiting)
        finally:
            over.set()
            server.shutdown()
            server.server_close()
            thread.join()
        self.assertIn("/v3/watch", asked, finished)
        self.assertEqual(finished.returncode, 4, (finished.stderr, asked))


class Process(Case):
    def test_an_etcd_without_v2_is_started_too(self):
        """As etcd 3.6, which has no --enable-v2, and says so with its usage."""
        folder = etcd.folder_for(self.addCleanup)
        binary = os.path.join(folder, "etcd")
        with open(binary, "w", encoding="ascii") as file:
            file.write('#!/bin/sh\nfor word; do [ "$word" != --enable-v2 ] || { echo "flag provided but not defined"; '
                       'exit 2; }; done\nexec etcd "$@"\n')
        os.chmod(binary, 0o755)
        started = self.start([rdzvtest.RDZV, "etcd", "start", "--binary", binary], stdout=subprocess.PIPE, text=True)
        where = started.stdout.readline().split()[-1]
        self.assert_done(self.ours(where, "set", "k", "v"))
        finished = self.rdzv("store", "--etcd", where, "--prefix", self.prefix, "get", "k")
        self.assert_exit(finished, 6, "has no v2 API")
        started.terminate()
        self.assertEqual(started.wait(rdzvtest.DEADLINE), 0)


class Users(Case):
    """A user who may use the prefix of the tests only, at an etcd that forgets tokens after a second."""

    def setUp(self):
        super().setUp()
        self.member = start_with_users(self.addCleanup, "/tests/", "/tests0")
        self.job = self.member.url.replace("://", "://job:of%20job@")

    def test_user_and_password(self):
        self.assert_done(self.ours(self.job, "set", "k", "v"))
        self.assert_done(self.ours(self.job, "get", "k"), "v\n")

    def test_a_token_is_renewed_when_etcd_has_forgotten_it(self):
        waiting = self.begin(self.job, "--timeout", str(rdzvtest.DEADLINE), "mget", "one", "two")  # a wait that is followed by a call
        await_watch(self.member)
        await_forgotten(self.member, "/tests/x")
        self.assert_done(self.ours(self.job, "mset", "one", "1", "two", "2"))
        self.assert_done(self.finish(waiting), "1\n2\n")

    def test_no_permission(self):
        finished = self.rdzv("store", "--etcd3", self.job, "--prefix", "/elsewhere", "set", "k", "v")
        self.assert_exit(finished, 2, "set 'k' in etcd3 .* this user lacks permission in etcd .*permission denied")

    def test_wrong_password_and_none(self):
        wrong = self.member.url.replace("://", "://job:guess@")
        self.assert_exit(self.ours(wrong, "set", "k", "v"), 2, "wrong user or password for 'job'")
        self.assert_exit(self.ours(self.member, "set", "k", "v"), 2, "requires a user and password")

    def test_a_user_where_none_is_needed(self):
        member = etcd.shared()
        self.assert_done(self.ours(member.url.replace("://", "://job:x@"), "set", "k", "v"))


if __name__ == "__main__":
    etcd.need()
    rdzvtest.main()
