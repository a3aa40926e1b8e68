# SPDX-License-Identifier: BSD-3-Clause
"""Every store, used by several clients at once while connections are cut and processes killed: the history of each key
must be one that a single store could have given. store.c has the clients, proxy.c what cuts, check.c what judges."""
import os
import select
import subprocess
import sys

import chaos
import etcd
import rdzvtest

SEEDS = 8 if chaos.LONG else 2
QUIET = {**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR", "RDZV_BUILD": rdzvtest.BUILD}


class Store(chaos.Case):
    def judge(self, *arguments, seeds=SEEDS):
        """Runs so many seeds of chaos_store; gives what it says at the end."""
        first = chaos.SEED * 1000
        run = subprocess.run([rdzvtest.built("tests/chaos_store"), "--seeds", f"{first}:{first + seeds}",
                              *arguments], env=QUIET, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="replace", timeout=280, check=False)
        self.assertEqual(run.returncode, 0, run.stdout)
        print(run.stdout.splitlines()[-1], file=sys.stderr)

    def torch_server(self, version):
        """A PyTorch server; gives its port."""
        script = os.path.join(rdzvtest.SOURCE, "bench", "peers", "torch_server.py")
        server = self.start([*rdzvtest.torch_python(version), script], cwd=rdzvtest.SOURCE, env=QUIET,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ready, _, _ = select.select([server.stdout], [], [], rdzvtest.DEADLINE)
        self.assertTrue(ready, f"PyTorch {version} printed no port")
        return int(server.stdout.readline())

    def judge_killed(self, *arguments, **options):
        """Clients are processes, some of which are killed. A thread sanitizer does not like to be forked."""
        if rdzvtest.SANITIZED != "thread":
            self.judge("--processes", *arguments, **options)

    def test_hash(self):
        self.judge("hash")

    def test_file_whose_users_are_killed(self):
        self.judge_killed("file", seeds=5 * SEEDS)

    def test_our_server(self):
        self.judge("--dialect", "rdzv", "serve")

    def test_our_server_and_clients_that_are_killed(self):
        self.judge_killed("--dialect", "rdzv", "serve")

    def test_our_server_that_is_killed(self):
        self.judge("--dialect", "rdzv", "--restarts", "serve")

    def test_our_server_in_dialect_v1(self):
        self.judge("--dialect", "v1", "serve")

    def test_our_server_in_dialect_v2(self):
        self.judge("--dialect", "v2", "--can", "queues", "serve")

    def test_torch_113(self):
        if not rdzvtest.has_torch113():
            rdzvtest.skip("there is no PyTorch 1.13")
        self.judge("--dialect", "v1", f"tcp:{self.torch_server('1.13')}")

    def test_torch_26(self):
        if chaos.LONG and rdzvtest.has_torch26():
            self.judge("--dialect", "v2", "--without", "queues", f"tcp:{self.torch_server('2.6')}")

    def test_etcd(self):
        if not etcd.shutil.which("etcd"):
            rdzvtest.skip("there is no etcd")
        port = etcd.free_port()  # of the proxy: etcd sends clients there, too
        member = etcd.start(self.addCleanup, ["--advertise-client-urls", f"http://127.0.0.1:{port}"])
        for more in (), ("--resets",):
            self.judge("--kinds", "register,number,versions", *more, "--mean", "1500", "--proxy-port", str(port),
                       f"etcd:{member.port}", seeds=SEEDS // 2)

    def test_etcd3(self):
        if not etcd.shutil.which("etcd"):
            rdzvtest.skip("there is no etcd")
        port = etcd.free_port()
        member = etcd.start(self.addCleanup, ["--advertise-client-urls", f"http://127.0.0.1:{port}"])
        for more in (), ("--resets",):
            self.judge("--kinds", "register,number,versions,queue", *more, "--mean", "1500", "--proxy-port", str(port),
                       f"etcd3:{member.port}", seeds=SEEDS // 2)


if __name__ == "__main__":
    rdzvtest.main()
