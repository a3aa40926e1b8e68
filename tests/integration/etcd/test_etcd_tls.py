# SPDX-License-Identifier: BSD-3-Clause
"""etcd behind TLS, with authorities of our own making: what goes, and a sentence of its own for each thing that does
not."""
import os
import pwd
import shutil
import ssl

import etcd
import etcd_wire
import rdzvtest
from certificates import authority, folder, issued, openssl
from etcd_tls import NOBODY, client, server

class Tls(rdzvtest.Case):
    def store(self, member, *operation, ca=None, cert=None, key=None, seconds="60", **options):
        files = [("--cacert", ca or authority().cert), ("--cert", cert), ("--key", key)]
        return self.rdzv("store", "--etcd", member.url, "--prefix", f"/{self.id()}", "--timeout", seconds,
                         *(text for pair in files if pair[1] for text in pair), *operation, **options)

    def status(self, member, conf):
        return self.rdzv("status", "--rdzv-backend", "etcd-v2", "--rdzv-endpoint", member.endpoint, "--rdzv-id", "r",
                         "--rdzv-conf", f"protocol=https,read_timeout={rdzvtest.slow(3)},{conf}")

    def assert_refused(self, finished, *sentences):
        self.assertNotIn(finished.returncode, (0, 1), finished.stdout)
        for sentence in sentences:
            self.assertRegex(finished.stderr, sentence)
        self.assertEqual(len(finished.stderr.splitlines()), 1, finished.stderr)

    def test_server_only(self):
        member = server("plain", mutual=False)
        self.assertEqual(self.store(member, "set", "k", "v").stderr, "")
        self.assertEqual(self.store(member, "get", "k").stdout, "v\n")

    def test_mutual(self):
        cert, key = client()
        self.assertEqual(self.store(server(), "set", "k", "v", cert=cert, key=key).stderr, "")
        self.assertEqual(self.store(server(), "get", "k", cert=cert, key=key).stdout, "v\n")

    def test_mutual_for_a_rendezvous(self):
        """Both spellings of each option."""
        cert, key = client()
        for conf in (f"cacert={authority().cert},cert={cert},key={key}",
                     f"ca_cert={authority().cert},ssl_cert={cert},ssl_cert_key={key}"):
            finished = self.status(server(), conf)
            self.assertEqual((finished.returncode, finished.stderr), (1, ""))
        self.assert_refused(self.status(server(), f"cacert={authority('wrong').cert},cert={cert},key={key}"),
                            "does not verify", authority("wrong").cert)

    def test_wrong_authority(self):
        cert, key = client()
        self.assert_refused(self.store(server(), "get", "k", ca=authority("wrong").cert, cert=cert, key=key),
                            f"certificate of {server().url}.* does not verify with {authority('wrong').cert}",
                            "unable to get local issuer|self.signed|unknown ca")

    def test_no_authority_of_ours(self):
        """The system's do not know it."""
        finished = self.rdzv("store", "--etcd", server().url, "--prefix", "/p", "--timeout", "3", "get", "k")
        self.assert_refused(finished, f"certificate of {server().url}.* does not verify")

    def test_expired(self):
        cert, key = client()
        member = server("old", days=-1)
        self.assert_refused(self.store(member, "get", "k", cert=cert, key=key), member.url, "does not verify",
                            "expired")

    def test_wrong_name(self):
        cert, key = client()
        member = server("elsewhere", "DNS:elsewhere.example")
        self.assert_refused(self.store(member, "get", "k", cert=cert, key=key), "does not verify", "127.0.0.1")

    def fake(self, cert, answer):
        """One that speaks TLS with that certificate and is no etcd."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*cert)
        server = etcd_wire.Broken(answer, context)
        self.addCleanup(server.close)
        return server

    def test_a_member_that_was_named_and_has_a_wrong_certificate(self):
        """It is passed over: the one that we know may be there again."""
        other = self.fake(issued("wrong", "named", "IP:127.0.0.1"), etcd_wire.message("200 OK"))
        answers = iter((True, False, True))  # the first write, the second, and the second once more

        def answer(server, connection, path):
            if path == "/v2/machines":
                connection.sendall(etcd_wire.message("200 OK", other.url.encode()))
                return True
            if server.requests[-1][0] == "GET":
                connection.sendall(etcd_wire.message("200 OK", b'{"action":"get","node":{"key":"/p","modifiedIndex":4}}'))
                return True
            if next(answers):
                connection.sendall(etcd_wire.message("200 OK", b'{"action":"set","node":{"key":"/p","value":""}}'))
                return True
            return False

        given = self.fake(issued("right", "server", "IP:127.0.0.1"), answer)
        finished = self.store(given, "mset", "a", "1", "b", "2")
        self.assertEqual((finished.returncode, finished.stderr), (0, ""))
        self.assertEqual(sum(request[0] == "PUT" for request in given.requests), 3)
        self.assertEqual((len(other.connections), other.requests), (1, []))

    def test_no_certificate_of_ours(self):
        for operation in ("get", "k"), ("set", "k", "v"):
            self.assert_refused(self.store(server(), *operation), f"{server().endpoint} requires a client certificate",
                                "options cert and key")

    def test_a_certificate_of_ours_that_they_do_not_know(self):
        cert, key = issued("wrong", "stranger", "DNS:client")
        for operation in ("get", "k"), ("set", "k", "v"):
            self.assert_refused(self.store(server(), *operation, cert=cert, key=key),
                                f"{server().endpoint} refuses the client certificate '{cert}'")

    def test_a_key_without_permission(self):
        cert, key = client()
        hidden = self.path("hidden.key")
        shutil.copy(key, hidden)
        os.chmod(hidden, 0)
        options = {}
        if os.geteuid() == 0:  # root may read everything
            options = {"user": pwd.getpwnam(NOBODY).pw_uid, "cwd": "/", "executable": self.rdzv_for_all()}
        self.assert_refused(self.store(server(), "get", "k", cert=cert, key=hidden, **options), hidden)

    def test_files_that_are_not_there(self):
        cert, key = client()
        absent = self.path("absent")
        self.assert_refused(self.store(server(), "get", "k", ca=absent), "CA certificates", absent)
        self.assert_refused(self.store(server(), "get", "k", cert=absent, key=key), "the client certificate", absent)
        self.assert_refused(self.store(server(), "get", "k", cert=cert, key=absent), "the client certificate", absent)

    def test_files_that_are_something_else(self):
        cert, key = client()
        other = self.path("other")
        with open(other, "w", encoding="ascii") as file:
            file.write("hello\n")
        os.chmod(other, 0o600)
        self.assert_refused(self.store(server(), "get", "k", ca=other), other)
        self.assert_refused(self.store(server(), "get", "k", cert=cert, key=other), "the client certificate", other)
        self.assert_refused(self.store(server(), "get", "k", cert=cert, key=authority("wrong").key), "the client certificate",
                            authority("wrong").key)
        self.assert_refused(self.store(server(), "get", "k", cert=other, key=key), "the client certificate", other)

    def test_plain_words_to_a_server_with_tls(self):
        finished = self.rdzv("store", "--etcd", f"http://{server().endpoint}", "--prefix", "/p", "--timeout", "1",
                             "get", "k")
        self.assert_refused(finished, f"{server().endpoint} requires TLS", "set protocol=https")

    def test_tls_to_a_server_without(self):
        member = etcd.shared()
        finished = self.rdzv("store", "--etcd", f"https://{member.endpoint}", "--prefix", "/p", "--timeout", "60", "get",
                             "k")  # it may close a connection before what it said is read: then that is tried again
        self.assertNotIn(finished.returncode, (0, 1), finished.stdout)
        self.assertRegex(finished.stderr, f"etcd at {member.endpoint} does not speak TLS.*set protocol=http")


if __name__ == "__main__":
    etcd.need()
    if not shutil.which("openssl"):
        rdzvtest.skip("there is no openssl")
    rdzvtest.main()
