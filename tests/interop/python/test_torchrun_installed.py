# SPDX-License-Identifier: BSD-3-Clause
"""Stock torchrun as a user has it: the package is installed, and one flag or variable is given."""
import glob
import os
import shutil
import subprocess
import tempfile

import peers
import rdzvtest
import torchrun_jobs

LONG = 900.0
PROGRAM = ["--no_python", "/bin/sh", "-c", "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR"]


class Installed(rdzvtest.Case):
    """torchrun itself, in a new interpreter: by the hook of a wheel (1.13), by the entry point (2.6)."""

    def assert_ran(self, command, **variables):
        own = ["-r", "9:1", "-t", "9:1"] if "1.13" in self.id().replace("_", ".") else []
        names = torchrun_jobs.environment(**variables)
        ended = subprocess.run([*command, "-m", "torch.distributed.run", *own, *self.flags, *PROGRAM],
                               cwd=rdzvtest.SOURCE, capture_output=True, text=True, timeout=LONG, env=names, check=False)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertEqual(sorted(line[-24:] for line in ended.stdout.splitlines()),
                         [f"rank {rank} of 2 at 127.0.0.1"[-24:] for rank in range(2)], ended.stderr)

    def test_1_13_by_a_wheel(self):
        peers.need("1.13")
        venv = tempfile.mkdtemp(prefix="rdzv-venv-")
        self.addCleanup(shutil.rmtree, venv)
        wheel, = glob.glob(os.path.join(rdzvtest.built("wheel"), "rdzv-*.whl"))
        subprocess.run([rdzvtest.PYTHON, "-m", "venv", "--system-site-packages", venv], check=True)
        subprocess.run([os.path.join(venv, "bin", "pip"), "install", "-q", "--no-index", wheel], check=True)
        self.flags = ["--nnodes=1", "--nproc_per_node=2", "--rdzv_backend=rdzv", "--rdzv_id=x",
                      f"--rdzv_endpoint={self.serve().endpoint}"]
        self.assert_ran([os.path.join(venv, "bin", "python")], PYTHONPATH="")

    def test_2_6_by_its_entry_point_in_the_place_of_c10d(self):
        """--standalone is c10d at port 0."""
        peers.need("2.6")
        self.flags = ["--standalone", "--nproc_per_node=2"]
        self.assert_ran(rdzvtest.torch_python("2.6"), PYTHONPATH=torchrun_jobs.PACKAGE, RDZV_REPLACE_C10D="1",
                        LOGLEVEL="ERROR")


if __name__ == "__main__":
    peers.main()
