# SPDX-License-Identifier: BSD-3-Clause
"""The stores and the handler of rdzv.torch inside a process with PyTorch: torch_store_peer.py has the tests."""
import os
import subprocess

import etcd
import peers
import rdzvtest
import torchrun_jobs

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_store_peer.py")
LONG = 900.0


class Stores(rdzvtest.Case):
    def check(self, version):
        peers.need(version)
        environment = {**torchrun_jobs.plugin_environment(), "SHORT_MS": f"{rdzvtest.slow(0.2) * 1000:.0f}"}
        ended = subprocess.run([*rdzvtest.torch_python(version), PEER, self.serve().endpoint, etcd.shared().endpoint],
                               cwd=rdzvtest.SOURCE, capture_output=True, text=True, timeout=LONG, env=environment,
                               check=False)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertRegex(ended.stderr, r"Ran \d+ tests")

    def test_torch_1_13(self):
        self.check("1.13")

    def test_torch_2_6(self):
        self.check("2.6")


if __name__ == "__main__":
    etcd.need()
    peers.main()
