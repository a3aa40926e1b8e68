# SPDX-License-Identifier: BSD-3-Clause
"""Answers that no etcd gives, or that one in trouble does: a clear error for each, by the deadline, and no crash."""
import base64
import concurrent.futures
import os
import socket
import subprocess
import time

import etcd
import etcd_wire
import rdzvtest
from etcd_v1_nodes import tell
from etcd_wire import message

GOOD = b'{"action":"get","node":{"key":"/p/aw==","value":"dg==","modifiedIndex":4,"createdIndex":4}}'
NOT_FOUND = b'{"errorCode":100,"message":"Key not found","cause":"/p/aw==","index":7}'
OURS = "X-Etcd-Cluster-Id: a1b2c3d4e5f60718"
TIMEOUT = rdzvtest.slow(10)  # seconds, of each command that has its answer at once
SHORT = rdzvtest.slow(2)  # of those that go on in vain
REFUSED = (2, 3, 6)


class Case(rdzvtest.Case):
    def broken(self, answer):
        server = etcd_wire.Broken(answer)
        self.addCleanup(server.close)
        return server

    def store(self, server, *arguments, timeout=TIMEOUT):
        return self.rdzv("store", "--etcd", server.url, "--prefix", "/p", "--timeout", str(timeout), *arguments)

    def join(self, server, timeout=TIMEOUT):
        return self.rdzv("join", "--rdzv-backend", "etcd-v2", "--rdzv-endpoint", server.endpoint, "--rdzv-id", "r",
                         "--rdzv-conf", f"read_timeout={timeout},join_timeout={timeout}", "--once")

    def assert_said(self, finished, codes, sentence, began, timeout=TIMEOUT, operation=""):
        said = f"{operation}: {finished.stderr}"
        self.assertIn(finished.returncode, codes, said)
        self.assertRegex(finished.stderr, sentence, said)
        self.assertNotRegex(finished.stderr, "Sanitizer", said)
        self.assert_within(began, timeout + 8, said)

    def assert_all(self, answer, codes, sentence, timeout=TIMEOUT):
        """Reading, writing, counting and joining all end with that."""
        server = self.broken(answer)
        began = time.monotonic()
        operations = (("get", "k"), ("set", "k", "v"), ("add", "k", "1"), ("num-keys",), ("delete", "k"))
        with concurrent.futures.ThreadPoolExecutor(len(operations) + 1) as pool:
            ends = {operation[0]: pool.submit(self.store, server, *operation, timeout=timeout)
                    for operation in operations}
            ends["join"] = pool.submit(self.join, server, timeout)
        for operation, end in ends.items():
            self.assert_said(end.result(), codes, sentence, began, timeout, operation)


class Answers(Case):
    def test_no_json(self):
        self.assert_all(message("200 OK", b"<html>hello</html>"), REFUSED, "not JSON")

    def test_no_body(self):
        self.assert_all(message("200 OK"), REFUSED, "not JSON")

    def test_another_json(self):
        self.assert_all(message("200 OK", b"[1, 2]"), REFUSED, "not an object")

    def test_wrong_types(self):
        self.assert_all(message("200 OK", b'{"action":"get","node":{"key":"/p","value":5}}'), REFUSED, "is not a string")

    def test_deep_json(self):
        self.assert_all(message("200 OK", b"[" * 100000), REFUSED, "not JSON")

    def test_not_base64(self):
        server = self.broken(message("200 OK", GOOD.replace(b"dg==", b"%%")))
        began = time.monotonic()
        self.assert_said(self.store(server, "get", "k"), REFUSED, "not base64", began)

    def test_redirections(self):
        """They are not followed: a password would go with them."""
        trap = self.broken(message("200 OK", GOOD))
        for status in ("301 Moved", "307 Temporary Redirect"):
            self.assert_all(message(status, b"", f"Location: {trap.url}/v2/keys/p"), REFUSED,
                            r"answered with a redirect \(30[17]\)")
        self.assertEqual(trap.requests, [])

    def test_unauthorized(self):
        body = b'{"message":"Insufficient credentials"}'
        self.assert_all(message("401 Unauthorized", body), REFUSED, r"wrong user or password \(401\)")

    def test_forbidden(self):
        self.assert_all(message("403 Forbidden", b"no"), REFUSED, r"denied access to .* \(403\)")

    def test_no_v2(self):
        self.assert_all(message("404 Not Found", b"404 page not found\n"), REFUSED, "--enable-v2")

    def test_an_error_inside(self):
        self.assert_all(message("500 Internal Server Error", b"it is broken"), REFUSED, "status 500")

    def test_an_error_code_that_is_none(self):
        self.assert_all(message("400 Bad Request", b'{"errorCode":"x"}'), REFUSED, "status 400")

    def test_in_vain(self):
        tell(self, self.no_leader_for_ever, self.unavailable_for_ever)

    def no_leader_for_ever(self):
        body = b'{"errorCode":300,"message":"Raft Internal Error","cause":"etcdserver: no leader","index":0}'
        self.assert_all(message("500 Internal Server Error", body), (3, 5), "no leader", SHORT)

    def unavailable_for_ever(self):
        self.assert_all(message("503 Service Unavailable", b"later"), (3, 5), "later", SHORT)


class Wires(Case):
    def test_wires(self):
        tell(self, self.closed_after_the_request,
             self.not_http,
             self.silence,
             self.every_write_is_cut_off,
             self.somebody_is_always_before_us,
             self.half_an_answer,
             self.half_the_headers,
             self.chunks_without_end,
             self.a_body_without_end,
             self.headers_without_end,
             self.a_false_length)

    def closed_after_the_request(self):
        self.assert_all(lambda server, connection, path: False, (3, 5), r"no answer|may or may not", SHORT)

    def not_http(self):
        def answer(server, connection, path):
            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            return False

        self.assert_all(answer, (3,), "an SSH server answers at .*, not etcd", SHORT)

    def silence(self):
        def answer(server, connection, path):
            server.ended.wait(30)
            return False

        self.assert_all(answer, (3, 4, 5), "no answer in time|may or may not", SHORT)

    def every_write_is_cut_off(self):
        """It is not tried without a pause, and may have been done."""
        def answer(server, connection, path):
            if server.requests[-1][0] == "PUT":
                return False
            connection.sendall(message("404 Not Found", NOT_FOUND))
            return True

        server = self.broken(answer)
        began = time.monotonic()
        self.assert_said(self.store(server, "set", "k", "v", timeout=SHORT), (5,), "may or may not|no answer", began)
        self.assertLess(len(server.requests), 300)

    def somebody_is_always_before_us(self):
        def answer(server, connection, path):
            if server.requests[-1][0] == "PUT":
                code = 105 if b"prevExist=false" in server.requests[-1][3] else 101
                body = b'{"errorCode":%d,"message":"no","cause":"","index":7}' % code
                connection.sendall(message("412 Precondition Failed", body))
            else:
                connection.sendall(message("200 OK", GOOD.replace(b"dg==", b"MQ==")))
            return True

        for operation in (("set", "k", "2"), ("add", "k", "1"), ("append", "k", "1"), ("cas", "k", "1", "2")):
            began = time.monotonic()
            server = self.broken(answer)
            self.assert_said(self.store(server, *operation, timeout=SHORT), (4,), "others wrote it", began, SHORT, operation)
            self.assertLess(len(server.requests), 100 * SHORT)

    def half_an_answer(self):
        def answer(server, connection, path):
            connection.sendall(message("200 OK", GOOD)[:-20])
            return False

        self.assert_all(answer, (3, 5), "127.0.0.1", SHORT)

    def half_the_headers(self):
        """Closed in order: to libcurl it is an answer without a body."""
        def answer(server, connection, path):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Etcd-Index: 7\r\n")
            return False

        self.assert_all(answer, (3, 5), "closed without an answer", SHORT)

    def chunks_without_end(self):
        def answer(server, connection, path):
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Etcd-Index: 7\r\n\r\n")
            while not server.ended.wait(0.05):
                connection.sendall(b"1\r\n \r\n")
            return False

        self.assert_all(answer, (3, 4, 5), "in time|may or may not", SHORT)

    def a_body_without_end(self):
        def answer(server, connection, path):
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while not server.ended.is_set():
                connection.sendall(b"100000\r\n" + b" " * 0x100000 + b"\r\n")
            return False

        server = self.broken(answer)
        began = time.monotonic()
        self.assert_said(self.store(server, "get", "k", timeout=20), REFUSED, "longer than 33554432 bytes", began)

    def headers_without_end(self):
        def answer(server, connection, path):
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while not server.ended.is_set():
                connection.sendall(b"X-Etcd-Index: " + b"9" * 60000 + b"\r\n")
            return False

        server = self.broken(answer)
        began = time.monotonic()
        self.assert_said(self.store(server, "get", "k", timeout=SHORT), (3, 6), "127.0.0.1", began)

    def a_false_length(self):
        server = self.broken(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n{}")
        began = time.monotonic()
        self.assert_said(self.store(server, "get", "k", timeout=SHORT), (3, 6), "127.0.0.1", began)


class Watches(Case):
    """The key is not there, and the watch for it is broken."""

    def test_watches(self):
        tell(self, self.ends_at_once,
             self.is_cut_off_at_once,
             self.no_json,
             self.the_index_is_cleared_for_ever,
             self.says_nothing)

    def watching(self, answer_watch):
        def answer(server, connection, path):
            if "wait=true" not in path:
                connection.sendall(message("404 Not Found", NOT_FOUND))
                return True
            return answer_watch(server, connection)

        return self.broken(answer)

    def assert_watch(self, answer_watch, codes, sentence, most=None):
        server = self.watching(answer_watch)
        began = time.monotonic()
        self.assert_said(self.store(server, "get", "k", timeout=SHORT), codes, sentence, began)
        if most:
            self.assertLess(len(server.requests), most)

    @staticmethod
    def say(answer):
        def write(server, connection):
            connection.sendall(answer)
            return True

        return write

    def ends_at_once(self):
        """As etcd ends one by its own clock; it is not asked without a pause."""
        self.assert_watch(self.say(message("200 OK")), (4,), "timed out", most=300 * SHORT)

    def is_cut_off_at_once(self):
        self.assert_watch(lambda server, connection: False, (4,), "timed out", most=300 * SHORT)

    def no_json(self):
        self.assert_watch(self.say(message("200 OK", b"{")), REFUSED, "not JSON")

    def the_index_is_cleared_for_ever(self):
        body = b'{"errorCode":401,"message":"The event in requested index is outdated","cause":"","index":9}'
        self.assert_watch(self.say(message("400 Bad Request", body)), (4,), "timed out", most=300 * SHORT)

    def says_nothing(self):
        def answer(server, connection):
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Etcd-Index: 7\r\n\r\n")
            server.ended.wait(30)
            return False

        self.assert_watch(answer, (4,), f"timed out after {SHORT * 1000:.0f} ms")


class Members(Case):
    """What it says of the other members."""

    def test_members(self):
        tell(self, self.nonsense,
             self.silence,
             self.closed,
             self.one_that_was_named_is_asked,
             self.one_of_another_cluster_is_not_written_to,
             self.one_that_becomes_another_cluster_is_left,
             self.one_that_calls_itself_localhost,
             self.the_next_one_is_asked)

    def with_machines(self, answer):
        def both(server, connection, path):
            if path != "/v2/machines":
                connection.sendall(message("200 OK", GOOD))
                return True
            return answer(server, connection)

        return self.broken(both)

    def assert_gets(self, answer):
        began = time.monotonic()
        finished = self.store(self.with_machines(answer), "get", "k", timeout=30)
        self.assertEqual((finished.returncode, finished.stdout, finished.stderr), (0, "v\n", ""))
        self.assert_within(began, 6)

    def nonsense(self):
        lists = b", ,http://,http://[::1,http://a:b,http://x:99999,ftp://a:1,https://b:2,http://" + b"y" * 5000
        for text in (b"", b"\0\0", lists, b"http://c:1," * 5000):
            self.assert_gets(Watches.say(message("200 OK", text)))

    def silence(self):
        self.assert_gets(lambda server, connection: server.ended.wait(30))

    def closed(self):
        self.assert_gets(lambda server, connection: False)

    def naming(self, other, *headers):
        """One that does the first write, names another member, and then is gone."""
        def answer(server, connection, path):
            if path == "/v2/machines":
                connection.sendall(message("200 OK", other.url.encode()))
                return True
            if any(request[0] == "PUT" for request in server.requests[:-1]):
                return False
            connection.sendall(message("200 OK", GOOD, *headers))
            return True

        return self.broken(answer)

    def write_two(self, endpoint):
        return self.rdzv("store", "--etcd", f"http://{endpoint}", "--prefix", "/p", "--timeout", str(rdzvtest.slow(1)), "mset", "a", "1",
                         "b", "2")

    def one_that_was_named_is_asked(self):
        """It says first which cluster it is of, once; where none of them says, an answer is enough."""
        for headers in ((OURS,), ()):
            other = self.broken(message("200 OK", GOOD, *headers))
            finished = self.write_two(self.naming(other, *headers).endpoint)
            self.assertEqual(finished.returncode, 0, finished.stderr)
            methods = [request[0] for request in other.requests]
            self.assertEqual((methods[0], methods[-1], methods.count("PUT")), ("GET", "PUT", 1))
            self.assertEqual([request[1] for request in other.requests].count("/v2/members"), len(headers))

    def one_of_another_cluster_is_not_written_to(self):
        for headers in (("X-Etcd-Cluster-Id: 2",), ()):
            other = self.broken(message("200 OK", GOOD, *headers))
            finished = self.write_two(self.naming(other, OURS).endpoint)
            self.assertEqual(finished.returncode, 3, finished.stderr)
            self.assertEqual([request[:2] for request in other.requests], [("GET", "/v2/members")])

    def one_that_becomes_another_cluster_is_left(self):
        """After it was believed: what it says is not taken for an answer."""
        other = self.broken(lambda server, connection, path: connection.sendall(
            message("200 OK", GOOD, OURS if path == "/v2/members" else "X-Etcd-Cluster-Id: 2")) or True)
        self.assertEqual(self.write_two(self.naming(other, OURS).endpoint).returncode, 3)

    def one_that_calls_itself_localhost(self):
        """That is not this machine, where it is reached by another name, as 0.0.0.0 is, which leads here."""
        other = self.broken(message("200 OK", GOOD, OURS))
        given = self.naming(other, OURS)
        self.assertEqual(self.write_two(f"0.0.0.0:{given.port}").returncode, 3)
        self.assertEqual(other.requests, [])
        self.assertTrue(any(request[1] == "/v2/machines" for request in given.requests))

    def the_next_one_is_asked(self):
        good = self.broken(message("200 OK", GOOD))
        bad = self.broken(lambda server, connection, path: False)
        closed = socket.socket()  # has the port, and does not listen
        self.addCleanup(closed.close)
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        url = f"http://127.0.0.1:{port},{bad.endpoint},{good.endpoint}"
        finished = self.rdzv("store", "--etcd", url, "--prefix", "/p", "get", "k")
        self.assertEqual((finished.returncode, finished.stdout), (0, "v\n"), finished.stderr)


class Names(Case):
    def test_user_and_password(self):
        server = self.broken(message("200 OK", GOOD))
        finished = self.rdzv("store", "--etcd", f"http://me:a:b@{server.endpoint}", "--prefix", "/p", "get", "k")
        self.assertEqual((finished.returncode, finished.stdout, finished.stderr), (0, "v\n", ""))
        expected = "Basic " + base64.b64encode(b"me:a:b").decode()
        self.assertEqual({request[2]["Authorization"] for request in server.requests}, {expected})

    def test_a_proxy_of_the_environment_is_not_asked(self):
        """etcd is near; a proxy for the web would only be in the way, or listen."""
        proxy, server = self.broken(message("200 OK", GOOD)), self.broken(message("200 OK", GOOD))
        environment = dict(os.environ, http_proxy=proxy.url, all_proxy=proxy.url, ALL_PROXY=proxy.url)
        environment.pop("no_proxy", None)
        environment.pop("NO_PROXY", None)
        finished = self.rdzv("store", "--etcd", server.url, "--prefix", "/p", "get", "k", env=environment)
        self.assertEqual((finished.returncode, finished.stdout), (0, "v\n"), finished.stderr)
        self.assertEqual(proxy.requests, [])


class Signals(Case):
    def test_a_join_that_waits_is_ended_by_a_signal(self):
        def answer(server, connection, path):
            server.ended.wait(30)
            return False

        server = self.broken(answer)
        ours = self.start([rdzvtest.RDZV, "join", "--rdzv-backend", "etcd-v2", "--rdzv-endpoint", server.endpoint,
                           "--rdzv-id", "r"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        rdzvtest.wait_until(lambda: server.requests, "it asks")
        began = time.monotonic()
        ours.terminate()
        ours.wait(10)
        self.assert_within(began, 2)


if __name__ == "__main__":
    etcd.need()
    rdzvtest.main()
