# SPDX-License-Identifier: BSD-3-Clause
"""A server with a certificate: what its clients accept, what it accepts of them, and how it is replaced."""
import os
import shutil
import signal

import protection
import rawclient
import rdzvtest
from certificates import authority, issued
from protection import s_client

HERE = "IP:127.0.0.1,DNS:localhost"


class Case(protection.Case):
    def certified(self, *options, by="right", name="server", names=HERE, days=2):
        cert, key = issued(by, name, names, days)
        return self.serve("--tls-cert", cert, "--tls-key", key, *options)

    @staticmethod
    def trusting(by="right"):
        return ["--tls-ca", authority(by).cert]

    def showing(self, by="right", name="client", days=2):
        cert, key = issued(by, name, "DNS:client", days)
        return [*self.trusting(), "--tls-cert", cert, "--tls-key", key]


class OfTheServer(Case):
    def test_a_good_one(self):
        server = self.certified()
        self.assert_works(server, *self.trusting())
        server.endpoint = f"localhost:{server.port}"
        self.assert_works(server, *self.trusting())
        self.stop(server)

    def test_an_expired_one(self):
        server = self.certified(name="expired", days=-1)
        self.assert_refused(server, "its certificate has expired", *self.trusting())
        self.stop(server)

    def test_one_of_another_authority(self):
        server = self.certified()
        self.assert_refused(server, "its certificate is not signed by a trusted CA", *self.trusting("foreign"))
        self.wait_for_line(server, "it does not accept the certificate of this server")
        self.stop(server)

    def test_one_for_another_host(self):
        server = self.certified(name="elsewhere", names="DNS:elsewhere.invalid,IP:192.0.2.1")
        self.assert_refused(server, "its certificate is for another host", *self.trusting())
        server.endpoint = f"localhost:{server.port}"
        self.assert_refused(server, "its certificate is for another host", *self.trusting())
        self.stop(server)

    def test_plain_clients_and_clients_with_a_secret(self):
        server = self.certified()
        self.assertEqual(protection.answer_of(server.port, rawclient.HELLO), b"")
        self.assert_refused(server, "requires TLS")
        self.assert_refused(server, "the server does not accept the secret", "--secret-file", self.secret)
        self.stop(server)

    def test_a_client_with_an_authority_at_a_server_with_a_secret(self):
        server = self.guarded()
        self.assert_refused(server, "the server requires a secret (--secret-file), not a certificate", *self.trusting())
        self.stop(server)

    def test_no_older_version(self):
        server = self.certified()
        for flags in (["-tls1_2"], ["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]):
            done = s_client(server.port, *flags)
            self.assertNotEqual(done.returncode, 0)
            self.assertNotIn(b"BEGIN CERTIFICATE", done.stdout)
        self.stop(server)


class OfTheClient(Case):
    def mutual(self, *options):
        return self.certified("--tls-client-ca", authority().cert, *options)

    def test_a_good_one(self):
        server = self.mutual()
        self.assert_works(server, *self.showing())
        self.stop(server)

    def test_none(self):
        server = self.mutual()
        self.assert_refused(server, "the server requires a client certificate", *self.trusting())
        self.wait_for_line(server, "it shows no certificate")
        self.stop(server)

    def test_one_of_another_authority(self):
        server = self.mutual()
        self.assert_refused(server, "the server does not trust this client's certificate", *self.showing("foreign"))
        self.stop(server)

    def test_an_expired_one(self):
        server = self.mutual()
        self.assert_refused(server, "this client's certificate has expired", *self.showing(name="late", days=-1))
        self.wait_for_line(server, "its certificate has expired")
        self.stop(server)

    def test_a_secret_or_a_certificate(self):
        server = self.mutual("--secret-file", self.secret)
        self.assert_works(server, "--secret-file", self.secret)
        self.assert_works(server, *self.showing())
        self.assert_refused(server, "the server does not accept the secret", "--secret-file", self.other)
        self.assert_refused(server, "the server requires a client certificate", *self.trusting())
        self.stop(server)


class Replaced(Case):
    def test_a_hang_up_reads_certificate_and_authority_again(self):
        """The old authority of clients is revoked by its replacement; so is the certificate of the server."""
        own = {name: self.path(name) for name in ("cert", "key", "ca")}
        cert, key = issued("right", "server", HERE)
        for path, name in ((cert, "cert"), (key, "key"), (authority().cert, "ca")):
            shutil.copy(path, own[name])
        server = self.serve("--tls-cert", own["cert"], "--tls-key", own["key"], "--tls-client-ca", own["ca"])
        self.assert_works(server, *self.showing())
        cert, key = issued("next", "server", HERE)
        for path, name in ((cert, "cert"), (key, "key"), (authority("next").cert, "ca")):
            shutil.copy(path, own[name])
        server.send_signal(signal.SIGHUP)
        self.wait_for_line(server, "reloaded the secret")
        self.assert_refused(server, "its certificate is not signed by a trusted CA", *self.showing())
        flags = self.showing()
        flags[1] = authority("next").cert
        self.assert_refused(server, "the server does not trust this client's certificate", *flags)
        cert, key = issued("next", "client", "DNS:client")
        self.assert_works(server, "--tls-ca", authority("next").cert, "--tls-cert", cert, "--tls-key", key)
        self.stop(server)

    def test_a_key_of_another_certificate_is_not_taken(self):
        cert, key = issued("right", "server", HERE)[0], issued("right", "client", "DNS:client")[1]
        done = self.rdzv("serve", "--port", "0", "--tls-cert", cert, "--tls-key", key)
        self.assertEqual(done.returncode, 2)
        self.assertIn("cannot use key", done.stderr)


class Wrong(Case):
    def test_a_key_that_others_can_read_is_refused(self):
        server = self.certified()
        key, client_key = self.path("own.key"), self.path("client.key")
        for by, name, copy in (("right", "server", key), ("right", "client", client_key)):
            shutil.copy(issued(by, name, HERE if name == "server" else "DNS:client", 2)[1], copy)
        for mode in (0o644, 0o640, 0o604):
            os.chmod(key, mode)
            os.chmod(client_key, mode)
            done = self.rdzv("serve", "--port", "0", "--tls-cert", issued("right", "server", HERE, 2)[0], "--tls-key", key)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"cannot use key '{key}': other users have access to it, its mode is {mode:04o} "
                          f"(chmod 600 '{key}')", done.stderr)
            done = self.store(server, *self.trusting(), "--tls-cert", issued("right", "client", "DNS:client", 2)[0],
                              "--tls-key", client_key, "num-keys")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"cannot use key '{client_key}': other users have access to it", done.stderr)
            done = self.rdzv("serve", "--port", "0", "--state-etcd", "https://127.0.0.1:1", "--etcd-cert", key,
                             "--etcd-key", key)
            self.assertIn("cannot use the key of etcd's client", done.stderr)
        self.stop(server)

    def test_a_certificate_with_a_key_that_others_can_read_is_refused(self):
        """A certificate alone is for all to read; the file of both is as secret as the key."""
        cert, key = issued("right", "server", HERE, 2)
        both, alone = self.path("both.pem"), self.path("alone.pem")
        shutil.copy(cert, alone)
        with open(both, "wb") as file:
            for part in cert, key:
                with open(part, "rb") as source:
                    file.write(source.read())
        for mode in 0o644, 0o640:
            os.chmod(both, mode)
            refused = f"'{both}': other users have access to it, its mode is {mode:04o} (chmod 600 '{both}')"
            done = self.rdzv("serve", "--port", "0", "--tls-cert", both, "--tls-key", key)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"cannot use certificate with a private key {refused}", done.stderr)
            for words in (("--etcd-cert", both), ("--etcd-cert", both, "--etcd-key", key)):
                done = self.rdzv("serve", "--port", "0", "--state-etcd", "https://127.0.0.1:1", *words)
                self.assertIn(f"cannot use the certificate of etcd's client with a private key {refused}", done.stderr)
        os.chmod(both, 0o600)
        os.chmod(alone, 0o644)
        for words in (("--tls-cert", both, "--tls-key", both), ("--tls-cert", alone, "--tls-key", key)):
            server = self.serve(*words)
            self.assert_works(server, *self.trusting())
            self.stop(server)
        nowhere = f"https://127.0.0.1:{rdzvtest.free_port()}"
        for words in (("--cert", both), ("--cert", alone, "--key", key)):
            done = self.rdzv("store", "--etcd3", nowhere, "--prefix", "/p", "--timeout", "1", *words, "get", "k")
            self.assertIn("Connection refused", done.stderr)

    def test_a_fifo_is_refused_and_not_waited_for(self):
        cert, key = issued("right", "server", HERE, 2)
        fifo = self.path("fifo")
        os.mkfifo(fifo, 0o600)
        for what, words in (("key", ("--tls-cert", cert, "--tls-key", fifo)), ("certificate", ("--tls-cert", fifo, "--tls-key", key)),
                            ("CA", ("--tls-cert", cert, "--tls-key", key, "--tls-client-ca", fifo))):
            done = self.rdzv("serve", "--port", "0", *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"cannot use {what} '{fifo}': it is not a regular file", done.stderr)

    def test_a_reload_keeps_the_key_when_others_can_read_the_file(self):
        cert, key = self.path("server.crt"), self.path("server.key")
        for source, copy in zip(issued("right", "server", HERE, 2), (cert, key)):
            shutil.copy(source, copy)
        server = self.serve("--tls-cert", cert, "--tls-key", key)
        os.chmod(key, 0o644)
        server.send_signal(signal.SIGHUP)
        self.wait_for_line(server, "the old secret and certificates remain in use")
        self.assert_works(server, *self.trusting())
        self.stop(server)

    def test_flags_that_do_not_go_together(self):
        cert, key = issued("right", "server", HERE)
        for flags, sentence in ((["--tls-cert", cert], "tls_key"), (["--tls-key", key], "tls_cert"),
                                (["--tls-client-ca", authority().cert], "needs a certificate itself"),
                                (["--secret-file", self.secret, "--tls-cert", cert, "--tls-key", key], "tls_client_ca"),
                                (["--tls-cert", "/nonexistent", "--tls-key", key], "/nonexistent")):
            done = self.rdzv("serve", "--port", "0", *flags)
            self.assertIn(done.returncode, (2, 7), flags)
            self.assertIn(sentence, done.stderr)
        done = self.rdzv("store", "--secret-file", self.secret, *self.trusting(), "get", "k")
        self.assertEqual((done.returncode, "not both" in done.stderr), (2, True), done.stderr)

    def test_a_node_that_serves_needs_a_certificate(self):
        done = self.rdzv("join", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-id", "j", *self.trusting())
        self.assertEqual(done.returncode, 2)
        self.assertIn("needs a certificate to show", done.stderr)

    def test_a_node_serves_with_its_certificate(self):
        cert, key = issued("right", "server", HERE)
        done = self.rdzv("join", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-id", "j", "--rdzv-conf",
                         f"tls_client_ca={authority().cert}", *self.trusting(), "--tls-cert", cert, "--tls-key", key, "--",
                         "true")
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    rdzvtest.main()
