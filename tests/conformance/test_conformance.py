# SPDX-License-Identifier: BSD-3-Clause
"""cases.txt on every store of ours, and on our client of PyTorch's servers. test_torch_stores.py has PyTorch's own."""
import os
import select
import shutil
import signal
import subprocess
import sys
import unittest

import etcd
import rdzvtest

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = os.path.join(HERE, "cases.txt")
RUNNER = rdzvtest.built("tests/conformance")
LIMIT = 600.0  # seconds for one run; a run takes one to twenty
VIEWS = ("--prefix", "a", "--prefix", "b")
# PyTorch 2 writes a stack trace for each refused add and a line for each timeout.
QUIET = {**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR"}


def missing(why):
    """Leaves a test out, which on the CI machine is a failure."""
    if os.environ.get("CI"):
        raise AssertionError(why)
    raise unittest.SkipTest(why)


def need_torch(version):
    if version == "1.13" and not rdzvtest.has_torch113():
        missing("there is no PyTorch 1.13 for /usr/bin/python3: scripts/setup installs it")
    if version == "2.6" and os.environ.get("RDZV_TORCH26") == "off":
        raise unittest.SkipTest("PyTorch 2.6 is left out by RDZV_TORCH26=off")
    if version == "2.6" and not rdzvtest.has_torch26():
        missing("there is no PyTorch 2.6: scripts/torch26 setup makes it")


class Conformance(rdzvtest.Case):
    def play(self, command, **variables):
        """Runs a runner to its end: it must exit with 0 and have a closing line."""
        run = subprocess.run(command, cwd=rdzvtest.SOURCE, env={**QUIET, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, errors="replace", timeout=LIMIT, check=False)
        lines = run.stdout.splitlines()
        closing = lines[-1] if lines else "no output"
        print(closing, end=" ... ", file=sys.stderr, flush=True)
        wrong = "\n".join(line for line in lines if not line.startswith(("ok ", "skip ")))
        self.assertEqual(run.returncode, 0, wrong)
        self.assertRegex(closing, r"^\d+ passed, 0 failed, \d+ skipped$")

    def ours(self, store, *options, **variables):
        self.play([RUNNER, *options, CASES, store], **variables)

    def torch(self, version, store, *options):
        need_torch(version)
        self.play([*rdzvtest.torch_python(version), os.path.join(HERE, "run.py"), *options, CASES, store])

    def torch_server(self, version):
        """A PyTorch server on a free port; gives its endpoint as a store's name."""
        need_torch(version)
        script = os.path.join(rdzvtest.SOURCE, "bench", "peers", "torch_server.py")
        server = self.start([*rdzvtest.torch_python(version), script], cwd=rdzvtest.SOURCE, env=QUIET,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ready, _, _ = select.select([server.stdout], [], [], rdzvtest.DEADLINE)
        self.assertTrue(ready, f"PyTorch {version} printed no port")
        return f"tcp:127.0.0.1:{int(server.stdout.readline())}"

    def our_server(self, *flags):
        """Ours on a free port; must end well, or the test fails with what it said."""
        with open(self.path("server.log"), "wb") as log:
            server = self.serve(*flags, stderr=log)
        self.addCleanup(self.end_well, server)
        return f"tcp:{server.endpoint}"

    def end_well(self, server):
        server.send_signal(signal.SIGTERM)
        code = server.wait(rdzvtest.DEADLINE)
        with open(self.path("server.log"), encoding="utf-8", errors="replace") as log:
            self.assertEqual(code, 0, log.read()[-4000:])


class Ours(Conformance):
    def test_hash(self):
        self.ours("hash")

    def test_hash_in_a_view(self):
        self.ours("hash", *VIEWS)

    def test_file(self):
        self.ours("file:" + self.path("store"))

    def test_file_in_a_view(self):
        self.ours("file:" + self.path("store"), *VIEWS)

    def test_tcp(self):
        self.ours(self.our_server(), "--tags", "rdzv")

    def test_tcp_in_a_view(self):
        self.ours(self.our_server(), "--tags", "rdzv", *VIEWS)

    def test_tcp_with_a_secret(self):
        secret = self.path("secret")
        with open(os.open(secret, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write("a secret of the conformance test\n")
        self.ours(self.our_server("--secret-file", secret), "--tags", "rdzv", RDZV_SECRET_FILE=secret)

    # Our server has queues and list_keys for PyTorch's newest clients too, which v2 does not promise.
    def test_tcp_v2(self):
        self.ours(self.our_server(), "--dialect", "v2", "--tags", "v2", "--can", "queues,list_keys")

    def test_tcp_v2_in_a_view(self):
        self.ours(self.our_server(), "--dialect", "v2", "--tags", "v2", "--can", "queues,list_keys", *VIEWS)

    def test_tcp_v1(self):
        self.ours(self.our_server(), "--dialect", "v1", "--tags", "v1")

    def test_tcp_v1_in_a_view(self):
        self.ours(self.our_server(), "--dialect", "v1", "--tags", "v1", *VIEWS)


class OursOnEtcd(Conformance):
    def member(self):
        if not shutil.which("etcd"):
            missing("there is no etcd: scripts/setup installs it")
        return f"etcd:{etcd.shared().endpoint}"

    def test_etcd(self):
        self.ours(self.member())

    def test_etcd_in_a_view(self):
        self.ours(self.member(), *VIEWS)

    def test_etcd3(self):
        self.ours(self.member().replace("etcd", "etcd3"))

    def test_etcd3_in_a_view(self):
        self.ours(self.member().replace("etcd", "etcd3"), *VIEWS)


class OursOnTorch(Conformance):
    def test_torch113(self):
        self.ours(self.torch_server("1.13"), "--tags", "v1,torch113")

    def test_torch113_in_a_view(self):
        self.ours(self.torch_server("1.13"), "--tags", "v1,torch113", *VIEWS)

    def test_torch26(self):
        self.ours(self.torch_server("2.6"), "--tags", "v2,torch26")

    def test_torch26_in_a_view(self):
        self.ours(self.torch_server("2.6"), "--tags", "v2,torch26", *VIEWS)


if __name__ == "__main__":
    rdzvtest.main()
