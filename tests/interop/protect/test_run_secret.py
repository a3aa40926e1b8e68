# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch workers that know nothing of TLS under `rdzv run` with a secret: they sum over gloo, in both PyTorchs."""
import os

import peers
import protection
import rdzvtest
import torchrun_jobs


class EveryVersion:
    version = None

    def setUp(self):
        super().setUp()
        peers.need(self.version)
        torchrun_jobs.run_peer(self.version)
        self.secret = self.path("secret")
        with open(os.open(self.secret, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
            file.write(protection.SECRET + "\n")

    def agent(self, name, *flags):
        script = os.path.join(peers.HERE, "sum_worker.py")
        return torchrun_jobs.Ours(self, self.path(name),
                                  [*flags, "--nproc-per-node=2", "--secret-file", self.secret, torchrun_jobs.WORKER,
                                   torchrun_jobs.run_peer(self.version), script, "3", self.path("stop")],
                                  env=torchrun_jobs.environment(), cwd=rdzvtest.SOURCE)

    def check(self, *agents):
        expected = f"the sum is {3 * 2 * len(agents)}."
        rdzvtest.wait_until(lambda: all(agent.ended() or agent.said().count("the sum is") == 2 for agent in agents),
                            "all workers sum")
        for agent in agents:
            self.assertEqual(agent.said().count(expected), 2, agent.said())
        with open(self.path("stop"), "w", encoding="ascii"):
            pass
        for agent in agents:
            self.assertEqual(agent.exit_code(), 0, agent.said())
        os.unlink(self.path("stop"))

    def test_workers_sum(self):
        """Of one node alone, of a dynamic rendezvous that a node serves, and of a static one."""
        self.check(self.agent("alone", "--standalone"))
        place = f"127.0.0.1:{torchrun_jobs.free_port()}"
        dynamic = ["--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={place}", "--rdzv-id=job"]
        self.check(*(self.agent(f"dynamic{number}", *dynamic) for number in range(2)))
        port = torchrun_jobs.free_port()
        self.check(*(self.agent(f"static{number}", "--nnodes=2", f"--node-rank={number}", f"--master-port={port}")
                     for number in range(2)))


class Torch113(EveryVersion, torchrun_jobs.Case):
    version = "1.13"


class Torch26(EveryVersion, torchrun_jobs.Case):
    version = "2.6"


if __name__ == "__main__":
    peers.main()
